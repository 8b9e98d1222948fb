/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Triggered operations and deferred work (fi_trigger(3)). */
#include <string.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_trigger.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define LEN 64
#define CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_TRIGGER)

/* Contexts of a scalable endpoint: the operations use the last of each direction. */
enum { CONTEXTS = 2, LAST = CONTEXTS - 1, BITS = 2 };

/* What triggers, and what tells of deferred work, at a; memory on both sides. */
struct bench {
	struct ct_pair pair;
	struct fid_ep *sep;		/* NULL without one */
	struct fid_ep *tx, *rx;		/* where a posts: its endpoint, or contexts */
	struct ct_memory local, remote, result;
	struct fid_cntr *trigger, *done;
};

static struct fid_cntr *open_counter(struct ct_peer *peer)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *cntr;

	OK(fi_cntr_open(peer->domain, &attr, &cntr, NULL));
	return cntr;
}

static void several(struct fi_info *hints)
{
	hints->ep_attr->tx_ctx_cnt = CONTEXTS;
	hints->ep_attr->rx_ctx_cnt = CONTEXTS;
	hints->caps |= FI_NAMED_RX_CTX;
}

/* A scalable endpoint beside a's own, with a's queues and counters, which b sends to. */
static void open_contexts(struct bench *bench)
{
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;
	unsigned char name[256];

	OK(fi_scalable_ep(a->domain, a->info, &bench->sep, NULL));
	OK(fi_scalable_ep_bind(bench->sep, &a->av->fid, 0));
	OK(fi_tx_context(bench->sep, LAST, NULL, &bench->tx, NULL));
	OK(fi_rx_context(bench->sep, LAST, NULL, &bench->rx, NULL));
	OK(fi_ep_bind(bench->tx, &a->tx.fid->fid, FI_TRANSMIT));
	OK(fi_ep_bind(bench->rx, &a->rx.fid->fid, FI_RECV));
	OK(fi_ep_bind(bench->tx, &a->cntr[CT_CNTR_SEND]->fid, FI_SEND));
	OK(fi_ep_bind(bench->tx, &a->cntr[CT_CNTR_READ]->fid, FI_READ));
	OK(fi_ep_bind(bench->tx, &a->cntr[CT_CNTR_WRITE]->fid, FI_WRITE));
	OK(fi_ep_bind(bench->rx, &a->cntr[CT_CNTR_RECV]->fid, FI_RECV));
	OK(fi_enable(bench->tx));
	OK(fi_enable(bench->rx));
	ct_name(&bench->sep->fid, name, sizeof(name));
	b->to = fi_rx_addr(ct_insert(b, name), LAST, BITS);
}

static void setup_with(struct bench *bench, enum fi_progress progress, bool contexts)
{
	struct ct_spec spec = {
		.caps = CAPS, .progress = progress, .wait = FI_WAIT_UNSPEC,
		.counters = FI_SEND | FI_RECV | FI_READ | FI_WRITE,
		.hint = contexts ? several : NULL,
		.rx_ctx_bits = contexts ? BITS : 0,
	};

	memset(bench, 0, sizeof(*bench));
	ct_open_pair(&bench->pair, &spec);
	ct_warm_up(&bench->pair);
	bench->tx = bench->rx = bench->pair.a.ep;
	if (contexts)
		open_contexts(bench);
	ct_memory_open(&bench->pair.a, &bench->local, LEN, FI_READ | FI_WRITE);
	ct_memory_open(&bench->pair.a, &bench->result, LEN, FI_READ | FI_WRITE);
	ct_memory_open(&bench->pair.b, &bench->remote, LEN,
		       FI_REMOTE_READ | FI_REMOTE_WRITE);
	bench->trigger = open_counter(&bench->pair.a);
	bench->done = open_counter(&bench->pair.a);
}

static void setup(struct bench *bench, enum fi_progress progress)
{
	setup_with(bench, progress, false);
}

static void teardown(struct bench *bench)
{
	if (bench->sep) {
		if (bench->tx)
			OK(fi_close(&bench->tx->fid));
		if (bench->rx)
			OK(fi_close(&bench->rx->fid));
		OK(fi_close(&bench->sep->fid));
	}
	OK(fi_close(&bench->done->fid));
	OK(fi_close(&bench->trigger->fid));
	ct_memory_close(&bench->local);
	ct_memory_close(&bench->result);
	ct_memory_close(&bench->remote);
	ct_close_pair(&bench->pair);
}

/* Everything that an operation may be described with. */
struct op {
	struct fi_deferred_work work;
	struct fi_triggered_context2 context;
	struct iovec iov;
	struct fi_rma_iov rma_iov;
	struct fi_ioc ioc, compare_ioc, result_ioc;
	struct fi_rma_ioc rma_ioc;
	void *desc, *result_desc;
	union {
		struct fi_op_msg msg;
		struct fi_op_tagged tagged;
		struct fi_op_rma rma;
		struct fi_op_atomic atomic;
		struct fi_op_fetch_atomic fetch;
		struct fi_op_compare_atomic compare;
		struct fi_op_cntr cntr;
	} op;
};

