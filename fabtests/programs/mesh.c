/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Many endpoints of one process, each of which sends to any other and to itself, writes to its
 * memory and reads that again, cancels receives, and now and then is closed and opened anew under
 * another address; all of it derived from one seed. Regions are closed while others access them. Each
 * accepted operation completes once; each message arrives once, unchanged, and is matched in the order
 * of its sender; what was written can be read; nobody writes to the memory of a closed region, and
 * its end concerns nothing but accesses to it; nothing is left at the end.
 *
 * The tests "broken/..." are for networks that reset connections, as a simulated one does
 * (fabtests/simulated): what is under way then may end with an error. A message whose send completes
 * has been delivered (FI_DELIVERY_COMPLETE) and is received once, one whose send fails once or never.
 * When connections stay whole again, each member reaches all others.
 *
 * CT_SEED=<number> repeats the draws of a failure, CT_MEMBERS=<number> is the number of endpoints,
 * CT_STEPS=<number> that of the steps.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "random.h"
#include "transfer.h"
#include "wait.h"

enum {
	CLASSES = 4,		/* untagged messages, and those of three tags */
	SENDS = 8,		/* of a member in progress */
	RECEIVES = 24,		/* of a member, posted; the same number of each class */
	LONGEST = 40000,
	CELL = 4096,		/* bytes of a member's memory for each initiator */
	FORMER = 4,		/* memory of closed regions that is kept, of each member */
	CANARY = 0xa5,		/* fills it */
	ROUNDS = 100,		/* steps of each member, usually */
	NUMBERS = 512,		/* the most messages of a member to another one in a class */
	TRIES = 4,		/* until a message comes, when connections are no longer reset */
};

/* The beginning of each message. */
struct head {
	uint32_t from, class, number, len;
};

/* What has been received of a member in a class. Receives may complete in another order than that in
 * which they were posted, which is the one in which messages are matched. */
struct seen {
	uint64_t bits[NUMBERS / 64];
	uint64_t failed[NUMBERS / 64];	/* their sends ended with an error */
	uint64_t late[NUMBERS / 64];	/* came out of order, which only those may */
	bool is_any;
	uint32_t top;			/* the largest number */
	long posted;			/* its receive */
};

enum what { SEND, RECEIVE, WRITE, READ };

struct operation {
	struct fi_context2 context;	/* first: completions name it */
	enum what what;
	bool is_under_way;
	int owner, other, class;
	uint32_t number;		/* of the message that it sends */
	int region;			/* that it accesses */
	long posted;			/* a receive: its number */
	size_t len;
	unsigned seed;
	unsigned char *bytes;
};

struct member {
	struct ct_peer peer;
	unsigned char name[CT_NAME];
	fi_addr_t *others;		/* how it calls them */
	struct ct_memory memory, buffers;
	int region;			/* number of what `memory` is registered as */
	unsigned char *former[FORMER];
	struct operation sends[SENDS], receives[RECEIVES], access;
	uint32_t *sent;			/* to each other one, of each class */
	struct seen *seen;		/* of each other one, of each class */
	long posted;
	long outstanding;		/* sent to it and not received */
};

static struct member *members;
static int count;
static struct ct_random chance;
static struct ct_spec spec;
static bool breaks;			/* connections are reset */
static long messages, accesses, cancelled, renewed, closed, failed;

static uint32_t *counter(uint32_t *of, int other, int class)
{
	return &of[other * CLASSES + class];
}

static struct operation *idle(struct operation *from, int number)
{
	for (int i = 0; i < number; i++)
		if (!from[i].is_under_way)
			return &from[i];
	return NULL;
}

static bool is_in(const uint64_t *bits, uint32_t number)
{
	return bits[number / 64] >> number % 64 & 1;
}

static void put_in(uint64_t *bits, uint32_t number)
{
	bits[number / 64] |= UINT64_C(1) << number % 64;
}

static unsigned seed_of(const struct head *head)
{
	return head->from * 31 + head->class * 7 + head->number;
}

static void arrived(struct operation *op, const struct ct_completion *done)
{
	struct member *to = &members[op->owner];
	struct seen *seen;
	struct head head;

	REQUIRE(done->len >= sizeof(head) && done->len <= LONGEST);
	memcpy(&head, op->bytes, sizeof(head));
	REQUIRE(head.from < (uint32_t)count && head.class == (uint32_t)op->class && head.len == done->len);
	seen = &to->seen[(int)head.from * CLASSES + op->class];
	REQUIRE(head.number < NUMBERS && !is_in(seen->bits, head.number));
	put_in(seen->bits, head.number);
	if (seen->is_any && (head.number > seen->top) != (op->posted > seen->posted)) {
		REQUIRE(breaks);
		put_in(seen->late, head.number < seen->top ? head.number : seen->top);
	}
	if (!seen->is_any || head.number > seen->top) {
		seen->is_any = true;
		seen->top = head.number;
		seen->posted = op->posted;
	}
	REQUIRE(ct_holds(op->bytes + sizeof(head), done->len - sizeof(head), seed_of(&head)));
	if (!is_in(seen->failed, head.number))
		to->outstanding--;
	messages++;
}

