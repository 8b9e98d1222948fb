/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Remote memory access: every call, offsets, immediate data, ordering. */
#include <string.h>

#include "bench.h"
#include "check.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define LARGEST (1 << 20)
#define GUARD 64		/* bytes around a target that have to stay */

/* A local buffer at a, and a target at b with guards around it. */
static void setup(struct ct_bench *bench, struct ct_spec spec)
{
	spec.caps |= FI_MSG | FI_RMA;
	ct_open_bench(bench, &spec, &(struct ct_room) {
		.local = LARGEST, .remote = LARGEST + 2 * GUARD,
	});
}

static bool guards_hold(const struct ct_bench *bench, size_t len)
{
	const unsigned char *data = bench->remote.data;

	return ct_is_all(data, GUARD, 0xee) &&
	       ct_is_all(data + GUARD + len, GUARD, 0xee);
}

static uint64_t data_mask(const struct ct_peer *peer)
{
	size_t size = peer->info->domain_attr->cq_data_size;

	return size >= 8 ? UINT64_MAX : (1ULL << 8 * size) - 1;
}

static void check_target_completion(struct ct_bench *bench, size_t len,
				    uint64_t data)
{
	struct ct_peer *b = &bench->pair.b;
	struct ct_completion done = ct_next(b, &b->rx);

	REQUIRE(!done.err);
	REQUIRE(done.context == NULL);
	REQUIRE(done.flags & FI_REMOTE_WRITE);
	REQUIRE(done.flags & FI_REMOTE_CQ_DATA);
	REQUIRE(done.data == data);
	REQUIRE(done.len == len);
}

static void transfer(struct ct_bench *bench, enum ct_rma_form form, size_t len,
		     size_t pieces, size_t remote_pieces, uint64_t flags)
{
	static unsigned seed;
	static struct fi_context2 context;
	struct ct_peer *a = &bench->pair.a;
	unsigned char *target = bench->remote.data + GUARD;
	uint64_t data = 0x0123456789abcdefULL & data_mask(a);
	struct ct_completion done;
	struct ct_rma rma = {
		.buf = bench->local.data, .len = len, .pieces = pieces,
		.remote_pieces = remote_pieces, .desc = bench->local.desc,
		.addr = bench->remote.addr + GUARD, .key = bench->remote.key,
		.data = data, .flags = flags, .context = &context,
	};
	bool read = ct_rma_is_read(form);

	seed++;
	memset(bench->remote.data, 0xee, len + 2 * GUARD);
	if (read) {
		ct_fill(target, len, seed);
		memset(bench->local.data, 0, len);
	} else {
		ct_fill(bench->local.data, len, seed);
	}
	POST(a, ct_rma(a, form, &rma));
	if (!ct_rma_completes(form) || form == CT_WRITEMSG_INJECT)
		memset(bench->local.data, 0, len);	/* ours again */
	if (ct_rma_completes(form)) {
		done = ct_done(a, &a->tx, &context);
		REQUIRE(done.flags & (read ? FI_READ : FI_WRITE));
		REQUIRE(done.flags & FI_RMA);
	}
	if (read) {
		REQUIRE(ct_holds(bench->local.data, len, seed));
		REQUIRE(ct_holds(target, len, seed));
	} else if (ct_rma_has_data(form)) {
		check_target_completion(bench, len, data);
		REQUIRE(ct_holds(target, len, seed));
	} else if (flags & FI_DELIVERY_COMPLETE) {
		REQUIRE(ct_holds(target, len, seed));
	} else {
		UNTIL(a, ct_holds(target, len, seed));
	}
	REQUIRE(guards_hold(bench, len));
}

static void forms(void)
{
	struct ct_bench bench;
	size_t inject;

	setup(&bench, (struct ct_spec) { 0 });
	inject = bench.pair.a.info->tx_attr->inject_size;
	for (enum ct_rma_form form = 0; form < CT_RMA_FORMS; form++) {
		if (!ct_rma_offered(&bench.pair.a, form))
			continue;
		const size_t sizes[] = {
			1, 8, 63, inject, inject + 1, 4096, 65537, LARGEST,
		};

		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			if (sizes[i] <= ct_rma_limit(&bench.pair.a, form))
				transfer(&bench, form, sizes[i], 1, 1, 0);
		CHECK(true, "%s", ct_rma_name(form));
	}
	ct_close_bench(&bench);
}

