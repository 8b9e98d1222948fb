/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * What is behind an address (fi_endpoint(3), SCALABLE ENDPOINTS and SHARED CONTEXTS): endpoints
 * or contexts, either with shared contexts, which may be bound late. Each behaviour of the second
 * table is tested with the forms of the first one that it names. What only some of them have is
 * in the files of contexts/. All sides are in one process.
 */
#define _GNU_SOURCE
#include "contexts/form.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "pattern.h"
#include "wait.h"

/* Endpoints that get a shared context late, which the hints have or have not announced. */
#define UNANNOUNCED(...) { .kind = CT_SHARED, .count = 1, .unannounced = true, __VA_ARGS__ }
#define ANNOUNCED(...) { .kind = CT_SHARED, .count = 1, __VA_ARGS__ }

enum {
	PLAIN, SHARED, QUEUE, LATE, SOME_LATE, ENABLED, ACCEPTS_ENABLED, CONNECTING,
	CONNECTING_ANNOUNCED, ACCEPTING, CONNECTED, CONNECTED_ANNOUNCED, ACCEPTED,
	ACCEPTED_ANNOUNCED, SCALABLE, SCALABLE_SHARED, SEVERAL, THROUGH, SENDS, TRIGGERED,
	COLLECTIVE, FORMS,
};

static const struct form forms[FORMS] = {
	[PLAIN] = { "plain", { .kind = CT_PLAIN }, true },
	[SHARED] = { "shared", { .kind = CT_SHARED }, true },
	[QUEUE] = { "shared-queue", { .kind = CT_SHARED, .one_queue = true }, true },
	[LATE] = { "late", UNANNOUNCED(.bound = CT_LATER), false },
	[SOME_LATE] = {
		"some-late", { .kind = CT_SHARED, .unannounced = true, .bound = CT_LATER,
			       .first_at_once = true }, true,
	},
	[ENABLED] = { "enabled", UNANNOUNCED(.bound = CT_ENABLED), false },
	[ACCEPTS_ENABLED] = { "enabled-to-accept", UNANNOUNCED(.bound = CT_ENABLED), true },
	[CONNECTING] = { "connecting", UNANNOUNCED(.bound = CT_BEGUN), false },
	[CONNECTING_ANNOUNCED] = { "connecting-announced", ANNOUNCED(.bound = CT_BEGUN), false },
	[ACCEPTING] = { "accepting", UNANNOUNCED(.bound = CT_BEGUN), true },
	[CONNECTED] = { "connected", UNANNOUNCED(.bound = CT_CONNECTED), false },
	[CONNECTED_ANNOUNCED] = { "connected-announced", ANNOUNCED(.bound = CT_CONNECTED), false },
	[ACCEPTED] = { "accepted", UNANNOUNCED(.bound = CT_CONNECTED), true },
	[ACCEPTED_ANNOUNCED] = { "accepted-announced", ANNOUNCED(.bound = CT_CONNECTED), true },
	[SCALABLE] = { "scalable", { .kind = CT_SCALABLE }, false },
	[SCALABLE_SHARED] = { "scalable-shared", { .kind = CT_SCALABLE_SHARED }, false },
	[SEVERAL] = { "several", { .kind = CT_SCALABLE_SEVERAL }, false },
	[THROUGH] = { "through", { .kind = CT_SCALABLE_THROUGH }, false },
	[SENDS] = { "shared-transmits", { .kind = CT_SENDS_SHARED }, false },
	[TRIGGERED] = { "triggered", { .spec.caps = FI_TRIGGER }, false },
	[COLLECTIVE] = { "collective", { .spec.caps = FI_COLLECTIVE }, false },
};

/* Messages of all sizes. */

/* From each index that sends to each that receives, and long ones to its own. */
static void pass_all(struct ct_side *from, struct ct_side *to, size_t len)
{
	for (int i = 0; i < ct_count_of(from); i++)
		for (int j = 0; j < ct_takers(to); j++)
			for (int k = 0; k < (is_connected() ? 2 : 4); k++)
				if (from->tx[i] && (i == j || (!is_connected() && len < CT_PLACE)))
					pass(from, i, to, j, len, k & 1, k & 2 ? TAG : CT_UNTAGGED);
}

static void messages(const struct form *form)
{
	static const size_t sizes[] = { 0, 8, 5000, CT_PLACE };
	struct two two;

	open_two(&two, form, both_kinds());
	for (int i = 0; i < 4; i++) {
		pass_all(&two.a, &two.b, sizes[i]);
		pass_all(&two.b, &two.a, sizes[i]);
	}
	REQUIRE(ct_all_stay_empty());
	close_two(&two);
}