/* The send of a message has failed: it may come once more, or not. */
static void send_failed(const struct operation *op)
{
	struct member *to = &members[op->other];
	struct seen *seen = &to->seen[op->owner * CLASSES + op->class];

	put_in(seen->failed, op->number);
	if (!is_in(seen->bits, op->number))
		to->outstanding--;
}

static void read_back(struct operation *op)
{
	struct member *from = &members[op->owner], *to = &members[op->other];

	if (op->region != to->region)
		return;
	memset(op->bytes, 0, op->len);
	op->what = READ;
	op->is_under_way = true;
	POST(&from->peer, fi_read(from->peer.ep, op->bytes, op->len, from->buffers.desc, from->others[op->other],
				  to->memory.addr + (size_t)op->owner * CELL, to->memory.key, &op->context));
}

static void finished(const struct ct_completion *done)
{
	struct operation *op = done->context;

	REQUIRE(op && op->is_under_way);
	op->is_under_way = false;
	if (done->err) {
		bool is_cancelled = op->what == RECEIVE && done->err == FI_ECANCELED;
		bool is_access = op->what == WRITE || op->what == READ;

		REQUIRE(is_cancelled || breaks || (is_access && op->region != members[op->other].region));
		*(is_cancelled ? &cancelled : &failed) += 1;
		if (op->what == SEND)
			send_failed(op);
		return;
	}
	switch (op->what) {
	case SEND:
		break;
	case RECEIVE:
		arrived(op, done);
		break;
	case WRITE:
		read_back(op);
		break;
	case READ:
		if (op->region == members[op->other].region)
			REQUIRE(ct_holds(op->bytes, op->len, op->seed));
		accesses++;
		break;
	}
}

static void drive(struct member *member)
{
	struct ct_cq *queues[] = { &member->peer.tx, &member->peer.rx };

	for (int i = 0; i < 2; i++)
		while (ct_pull(queues[i]) || queues[i]->count) {
			struct ct_completion done = ct_next(&member->peer, queues[i]);

			finished(&done);
		}
}

static void drive_all(void)
{
	for (int i = 0; i < count; i++)
		drive(&members[i]);
}

static int posted_of(const struct member *member, int class)
{
	int posted = 0;

	for (int i = 0; i < RECEIVES; i++)
		posted += member->receives[i].is_under_way && member->receives[i].class == class;
	return posted;
}

static void post_receive(struct member *member, int class)
{
	struct operation *op = idle(member->receives, RECEIVES);
	struct ct_message message = {
		.tagged = class > 0, .tag = (uint64_t)class, .len = LONGEST, .from = FI_ADDR_UNSPEC,
		.desc = member->buffers.desc,
	};

	if (!op || posted_of(member, class) >= RECEIVES / CLASSES)
		return;
	op->what = RECEIVE;
	op->is_under_way = true;
	op->class = class;
	op->posted = member->posted++;
	message.buf = op->bytes;
	message.context = &op->context;
	POST(&member->peer, ct_recv(&member->peer, CT_RECV, &message));
}

static void post_send(struct member *from, int other, int class)
{
	static const size_t lengths[] = { 16, 17, 64, 200, 1000, 4096, 9000, LONGEST };
	struct operation *op = idle(from->sends, SENDS);
	struct head head = {
		.from = (uint32_t)(from - members), .class = (uint32_t)class,
		.number = *counter(from->sent, other, class),
	};
	struct ct_message message = {
		.tagged = class > 0, .tag = (uint64_t)class, .desc = from->buffers.desc,
	};
	ssize_t ret;

	if (!op)
		return;
	message.len = lengths[ct_below(&chance, 8)];
	message.len -= ct_below(&chance, message.len - sizeof(head) + 1);
	head.len = (uint32_t)message.len;
	memcpy(op->bytes, &head, sizeof(head));
	ct_fill(op->bytes + sizeof(head), message.len - sizeof(head), seed_of(&head));
	message.buf = op->bytes;
	message.context = &op->context;
	op->what = SEND;
	op->other = other;
	op->class = class;
	op->number = head.number;
	if (breaks)
		message.flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
	from->peer.to = from->others[other];
	ret = ct_send(&from->peer, breaks ? CT_SENDMSG : CT_SEND, &message);
	if (ret == -FI_EAGAIN)
		return;
	OK(ret);
	op->is_under_way = true;
	(*counter(from->sent, other, class))++;
	members[other].outstanding++;
}