static void nothing(void)
{
	struct ct_bench bench;

	setup(&bench, (struct ct_spec) { 0 });
	for (enum ct_rma_form form = 0; form < CT_RMA_FORMS; form++) {
		if (!ct_rma_offered(&bench.pair.a, form))
			continue;
		transfer(&bench, form, 0, 1, 1, 0);
		CHECK(true, "%s", ct_rma_name(form));
	}
	ct_close_bench(&bench);
}

static void vectors(void)
{
	struct ct_bench bench;
	size_t local, remote;

	setup(&bench, (struct ct_spec) { 0 });
	local = bench.pair.a.info->tx_attr->iov_limit;
	remote = bench.pair.a.info->tx_attr->rma_iov_limit;
	local = local > 16 ? 16 : local;
	remote = remote > 16 ? 16 : remote;
	CHECK(local >= 1 && remote >= 1, "limits");
	for (size_t i = 1; i <= local; i++) {
		transfer(&bench, CT_READV, 1000, i, 1, 0);
		transfer(&bench, CT_WRITEV, 100000, i, 1, 0);
		for (size_t j = 1; j <= remote; j++) {
			transfer(&bench, CT_READMSG, 1000, i, j, 0);
			transfer(&bench, CT_READMSG, 100000, i, j, 0);
			transfer(&bench, CT_WRITEMSG, 1000, i, j, 0);
			transfer(&bench, CT_WRITEMSG, 100000, i, j, 0);
			if (ct_rma_offered(&bench.pair.a, CT_WRITEMSG_DATA))
				transfer(&bench, CT_WRITEMSG_DATA, 5000, i, j, 0);
		}
	}
	ct_close_bench(&bench);
}

/* The forms with a length for either side. */
static const enum ct_rma_form sided[] = {
	CT_READMSG, CT_WRITEMSG, CT_WRITEMSG_DATA, CT_WRITEMSG_INJECT,
};

/* Posts an access of the one length here and the other one there, in pieces. */
static ssize_t uneven(struct ct_bench *bench, enum ct_rma_form form, size_t here,
		      size_t there, size_t pieces, void *context)
{
	struct ct_peer *a = &bench->pair.a;
	struct iovec iov[4];
	struct fi_rma_iov remote[4];
	void *descs[4];
	struct fi_msg_rma msg = {
		.msg_iov = iov, .desc = descs, .iov_count = pieces,
		.addr = a->to, .rma_iov = remote, .rma_iov_count = pieces,
		.context = context, .data = 7,
	};
	uint64_t flags = form == CT_WRITEMSG_DATA ? FI_REMOTE_CQ_DATA :
			 form == CT_WRITEMSG_INJECT ? FI_INJECT : 0;

	for (size_t i = 0; i < pieces; i++) {
		iov[i] = (struct iovec) {
			bench->local.data + i * here / pieces, here / pieces,
		};
		descs[i] = bench->local.desc;
		remote[i] = (struct fi_rma_iov) {
			bench->remote.addr + GUARD + i * there / pieces,
			there / pieces, bench->remote.key,
		};
	}
	return CT_POST(a, form == CT_READMSG ?
			  fi_readmsg(a->ep, &msg, flags | FI_COMPLETION) :
			  fi_writemsg(a->ep, &msg, flags | FI_COMPLETION));
}

/* As many bytes are moved as the shorter side has. */
static void even_out(struct ct_bench *bench, enum ct_rma_form form, size_t here,
		     size_t there, size_t pieces)
{
	static struct fi_context2 context;
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;
	size_t len = here < there ? here : there;
	unsigned char *target = bench->remote.data + GUARD;
	unsigned char *from = form == CT_READMSG ? target : bench->local.data;
	unsigned char *to = form == CT_READMSG ? bench->local.data : target;

	memset(bench->remote.data, 0xee, LARGEST + 2 * GUARD);
	memset(bench->local.data, 0xee, LARGEST);
	ct_fill(from, len, (unsigned)len);
	OK(uneven(bench, form, here, there, pieces, &context));
	ct_done(a, &a->tx, &context);
	UNTIL(a, ct_holds(to, len, (unsigned)len));
	if (form == CT_WRITEMSG_DATA) {
		struct ct_completion seen = ct_done(b, &b->rx, NULL);

		REQUIRE(seen.data == 7 && seen.len == len);
	}
	REQUIRE(ct_is_all(to + len, GUARD, 0xee));
}

