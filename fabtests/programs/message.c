/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Messages and tagged messages: every call, every size class, data verified. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "check.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define LARGEST (1 << 20)
#define TAG 0x1122334455667788ULL

/* Both sides of a pair with buffers large enough for every size. */
static bool is_tagged;

static void setup(struct ct_bench *bench, struct ct_spec spec, bool tagged)
{
	spec.caps |= tagged ? FI_TAGGED : FI_MSG;
	is_tagged = tagged;
	ct_open_bench(bench, &spec, &(struct ct_room) { .out = LARGEST, .in = LARGEST });
}

static uint64_t data_mask(const struct ct_peer *peer)
{
	size_t size = peer->info->domain_attr->cq_data_size;

	return size >= 8 ? UINT64_MAX : (1ULL << 8 * size) - 1;
}

/* Sends one message from a to b, with the receive posted first or last. */
static void transfer(struct ct_bench *bench, enum ct_send_form send,
		     enum ct_recv_form recv, size_t len, size_t pieces,
		     bool expected)
{
	static unsigned seed;
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;
	uint64_t kind = is_tagged ? FI_TAGGED : FI_MSG;
	uint64_t data = 0xfedcba9876543210ULL & data_mask(a);
	struct fi_context2 tx_context, rx_context;
	struct ct_completion done;
	struct ct_message tx = {
		.tagged = is_tagged, .buf = bench->out.data, .len = len,
		.pieces = pieces, .desc = bench->out.desc, .tag = TAG,
		.data = data, .context = &tx_context,
	}, rx = {
		.tagged = is_tagged, .buf = bench->in.data, .len = len,
		.pieces = pieces, .desc = bench->in.desc, .tag = TAG,
		.from = FI_ADDR_UNSPEC, .context = &rx_context,
	};

	seed++;
	ct_fill(bench->out.data, len, seed);
	memset(bench->in.data, 0xee, len);

	if (expected)
		POST(b, ct_recv(b, recv, &rx));
	POST(a, ct_send(a, send, &tx));
	if (!ct_send_completes(send) || send == CT_SENDMSG_INJECT)
		memset(bench->out.data, 0, len);	/* ours again */
	if (!expected)
		POST(b, ct_recv(b, recv, &rx));

	if (ct_send_completes(send)) {
		done = ct_done(a, &a->tx, &tx_context);
		REQUIRE(done.flags & FI_SEND);
		REQUIRE(done.flags & kind);
		REQUIRE(!(done.flags & FI_RECV));
	}
	done = ct_done(b, &b->rx, &rx_context);
	REQUIRE(done.flags & FI_RECV);
	REQUIRE(done.flags & kind);
	REQUIRE(!(done.flags & FI_SEND));
	REQUIRE(done.len == len);
	REQUIRE(!is_tagged || done.tag == TAG);
	if (ct_send_has_data(send)) {
		REQUIRE(done.flags & FI_REMOTE_CQ_DATA);
		REQUIRE(done.data == data);
	} else {
		REQUIRE(!(done.flags & FI_REMOTE_CQ_DATA));
	}
	REQUIRE(ct_holds(bench->in.data, len, seed));
}

static void every_size(struct ct_bench *bench, enum ct_send_form send,
		       enum ct_recv_form recv)
{
	size_t inject = bench->pair.a.info->tx_attr->inject_size;
	const size_t sizes[] = {
		0, 1, 7, 64, inject, inject + 1, 4096, 9001, 65536, LARGEST,
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (sizes[i] > ct_send_limit(&bench->pair.a, send))
			continue;
		transfer(bench, send, recv, sizes[i], 1, true);
		transfer(bench, send, recv, sizes[i], 1, false);
	}
}