static void fill_atomic(struct bench *bench, struct op *op, struct fi_msg_atomic *msg)
{
	*msg = (struct fi_msg_atomic) {
		.msg_iov = &op->ioc, .desc = &op->desc, .iov_count = 1,
		.addr = bench->pair.a.to, .rma_iov = &op->rma_ioc,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM,
		.context = &op->context,
	};
}

/* An operation of this kind from a to b, or a receive at a. */
static void describe(struct bench *bench, struct op *op, enum fi_op_type type,
		     uint64_t flags)
{
	struct ct_peer *a = &bench->pair.a;
	struct fi_msg_fetch fetch = { &op->result_ioc, &op->result_desc, 1 };
	struct fi_msg_compare compare = { &op->compare_ioc, &op->desc, 1 };
	bool receives = type == FI_OP_RECV || type == FI_OP_TRECV;
	struct fid_ep *ep = receives ? bench->rx : bench->tx;

	memset(op, 0, sizeof(*op));
	op->iov = (struct iovec) { bench->local.data, LEN };
	op->desc = bench->local.desc;
	op->rma_iov = (struct fi_rma_iov) { bench->remote.addr, LEN, bench->remote.key };
	op->ioc = (struct fi_ioc) { bench->local.data, 1 };
	op->compare_ioc = (struct fi_ioc) { bench->local.data + 8, 1 };
	op->result_ioc = (struct fi_ioc) { bench->result.data, 1 };
	op->result_desc = bench->result.desc;
	op->rma_ioc = (struct fi_rma_ioc) { bench->remote.addr, 1, bench->remote.key };
	op->work.op_type = type;
	op->work.triggering_cntr = bench->trigger;
	op->work.completion_cntr = bench->done;
	op->work.threshold = 1;
	op->context.event_type = FI_TRIGGER_THRESHOLD;
	op->context.trigger.threshold.cntr = bench->trigger;
	op->context.trigger.threshold.threshold = 1;
	switch (type) {
	case FI_OP_RECV:
	case FI_OP_SEND:
		op->op.msg = (struct fi_op_msg) {
			.ep = ep, .flags = flags,
			.msg = { .msg_iov = &op->iov, .desc = &op->desc,
				 .iov_count = 1, .context = &op->context,
				 .addr = receives ? FI_ADDR_UNSPEC : a->to },
		};
		op->work.op.msg = &op->op.msg;
		break;
	case FI_OP_TRECV:
	case FI_OP_TSEND:
		op->op.tagged = (struct fi_op_tagged) {
			.ep = ep, .flags = flags,
			.msg = { .msg_iov = &op->iov, .desc = &op->desc,
				 .iov_count = 1, .context = &op->context,
				 .tag = 7,
				 .addr = receives ? FI_ADDR_UNSPEC : a->to },
		};
		op->work.op.tagged = &op->op.tagged;
		break;
	case FI_OP_READ:
	case FI_OP_WRITE:
		op->op.rma = (struct fi_op_rma) {
			.ep = ep, .flags = flags,
			.msg = { .msg_iov = &op->iov, .desc = &op->desc,
				 .iov_count = 1, .addr = a->to,
				 .rma_iov = &op->rma_iov, .rma_iov_count = 1,
				 .context = &op->context },
		};
		op->work.op.rma = &op->op.rma;
		break;
	case FI_OP_ATOMIC:
		op->op.atomic.ep = ep;
		op->op.atomic.flags = flags;
		fill_atomic(bench, op, &op->op.atomic.msg);
		op->work.op.atomic = &op->op.atomic;
		break;
	case FI_OP_FETCH_ATOMIC:
		op->op.fetch.ep = ep;
		op->op.fetch.flags = flags;
		fill_atomic(bench, op, &op->op.fetch.msg);
		op->op.fetch.fetch = fetch;
		op->work.op.fetch_atomic = &op->op.fetch;
		break;
	case FI_OP_COMPARE_ATOMIC:
		op->op.compare.ep = ep;
		op->op.compare.flags = flags;
		fill_atomic(bench, op, &op->op.compare.msg);
		op->op.compare.msg.op = FI_CSWAP;
		op->op.compare.fetch = fetch;
		op->op.compare.compare = compare;
		op->work.op.compare_atomic = &op->op.compare;
		break;
	default:
		op->op.cntr = (struct fi_op_cntr) { bench->done, 5 };
		op->work.op.cntr = &op->op.cntr;
		op->work.completion_cntr = NULL;
	}
}