/* A remote range that is longer than the local one is accessed up to the local
 * length. */
static void remote_longer(void)
{
	struct ct_bench bench;
	size_t most;

	setup(&bench, (struct ct_spec) { 0 });
	most = bench.pair.a.info->tx_attr->rma_iov_limit;
	most = most > 4 ? 4 : most;
	for (size_t i = 0; i < sizeof(sided) / sizeof(sided[0]); i++) {
		if (!ct_rma_offered(&bench.pair.a, sided[i]))
			continue;
		for (size_t pieces = 1; pieces <= most; pieces++) {
			even_out(&bench, sided[i], 24, 48, pieces);
			even_out(&bench, sided[i], 0, 48, pieces);
			if (sided[i] != CT_WRITEMSG_INJECT)
				even_out(&bench, sided[i], 120000, 480000,
					 pieces);
		}
		CHECK(true, "%s", ct_rma_name(sided[i]));
	}
	ct_close_bench(&bench);
}

/* A read returns the bytes that exist; the rest of a write has no destination.
 */
static void remote_shorter(void)
{
	static struct fi_context2 context;
	struct ct_bench bench;
	struct ct_peer *a;

	setup(&bench, (struct ct_spec) { 0 });
	a = &bench.pair.a;
	even_out(&bench, CT_READMSG, 48, 24, 1);
	even_out(&bench, CT_READMSG, 480000, 120000, 1);
	if (a->info->tx_attr->rma_iov_limit > 1)
		even_out(&bench, CT_READMSG, 480000, 120000, 2);
	memset(bench.remote.data, 0xee, LARGEST);
	for (size_t i = 1; i < sizeof(sided) / sizeof(sided[0]); i++)
		EXPECT(uneven(&bench, sided[i], 48, 24, 1, &context),
		       -FI_EINVAL);
	REQUIRE(ct_stays_empty(a, &a->tx));
	REQUIRE(ct_is_all(bench.remote.data, LARGEST, 0xee));
	ct_close_bench(&bench);
}

/* The completion of a write that asked for it means that the data are there. */
static void delivery_complete(void)
{
	struct ct_bench bench;

	setup(&bench, (struct ct_spec) { 0 });
	for (int i = 0; i < 50; i++) {
		transfer(&bench, CT_WRITEMSG, 8, 1, 1, FI_DELIVERY_COMPLETE);
		transfer(&bench, CT_WRITEMSG, 200000, 1, 1,
			 FI_DELIVERY_COMPLETE);
	}
	ct_close_bench(&bench);
}

/* Two operations, which may complete in any order. */
static void both_done(struct ct_peer *peer, void *one, void *other)
{
	struct ct_completion first = ct_next(peer, &peer->tx);

	REQUIRE(!first.err);
	REQUIRE(first.context == one || first.context == other);
	ct_done(peer, &peer->tx, first.context == one ? other : one);
}

/* A message that follows a write arrives when the data are there. */
static void send_after_write(void)
{
	static struct fi_context2 write_context, tx_context, rx_context;
	struct ct_bench bench;
	struct ct_peer *a, *b;

	setup(&bench, (struct ct_spec) { 0 });
	a = &bench.pair.a;
	b = &bench.pair.b;
	if (!(a->info->tx_attr->msg_order & FI_ORDER_SAW))
		SKIP("no FI_ORDER_SAW");
	for (unsigned i = 1; i <= 50; i++) {
		const size_t lens[] = { 16, 150000, LARGEST };
		size_t len = lens[i % 3];

		ct_fill(bench.local.data, len, i);
		POST(b, fi_recv(b->ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				&rx_context));
		POST(a, fi_write(a->ep, bench.local.data, len,
				 bench.local.desc, a->to, bench.remote.addr,
				 bench.remote.key, &write_context));
		POST(a, fi_send(a->ep, NULL, 0, NULL, a->to, &tx_context));
		ct_done(b, &b->rx, &rx_context);
		REQUIRE(ct_holds(bench.remote.data, len, i));
		both_done(a, &write_context, &tx_context);
	}
	ct_close_bench(&bench);
}

static void behind_messages(struct fi_info *hints)
{
	hints->tx_attr->msg_order = FI_ORDER_WAS;
}

/* An application that reads only the memory, and finds written data there, has
 * received the messages sent before. */