static void all_forms(bool tagged)
{
	struct ct_bench bench;

	setup(&bench, (struct ct_spec) { 0 }, tagged);
	for (enum ct_send_form send = 0; send < CT_SEND_FORMS; send++) {
		if (!ct_send_offered(&bench.pair.a, send))
			continue;
		for (enum ct_recv_form recv = 0; recv < CT_RECV_FORMS; recv++) {
			every_size(&bench, send, recv);
			CHECK(true, "%s-to-%s", ct_send_name(send),
			      ct_recv_name(recv));
		}
	}
	ct_close_bench(&bench);
}

static void forms(void)
{
	all_forms(false);
}

static void tagged_forms(void)
{
	all_forms(true);
}

static void all_vectors(bool tagged)
{
	struct ct_bench bench;
	size_t tx, rx;

	setup(&bench, (struct ct_spec) { 0 }, tagged);
	tx = bench.pair.a.info->tx_attr->iov_limit;
	rx = bench.pair.b.info->rx_attr->iov_limit;
	CHECK(tx >= 1 && rx >= 1, "limits");
	for (size_t n = 2; n <= tx && n <= rx && n <= 16; n++) {
		transfer(&bench, CT_SENDV, CT_RECVV, 1000, n, true);
		transfer(&bench, CT_SENDV, CT_RECVV, 100000, n, true);
		transfer(&bench, CT_SENDMSG, CT_RECVMSG, 1000, n, false);
		transfer(&bench, CT_SENDMSG, CT_RECVMSG, 100000, n, false);
		transfer(&bench, CT_SENDMSG_DATA, CT_RECVV, 64, n, true);
		/* Fewer bytes than pieces: some are empty. */
		transfer(&bench, CT_SENDV, CT_RECVV, n - 1, n, true);
		CHECK(true, "%zu-pieces", n);
	}
	ct_close_bench(&bench);
}

static void vectors(void)
{
	all_vectors(false);
}

static void tagged_vectors(void)
{
	all_vectors(true);
}

/* Many messages in flight arrive once each and in order. */
static void burst_of(bool tagged, bool expected)
{
	enum { COUNT = 200, SIZE = 200 };
	static struct fi_context2 tx_context[COUNT], rx_context[COUNT];
	struct ct_bench bench;
	struct ct_peer *a, *b;

	setup(&bench, (struct ct_spec) { 0 }, tagged);
	a = &bench.pair.a;
	b = &bench.pair.b;
	for (int pass = 0; pass < 2; pass++) {
		bool receives = expected == (pass == 0);

		for (int i = 0; i < COUNT; i++) {
			struct ct_message m = {
				.tagged = tagged, .len = SIZE, .tag = TAG,
				.from = FI_ADDR_UNSPEC,
			};

			if (receives) {
				m.buf = bench.in.data + i * SIZE;
				m.desc = bench.in.desc;
				m.context = &rx_context[i];
				POST(b, ct_recv(b, CT_RECV, &m));
			} else {
				m.buf = bench.out.data + i * SIZE;
				m.desc = bench.out.desc;
				m.context = &tx_context[i];
				ct_fill(m.buf, SIZE, (unsigned)i);
				POST(a, ct_send(a, CT_SEND, &m));
			}
		}
	}
	for (int i = 0; i < COUNT; i++) {
		REQUIRE(ct_done(b, &b->rx, &rx_context[i]).len == SIZE);
		REQUIRE(ct_holds(bench.in.data + i * SIZE, SIZE, (unsigned)i));
		ct_done(a, &a->tx, &tx_context[i]);
	}
	REQUIRE(ct_stays_empty(b, &b->rx));
	ct_close_bench(&bench);
}

static void burst(void)
{
	burst_of(false, true);
}

static void burst_unexpected(void)
{
	burst_of(false, false);
}

static void tagged_burst(void)
{
	burst_of(true, true);
}

static void tagged_burst_unexpected(void)
{
	burst_of(true, false);
}

/* Both directions at the same time, both sides with sends and receives
 * pending. */