/* The call of the application with FI_TRIGGER. */
static ssize_t call(struct op *op, enum fi_op_type type)
{
	uint64_t flags = FI_TRIGGER | FI_COMPLETION;

	switch (type) {
	case FI_OP_RECV:
		return fi_recvmsg(op->op.msg.ep, &op->op.msg.msg, flags);
	case FI_OP_SEND:
		return fi_sendmsg(op->op.msg.ep, &op->op.msg.msg, flags);
	case FI_OP_TRECV:
		return fi_trecvmsg(op->op.tagged.ep, &op->op.tagged.msg, flags);
	case FI_OP_TSEND:
		return fi_tsendmsg(op->op.tagged.ep, &op->op.tagged.msg, flags);
	case FI_OP_READ:
		return fi_readmsg(op->op.rma.ep, &op->op.rma.msg, flags);
	case FI_OP_WRITE:
		return fi_writemsg(op->op.rma.ep, &op->op.rma.msg, flags);
	case FI_OP_ATOMIC:
		return fi_atomicmsg(op->op.atomic.ep, &op->op.atomic.msg, flags);
	case FI_OP_FETCH_ATOMIC:
		return fi_fetch_atomicmsg(op->op.fetch.ep, &op->op.fetch.msg,
					  &op->result_ioc, &op->result_desc, 1, flags);
	default:
		return fi_compare_atomicmsg(op->op.compare.ep, &op->op.compare.msg,
					    &op->compare_ioc, &op->desc, 1,
					    &op->result_ioc, &op->result_desc, 1, flags);
	}
}

static bool is_receive(enum fi_op_type type)
{
	return type == FI_OP_RECV || type == FI_OP_TRECV;
}

static bool is_send(enum fi_op_type type)
{
	return type == FI_OP_SEND || type == FI_OP_TSEND;
}

/* What b does about it, before it begins. */
static void prepare(struct bench *bench, enum fi_op_type type, struct ct_memory *at_b)
{
	struct ct_peer *b = &bench->pair.b;
	struct ct_message message = {
		.tagged = type == FI_OP_TRECV || type == FI_OP_TSEND, .tag = 7,
		.buf = at_b->data, .len = LEN, .desc = at_b->desc,
		.from = FI_ADDR_UNSPEC, .context = at_b,
	};

	ct_fill(bench->local.data, LEN, 1);
	ct_fill(bench->remote.data, LEN, 2);
	ct_fill(at_b->data, LEN, 3);
	memset(bench->result.data, 0, LEN);
	if (type == FI_OP_COMPARE_ATOMIC)
		memcpy(bench->local.data + 8, bench->remote.data, 8);
	if (is_send(type))
		POST(b, ct_recv(b, CT_RECV, &message));
	if (is_receive(type)) {
		POST(b, ct_send(b, CT_SEND, &message));
		ct_done(b, &b->tx, at_b);
	}
}

/* Whether the operation has done what it is for. */
static bool is_done(struct bench *bench, enum fi_op_type type, struct ct_memory *at_b)
{
	uint64_t before, operand, after;
	unsigned char old[LEN], own[LEN];

	ct_fill(old, LEN, 2);
	ct_fill(own, LEN, 1);
	memcpy(&before, old, 8);
	memcpy(&operand, own, 8);
	memcpy(&after, bench->remote.data, 8);
	switch (type) {
	case FI_OP_RECV:
	case FI_OP_TRECV:
		return ct_holds(bench->local.data, LEN, 3);
	case FI_OP_SEND:
	case FI_OP_TSEND:
		return ct_holds(at_b->data, LEN, 1);
	case FI_OP_READ:
		return ct_holds(bench->local.data, LEN, 2);
	case FI_OP_WRITE:
		return ct_holds(bench->remote.data, LEN, 1);
	case FI_OP_ATOMIC:
		return after == before + operand;
	case FI_OP_FETCH_ATOMIC:
		return after == before + operand &&
		       !memcmp(bench->result.data, &before, 8);
	default:
		return after == operand && !memcmp(bench->result.data, &before, 8);
	}
}

static struct ct_cq *queue_of(struct ct_peer *peer, enum fi_op_type type)
{
	return is_receive(type) ? &peer->rx : &peer->tx;
}

static const struct {
	const char *name;
	enum fi_op_type type;
	uint64_t flags;		/* of the completion */
} kinds[] = {
	{ "recv", FI_OP_RECV, FI_MSG | FI_RECV },
	{ "send", FI_OP_SEND, FI_MSG | FI_SEND },
	{ "trecv", FI_OP_TRECV, FI_TAGGED | FI_RECV },
	{ "tsend", FI_OP_TSEND, FI_TAGGED | FI_SEND },
	{ "read", FI_OP_READ, FI_RMA | FI_READ },
	{ "write", FI_OP_WRITE, FI_RMA | FI_WRITE },
	{ "atomic", FI_OP_ATOMIC, FI_ATOMIC | FI_WRITE },
	{ "fetch-atomic", FI_OP_FETCH_ATOMIC, FI_ATOMIC | FI_READ },
	{ "compare-atomic", FI_OP_COMPARE_ATOMIC, FI_ATOMIC | FI_READ },
};

#define KINDS (sizeof(kinds) / sizeof(*kinds))