static void write_after_send(void)
{
	static struct fi_context2 write_context, tx_context, rx_context;
	struct ct_memory inbox;
	struct ct_bench bench;
	struct ct_peer *a, *b;

	setup(&bench, (struct ct_spec) { .hint = behind_messages });
	a = &bench.pair.a;
	b = &bench.pair.b;
	ct_memory_open(b, &inbox, LARGEST, FI_RECV);
	for (unsigned i = 1; i <= 50; i++) {
		size_t len = i % 2 ? 16 : 3000;

		ct_fill(bench.local.data, len, i);
		memset(bench.remote.data, 0xee, len);
		POST(b, fi_recv(b->ep, inbox.data, len, inbox.desc,
				FI_ADDR_UNSPEC, &rx_context));
		POST(a, fi_send(a->ep, bench.local.data, len, bench.local.desc,
				a->to, &tx_context));
		POST(a, fi_write(a->ep, bench.local.data, len,
				 bench.local.desc, a->to, bench.remote.addr,
				 bench.remote.key, &write_context));
		UNTIL(b, !ct_is_all(bench.remote.data, len, 0xee));
		REQUIRE(ct_holds(inbox.data, len, i));
		ct_done(b, &b->rx, &rx_context);
		both_done(a, &write_context, &tx_context);
		REQUIRE(ct_holds(bench.remote.data, len, i));
	}
	ct_memory_close(&inbox);
	ct_close_bench(&bench);
}

/* A read that follows a write to the same place sees it. */
static void read_after_write(void)
{
	static struct fi_context2 write_context, read_context;
	struct ct_memory result;
	struct ct_bench bench;
	struct ct_peer *a;

	setup(&bench, (struct ct_spec) { 0 });
	a = &bench.pair.a;
	ct_memory_open(a, &result, LARGEST, FI_READ);
	if (!(a->info->tx_attr->msg_order & FI_ORDER_RAW))
		SKIP("no FI_ORDER_RAW");
	for (unsigned i = 1; i <= 40; i++) {
		const size_t lens[] = { 32, LARGEST / 2, LARGEST };
		size_t len = lens[i % 3];

		ct_fill(bench.local.data, len, i);
		POST(a, fi_write(a->ep, bench.local.data, len,
				 bench.local.desc, a->to, bench.remote.addr,
				 bench.remote.key, &write_context));
		POST(a, fi_read(a->ep, result.data, len, result.desc, a->to,
				bench.remote.addr, bench.remote.key,
				&read_context));
		both_done(a, &write_context, &read_context);
		REQUIRE(ct_holds(result.data, len, i));
	}
	ct_memory_close(&result);
	ct_close_bench(&bench);
}

/* Reads and writes in flight together, to places of their own. */
static void many_at_once(void)
{
	enum { COUNT = 100, SIZE = 4000 };
	static struct fi_context2 context[COUNT];
	struct ct_bench bench;
	struct ct_peer *a;
	bool seen[COUNT] = { false };

	setup(&bench, (struct ct_spec) { 0 });
	a = &bench.pair.a;
	for (int i = 0; i < COUNT; i++) {
		unsigned char *local = bench.local.data + i * SIZE;
		uint64_t addr = bench.remote.addr + (uint64_t)i * SIZE;

		if (i % 2) {
			ct_fill(bench.remote.data + i * SIZE, SIZE, (unsigned)i);
			POST(a, fi_read(a->ep, local, SIZE, bench.local.desc,
					a->to, addr, bench.remote.key,
					&context[i]));
		} else {
			ct_fill(local, SIZE, (unsigned)i);
			POST(a, fi_write(a->ep, local, SIZE, bench.local.desc,
					 a->to, addr, bench.remote.key,
					 &context[i]));
		}
	}
	/* Reads may overtake writes and the other way round. */
	for (int i = 0; i < COUNT; i++) {
		struct ct_completion done = ct_next(a, &a->tx);
		long which = (struct fi_context2 *)done.context - context;

		REQUIRE(!done.err);
		REQUIRE(which >= 0 && which < COUNT && !seen[which]);
		seen[which] = true;
	}
	for (int i = 0; i < COUNT; i++) {
		UNTIL(a, ct_holds(bench.remote.data + i * SIZE, SIZE,
				  (unsigned)i));
		REQUIRE(ct_holds(bench.local.data + i * SIZE, SIZE,
				 (unsigned)i));
	}
	ct_close_bench(&bench);
}