static void crossing(void)
{
	enum { SIZE = 300000 };
	struct ct_spec spec = { 0 };
	struct ct_pair pair;
	struct ct_memory out[2], in[2];
	struct ct_peer *peer[2] = { &pair.a, &pair.b };
	static struct fi_context2 tx_context[2], rx_context[2];

	ct_open_pair(&pair, &spec);
	for (int i = 0; i < 2; i++) {
		ct_memory_open(peer[i], &out[i], SIZE, FI_SEND);
		ct_memory_open(peer[i], &in[i], SIZE, FI_RECV);
	}
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 2; i++) {
			ct_fill(out[i].data, SIZE, (unsigned)(round * 2 + i));
			POST(peer[i], fi_recv(peer[i]->ep, in[i].data, SIZE,
					      in[i].desc, FI_ADDR_UNSPEC,
					      &rx_context[i]));
		}
		for (int i = 0; i < 2; i++)
			POST(peer[i], fi_send(peer[i]->ep, out[i].data, SIZE,
					      out[i].desc, peer[i]->to,
					      &tx_context[i]));
		for (int i = 0; i < 2; i++) {
			ct_done(peer[i], &peer[i]->tx, &tx_context[i]);
			ct_done(peer[i], &peer[i]->rx, &rx_context[i]);
			REQUIRE(ct_holds(in[i].data, SIZE,
					 (unsigned)(round * 2 + !i)));
		}
	}
	for (int i = 0; i < 2; i++) {
		ct_memory_close(&out[i]);
		ct_memory_close(&in[i]);
	}
	ct_close_pair(&pair);
}

/* The receive is shorter than the message: the rest is dropped and counted. */
static void truncation_of(bool tagged, bool expected, size_t sent, size_t room)
{
	struct fi_context2 tx_context, rx_context;
	struct ct_bench bench;
	struct ct_peer *a, *b;
	struct ct_completion err;
	struct ct_message tx = {
		.tagged = tagged, .len = sent, .tag = TAG,
		.context = &tx_context,
	}, rx = {
		.tagged = tagged, .len = room, .tag = TAG,
		.from = FI_ADDR_UNSPEC, .context = &rx_context,
	};

	setup(&bench, (struct ct_spec) { 0 }, tagged);
	a = &bench.pair.a;
	b = &bench.pair.b;
	tx.buf = bench.out.data;
	tx.desc = bench.out.desc;
	rx.buf = bench.in.data;
	rx.desc = bench.in.desc;
	ct_fill(bench.out.data, sent, 1);
	memset(bench.in.data, 0xee, sent);
	if (expected)
		POST(b, ct_recv(b, CT_RECV, &rx));
	POST(a, ct_send(a, CT_SEND, &tx));
	if (!expected) {
		for (int i = 0; i < 100; i++)
			ct_progress(a);
		POST(b, ct_recv(b, CT_RECV, &rx));
	}
	err = ct_error(b, &b->rx);
	CHECK(err.err == FI_ETRUNC, "%zu-into-%zu%s/err", sent, room,
	      expected ? "" : "-unexpected");
	CHECK(err.context == &rx_context, "%zu-into-%zu%s/context", sent, room,
	      expected ? "" : "-unexpected");
	CHECK(err.olen == sent - room, "%zu-into-%zu%s/olen", sent, room,
	      expected ? "" : "-unexpected");
	CHECK(ct_is_all(bench.in.data + room, sent - room, 0xee),
	      "%zu-into-%zu%s/bounds", sent, room,
	      expected ? "" : "-unexpected");
	ct_done(a, &a->tx, &tx_context);

	/* The connection continues. */
	transfer(&bench, CT_SEND, CT_RECV, 100, 1, true);
	ct_close_bench(&bench);
}

static void all_truncations(bool tagged)
{
	truncation_of(tagged, true, 64, 63);
	truncation_of(tagged, true, 100000, 1000);
	truncation_of(tagged, false, 64, 63);
	truncation_of(tagged, false, 100000, 1000);
}