static void itself(const struct form *form)
{
	struct ct_setup setup = form->setup;
	struct ct_side a;

	setup.spec.caps = both_kinds();
	ct_open_ready(&a, &setup);
	pass_all(&a, &a, 8);
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
}

/* Receives that are posted once serve all senders in the order of arrival. */

enum { SERVED = 30 };
/* Before there are endpoints, before all messages, before each of them, or after all. */
enum when { EARLY, BEFORE, BESIDE, AFTER };

/* The next that anyone received. */
static struct ct_completion next_at(struct ct_side *side, int *who)
{
	CT_UNTIL(side->rxq[*who]->count, (ct_drive(), *who = (*who + 1) % ct_takers(side)));
	return ct_next_of(side->rxq[*who]);
}

static void post(struct two *two, enum when now, enum when when, int tag)
{
	for (int i = 0; now == when && i < SERVED; i++)
		ct_side_receive(&two->b, at_b(two, i), i, LENGTH, FI_ADDR_UNSPEC, tag);
}

static void take_all(struct two *two)
{
	struct ct_side *b = &two->b;
	int senders = ct_count_of(&two->a), next[CT_CONTEXTS] = { 0 }, who = 0;
	bool seen[SERVED] = { false };

	for (int i = 0; i < SERVED; i++) {
		struct ct_completion got = next_at(b, &who);
		long slot = (struct fi_context2 *)got.context - ct_received;
		int from = -1;

		REQUIRE(!got.err && got.len == LENGTH);
		REQUIRE(slot >= 0 && slot < SERVED && !seen[slot]);
		seen[slot] = true;
		/* In order from each sender, in whatever order among them. */
		for (int j = 0; j < senders; j++)
			if (ct_side_holds(b, (int)slot, LENGTH, j + next[j] * senders))
				from = j;
		REQUIRE(from >= 0 && (senders > 1 || slot == i));
		/* The queue is that of the endpoint or the context which the message was for. */
		REQUIRE(b->rxq[who] == b->rxq[at_b(two, from)]);
		next[from]++;
	}
	for (int i = 0; i < SERVED; i++)
		ct_side_sent(&two->a, i % senders, i);
}

static void serve(const struct form *form, enum when when, int tag)
{
	struct two two;
	int senders;

	begin(&two, form, tag == CT_UNTAGGED ? FI_MSG : FI_TAGGED);
	senders = ct_count_of(&two.a);
	post(&two, EARLY, when, tag);
	meet(&two);
	/* Senders that the receiver knows, and others. */
	if (when == EARLY || tag != CT_UNTAGGED)
		ct_source(&two.b, &two.a, 0);
	/* Endpoints that are bound later have received before: what they are sent then arrives soon. */
	for (int i = 0; when > EARLY && form->setup.bound == CT_LATER && i < senders; i++) {
		ct_side_receive(&two.b, i, i, LENGTH, FI_ADDR_UNSPEC, tag);
		send_to_b(&two, i, i, tag);
		arrives(&two, i, i, i);
	}
	if (when == BESIDE)
		bind_late(&two);
	post(&two, BEFORE, when, tag);
	for (int i = 0; i < SERVED; i++) {
		if (when == BESIDE)
			ct_side_receive(&two.b, at_b(&two, i), i, LENGTH, FI_ADDR_UNSPEC, tag);
		send_to_b(&two, i % senders, i, tag);
	}
	if (when != BESIDE)
		bind_late(&two);
	post(&two, AFTER, when, tag);
	take_all(&two);
	/* Each has its own queue for what comes later, too. */
	for (int i = senders; i--;) {
		ct_side_receive(&two.b, at_b(&two, i), i, LENGTH, FI_ADDR_UNSPEC, tag);
		send_to_b(&two, i, i, tag);
		arrives(&two, i, i, i);
	}
	REQUIRE(ct_all_stay_empty());
	close_two(&two);
}

static void expected(const struct form *form)
{
	serve(form, BEFORE, CT_UNTAGGED);
}

static void unexpected(const struct form *form)
{
	serve(form, AFTER, CT_UNTAGGED);
}

static void tagged(const struct form *form)
{
	serve(form, BEFORE, TAG);
}

static void tagged_unexpected(const struct form *form)
{
	serve(form, AFTER, TAG);
}