static void triggered(enum fi_progress progress, bool contexts)
{
	struct bench bench;
	struct ct_memory at_b;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct op op;

	setup_with(&bench, progress, contexts);
	ct_memory_open(b, &at_b, LEN, FI_SEND | FI_RECV);
	for (size_t i = 0; i < KINDS; i++) {
		enum fi_op_type type = kinds[i].type;

		prepare(&bench, type, &at_b);
		describe(&bench, &op, type, 0);
		OK(fi_cntr_set(bench.trigger, 0));
		OK(call(&op, type));
		CHECK(ct_stays_empty(a, queue_of(a, type)) && !is_done(&bench, type, &at_b),
		      "%s waits", kinds[i].name);
		OK(fi_cntr_add(bench.trigger, 1));
		ct_done(a, queue_of(a, type), &op.context);
		if (is_send(type))
			ct_done(b, &b->rx, &at_b);
		UNTIL(a, is_done(&bench, type, &at_b));
		/* The threshold is reached when it is posted. */
		prepare(&bench, type, &at_b);
		describe(&bench, &op, type, 0);
		OK(call(&op, type));
		ct_done(a, queue_of(a, type), &op.context);
		if (is_send(type))
			ct_done(b, &b->rx, &at_b);
		UNTIL(a, is_done(&bench, type, &at_b));
	}
	ct_memory_close(&at_b);
	teardown(&bench);
}

static void triggered_manual(void)
{
	triggered(FI_PROGRESS_MANUAL, false);
}

static void triggered_auto(void)
{
	triggered(FI_PROGRESS_AUTO, false);
}

static void triggered_on_contexts(void)
{
	triggered(FI_PROGRESS_MANUAL, true);
}

/* Calls without flags, through an alias that has FI_TRIGGER by default. */
static void alias(void)
{
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct fid_ep *ep = NULL;
	struct op op, plain;

	setup(&bench, FI_PROGRESS_MANUAL);
	OK(fi_ep_alias(a->ep, &ep, FI_TRANSMIT | FI_TRIGGER));
	ct_fill(bench.local.data, LEN, 1);
	describe(&bench, &op, FI_OP_WRITE, 0);
	OK(fi_write(ep, bench.local.data, LEN, bench.local.desc, a->to,
		    bench.remote.addr, bench.remote.key, &op.context));
	CHECK(ct_stays_empty(a, &a->tx), "alias waits");
	/* The endpoint itself does not. */
	describe(&bench, &plain, FI_OP_READ, 0);
	POST(a, fi_read(a->ep, bench.local.data, 8, bench.local.desc, a->to,
			bench.remote.addr, bench.remote.key, &plain.context));
	ct_done(a, &a->tx, &plain.context);
	EXPECT(fi_write(ep, bench.local.data, LEN, bench.local.desc, a->to,
			bench.remote.addr, bench.remote.key, NULL), -FI_EINVAL);
	EXPECT(fi_inject_write(ep, bench.local.data, 8, a->to, bench.remote.addr,
			       bench.remote.key), -FI_EINVAL);
	ct_fill(bench.local.data, LEN, 1);
	OK(fi_cntr_add(bench.trigger, 1));
	ct_done(a, &a->tx, &op.context);
	UNTIL(b, ct_holds(bench.remote.data, LEN, 1));
	CHECK(true, "alias triggered");
	OK(fi_close(&ep->fid));
	teardown(&bench);
}

static void deferred(enum fi_progress progress, uint64_t flags, bool contexts)
{
	struct bench bench;
	struct ct_memory at_b;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	uint64_t counts[CT_CNTR_MAX];
	struct op op;

	setup_with(&bench, progress, contexts);
	ct_memory_open(b, &at_b, LEN, FI_SEND | FI_RECV);
	for (size_t i = 0; i < CT_CNTR_MAX; i++)
		counts[i] = a->cntr[i] ? fi_cntr_read(a->cntr[i]) : 0;
	for (size_t i = 0; i < KINDS; i++) {
		enum fi_op_type type = kinds[i].type;

		for (int due = 0; due < 2; due++) {
			prepare(&bench, type, &at_b);
			describe(&bench, &op, type, flags);
			OK(fi_cntr_set(bench.trigger, due));
			OK(fi_cntr_set(bench.done, 0));
			OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work));
			if (!due) {
				CHECK(ct_stays_empty(a, queue_of(a, type)) &&
				      !fi_cntr_read(bench.done) &&
				      !is_done(&bench, type, &at_b),
				      "%s waits", kinds[i].name);
				OK(fi_cntr_add(bench.trigger, 1));
			}
			UNTIL(a, fi_cntr_read(bench.done) == 1);
			if (flags & FI_COMPLETION) {
				struct ct_completion done =
					ct_done(a, queue_of(a, type), &op.context);

				CHECK((done.flags & kinds[i].flags) == kinds[i].flags,
				      "%s flags", kinds[i].name);
			}
			if (is_send(type))
				ct_done(b, &b->rx, &at_b);
			UNTIL(a, is_done(&bench, type, &at_b));
			REQUIRE(fi_cntr_read(bench.done) == 1);
			REQUIRE(fi_cntr_readerr(bench.done) == 0);
		}
	}
	CHECK(ct_stays_empty(a, &a->tx) && ct_stays_empty(a, &a->rx), "no completions");
	for (size_t i = 0; i < CT_CNTR_MAX; i++)
		CHECK(!a->cntr[i] || fi_cntr_read(a->cntr[i]) == counts[i],
		      "counter %zu", i);
	ct_memory_close(&at_b);
	teardown(&bench);
}