static void truncation_to_nothing(void)
{
	truncation_of(false, true, 64, 0);
	for (int tagged = 0; tagged < 2; tagged++)
		for (int expected = 0; expected < 2; expected++)
			truncation_of(tagged, expected, 300000, 0);
}

static void truncation(void)
{
	all_truncations(false);
}

static void tagged_truncation(void)
{
	all_truncations(true);
}

/* A message far beyond every buffer of socket and library. */
static void very_large_of(bool tagged)
{
	size_t size = ct_opt.valgrind ? 8UL << 20 : 256UL << 20;
	struct ct_spec spec = { .caps = tagged ? FI_TAGGED : FI_MSG };
	struct fi_context2 tx_context, rx_context;
	struct ct_memory out, in;
	struct ct_pair pair;
	struct ct_message tx = { .tagged = tagged, .len = size, .tag = TAG,
				 .context = &tx_context },
			  rx = { .tagged = tagged, .len = size, .tag = TAG,
				 .context = &rx_context,
				 .from = FI_ADDR_UNSPEC };

	ct_open_pair(&pair, &spec);
	if (pair.a.info->ep_attr->max_msg_size < size)
		SKIP("max_msg_size is %zu", pair.a.info->ep_attr->max_msg_size);
	ct_memory_open(&pair.a, &out, size, FI_SEND);
	ct_memory_open(&pair.b, &in, size, FI_RECV);
	tx.buf = out.data;
	tx.desc = out.desc;
	rx.buf = in.data;
	rx.desc = in.desc;
	ct_fill(out.data, size, 77);
	POST(&pair.b, ct_recv(&pair.b, CT_RECV, &rx));
	POST(&pair.a, ct_send(&pair.a, CT_SEND, &tx));
	REQUIRE(ct_done_large(&pair.b, &pair.b.rx, &rx_context).len == size);
	ct_done_large(&pair.a, &pair.a.tx, &tx_context);
	REQUIRE(!memcmp(out.data, in.data, size));
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_close_pair(&pair);
}

static void very_large(void)
{
	very_large_of(false);
}

static void tagged_very_large(void)
{
	very_large_of(true);
}

/* One completion queue for both directions, one domain for both ends. */
static void shared_everything(void)
{
	struct ct_bench bench;

	setup(&bench, (struct ct_spec) { .one_cq = true, .one_domain = true },
	      false);
	transfer(&bench, CT_SEND, CT_RECV, 100, 1, true);
	transfer(&bench, CT_SENDDATA, CT_RECVMSG, 100000, 1, false);
	transfer(&bench, CT_INJECT, CT_RECV, 8, 1, true);
	ct_close_bench(&bench);
}

/* An endpoint sends to itself. */
static void to_self(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED };
	struct fi_context2 tx_context, rx_context;
	unsigned char name[CT_NAME];
	struct ct_memory out, in;
	struct ct_peer self;
	struct ct_message m = {
		.tagged = true, .len = 5000, .tag = TAG,
		.from = FI_ADDR_UNSPEC,
	};

	ct_open_single(&self, &spec);
	ct_name(&self.ep->fid, name, sizeof(name));
	self.to = ct_insert(&self, name);
	ct_memory_open(&self, &out, m.len, FI_SEND);
	ct_memory_open(&self, &in, m.len, FI_RECV);
	ct_fill(out.data, m.len, 3);
	m.buf = in.data;
	m.desc = in.desc;
	m.context = &rx_context;
	POST(&self, ct_recv(&self, CT_RECV, &m));
	m.buf = out.data;
	m.desc = out.desc;
	m.context = &tx_context;
	POST(&self, ct_send(&self, CT_SEND, &m));
	ct_done(&self, &self.rx, &rx_context);
	ct_done(&self, &self.tx, &tx_context);
	REQUIRE(ct_holds(in.data, m.len, 3));
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_close_peer(&self);
}