/* Remote access in both directions while messages pass. */
static void mixed(void)
{
	static struct fi_context2 context[4], rx_context;
	struct ct_bench bench;
	struct ct_peer *a, *b;
	struct ct_memory local, remote;
	const size_t len = 60000;

	setup(&bench, (struct ct_spec) { 0 });
	a = &bench.pair.a;
	b = &bench.pair.b;
	ct_memory_open(b, &local, len, FI_READ | FI_WRITE | FI_RECV);
	ct_memory_open(a, &remote, len, FI_REMOTE_READ | FI_REMOTE_WRITE);
	for (unsigned i = 1; i <= 30; i++) {
		ct_fill(bench.local.data, len, i);
		ct_fill(remote.data, len, i + 1000);
		POST(b, fi_recv(b->ep, local.data + len / 2, 100, local.desc,
				FI_ADDR_UNSPEC, &rx_context));
		POST(a, fi_write(a->ep, bench.local.data, len,
				 bench.local.desc, a->to, bench.remote.addr,
				 bench.remote.key, &context[0]));
		POST(b, fi_read(b->ep, local.data, len / 2, local.desc, b->to,
				remote.addr, remote.key, &context[1]));
		POST(a, fi_send(a->ep, bench.local.data, 100,
				bench.local.desc, a->to, &context[2]));
		ct_done(b, &b->tx, &context[1]);
		REQUIRE(ct_holds(local.data, len / 2, i + 1000));
		ct_done(b, &b->rx, &rx_context);
		REQUIRE(ct_holds(local.data + len / 2, 100, i));
		for (int j = 0; j < 2; j++)
			REQUIRE(!ct_next(a, &a->tx).err);
		UNTIL(a, ct_holds(bench.remote.data, len, i));
	}
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_bench(&bench);
}

static void very_large(void)
{
	size_t size = ct_opt.valgrind ? 4UL << 20 : 128UL << 20;
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	static struct fi_context2 context;
	struct ct_memory local, remote;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &local, size, FI_READ | FI_WRITE);
	ct_memory_open(&pair.b, &remote, size,
		       FI_REMOTE_READ | FI_REMOTE_WRITE);
	ct_fill(local.data, size, 5);
	POST(&pair.a, fi_write(pair.a.ep, local.data, size, local.desc,
			       pair.a.to, remote.addr, remote.key, &context));
	ct_done_large(&pair.a, &pair.a.tx, &context);
	UNTIL(&pair.a, !memcmp(local.data, remote.data, size));
	memset(local.data, 0, size);
	POST(&pair.a, fi_read(pair.a.ep, local.data, size, local.desc,
			      pair.a.to, remote.addr, remote.key, &context));
	ct_done_large(&pair.a, &pair.a.tx, &context);
	REQUIRE(!memcmp(local.data, remote.data, size));
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* A process may reach its own memory through its own endpoint. */
static void to_self(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	static struct fi_context2 context;
	struct ct_memory local, remote;
	unsigned char name[CT_NAME];
	struct ct_peer self;

	ct_open_single(&self, &spec);
	ct_name(&self.ep->fid, name, sizeof(name));
	self.to = ct_insert(&self, name);
	ct_memory_open(&self, &local, 5000, FI_READ | FI_WRITE);
	ct_memory_open(&self, &remote, 5000, FI_REMOTE_READ | FI_REMOTE_WRITE);
	ct_fill(local.data, 5000, 1);
	POST(&self, fi_write(self.ep, local.data, 5000, local.desc, self.to,
			     remote.addr, remote.key, &context));
	ct_done(&self, &self.tx, &context);
	UNTIL(&self, ct_holds(remote.data, 5000, 1));
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_peer(&self);
}

static const struct ct_test tests[] = {
	{ "forms", forms, CT_BOTH },
	{ "nothing", nothing, CT_BOTH },
	{ "vectors", vectors, CT_BOTH },
	{ "remote-longer", remote_longer, CT_BOTH },
	{ "remote-shorter", remote_shorter, CT_BOTH },
	{ "delivery-complete", delivery_complete, CT_BOTH },
	{ "send-after-write", send_after_write, CT_BOTH },
	{ "write-after-send", write_after_send, CT_BOTH },
	{ "read-after-write", read_after_write, CT_BOTH },
	{ "many-at-once", many_at_once, CT_BOTH },
	{ "mixed", mixed, CT_BOTH },
	{ "very-large", very_large, CT_BOTH },
	{ "to-self", to_self, CT_RDM },
};

CT_MAIN(tests)