static void deferred_manual(void)
{
	deferred(FI_PROGRESS_MANUAL, 0, false);
}

static void deferred_auto(void)
{
	deferred(FI_PROGRESS_AUTO, 0, false);
}

static void deferred_completions(void)
{
	deferred(FI_PROGRESS_MANUAL, FI_COMPLETION, false);
}

static void deferred_on_contexts(void)
{
	deferred(FI_PROGRESS_MANUAL, FI_COMPLETION, true);
}

static void deferred_on_contexts_auto(void)
{
	deferred(FI_PROGRESS_AUTO, 0, true);
}

/* What waits goes with its context, and what waits for the other one of the index stays. */
static void closed_context(void)
{
	struct bench bench;
	struct ct_memory at_b;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct op send, receive;

	for (int receives = 0; receives < 2; receives++) {
		struct op *gone = receives ? &receive : &send;
		struct op *left = receives ? &send : &receive;
		enum fi_op_type type = receives ? FI_OP_TSEND : FI_OP_TRECV;

		setup_with(&bench, FI_PROGRESS_AUTO, true);
		ct_memory_open(b, &at_b, LEN, FI_SEND | FI_RECV);
		prepare(&bench, type, &at_b);
		describe(&bench, &send, FI_OP_TSEND, 0);
		describe(&bench, &receive, FI_OP_TRECV, 0);
		/* A receive is not for a context that sends, nor the other way round. */
		gone->op.tagged.ep = receives ? bench.tx : bench.rx;
		EXPECT(fi_control(&a->domain->fid, FI_QUEUE_WORK, &gone->work), -FI_EINVAL);
		gone->op.tagged.ep = receives ? bench.rx : bench.tx;
		OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &gone->work));
		OK(call(gone, receives ? FI_OP_TRECV : FI_OP_TSEND));
		OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &left->work));
		if (receives) {
			OK(fi_close(&bench.rx->fid));
			bench.rx = NULL;
		} else {
			OK(fi_close(&bench.tx->fid));
			bench.tx = NULL;
		}
		EXPECT(fi_control(&a->domain->fid, FI_CANCEL_WORK, &gone->work), -FI_ENOENT);
		OK(fi_cntr_add(bench.trigger, 1));
		UNTIL(a, fi_cntr_read(bench.done) == 1);
		if (receives)
			ct_done(b, &b->rx, &at_b);
		UNTIL(a, is_done(&bench, type, &at_b));
		CHECK(ct_stays_empty(a, &a->tx) && ct_stays_empty(a, &a->rx) &&
		      fi_cntr_read(bench.done) == 1 && fi_cntr_readerr(bench.done) == 0,
		      "only what is left, %d", receives);
		ct_memory_close(&at_b);
		teardown(&bench);
	}
}

/* A deferred buffer for several messages counts each, and is given back with the last. */
static void deferred_multi(void)
{
	enum { MESSAGES = 3 };
	size_t least = LEN;
	struct bench bench;
	struct ct_memory at_b, room;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct ct_completion last;
	struct op op;

	setup(&bench, FI_PROGRESS_MANUAL);
	ct_memory_open(b, &at_b, LEN, FI_SEND);
	ct_memory_open(a, &room, MESSAGES * LEN, FI_RECV);
	OK(fi_setopt(&a->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least,
		     sizeof(least)));
	describe(&bench, &op, FI_OP_RECV, FI_MULTI_RECV);
	op.iov = (struct iovec) { room.data, MESSAGES * LEN };
	op.desc = room.desc;
	OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work));
	OK(fi_cntr_add(bench.trigger, 1));
	for (unsigned i = 0; i < MESSAGES; i++) {
		ct_fill(at_b.data, LEN, i);
		POST(b, fi_send(b->ep, at_b.data, LEN, at_b.desc, b->to, &at_b));
		ct_done(b, &b->tx, &at_b);
		UNTIL(a, fi_cntr_read(bench.done) == i + 1);
		CHECK(ct_holds(room.data + i * LEN, LEN, i), "message %u", i);
	}
	last = ct_done(a, &a->rx, &op.context);
	CHECK((last.flags & (FI_RECV | FI_MULTI_RECV)) == (FI_RECV | FI_MULTI_RECV),
	      "is given back");
	CHECK(ct_stays_empty(a, &a->rx) && fi_cntr_readerr(bench.done) == 0, "no more");
	ct_memory_close(&room);
	ct_memory_close(&at_b);
	teardown(&bench);
}

