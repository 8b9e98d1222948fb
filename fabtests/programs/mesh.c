/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Many endpoints of one process, each of which sends to any other and to itself in every form, receives
 * one message or several into a buffer, of anybody or of a certain sender, looks for messages, claims and
 * discards them, cancels receives, writes to others' memory and reads that again, counts there with atomic
 * operations, and now and then is closed and opened anew under another address; all of it derived from
 * one seed. Regions are closed while others access them. Each accepted operation completes once, and is
 * counted once; each message arrives once, unchanged, and is matched in the order of its sender; what was
 * written can be read; what was added is the sum; nobody writes to the memory of a closed region, and its
 * end concerns nothing but accesses to it; nothing is left at the end.
 *
 * The tests "broken/..." are for networks that reset connections, as a simulated one does
 * (fabtests/simulated): what is under way then may end with an error. A message whose send completes
 * has been delivered (FI_DELIVERY_COMPLETE) and is received once, one whose send fails once or never.
 * When connections stay whole again, each member reaches all others.
 *
 * In a simulated network a second thread may take turns with the first one, as the seed says: it makes calls on
 * members while the first one rests within a call on another member, and rests there itself
 * (fabtests/simulated/steps.c). No two of them make calls on one member at a time.
 *
 * CT_SEED=<number> repeats the draws of a failure, CT_MEMBERS=<number> is the number of endpoints,
 * CT_STEPS=<number> that of the steps.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mesh/mesh.h"
#include "mesh/turns.h"

enum {
	ROUNDS = 100,		/* steps of each member, usually */
	TRIES = 4,		/* until a message comes, when connections are no longer reset */
	OWN = SENDS + RECEIVES + PEEKS + 1,	/* operations with a buffer for one message */
};

/* What members are opened with, as far as the provider offers it. */
static const uint64_t WANTED[] = {
	FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE,
	FI_MSG | FI_TAGGED | FI_RMA | FI_MULTI_RECV | FI_SOURCE,
	FI_MSG | FI_TAGGED | FI_RMA,
};

struct member *members;
int count;
struct ct_random chance;
bool breaks;
struct tally tally;
static struct ct_spec spec;

struct operation *idle(struct operation *from, int number)
{
	for (int i = 0; i < number; i++)
		if (!from[i].is_under_way)
			return &from[i];
	return NULL;
}

static bool is_access(const struct operation *op)
{
	return op->what >= WRITE;
}

static void finished(const struct ct_completion *done)
{
	struct operation *op = done->context;

	REQUIRE(op && op->is_under_way);
	op->is_under_way = false;
	if (is_access(op))
		access_done(op, done);
	else if (done->err)
		message_failed(op, done);
	else
		message_done(op, done);
}

static void drive(struct member *member)
{
	struct ct_cq *queues[] = { &member->peer.tx, &member->peer.rx };

	enter(member);
	for (int i = 0; i < 2; i++)
		while (ct_pull(queues[i]) || queues[i]->count) {
			struct ct_completion done = ct_next(&member->peer, queues[i]);

			finished(&done);
		}
	leave(member);
}

static void drive_all(void)
{
	for (int i = 0; i < count; i++)
		drive(&members[i]);
}

static bool is_any_under_way(const struct operation *from, int number)
{
	for (int i = 0; i < number; i++)
		if (from[i].is_under_way)
			return true;
	return false;
}

/* Counters are for operations that have completed, also without an entry in the queue. */
static bool has_counted(const struct member *member)
{
	for (int which = 0; which < CT_CNTR_MAX; which++) {
		struct fid_cntr *counter = member->peer.cntr[which];
		const struct counted *counted = &member->counted[which];
		uint64_t done, failed;

		if (!counter)
			continue;
		done = fi_cntr_read(counter);
		failed = fi_cntr_readerr(counter);
		if (done + failed != counted->done + counted->failed || failed < counted->failed ||
		    failed > counted->failed + counted->perhaps)
			return false;
	}
	return true;
}

static bool waits_for_a_sender(const struct member *member)
{
	for (int i = 0; i < RECEIVES; i++)
		if (member->receives[i].is_under_way && member->receives[i].is_directed)
			return true;
	return false;
}

