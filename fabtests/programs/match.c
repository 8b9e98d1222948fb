/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Which message meets which receive: tags, masks, sources, multi-receive,
 * peek, claim, discard, cancel. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context[256], rx_context[256];

static struct ct_message tagged_receive(int i, uint64_t tag, uint64_t ignore)
{
	return (struct ct_message) {
		.tagged = true, .tag = tag, .ignore = ignore,
		.from = FI_ADDR_UNSPEC, .context = &rx_context[i],
	};
}

static void post_tagged(struct ct_peer *peer, int i, uint64_t tag,
			uint64_t ignore)
{
	struct ct_message m = tagged_receive(i, tag, ignore);

	POST(peer, ct_recv(peer, CT_RECV, &m));
}

static void send_tagged(struct ct_peer *peer, int i, uint64_t tag)
{
	struct ct_message m = {
		.tagged = true, .tag = tag, .context = &tx_context[i],
	};

	POST(peer, ct_send(peer, CT_SEND, &m));
}

/* Sends and waits until the message is at the other side, unmatched. */
static void send_unexpected(struct ct_pair *pair, int i, uint64_t tag)
{
	send_tagged(&pair->a, i, tag);
	ct_done(&pair->a, &pair->a.tx, &tx_context[i]);
	REQUIRE(ct_stays_empty(&pair->b, &pair->b.rx));
}

static void open_tagged(struct ct_pair *pair)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED };

	ct_open_pair(pair, &spec);
	ct_warm_up(pair);
}

/* Receives complete by tag, in whatever order they were posted. */
static void exact(void)
{
	enum { COUNT = 64 };
	struct ct_pair pair;

	for (int expected = 0; expected < 2; expected++) {
		open_tagged(&pair);
		if (expected)
			for (int i = 0; i < COUNT; i++)
				post_tagged(&pair.b, i, (uint64_t)i, 0);
		for (int i = 0; i < COUNT; i++) {
			int tag = (i * 37) % COUNT;

			send_tagged(&pair.a, i, (uint64_t)tag);
			ct_done(&pair.a, &pair.a.tx, &tx_context[i]);
		}
		for (int i = 0; i < COUNT; i++) {
			/* Posted late, each receive finds its own. */
			int tag = expected ? (i * 37) % COUNT : i;
			struct ct_completion done;

			if (!expected)
				post_tagged(&pair.b, tag, (uint64_t)tag, 0);
			done = ct_done(&pair.b, &pair.b.rx, &rx_context[tag]);
			REQUIRE(done.tag == (uint64_t)tag);
		}
		CHECK(true, expected ? "expected" : "unexpected");
		ct_close_pair(&pair);
	}
}

static void masks(void)
{
	static const struct {
		uint64_t tag, ignore, sent;
		bool match;
	} cases[] = {
		{ 0, 0, 0, true },
		{ 0, 0, 1, false },
		{ 1, 0, 1ULL << 63 | 1, false },
		{ UINT64_MAX, 0, UINT64_MAX, true },
		{ UINT64_MAX, 0, UINT64_MAX >> 1, false },
		{ 0, UINT64_MAX, 0x1234567890abcdefULL, true },
		{ 0x1200, 0xff, 0x12ab, true },
		{ 0x12cd, 0xff, 0x12ab, true },	/* ignored bits of the receive */
		{ 0x1200, 0xff, 0x13ab, false },
		{ 0x1200, 0xfe, 0x1201, false },
		{ 1ULL << 63, ~(1ULL << 63), UINT64_MAX, true },
		{ 1ULL << 63, ~(1ULL << 63), UINT64_MAX >> 1, false },
		{ 5, 1ULL << 63, 1ULL << 63 | 5, true },
	};
	struct ct_pair pair;

	open_tagged(&pair);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int expected = 0; expected < 2; expected++) {
			struct ct_completion done;

			if (expected)
				post_tagged(&pair.b, 0, cases[i].tag,
					    cases[i].ignore);
			send_tagged(&pair.a, 0, cases[i].sent);
			ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
			if (!expected) {
				REQUIRE(ct_stays_empty(&pair.b, &pair.b.rx));
				post_tagged(&pair.b, 0, cases[i].tag,
					    cases[i].ignore);
			}
			if (cases[i].match) {
				done = ct_done(&pair.b, &pair.b.rx,
					       &rx_context[0]);
				CHECK(done.tag == cases[i].sent, "%zu%s", i,
				      expected ? "" : "-unexpected");
				continue;
			}
			CHECK(ct_stays_empty(&pair.b, &pair.b.rx), "%zu%s", i,
			      expected ? "" : "-unexpected");
			/* Clear away both halves. */
			post_tagged(&pair.b, 1, cases[i].sent, 0);
			ct_done(&pair.b, &pair.b.rx, &rx_context[1]);
			send_tagged(&pair.a, 1, cases[i].tag);
			ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
			ct_done(&pair.a, &pair.a.tx, &tx_context[1]);
		}
	}
	ct_close_pair(&pair);
}