/* Whether a deferred peek finds a message. */
static bool finds(struct bench *bench, struct op *op)
{
	struct ct_peer *a = &bench->pair.a;

	OK(fi_cntr_set(bench->done, 0));
	OK(fi_cntr_seterr(bench->done, 0));
	OK(fi_cntr_set(bench->trigger, 0));
	OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op->work));
	OK(fi_cntr_add(bench->trigger, 1));
	UNTIL(a, fi_cntr_read(bench->done) + fi_cntr_readerr(bench->done) == 1);
	if (fi_cntr_read(bench->done))
		return true;
	REQUIRE(ct_error(a, &a->rx).err == FI_ENOMSG);
	return false;
}

static void deferred_peek(void)
{
	struct bench bench;
	struct ct_memory at_b, at_a;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct ct_completion found;
	struct op op;

	setup(&bench, FI_PROGRESS_MANUAL);
	ct_memory_open(b, &at_b, LEN, FI_SEND);
	ct_memory_open(a, &at_a, LEN, FI_RECV);
	describe(&bench, &op, FI_OP_TRECV, FI_PEEK | FI_COMPLETION);
	CHECK(!finds(&bench, &op), "nothing");
	POST(b, fi_tsend(b->ep, at_b.data, LEN, at_b.desc, b->to, 7, &at_b));
	ct_done(b, &b->tx, &at_b);
	UNTIL(a, finds(&bench, &op));
	found = ct_done(a, &a->rx, &op.context);
	CHECK(found.len == LEN && found.tag == 7, "what there is");
	/* It is still there. */
	POST(a, fi_trecv(a->ep, at_a.data, LEN, at_a.desc, FI_ADDR_UNSPEC, 7, 0, &at_a));
	ct_done(a, &a->rx, &at_a);
	ct_memory_close(&at_a);
	ct_memory_close(&at_b);
	teardown(&bench);
}

/* Posts a receive of a tagged message as deferred work, or by a call. */
static void look(struct bench *bench, struct op *op, bool is_deferred, uint64_t flags)
{
	struct ct_peer *a = &bench->pair.a;

	op->op.tagged.flags = flags;
	if (is_deferred) {
		OK(fi_cntr_set(bench->trigger, 0));
		OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op->work));
		OK(fi_cntr_add(bench->trigger, 1));
	} else {
		OK(fi_trecvmsg(op->op.tagged.ep, &op->op.tagged.msg, flags));
	}
}

/* Messages that are set aside and received or dropped, each by deferred work or by a call. */
static void claims(bool contexts)
{
	struct bench bench;
	struct ct_memory at_b, at_a;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct ct_completion found;
	struct op op;

	setup_with(&bench, FI_PROGRESS_MANUAL, contexts);
	ct_memory_open(b, &at_b, LEN, FI_SEND);
	ct_memory_open(a, &at_a, LEN, FI_RECV);
	describe(&bench, &op, FI_OP_TRECV, FI_PEEK);
	for (unsigned way = 0; way < 8; way++) {
		bool claims_late = way & 1, peeks_late = way & 2, drops = way & 4;
		uint64_t done = 0;

		ct_fill(at_b.data, LEN, way);
		memset(bench.local.data, 0, LEN);
		OK(fi_cntr_set(bench.done, 0));
		POST(b, fi_tsend(b->ep, at_b.data, LEN, at_b.desc, b->to, 7, &at_b));
		ct_done(b, &b->tx, &at_b);
		/* It has come when a look finds it. */
		for (;;) {
			look(&bench, &op, false, FI_PEEK | FI_COMPLETION);
			found = ct_next(a, &a->rx);
			if (!found.err)
				break;
			REQUIRE(found.err == FI_ENOMSG);
		}
		look(&bench, &op, peeks_late, FI_PEEK | FI_CLAIM | FI_COMPLETION);
		found = ct_done(a, &a->rx, &op.context);
		CHECK(found.len == LEN && found.tag == 7, "set aside, way %u", way);
		if (peeks_late)
			UNTIL(a, fi_cntr_read(bench.done) == ++done);
		/* Others do not get it. */
		OK(fi_trecv(bench.rx, at_a.data, LEN, at_a.desc, FI_ADDR_UNSPEC, 7, 0,
			    &at_a));
		CHECK(ct_stays_empty(a, &a->rx), "is kept");
		look(&bench, &op, claims_late,
		     FI_CLAIM | FI_COMPLETION | (drops ? FI_DISCARD : 0));
		found = ct_done(a, &a->rx, &op.context);
		CHECK(found.len == LEN && found.tag == 7, "claimed, way %u", way);
		CHECK(drops || ct_holds(bench.local.data, LEN, way), "data, way %u", way);
		if (claims_late)
			UNTIL(a, fi_cntr_read(bench.done) == ++done);
		REQUIRE(fi_cntr_read(bench.done) == done && !fi_cntr_readerr(bench.done));
		OK(fi_cancel(&bench.rx->fid, &at_a));
		REQUIRE(ct_error(a, &a->rx).err == FI_ECANCELED);
		/* There is nothing to claim: known when it is queued, or later. */
		op.op.tagged.flags = FI_CLAIM;
		OK(fi_cntr_set(bench.trigger, 1));
		EXPECT(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work), -FI_ENOMSG);
		OK(fi_cntr_set(bench.done, 0));
		look(&bench, &op, true, FI_CLAIM);
		UNTIL(a, fi_cntr_readerr(bench.done) == 1);
		REQUIRE(ct_error(a, &a->rx).err == FI_ENOMSG);
		OK(fi_cntr_seterr(bench.done, 0));
	}
	ct_memory_close(&at_a);
	ct_memory_close(&at_b);
	teardown(&bench);
}