/* Whether nothing is under way to a member or from it, but receives of anybody. */
static bool is_quiet(const struct member *member)
{
	int self = (int)(member - members);

	if (member->outstanding || member->access.is_under_way || waits_for_a_sender(member) ||
	    is_any_under_way(member->sends, SENDS) || is_any_under_way(member->peeks, PEEKS) || !has_counted(member))
		return false;
	for (int i = 0; i < count; i++)
		if (members[i].access.is_under_way && members[i].access.other == self)
			return false;
	return true;
}

static void settle(struct member *member)
{
	double until = ct_now() + ct_patience_ms() / 1000.0 * 10;

	WITHIN(member, cancel_directed(member));
	while (!is_quiet(member)) {
		REQUIRE(ct_now() < until);
		/* What others send to others may hold theirs back. */
		for (int i = 0; i < count; i++) {
			WITHIN(&members[i], cancel_directed(&members[i]));
			WITHIN(&members[i], take_what_is_left(&members[i]));
		}
		drive_all();
		WITHIN(member, ct_progress(&member->peer));
	}
}

static void settle_all(void)
{
	for (int i = 0; i < count; i++)
		settle(&members[i]);
}

/* A buffer is given back when it may be too short for the next message. */
static void give_back_early(struct fid_ep *ep)
{
	size_t longest = LONGEST;

	OK(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &longest, sizeof(longest)));
}

static void own(struct operation *op, int number, unsigned char *bytes)
{
	memset(op, 0, sizeof(*op));
	op->owner = number;
	op->bytes = bytes;
}

static void open_member(int number)
{
	struct member *member = &members[number];
	struct operation *ops[] = { member->sends, member->receives, member->peeks, &member->access };
	const int counts[] = { SENDS, RECEIVES, PEEKS, 1 };
	unsigned char *at;

	ct_open_single(&member->peer, &spec);
	ct_name(&member->peer.ep->fid, member->name, sizeof(member->name));
	memset(member->counted, 0, sizeof(member->counted));
	open_region(member);
	ct_memory_open(&member->peer, &member->buffers, (size_t)OWN * LONGEST + (size_t)SEVERAL * ROOM,
		       FI_SEND | FI_RECV | FI_READ | FI_WRITE);
	at = member->buffers.data;
	for (int kind = 0; kind < 4; kind++)
		for (int i = 0; i < counts[kind]; i++, at += LONGEST)
			own(&ops[kind][i], number, at);
	for (int i = 0; i < SEVERAL; i++, at += ROOM)
		own(&member->several[i], number, at);
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

	others_rest();
	/* What it has sent is received, too: what its successor sends begins anew. */
	settle_all();
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
			*number_of(other, number, class) = *number_of(member, i, class) = 0;
			memset(&other->seen[number * CLASSES + class], 0, sizeof(struct seen));
			memset(&member->seen[i * CLASSES + class], 0, sizeof(struct seen));
		}
	}
	others_go_on();
	tally.renewed++;
}

static void step(bool is_first)
{
	struct member *member = &members[ct_below(&chance, (uint64_t)count)];
	int other = (int)ct_below(&chance, (uint64_t)count), class = (int)ct_below(&chance, CLASSES);

	switch (ct_below(&chance, 20)) {
	case 0 ... 6:
		/* Not more than there is memory for, wherever nobody receives. */
		if (members[other].outstanding < 200)
			WITHIN(member, post_send(member, other, class));
		break;
	case 7 ... 11:
		WITHIN(member, post_receive(member, class));
		break;
	case 12:
		WITHIN(member, peek(member));
		break;
	case 13:
		WITHIN(member, cancel_one(member));
		break;
	case 14:
		WITHIN(member, post_write(member, other));
		break;
	case 15:
		WITHIN(member, post_atomic(member, other));
		break;
	default:
		drive(member);
		drive(&members[other]);
	}
	if (is_first && !breaks && ct_once_in(&chance, 400))
		renew((int)(member - members));
	if (ct_once_in(&chance, 40))
		WITHIN(member, close_region(member));
	if (ct_once_in(&chance, 64))
		drive_all();
}