/* Of several that match, the first posted and the first sent meet. */
static void first_come(void)
{
	struct ct_pair pair;

	open_tagged(&pair);
	post_tagged(&pair.b, 0, 7, 0);
	post_tagged(&pair.b, 1, 0, UINT64_MAX);
	post_tagged(&pair.b, 2, 7, 0);
	for (int i = 0; i < 3; i++)
		send_tagged(&pair.a, i, 7);
	for (int i = 0; i < 3; i++) {
		ct_done(&pair.b, &pair.b.rx, &rx_context[i]);
		ct_done(&pair.a, &pair.a.tx, &tx_context[i]);
	}
	CHECK(true, "posted");

	for (int i = 0; i < 4; i++)
		send_unexpected(&pair, i, (uint64_t)(100 + i % 2));
	for (int i = 0; i < 4; i++) {
		/* The wildcard takes the oldest, 101 the oldest of its own. */
		const uint64_t want[] = { 100, 101, 100, 101 };
		struct ct_completion done;

		post_tagged(&pair.b, i, i == 1 ? 101 : 0,
			    i == 1 ? 0 : UINT64_MAX);
		done = ct_done(&pair.b, &pair.b.rx, &rx_context[i]);
		REQUIRE(done.tag == want[i]);
	}
	CHECK(true, "arrived");
	ct_close_pair(&pair);
}

/* Tagged and untagged messages do not meet each other's receives. */
static void kinds_apart(void)
{
	struct ct_pair pair;

	open_tagged(&pair);
	post_tagged(&pair.b, 0, 0, UINT64_MAX);
	POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
			      &tx_context[0]));
	REQUIRE(ct_stays_empty(&pair.b, &pair.b.rx));
	send_tagged(&pair.a, 1, 3);
	REQUIRE(ct_done(&pair.b, &pair.b.rx, &rx_context[0]).flags & FI_TAGGED);
	send_tagged(&pair.a, 2, 4);
	POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
			      &rx_context[1]));
	REQUIRE(ct_done(&pair.b, &pair.b.rx, &rx_context[1]).flags & FI_MSG);
	post_tagged(&pair.b, 2, 4, 0);
	ct_done(&pair.b, &pair.b.rx, &rx_context[2]);
	for (int i = 0; i < 3; i++)
		ct_done(&pair.a, &pair.a.tx, &tx_context[i]);
	ct_close_pair(&pair);
}