static void deferred_claim(void)
{
	claims(false);
}

static void deferred_claim_on_context(void)
{
	claims(true);
}

/* Counters change counters, however far one jumps. */
static void counters(void)
{
	struct bench bench;
	struct fid_domain *domain;
	struct op add, set, late;

	setup(&bench, FI_PROGRESS_MANUAL);
	domain = bench.pair.a.domain;
	describe(&bench, &late, FI_OP_CNTR_ADD, 0);
	late.work.threshold = 30;
	OK(fi_control(&domain->fid, FI_QUEUE_WORK, &late.work));
	describe(&bench, &add, FI_OP_CNTR_ADD, 0);
	add.work.threshold = 2;
	OK(fi_control(&domain->fid, FI_QUEUE_WORK, &add.work));
	describe(&bench, &set, FI_OP_CNTR_SET, 0);
	set.op.cntr.value = 100;
	set.work.threshold = 1;
	OK(fi_control(&domain->fid, FI_QUEUE_WORK, &set.work));
	CHECK(fi_cntr_read(bench.done) == 0, "wait");
	OK(fi_cntr_set(bench.trigger, 10));
	UNTIL(&bench.pair.a, fi_cntr_read(bench.done) == 105);
	CHECK(true, "in the order of thresholds");
	OK(fi_cntr_set(bench.trigger, 0));
	/* Errors count for deferred work. */
	OK(fi_cntr_adderr(bench.trigger, 30));
	UNTIL(&bench.pair.a, fi_cntr_read(bench.done) == 110);
	OK(fi_cntr_add(bench.trigger, 100));
	CHECK(fi_cntr_read(bench.done) == 110, "once");
	teardown(&bench);
}

/* A receive counts, that sends back, and that a counter tells of, without a call. */
static void chain(enum fi_progress progress)
{
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct fid_cntr *sent;
	struct op op;
	struct ct_message message = { .len = LEN, .from = FI_ADDR_UNSPEC };
	uint64_t before;

	setup(&bench, progress);
	sent = open_counter(b);
	before = fi_cntr_read(b->cntr[CT_CNTR_RECV]);
	describe(&bench, &op, FI_OP_SEND, 0);
	op.op.msg.ep = b->ep;
	op.op.msg.msg.addr = b->to;
	op.iov.iov_base = bench.remote.data;
	op.desc = bench.remote.desc;
	op.work.triggering_cntr = b->cntr[CT_CNTR_RECV];
	op.work.threshold = before + 1;
	op.work.completion_cntr = sent;
	OK(fi_control(&b->domain->fid, FI_QUEUE_WORK, &op.work));
	message.buf = bench.remote.data;
	message.desc = bench.remote.desc;
	message.context = b;
	POST(b, ct_recv(b, CT_RECV, &message));
	message.buf = bench.result.data;
	message.desc = bench.result.desc;
	message.context = a;
	POST(a, ct_recv(a, CT_RECV, &message));
	ct_fill(bench.local.data, LEN, 9);
	message.buf = bench.local.data;
	message.desc = bench.local.desc;
	POST(a, ct_send(a, CT_SEND, &message));
	ct_done(a, &a->tx, a);
	ct_done(b, &b->rx, b);
	ct_done(a, &a->rx, a);
	CHECK(ct_holds(bench.result.data, LEN, 9), "data");
	UNTIL(b, fi_cntr_read(sent) == 1);
	OK(fi_close(&sent->fid));
	teardown(&bench);
}

static void chain_manual(void)
{
	chain(FI_PROGRESS_MANUAL);
}

static void chain_auto(void)
{
	chain(FI_PROGRESS_AUTO);
}

/* With automatic progress a thread that sleeps at the counter is enough. */
static void sleeps(void)
{
	struct bench bench;
	struct op op;

	setup(&bench, FI_PROGRESS_AUTO);
	ct_fill(bench.local.data, LEN, 4);
	describe(&bench, &op, FI_OP_WRITE, 0);
	OK(fi_control(&bench.pair.a.domain->fid, FI_QUEUE_WORK, &op.work));
	OK(fi_cntr_add(bench.trigger, 1));
	OK(fi_cntr_wait(bench.done, 1, (int)(ct_patience() * 1000)));
	UNTIL(&bench.pair.b, ct_holds(bench.remote.data, LEN, 4));
	CHECK(true, "woken");
	teardown(&bench);
}