static void post_write(struct member *from, int other)
{
	struct operation *op = &from->access;
	struct member *to = &members[other];
	struct iovec iov;
	struct fi_rma_iov place;
	struct fi_msg_rma message = {
		.msg_iov = &iov, .desc = &from->buffers.desc, .iov_count = 1, .addr = from->others[other],
		.rma_iov = &place, .rma_iov_count = 1, .context = &op->context,
	};
	ssize_t ret;

	if (op->is_under_way)
		return;
	op->what = WRITE;
	op->other = other;
	op->region = to->region;
	op->len = 1 + ct_below(&chance, CELL);
	op->seed = (unsigned)ct_bits(&chance);
	ct_fill(op->bytes, op->len, op->seed);
	iov = (struct iovec) { op->bytes, op->len };
	place = (struct fi_rma_iov) {
		.addr = to->memory.addr + (size_t)op->owner * CELL, .len = op->len, .key = to->memory.key,
	};
	ret = fi_writemsg(from->peer.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION);
	if (ret == -FI_EAGAIN)
		return;
	OK(ret);
	op->is_under_way = true;
}

static void cancel_one(struct member *member)
{
	struct operation *op = &member->receives[ct_below(&chance, RECEIVES)];

	if (op->is_under_way)
		(void)fi_cancel(&member->peer.ep->fid, &op->context);
}

/* Whether nothing is under way to a member or from it. */
static bool is_quiet(const struct member *member)
{
	int self = (int)(member - members);

	if (member->outstanding || member->access.is_under_way)
		return false;
	for (int i = 0; i < SENDS; i++)
		if (member->sends[i].is_under_way)
			return false;
	for (int i = 0; i < count; i++)
		if (members[i].access.is_under_way && members[i].access.other == self)
			return false;
	return true;
}

static void look_at_former(const struct member *member)
{
	for (int i = 0; i < FORMER; i++)
		for (size_t at = 0; member->former[i] && at < (size_t)count * CELL; at++)
			REQUIRE(member->former[i][at] == CANARY);
}

static void open_region(struct member *member)
{
	ct_memory_open(&member->peer, &member->memory, (size_t)count * CELL, FI_REMOTE_READ | FI_REMOTE_WRITE);
	member->region++;
}

/* Closes a member's region, whatever is under way to it, and opens another one. */
static void close_region(struct member *member)
{
	unsigned char **former = &member->former[member->region % FORMER];
	unsigned char *kept = member->memory.data;

	look_at_former(member);
	free(*former);
	member->memory.data = NULL;
	ct_memory_close(&member->memory);
	memset(kept, CANARY, (size_t)count * CELL);
	*former = kept;
	open_region(member);
	closed++;
}

static void take_what_is_left(struct member *member)
{
	if (!member->outstanding)
		return;
	for (int class = 0; class < CLASSES; class++)
		if (posted_of(member, class) < 2)
			post_receive(member, class);
}

static void settle(struct member *member)
{
	double until = ct_now() + ct_patience_ms() / 1000.0 * 10;

	while (!is_quiet(member)) {
		REQUIRE(ct_now() < until);
		take_what_is_left(member);
		/* What others send to others may hold theirs back. */
		for (int i = 0; i < count; i++)
			take_what_is_left(&members[i]);
		drive_all();
		ct_progress(&member->peer);
	}
}

static void open_member(int number)
{
	struct member *member = &members[number];

	ct_open_single(&member->peer, &spec);
	ct_name(&member->peer.ep->fid, member->name, sizeof(member->name));
	open_region(member);
	ct_memory_open(&member->peer, &member->buffers, (SENDS + RECEIVES + 1) * LONGEST,
		       FI_SEND | FI_RECV | FI_READ | FI_WRITE);
	for (int i = 0; i < SENDS + RECEIVES + 1; i++) {
		struct operation *op = i < SENDS ? &member->sends[i]
				     : i < SENDS + RECEIVES ? &member->receives[i - SENDS] : &member->access;

		memset(op, 0, sizeof(*op));
		op->owner = number;
		op->bytes = member->buffers.data + (size_t)i * LONGEST;
	}
}

static void close_member(struct member *member)
{
	look_at_former(member);
	for (int i = 0; i < FORMER; i++) {
		free(member->former[i]);
		member->former[i] = NULL;
	}
	OK(fi_close(&member->peer.ep->fid));
	member->peer.ep = NULL;
	ct_memory_close(&member->memory);
	ct_memory_close(&member->buffers);
	ct_close_peer(&member->peer);
}