/* A receive that names a source takes only messages of that source. */
static void directed_of(bool tagged)
{
	struct ct_spec spec = {
		.caps = (tagged ? FI_TAGGED : FI_MSG) | FI_DIRECTED_RECV |
			FI_SOURCE,
	};
	struct ct_message m = { .tagged = tagged };
	struct ct_peer third;
	struct ct_pair pair;
	fi_addr_t third_addr;

	ct_open_pair(&pair, &spec);
	third_addr = ct_open_third(&third, &pair.b);
	for (int expected = 0; expected < 2; expected++) {
		struct ct_peer *senders[] = { &pair.a, &third };

		for (int step = 0; step < 2; step++) {
			if (step == expected) {
				/* Unexpected: both have to be there first. */
				for (int i = 0; i < 2; i++) {
					m.context = &tx_context[i];
					POST(senders[i],
					     ct_send(senders[i], CT_SEND, &m));
					ct_done(senders[i], &senders[i]->tx,
						&tx_context[i]);
				}
				continue;
			}
			/* In the other order than they are sent. */
			m.context = &rx_context[1];
			m.from = third_addr;
			POST(&pair.b, ct_recv(&pair.b, CT_RECV, &m));
			m.context = &rx_context[0];
			m.from = pair.b.to;
			POST(&pair.b, ct_recv(&pair.b, CT_RECV, &m));
		}
		for (int i = 0; i < 2; i++) {
			struct ct_completion done = ct_next(&pair.b,
							    &pair.b.rx);

			REQUIRE(!done.err);
			if (done.context == &rx_context[0])
				REQUIRE(done.src == pair.b.to);
			else
				REQUIRE(done.src == third_addr);
		}
		CHECK(true, expected ? "expected" : "unexpected");
	}
	/* A receive that never matches stays posted. */
	m.context = &rx_context[2];
	m.from = third_addr;
	POST(&pair.b, ct_recv(&pair.b, CT_RECVV, &m));
	m.context = &rx_context[3];
	m.from = FI_ADDR_UNSPEC;
	POST(&pair.b, ct_recv(&pair.b, CT_RECVMSG, &m));
	m.context = &tx_context[0];
	POST(&pair.a, ct_send(&pair.a, CT_SEND, &m));
	ct_done(&pair.b, &pair.b.rx, &rx_context[3]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	ct_close_peer(&third);
	ct_close_pair(&pair);
}

static void directed(void)
{
	directed_of(false);
}

static void directed_tagged(void)
{
	directed_of(true);
}

/*
 * One buffer takes many messages, in order and without overlap, until less
 * than the minimum is left; the release is reported once.
 */
static void multi_receive_of(bool tagged, bool expected)
{
	enum { SIZE = 100, ROOM = 1000, MINIMUM = 200, COUNT = 30 };
	struct ct_spec spec = {
		.caps = tagged ? FI_TAGGED | FI_TAGGED_MULTI_RECV
			       : FI_MSG | FI_MULTI_RECV,
		.rx_op_flags = 0,
	};
	size_t minimum = MINIMUM, len = sizeof(minimum);
	struct ct_memory out, in[8];
	struct ct_pair pair;
	int posted = 0, received = 0, current = 0;
	unsigned char *expect_at;
	bool released = true;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	OK(fi_setopt(&ct_rx_ep(&pair.b)->fid, FI_OPT_ENDPOINT,
		     FI_OPT_MIN_MULTI_RECV, &minimum, sizeof(minimum)));
	minimum = 0;
	OK(fi_getopt(&ct_rx_ep(&pair.b)->fid, FI_OPT_ENDPOINT,
		     FI_OPT_MIN_MULTI_RECV, &minimum, &len));
	REQUIRE(minimum == MINIMUM);
	ct_memory_open(&pair.a, &out, COUNT * SIZE, FI_SEND);
	ct_fill(out.data, COUNT * SIZE, 4);
	for (int i = 0; i < 8; i++)
		ct_memory_open(&pair.b, &in[i], ROOM, FI_RECV);

	for (int step = 0; step < 2; step++) {
		if (step == expected) {
			for (int i = 0; i < COUNT; i++) {
				struct ct_message m = {
					.tagged = tagged, .tag = 1,
					.buf = out.data + i * SIZE,
					.len = SIZE, .desc = out.desc,
					.context = &tx_context[i],
				};

				POST(&pair.a, ct_send(&pair.a, CT_SEND, &m));
			}
			for (int i = 0; !expected && i < 200; i++)
				ct_progress(&pair.a);
			continue;
		}
		for (; posted < 8; posted++) {
			struct ct_message m = {
				.tagged = tagged, .tag = 1,
				.buf = in[posted].data, .len = ROOM,
				.desc = in[posted].desc,
				.from = FI_ADDR_UNSPEC,
				.flags = FI_MULTI_RECV,
				.context = &rx_context[posted],
			};

			POST(&pair.b, ct_recv(&pair.b, CT_RECVMSG, &m));
		}
	}
	expect_at = in[0].data;
	while (received < COUNT) {
		struct ct_completion done = ct_next(&pair.b, &pair.b.rx);

		REQUIRE(!done.err);
		REQUIRE(done.context == &rx_context[current]);
		released = done.flags & FI_MULTI_RECV;
		if (done.flags & FI_RECV) {
			REQUIRE(done.len == SIZE);
			REQUIRE((unsigned char *)done.buf >= expect_at);
			REQUIRE((unsigned char *)done.buf + SIZE <=
				in[current].data + ROOM);
			REQUIRE(!memcmp(done.buf, out.data + received * SIZE,
					SIZE));
			expect_at = (unsigned char *)done.buf + SIZE;
			received++;
		} else {
			REQUIRE(released);
		}
		if (released) {
			/* Not before the room is used up. */
			REQUIRE(expect_at > in[current].data + ROOM - MINIMUM -
				SIZE);
			current++;
			REQUIRE(current < 8);
			expect_at = in[current].data;
		}
	}
	CHECK(current >= COUNT * SIZE / ROOM, "buffers-used");
	for (int i = 0; i < COUNT; i++)
		ct_done(&pair.a, &pair.a.tx, &tx_context[i]);
	ct_memory_close(&out);
	for (int i = 0; i < 8; i++)
		ct_memory_close(&in[i]);
	ct_close_pair(&pair);
}

static void multi_receive(void)
{
	multi_receive_of(false, true);
}

static void multi_receive_unexpected(void)
{
	multi_receive_of(false, false);
}

static void multi_receive_tagged(void)
{
	multi_receive_of(true, true);
}

/* A message that does not fit into the rest of a buffer goes to the next
 * buffer or is truncated; either way the buffer before it is unchanged. */
static void multi_receive_too_large(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_MULTI_RECV };
	struct ct_memory out, in;
	struct ct_pair pair;
	struct ct_completion done;
	size_t minimum = 16;
	struct ct_message m = {
		.len = 256, .from = FI_ADDR_UNSPEC, .flags = FI_MULTI_RECV,
		.context = &rx_context[0],
	};

	ct_open_pair(&pair, &spec);
	OK(fi_setopt(&pair.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
		     &minimum, sizeof(minimum)));
	ct_memory_open(&pair.a, &out, 400, FI_SEND);
	ct_memory_open(&pair.b, &in, 400, FI_RECV);
	ct_fill(out.data, 400, 1);
	memset(in.data, 0xee, 400);
	m.buf = in.data;
	m.desc = in.desc;
	POST(&pair.b, ct_recv(&pair.b, CT_RECVMSG, &m));
	POST(&pair.a, fi_send(pair.a.ep, out.data, 200, out.desc, pair.a.to,
			      &tx_context[0]));
	done = ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	REQUIRE(done.buf == in.data && done.len == 200);
	POST(&pair.a, fi_send(pair.a.ep, out.data, 400, out.desc, pair.a.to,
			      &tx_context[1]));
	done = ct_next(&pair.b, &pair.b.rx);
	REQUIRE(!done.err || done.err == FI_ETRUNC);
	REQUIRE(ct_holds(in.data, 200, 1));
	REQUIRE(ct_is_all(in.data + 256, 144, 0xee));
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_close_pair(&pair);
}