static long steps_left;

/* What the second thread does while the first one rests. */
static void work_between(void)
{
	struct member *member = &members[ct_below(&chance, (uint64_t)count)];

	if (steps_left > 0 && !member->is_busy && ct_once_in(&chance, 8))
		WITHIN(member, close_region(member));
	if (steps_left-- > 0)
		step(false);
	else
		drive(&members[ct_below(&chance, (uint64_t)count)]);
}

/* A message of one member reaches another one, in some tries. */
static void reach(int i, int j)
{
	uint32_t number, tries = 0;

	do {
		REQUIRE(tries++ < TRIES);
		number = *number_of(&members[i], j, 0);
		while (*number_of(&members[i], j, 0) == number) {
			WITHIN(&members[i], post_send(&members[i], j, 0));
			drive_all();
		}
		settle(&members[i]);
		settle(&members[j]);
	} while (has_failed(&members[j], i, 0, number));
	REQUIRE(has_seen(&members[j], i, 0, number));
}

/* Connections are no longer reset: those that were are found out, and then all are reached. */
static void mend(void)
{
	void (*stop)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "simulated_breaks_no_more");

	if (stop)
		stop();
	settle_all();
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++)
			reach(i, j);
	for (int i = 0; i < count; i++)
		check_order(&members[i]);
}

/* The most that the provider offers of what members use. */
static uint64_t offered(void)
{
	for (size_t i = 0; i + 1 < sizeof(WANTED) / sizeof(WANTED[0]); i++) {
		struct ct_spec all = { .caps = WANTED[i] };
		struct fi_info *hints = ct_hints(&all), *info = NULL;
		int ret = fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &info);

		fi_freeinfo(hints);
		fi_freeinfo(info);
		if (!ret)
			return WANTED[i];
	}
	return WANTED[sizeof(WANTED) / sizeof(WANTED[0]) - 1];
}

static void run(int usual)
{
	const char *given = getenv("CT_MEMBERS"), *seed = getenv("CT_SEED"), *most = getenv("CT_STEPS");

	count = given ? atoi(given) : usual;
	chance.state = seed ? strtoull(seed, NULL, 0) : 1;
	tally = (struct tally) { 0 };
	spec = (struct ct_spec) { .caps = offered(), .counters = FI_SEND | FI_READ | FI_WRITE };
	if (spec.caps & FI_MULTI_RECV)
		spec.prepare = give_back_early;
	members = calloc((size_t)count, sizeof(*members));
	REQUIRE(members);
	for (int i = 0; i < count; i++) {
		open_member(i);
		members[i].others = calloc((size_t)count, sizeof(fi_addr_t));
		members[i].sent = calloc((size_t)count * CLASSES, sizeof(uint32_t));
		members[i].seen = calloc((size_t)count * CLASSES, sizeof(struct seen));
		members[i].added = calloc((size_t)count, sizeof(struct added));
		REQUIRE(members[i].others && members[i].sent && members[i].seen && members[i].added);
	}
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++)
			members[i].others[j] = ct_insert(&members[i].peer, members[j].name);
	steps_left = most ? atol(most) : (long)count * ROUNDS;
	begin_turns(work_between);
	while (steps_left-- > 0)
		step(true);
	settle_all();
	if (breaks)
		mend();
	end_turns();
	for (int i = 0; i < count; i++)
		check_sums(&members[i]);
	printf("# %d endpoints: %ld messages, of which %ld claimed and %ld discarded, %ld accesses, %ld atomics, "
	       "%ld receives cancelled, %ld endpoints renewed, %ld regions closed, %ld operations failed\n", count,
	       tally.messages, tally.claimed, tally.discarded, tally.accesses, tally.atomics, tally.cancelled,
	       tally.renewed, tally.closed, tally.failed);
	for (int i = 0; i < count; i++) {
		close_member(&members[i]);
		free(members[i].others);
		free(members[i].sent);
		free(members[i].seen);
		free(members[i].added);
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