/* A member leaves in good order, and comes back as somebody else. */
static void renew(int number)
{
	struct member *member = &members[number];

	/* What it has sent is received, too: what its successor sends begins anew. */
	for (int i = 0; i < count; i++)
		settle(&members[i]);
	close_member(member);
	open_member(number);
	for (int i = 0; i < count; i++) {
		struct member *other = &members[i];

		if (i != number)
			OK(fi_av_remove(other->peer.av, &other->others[number], 1, 0));
		member->others[i] = ct_insert(&member->peer, other->name);
		if (i != number)
			other->others[number] = ct_insert(&other->peer, member->name);
		for (int class = 0; class < CLASSES; class++) {
			*counter(other->sent, number, class) = *counter(member->sent, i, class) = 0;
			memset(&other->seen[number * CLASSES + class], 0, sizeof(struct seen));
			memset(&member->seen[i * CLASSES + class], 0, sizeof(struct seen));
		}
	}
	renewed++;
}

static void step(void)
{
	struct member *member = &members[ct_below(&chance, (uint64_t)count)];
	int other = (int)ct_below(&chance, (uint64_t)count), class = (int)ct_below(&chance, CLASSES);

	switch (ct_below(&chance, 16)) {
	case 0 ... 5:
		/* Not more than there is memory for, wherever nobody receives. */
		if (members[other].outstanding < 200)
			post_send(member, other, class);
		break;
	case 6 ... 10:
		post_receive(member, class);
		break;
	case 11:
		cancel_one(member);
		break;
	case 12:
		post_write(member, other);
		break;
	default:
		drive(member);
		drive(&members[other]);
	}
	if (!breaks && ct_once_in(&chance, 400))
		renew((int)(member - members));
	if (ct_once_in(&chance, 40))
		close_region(member);
	if (ct_once_in(&chance, 64))
		drive_all();
}

/* Connections are no longer reset: those that were are found out, and then all are reached. */
static void mend(void)
{
	void (*stop)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "simulated_breaks_no_more");

	if (stop)
		stop();
	for (int i = 0; i < count; i++)
		settle(&members[i]);
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++) {
			struct seen *seen = &members[j].seen[i * CLASSES];
			uint32_t number, tries = 0;

			do {
				REQUIRE(tries++ < TRIES);
				number = *counter(members[i].sent, j, 0);
				while (*counter(members[i].sent, j, 0) == number) {
					post_send(&members[i], j, 0);
					drive_all();
				}
				settle(&members[i]);
				settle(&members[j]);
			} while (is_in(seen->failed, number));
			REQUIRE(is_in(seen->bits, number));
		}
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count * CLASSES; j++)
			for (int word = 0; word < NUMBERS / 64; word++) {
				const struct seen *seen = &members[i].seen[j];

				REQUIRE(!(seen->late[word] & ~seen->failed[word]));
			}
}

static void run(int usual)
{
	const char *given = getenv("CT_MEMBERS"), *seed = getenv("CT_SEED"), *most = getenv("CT_STEPS");
	long steps;

	count = given ? atoi(given) : usual;
	chance.state = seed ? strtoull(seed, NULL, 0) : 1;
	spec = (struct ct_spec) { .caps = FI_MSG | FI_TAGGED | FI_RMA };
	members = calloc((size_t)count, sizeof(*members));
	REQUIRE(members);
	for (int i = 0; i < count; i++) {
		open_member(i);
		members[i].others = calloc((size_t)count, sizeof(fi_addr_t));
		members[i].sent = calloc((size_t)count * CLASSES, sizeof(uint32_t));
		members[i].seen = calloc((size_t)count * CLASSES, sizeof(struct seen));
		REQUIRE(members[i].others && members[i].sent && members[i].seen);
	}
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++)
			members[i].others[j] = ct_insert(&members[i].peer, members[j].name);
	steps = most ? atol(most) : (long)count * ROUNDS;
	for (long i = 0; i < steps; i++)
		step();
	for (int i = 0; i < count; i++)
		settle(&members[i]);
	if (breaks)
		mend();
	printf("# %d endpoints: %ld messages, %ld accesses, %ld receives cancelled, %ld endpoints renewed, "
	       "%ld regions closed, %ld operations failed\n", count, messages, accesses, cancelled, renewed, closed,
	       failed);
	for (int i = 0; i < count; i++) {
		close_member(&members[i]);
		free(members[i].others);
		free(members[i].sent);
		free(members[i].seen);
	}
	free(members);
}

static void few(void)
{
	run(3);
}

static void some(void)
{
	run(12);
}

static void dozens(void)
{
	run(48);
}

static void broken_few(void)
{
	breaks = true;
	run(3);
}

static void broken_some(void)
{
	breaks = true;
	run(12);
}

static const struct ct_test tests[] = {
	{ "few", few, CT_RDM },
	{ "some", some, CT_RDM | CT_SLOW },
	{ "dozens", dozens, CT_RDM | CT_SLOW },
	{ "broken/few", broken_few, CT_RDM },
	{ "broken/some", broken_some, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