static void post_peek(struct ct_pair *pair, int i, uint64_t tag,
		      uint64_t ignore, uint64_t flags)
{
	struct ct_message m = tagged_receive(i, tag, ignore);

	m.flags = flags;
	POST(&pair->b, ct_recv(&pair->b, CT_RECVMSG, &m));
}

/* A peek that finds nothing reports that and has no other effect. */
static void peek_nothing(void)
{
	struct ct_completion err;
	struct ct_pair pair;

	open_tagged(&pair);
	post_peek(&pair, 0, 5, 0, FI_PEEK);
	err = ct_error(&pair.b, &pair.b.rx);
	REQUIRE(err.err == FI_ENOMSG);
	REQUIRE(err.context == &rx_context[0]);
	send_unexpected(&pair, 0, 6);
	post_peek(&pair, 0, 5, 0, FI_PEEK);
	REQUIRE(ct_error(&pair.b, &pair.b.rx).err == FI_ENOMSG);
	post_peek(&pair, 0, 5, 1, FI_PEEK | FI_CLAIM);
	REQUIRE(ct_error(&pair.b, &pair.b.rx).err == FI_ENOMSG);
	send_unexpected(&pair, 1, 5);
	post_tagged(&pair.b, 1, 5, 0);
	ct_done(&pair.b, &pair.b.rx, &rx_context[1]);
	ct_close_pair(&pair);
}