static void cancelled(void)
{
	struct bench bench;
	struct fid_cntr *other;
	struct ct_peer *a = &bench.pair.a;
	struct ct_completion error;
	struct op ops[4], op;

	setup(&bench, FI_PROGRESS_MANUAL);
	other = open_counter(a);
	for (int i = 0; i < 4; i++) {
		describe(&bench, &ops[i], FI_OP_CNTR_ADD, 0);
		if (i == 3)
			ops[i].work.triggering_cntr = other;
		OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &ops[i].work));
	}
	OK(fi_control(&a->domain->fid, FI_CANCEL_WORK, &ops[1].work));
	EXPECT(fi_control(&a->domain->fid, FI_CANCEL_WORK, &ops[1].work), -FI_ENOENT);
	OK(fi_cntr_add(bench.trigger, 1));
	UNTIL(a, fi_cntr_read(bench.done) == 10);
	EXPECT(fi_control(&a->domain->fid, FI_CANCEL_WORK, &ops[0].work), -FI_ENOENT);
	OK(fi_control(&a->domain->fid, FI_FLUSH_WORK, NULL));
	OK(fi_cntr_add(other, 1));
	CHECK(fi_cntr_read(bench.done) == 10, "flushed");

	/* A triggered operation that is cancelled says so. */
	describe(&bench, &op, FI_OP_TRECV, 0);
	OK(fi_cntr_set(bench.trigger, 0));
	OK(call(&op, FI_OP_TRECV));
	OK(fi_cancel(&a->ep->fid, &op.context));
	error = ct_error(a, &a->rx);
	CHECK(error.err == FI_ECANCELED && error.context == &op.context, "fi_cancel");
	/* So does one whose counter is closed; deferred work ends without a word. */
	describe(&bench, &op, FI_OP_TRECV, 0);
	op.context.trigger.threshold.cntr = other;
	op.context.trigger.threshold.threshold = 7;
	OK(call(&op, FI_OP_TRECV));
	describe(&bench, &ops[0], FI_OP_CNTR_ADD, 0);
	ops[0].work.triggering_cntr = other;
	ops[0].work.threshold = 7;
	OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &ops[0].work));
	OK(fi_close(&other->fid));
	error = ct_error(a, &a->rx);
	CHECK(error.err == FI_ECANCELED && error.context == &op.context, "closed");
	CHECK(fi_cntr_read(bench.done) == 10, "closed without a word");
	teardown(&bench);
}

/* An operation that fails reports to its counter, and to the queue. */
static void failed(void)
{
	struct bench bench;
	struct ct_peer *a = &bench.pair.a;
	struct ct_completion error;
	struct op op;

	setup(&bench, FI_PROGRESS_MANUAL);
	describe(&bench, &op, FI_OP_WRITE, FI_DELIVERY_COMPLETE);
	op.rma_iov.key += 12345;
	OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work));
	OK(fi_cntr_add(bench.trigger, 1));
	UNTIL(a, fi_cntr_readerr(bench.done) == 1);
	error = ct_error(a, &a->tx);
	CHECK(error.context == &op.context, "context");
	CHECK(fi_cntr_read(bench.done) == 0, "no success");
	teardown(&bench);
}

/* What waits for a counter goes with its endpoint. */
static void closed(void)
{
	struct bench bench;
	struct ct_peer *a = &bench.pair.a;
	struct op op;

	setup(&bench, FI_PROGRESS_AUTO);
	describe(&bench, &op, FI_OP_WRITE, 0);
	OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work));
	OK(fi_close(&a->ep->fid));
	a->ep = NULL;
	OK(fi_cntr_add(bench.trigger, 1));
	CHECK(fi_cntr_read(bench.done) == 0 && fi_cntr_readerr(bench.done) == 0, "gone");
	teardown(&bench);
}

static const struct ct_test tests[] = {
	{ "triggered", triggered_manual, CT_BOTH },
	{ "triggered-auto", triggered_auto, CT_BOTH },
	{ "triggered-context", triggered_on_contexts, CT_RDM },
	{ "alias", alias, CT_BOTH },
	{ "deferred", deferred_manual, CT_BOTH },
	{ "deferred-auto", deferred_auto, CT_BOTH },
	{ "deferred-completions", deferred_completions, CT_BOTH },
	{ "deferred-context", deferred_on_contexts, CT_RDM },
	{ "deferred-context-auto", deferred_on_contexts_auto, CT_RDM },
	{ "closed-context", closed_context, CT_RDM },
	{ "deferred-multi", deferred_multi, CT_BOTH },
	{ "deferred-peek", deferred_peek, CT_BOTH },
	{ "deferred-claim", deferred_claim, CT_BOTH },
	{ "deferred-claim-context", deferred_claim_on_context, CT_RDM },
	{ "counters", counters, CT_BOTH },
	{ "chain", chain_manual, CT_BOTH },
	{ "chain-auto", chain_auto, CT_BOTH },
	{ "sleeps", sleeps, CT_BOTH },
	{ "cancelled", cancelled, CT_BOTH },
	{ "failed", failed, CT_BOTH },
	{ "closed", closed, CT_BOTH },
};

CT_MAIN(tests)