static void beside(const struct form *form)
{
	serve(form, BESIDE, CT_UNTAGGED);
}

static void early(const struct form *form)
{
	serve(form, EARLY, CT_UNTAGGED);
}

/* Tags, looks, several messages in a buffer. */

/* Messages that wait are found by their tags, whatever their order. */
static void tags(const struct form *form)
{
	struct two two;

	open_two(&two, form, FI_TAGGED);
	for (int i = 0; i < 4; i++)
		send_to_b(&two, 0, i, i);
	bind_late(&two);
	for (int i = 3; i >= 0; i--) {
		ct_side_receive(&two.b, 0, i, LENGTH, FI_ADDR_UNSPEC, i);
		ct_side_done(&two.b, 0, i, LENGTH, i);
	}
	for (int i = 0; i < 4; i++)
		ct_side_sent(&two.a, 0, i);
	close_two(&two);
}

/* A receive with flags at the place of the tag. */
static ssize_t look(struct two *two, int tag, uint64_t flags)
{
	struct iovec iov = { ct_place(&two->b.in, tag), LENGTH };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = 1, .desc = &two->b.in.desc, .addr = FI_ADDR_UNSPEC,
		.tag = (uint64_t)tag, .context = &ct_received[tag],
	};

	return fi_trecvmsg(ct_taker(&two->b, 0), &msg, flags);
}

static struct ct_completion seen(struct two *two, int tag, uint64_t flags)
{
	struct ct_completion got;

	OK(look(two, tag, flags));
	got = ct_next_of(two->b.rxq[0]);
	REQUIRE(got.context == &ct_received[tag] && (!got.err || got.err == FI_ENOMSG));
	return got;
}

/* Messages that wait are looked at, claimed and dropped. */
static void peek_and_claim(const struct form *form)
{
	struct ct_completion got;
	struct two two;

	open_two(&two, form, FI_TAGGED);
	REQUIRE(form->setup.bound == CT_LATER || seen(&two, 2, FI_PEEK).err == FI_ENOMSG);
	for (int i = 0; i < 3; i++)
		send_to_b(&two, 0, i, i);
	bind_late(&two);
	/* All have arrived when the last one has. */
	CT_UNTIL(!(got = seen(&two, 2, FI_PEEK)).err, ct_drive());
	REQUIRE(got.len == LENGTH && got.tag == 2);
	got = seen(&two, 1, FI_PEEK | FI_CLAIM);
	REQUIRE(!got.err && got.len == LENGTH && got.tag == 1);
	/* Nobody else gets it. */
	ct_side_receive(&two.b, 0, 4, LENGTH, FI_ADDR_UNSPEC, 1);
	REQUIRE(nothing_comes(&two.b));
	OK(look(&two, 1, FI_CLAIM));
	ct_side_done(&two.b, 0, 1, LENGTH, 1);
	EXPECT(look(&two, 1, FI_CLAIM), -FI_ENOMSG);
	REQUIRE(!seen(&two, 0, FI_PEEK | FI_DISCARD).err);
	REQUIRE(seen(&two, 3, FI_PEEK).err == FI_ENOMSG);
	OK(look(&two, 2, 0));
	ct_side_done(&two.b, 0, 2, LENGTH, 2);
	for (int i = 0; i < 3; i++)
		ct_side_sent(&two.a, 0, i);
	close_two(&two);
}

/* A multi-receive buffer takes messages that wait and later ones, and is released with the last
 * one that it has room for. */