/* A message with contents and immediate data waits at b. */
static void leave_message(struct ct_pair *pair, struct ct_memory *out,
			  uint64_t tag, size_t len)
{
	struct ct_message m = {
		.tagged = true, .tag = tag, .buf = out->data, .len = len,
		.desc = out->desc, .data = 0x42, .context = &tx_context[0],
	};

	POST(&pair->a, ct_send(&pair->a, CT_SENDDATA, &m));
	for (int i = 0; i < 500; i++)
		ct_progress(&pair->a);
}

/* Peeks until the message has arrived. */
static struct ct_completion peek(struct ct_pair *pair, uint64_t tag,
				 uint64_t ignore, uint64_t flags)
{
	double until = ct_now() + ct_patience();
	struct ct_completion done;

	do {
		REQUIRE(ct_now() < until);
		post_peek(pair, 0, tag, ignore, flags);
		done = ct_next(&pair->b, &pair->b.rx);
	} while (done.err == FI_ENOMSG);
	REQUIRE(!done.err);
	REQUIRE(done.context == &rx_context[0]);
	return done;
}

static void receive_left(struct ct_pair *pair, struct ct_memory *in,
			 struct ct_message m, size_t len, unsigned seed)
{
	struct ct_completion done;

	m.buf = in->data;
	m.desc = in->desc;
	m.len = in->size;
	POST(&pair->b, ct_recv(&pair->b, CT_RECVMSG, &m));
	done = ct_done(&pair->b, &pair->b.rx, m.context);
	REQUIRE(done.len == len);
	REQUIRE(done.flags & FI_REMOTE_CQ_DATA);
	REQUIRE(done.data == 0x42);
	REQUIRE(ct_holds(in->data, len, seed));
	ct_done(&pair->a, &pair->a.tx, &tx_context[0]);
}

static void peek_found_of(size_t len, const char *name)
{
	struct ct_memory out, in;
	struct ct_completion done;
	struct ct_pair pair;

	open_tagged(&pair);
	ct_memory_open(&pair.a, &out, len, FI_SEND);
	ct_memory_open(&pair.b, &in, len, FI_RECV);
	ct_fill(out.data, len, 2);

	leave_message(&pair, &out, 0x77, len);
	for (int i = 0; i < 2; i++) {
		done = peek(&pair, 0x70, 0xf, FI_PEEK);
		REQUIRE(done.len == len);
		REQUIRE(done.tag == 0x77);
		REQUIRE(done.flags & FI_REMOTE_CQ_DATA && done.data == 0x42);
	}
	receive_left(&pair, &in, tagged_receive(1, 0x77, 0), len, 2);
	CHECK(true, "peek-%s", name);

	/* A claimed message belongs to the claimer only. */
	leave_message(&pair, &out, 0x77, len);
	done = peek(&pair, 0x77, 0, FI_PEEK | FI_CLAIM);
	REQUIRE(done.len == len);
	post_peek(&pair, 1, 0x77, 0, FI_PEEK);
	REQUIRE(ct_error(&pair.b, &pair.b.rx).err == FI_ENOMSG);
	{
		struct ct_message m = tagged_receive(0, 0x77, 0);

		m.flags = FI_CLAIM;
		receive_left(&pair, &in, m, len, 2);
	}
	CHECK(true, "claim-%s", name);

	/* Discarded at the peek. */
	leave_message(&pair, &out, 0x78, len);
	peek(&pair, 0x78, 0, FI_PEEK | FI_DISCARD);
	post_peek(&pair, 1, 0x78, 0, FI_PEEK);
	REQUIRE(ct_error(&pair.b, &pair.b.rx).err == FI_ENOMSG);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	CHECK(true, "discard-%s", name);

	/* Discarded after a claim. */
	leave_message(&pair, &out, 0x79, len);
	peek(&pair, 0x79, 0, FI_PEEK | FI_CLAIM);
	post_peek(&pair, 0, 0x79, 0, FI_CLAIM | FI_DISCARD);
	ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	CHECK(true, "claim-discard-%s", name);

	/* And the connection still works. */
	leave_message(&pair, &out, 1, len);
	receive_left(&pair, &in, tagged_receive(2, 1, 0), len, 2);
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_close_pair(&pair);
}