/* All unexpected messages are available when receives are posted late. */
static void many_unexpected_of(bool tagged, size_t size, int count)
{
	static struct fi_context2 tx_context[4096], rx_context;
	static bool ended[4096];
	struct ct_spec spec = { .caps = tagged ? FI_TAGGED : FI_MSG };
	struct ct_memory out, in;
	struct ct_pair pair;
	int sent = 0;

	REQUIRE(count <= 4096);
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	ct_memory_open(&pair.a, &out, size * (size_t)count, FI_SEND);
	ct_memory_open(&pair.b, &in, size, FI_RECV);
	ct_fill(out.data, out.size, 9);
	while (sent < count) {
		struct ct_message m = {
			.tagged = tagged, .tag = (uint64_t)sent,
			.buf = out.data + (size_t)sent * size, .len = size,
			.desc = out.desc, .context = &tx_context[sent],
		};
		ssize_t ret = ct_send(&pair.a, CT_SEND, &m);

		/* A sender may be held back: receives then make room. */
		if (ret == -FI_EAGAIN)
			break;
		OK(ret);
		sent++;
		if (sent % 16 == 0)
			ct_progress(&pair.a);
	}
	REQUIRE(sent > 0);
	for (int i = 0; i < sent; i++) {
		struct ct_message m = {
			.tagged = tagged, .tag = (uint64_t)i, .buf = in.data,
			.len = size, .desc = in.desc, .from = FI_ADDR_UNSPEC,
			.context = &rx_context,
		};

		POST(&pair.b, ct_recv(&pair.b, CT_RECV, &m));
		ct_done(&pair.b, &pair.b.rx, &rx_context);
		REQUIRE(!memcmp(in.data, out.data + (size_t)i * size, size));
	}
	/* In whatever order: messages that wait for their receives end later. */
	memset(ended, 0, sizeof(ended));
	for (int i = 0; i < sent; i++) {
		struct ct_completion done = ct_next(&pair.a, &pair.a.tx);
		ptrdiff_t which = (struct fi_context2 *)done.context - tx_context;

		REQUIRE(!done.err && which >= 0 && which < sent);
		REQUIRE(!ended[which]);
		ended[which] = true;
	}
	CHECK(sent > 0, "%d-of-%zu-bytes", count, size);
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_close_pair(&pair);
}

static void many_unexpected(void)
{
	many_unexpected_of(false, 16, ct_times(2000));
	many_unexpected_of(false, 100000, ct_times(200));
}

static void tagged_many_unexpected(void)
{
	many_unexpected_of(true, 16, ct_times(2000));
	many_unexpected_of(true, 100000, ct_times(200));
}

static const struct ct_test tests[] = {
	{ "forms", forms, CT_BOTH },
	{ "tagged-forms", tagged_forms, CT_BOTH },
	{ "vectors", vectors, CT_BOTH },
	{ "tagged-vectors", tagged_vectors, CT_BOTH },
	{ "burst", burst, CT_BOTH },
	{ "burst-unexpected", burst_unexpected, CT_BOTH },
	{ "tagged-burst", tagged_burst, CT_BOTH },
	{ "tagged-burst-unexpected", tagged_burst_unexpected, CT_BOTH },
	{ "crossing", crossing, CT_BOTH },
	{ "truncation", truncation, CT_BOTH },
	{ "truncation-to-nothing", truncation_to_nothing, CT_BOTH },
	{ "tagged-truncation", tagged_truncation, CT_BOTH },
	{ "very-large", very_large, CT_BOTH },
	{ "tagged-very-large", tagged_very_large, CT_BOTH },
	{ "shared-everything", shared_everything, CT_BOTH },
	{ "to-self", to_self, CT_RDM },
	{ "many-unexpected", many_unexpected, CT_BOTH },
	{ "tagged-many-unexpected", tagged_many_unexpected, CT_BOTH },
};

CT_MAIN(tests)