static void fill_one(const struct form *form, int waiting, size_t least)
{
	enum { COUNT = 4 };
	struct two two;
	struct iovec iov = { .iov_len = COUNT * LENGTH + least - 1 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &ct_received[0],
	};
	bool is_shared = ct_shares_receives(form->setup.kind);

	open_two(&two, form, FI_MSG | FI_MULTI_RECV);
	OK(fi_setopt(is_shared ? &two.b.peer.srx->fid : &two.b.rx[0]->fid, FI_OPT_ENDPOINT,
		     FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	for (int i = 0; i < waiting; i++)
		send_to_b(&two, 0, i, CT_UNTAGGED);
	bind_late(&two);
	iov.iov_base = two.b.in.data;
	msg.desc = &two.b.in.desc;
	OK(fi_recvmsg(ct_taker(&two.b, 0), &msg, FI_MULTI_RECV));
	for (int i = 0; i < COUNT; i++) {
		int from = is_shared && i >= waiting ? i % ct_count_of(&two.a) : 0;
		struct ct_completion got;

		if (i >= waiting)
			send_to_b(&two, from, i, CT_UNTAGGED);
		got = ct_done_of(two.b.rxq[at_b(&two, from)], &ct_received[0]);
		REQUIRE(got.len == LENGTH && got.buf == two.b.in.data + i * LENGTH);
		REQUIRE(ct_holds(got.buf, LENGTH, (unsigned)i));
		REQUIRE(!(got.flags & FI_MULTI_RECV) == (i < COUNT - 1));
		ct_side_sent(&two.a, from, i);
	}
	REQUIRE(ct_all_stay_empty());
	close_two(&two);
}

static void multi_receive(const struct form *form)
{
	/* Less than what it is by default, and more. */
	for (int waiting = 0; waiting <= 2; waiting += 2) {
		fill_one(form, waiting, LENGTH);
		fill_one(form, waiting, 16384);
	}
}

/* Receives that name a peer take messages of all its contexts, and of nobody else. */

static void directed(const struct form *form)
{
	const uint64_t caps = FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV;
	struct ct_setup setup = form->setup;
	struct ct_side senders[2], b;
	int last;

	setup.spec.caps = caps;
	for (int i = 0; i < 2; i++) {
		ct_open_ready(&senders[i], &(struct ct_setup) {
			.kind = setup.kind == CT_SHARED ? CT_PLAIN : setup.kind, .spec.caps = caps,
		});
	}
	ct_open_ready(&b, &setup);
	last = ct_takers(&b) - 1;
	for (int k = 0; k < 4 * CT_CONTEXTS; k++) {
		bool is_expected = k & 1, is_named = k & 2;
		int i = k / 4;
		fi_addr_t from[2];

		for (int j = 0; j < 2; j++)
			from[j] = ct_source(&b, &senders[j], i);
		if (is_named && senders[0].sep)
			from[0] = fi_rx_addr(from[0], 1, CT_CONTEXT_BITS);
		for (int j = 0; is_expected && j < 2; j++)
			ct_side_receive(&b, last, j, LENGTH, from[j], TAG);
		/* What is received first is sent last. */
		for (int j = 2; j--;) {
			ct_side_send(&senders[j], i, ct_address(&senders[j], &b, last), j, LENGTH, TAG);
			if (is_expected)
				REQUIRE(ct_side_done(&b, last, j, LENGTH, j).src ==
					ct_source(&b, &senders[j], i));
			ct_side_sent(&senders[j], i, j);
		}
		drive_for_a_while();
		for (int j = 0; !is_expected && j < 2; j++) {
			ct_side_receive(&b, last, j, LENGTH, from[j], TAG);
			REQUIRE(ct_side_done(&b, last, j, LENGTH, j).src ==
				ct_source(&b, &senders[j], i));
		}
	}
	REQUIRE(ct_all_stay_empty());
	for (int i = 0; i < 2; i++)
		ct_close_side(&senders[i]);
	ct_close_side(&b);
}

/* Ends. */

/* One of several receives is taken back, once, and the others take messages. */
static void cancel(const struct form *form)
{
	struct two two;
	struct ct_side *b = &two.b;

	open_two(&two, form, both_kinds());
	for (int tag = CT_UNTAGGED; tag <= (is_connected() ? CT_UNTAGGED : TAG);
	     tag += TAG - CT_UNTAGGED) {
		for (int i = 0; i < 3; i++)
			ct_side_receive(b, 0, i, LENGTH, FI_ADDR_UNSPEC, tag);
		take_back(ct_taker(b, 0), b->rxq[0], &ct_received[1]);
		OK(fi_cancel(&ct_taker(b, 0)->fid, &ct_received[1]));
		REQUIRE(ct_all_stay_empty());
		for (int i = 0; i < 3; i += 2) {
			send_to_b(&two, 0, i, tag);
			arrives(&two, 0, i, i);
		}
	}
	close_two(&two);
}

/* One endpoint less: the receives serve the others. */
static void leave(struct two *two, struct fid_ep **ep)
{
	bind_late(two);
	ct_side_receive(&two->b, 0, 0, LENGTH, FI_ADDR_UNSPEC, CT_UNTAGGED);
	OK(fi_close(&(*ep)->fid));
	*ep = NULL;
}

static void receiver_leaves(const struct form *form)
{
	struct two two;

	open_two(&two, form, FI_MSG);
	two.b.rx[2] = NULL;
	leave(&two, &two.b.tx[2]);
	send_to_b(&two, 1, 1, CT_UNTAGGED);
	arrives(&two, 1, 1, 0);
	close_two(&two);
}

static void sender_leaves(const struct form *form)
{
	struct two two;

	open_two(&two, form, FI_MSG);
	two.a.rx[0] = NULL;
	leave(&two, &two.a.tx[0]);
	if (is_connected())
		ct_event_of(&two.b.peer, FI_SHUTDOWN);
	REQUIRE(ct_all_stay_empty());
	send_to_b(&two, 1, 1, CT_UNTAGGED);
	arrives(&two, 1, 1, 0);
	close_two(&two);
}

static void busy(const struct form *form)
{
	struct two two;

	open_two(&two, form, FI_MSG);
	bind_late(&two);
	EXPECT(fi_close(&two.b.peer.srx->fid), -FI_EBUSY);
	close_two(&two);
}

/* The size of a receive context is no limit of the receives that are posted to it. */
static void beyond_the_size(const struct form *form)
{
	enum { SIZE = 2, MORE = 3 * SIZE };
	struct form small = *form;
	struct two two;

	small.setup.size = SIZE;
	open_two(&two, &small, FI_MSG);
	for (int i = 0; i < MORE; i++)
		ct_side_receive(&two.b, 0, i, LENGTH, FI_ADDR_UNSPEC, CT_UNTAGGED);
	for (int i = 0; i < MORE; i++) {
		send_to_b(&two, 0, i, CT_UNTAGGED);
		arrives(&two, 0, i, i);
	}
	close_two(&two);
}

/* Receives that one thread posts while another one takes in messages. */
struct poster {
	struct ct_side *side;
	int count;
};

static void *post_all(void *arg)
{
	struct poster *poster = arg;
	struct ct_memory *in = &poster->side->in;

	for (int i = 0; i < poster->count; i++)
		while (fi_recv(ct_taker(poster->side, 0), in->data, 8, in->desc, FI_ADDR_UNSPEC,
			       &ct_received[0]) == -FI_EAGAIN)
			sched_yield();
	return NULL;
}

static void threads(const struct form *form)
{
	int count = ct_times(2000), sent = 0, received = 0;
	struct poster poster;
	pthread_t thread;
	struct two two;

	open_two(&two, form, FI_MSG);
	bind_late(&two);
	poster = (struct poster) { &two.b, count };
	REQUIRE(!pthread_create(&thread, NULL, post_all, &poster));
	while (sent < count || received < count) {
		if (sent < count && !fi_inject(two.a.tx[0], two.a.out.data, 8,
					       ct_address(&two.a, &two.b, 0)))
			sent++;
		ct_drive();
		sched_yield();
		for (; two.b.rxq[0]->count; received++)
			ct_done_of(two.b.rxq[0], &ct_received[0]);
	}
	REQUIRE(!pthread_join(thread, NULL));
	close_two(&two);
}

/* Receives of an endpoint that is bound late take nothing any more, and are taken back there. */
static void own_receives(const struct form *form)
{
	struct fid_ep *endpoint;
	struct two two;

	open_two(&two, form, FI_MSG);
	endpoint = two.b.rx[0];
	for (int i = 10; i < 12; i++)
		ct_side_receive(&two.b, 0, i, LENGTH, FI_ADDR_UNSPEC, CT_UNTAGGED);
	bind_late(&two);
	REQUIRE(ct_all_stay_empty());
	for (int i = 0; i < 4; i++) {
		ct_side_receive(&two.b, 0, i, LENGTH, FI_ADDR_UNSPEC, CT_UNTAGGED);
		send_to_b(&two, 0, i, CT_UNTAGGED);
	}
	for (int i = 0; i < 4; i++)
		arrives(&two, 0, i, i);
	take_back(endpoint, two.b.rxq[0], &ct_received[11]);
	close_two(&two);
}

/* The forms with which messages wait until somebody asks for them, that serve several senders, and
 * that are bound at a time. */
enum {
	ALL = 1 << PLAIN | 1 << SHARED | 1 << QUEUE | 1 << SCALABLE | 1 << SCALABLE_SHARED |
	      1 << SEVERAL | 1 << THROUGH,
	WAITING = 1 << PLAIN | 1 << SHARED | 1 << LATE | 1 << SCALABLE | 1 << SCALABLE_SHARED,
	SERVING = 1 << SHARED | 1 << QUEUE | 1 << SCALABLE_SHARED | 1 << SEVERAL | 1 << THROUGH,
	BOUND = 1 << ENABLED | 1 << ACCEPTS_ENABLED | 1 << CONNECTING | 1 << CONNECTING_ANNOUNCED |
		1 << ACCEPTING | 1 << CONNECTED | 1 << CONNECTED_ANNOUNCED | 1 << ACCEPTED |
		1 << ACCEPTED_ANNOUNCED,
	COMBINED = 1 << PLAIN | 1 << SHARED | 1 << SCALABLE | 1 << SCALABLE_SHARED | 1 << SENDS |
		   1 << TRIGGERED | 1 << COLLECTIVE,
	ONLY_CONNECTED = (BOUND & ~(1 << ENABLED)) | 1 << ACCEPTS_ENABLED,
	ONLY_RDM = 1 << SCALABLE | 1 << SCALABLE_SHARED | 1 << SEVERAL | 1 << THROUGH,
};

static const struct behaviour {
	const char *name;
	void (*run)(const struct form *form);
	int forms, flags;
} behaviours[] = {
	{ "messages", messages, ALL, CT_BOTH },
	{ "itself", itself, ALL & ~(1 << SEVERAL), CT_RDM },
	{ "expected", expected, SERVING, CT_BOTH },
	{ "unexpected", unexpected, SERVING | 1 << LATE | 1 << SOME_LATE, CT_BOTH },
	{ "tagged", tagged, SERVING, CT_BOTH },
	{ "tagged-unexpected", tagged_unexpected, SERVING | 1 << LATE, CT_BOTH },
	{ "beside", beside, BOUND | 1 << LATE | 1 << SOME_LATE, CT_BOTH },
	{ "early", early, SERVING | BOUND | 1 << LATE, CT_BOTH },
	{ "tags", tags, WAITING, CT_BOTH },
	{ "peek-claim", peek_and_claim, WAITING, CT_BOTH },
	{ "multi-receive", multi_receive, WAITING, CT_BOTH },
	{ "directed", directed, ALL & ~(1 << SEVERAL | 1 << THROUGH), CT_RDM },
	{ "cancel", cancel, ALL | 1 << ENABLED | 1 << CONNECTED, CT_BOTH },
	{ "receiver-leaves", receiver_leaves, 1 << SHARED | 1 << QUEUE | 1 << SOME_LATE, CT_BOTH },
	{ "sender-leaves", sender_leaves, 1 << SHARED | 1 << QUEUE | 1 << SOME_LATE, CT_BOTH },
	{ "busy", busy, SERVING | 1 << LATE | 1 << SOME_LATE, CT_BOTH },
	{ "beyond-the-size", beyond_the_size, SERVING, CT_BOTH },
	{ "threads", threads, 1 << LATE | 1 << SCALABLE_SHARED, CT_BOTH },
	{ "own-receives", own_receives, 1 << LATE, CT_BOTH },
	{ "combined", combined, COMBINED, CT_RDM },
};

enum { MOST_ROWS = 256 };

static struct ct_test rows[MOST_ROWS];
static size_t count;

/* The behaviour and the form of a row; NULL for those of other tables. */
static struct {
	const struct behaviour *behaviour;
	const struct form *form;
} with[MOST_ROWS];

static void run_with_form(void)
{
	size_t row = (size_t)(ct_running - rows);

	with[row].behaviour->run(with[row].form);
}

static void add(const struct behaviour *behaviour, int form)
{
	int flags = behaviour->flags | CT_SLOW;
	char *name;

	if (asprintf(&name, "%s/%s", forms[form].name, behaviour->name) < 0)
		abort();
	if (1 << form & ONLY_CONNECTED)
		flags &= ~CT_RDM;
	if (1 << form & ONLY_RDM)
		flags &= ~CT_MSG;
	with[count].behaviour = behaviour;
	with[count].form = &forms[form];
	rows[count++] = (struct ct_test) { name, run_with_form, flags };
}

static void add_all(const struct ct_test *tests, size_t more)
{
	memcpy(&rows[count], tests, more * sizeof(*tests));
	count += more;
}

int main(int argc, char **argv)
{
	for (int form = 0; form < FORMS; form++)
		for (size_t i = 0; i < sizeof(behaviours) / sizeof(behaviours[0]); i++)
			if (behaviours[i].forms & 1 << form)
				add(&behaviours[i], form);
	add_all(scalable_tests, scalable_count);
	add_all(shared_tests, shared_count);
	return ct_main(argc, argv, rows, count);
}