static void peek_small(void)
{
	peek_found_of(50, "small");
}

static void peek_large(void)
{
	peek_found_of(500000, "large");
}

/* The oldest of several that match is the one that a peek reports. */
static void peek_order(void)
{
	struct ct_pair pair;

	open_tagged(&pair);
	for (int i = 0; i < 3; i++)
		send_unexpected(&pair, i, (uint64_t)(10 + i));
	REQUIRE(peek(&pair, 0, UINT64_MAX, FI_PEEK).tag == 10);
	peek(&pair, 0, UINT64_MAX, FI_PEEK | FI_DISCARD);
	REQUIRE(peek(&pair, 0, UINT64_MAX, FI_PEEK).tag == 11);
	REQUIRE(peek(&pair, 12, 0, FI_PEEK | FI_DISCARD).tag == 12);
	REQUIRE(peek(&pair, 0, UINT64_MAX, FI_PEEK | FI_DISCARD).tag == 11);
	post_peek(&pair, 0, 0, UINT64_MAX, FI_PEEK);
	REQUIRE(ct_error(&pair.b, &pair.b.rx).err == FI_ENOMSG);
	ct_close_pair(&pair);
}

static void cancel_of(bool tagged)
{
	enum { COUNT = 20 };
	struct ct_spec spec = { .caps = tagged ? FI_TAGGED : FI_MSG };
	struct ct_message m = { .tagged = tagged, .from = FI_ADDR_UNSPEC };
	struct ct_pair pair;
	static struct fi_context2 stranger;
	int ret;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	for (int i = 0; i < COUNT; i++) {
		m.context = &rx_context[i];
		POST(&pair.b, ct_recv(&pair.b, CT_RECV, &m));
	}
	/* Every other one, from the end. */
	for (int i = COUNT - 1; i > 0; i -= 2) {
		struct ct_completion err;

		OK(fi_cancel(&ct_rx_ep(&pair.b)->fid, &rx_context[i]));
		err = ct_error(&pair.b, &pair.b.rx);
		REQUIRE(err.err == FI_ECANCELED);
		REQUIRE(err.context == &rx_context[i]);
	}
	CHECK(true, "cancelled");
	/* The others still serve, in their order. */
	m.context = &tx_context[0];
	for (int i = 0; i < COUNT; i += 2) {
		POST(&pair.a, ct_send(&pair.a, CT_SEND, &m));
		ct_done(&pair.b, &pair.b.rx, &rx_context[i]);
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	}
	CHECK(true, "rest");
	ret = fi_cancel(&ct_rx_ep(&pair.b)->fid, &rx_context[0]);
	CHECK(ret == 0, "completed");
	ret = fi_cancel(&ct_rx_ep(&pair.b)->fid, &stranger);
	CHECK(ret == 0, "stranger");
	CHECK(ct_stays_empty(&pair.b, &pair.b.rx), "no-more");
	ct_close_pair(&pair);
}

static void cancel(void)
{
	cancel_of(false);
}

static void cancel_tagged(void)
{
	cancel_of(true);
}

static const struct ct_test tests[] = {
	{ "exact", exact, CT_BOTH },
	{ "masks", masks, CT_BOTH },
	{ "first-come", first_come, CT_BOTH },
	{ "kinds-apart", kinds_apart, CT_BOTH },
	{ "directed", directed, CT_RDM },
	{ "directed-tagged", directed_tagged, CT_RDM },
	{ "multi-receive", multi_receive, CT_BOTH },
	{ "multi-receive-unexpected", multi_receive_unexpected, CT_BOTH },
	{ "multi-receive-tagged", multi_receive_tagged, CT_BOTH },
	{ "multi-receive-too-large", multi_receive_too_large, CT_BOTH },
	{ "peek-nothing", peek_nothing, CT_BOTH },
	{ "peek-small", peek_small, CT_BOTH },
	{ "peek-large", peek_large, CT_BOTH },
	{ "peek-order", peek_order, CT_BOTH },
	{ "cancel", cancel, CT_BOTH },
	{ "cancel-tagged", cancel_tagged, CT_BOTH },
};

CT_MAIN(tests)
