/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Triggered operations and deferred work (fi_trigger(3)). */
#include <string.h>

#include "check.h"
#include "pattern.h"
#include "transfer.h"
#include "triggered.h"
#include "wait.h"

enum { LEN = CT_TRIGGER_LEN };

static void setup(struct ct_trigger *bench, enum fi_progress progress)
{
	ct_trigger_open(bench, progress, CT_TRIGGER_ENDPOINT);
}

static void triggered(enum fi_progress progress, enum ct_trigger_form form)
{
	struct ct_trigger bench;
	struct ct_memory at_b;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct ct_op op;

	ct_trigger_open(&bench, progress, form);
	ct_memory_open(b, &at_b, LEN, FI_SEND | FI_RECV);
	for (size_t i = 0; i < CT_OP_KINDS; i++) {
		enum fi_op_type type = ct_op_kinds[i].type;

		ct_op_prepare(&bench, type, &at_b);
		ct_op_describe(&bench, &op, type, 0);
		OK(fi_cntr_set(bench.trigger, 0));
		OK(ct_op_call(&op, type));
		CHECK(ct_stays_empty(a, ct_op_queue(a, type)) && !ct_op_done(&bench, type, &at_b),
		      "%s waits", ct_op_kinds[i].name);
		OK(fi_cntr_add(bench.trigger, 1));
		ct_done(a, ct_op_queue(a, type), &op.context);
		if (ct_op_sends(type))
			ct_done(b, &b->rx, &at_b);
		UNTIL(a, ct_op_done(&bench, type, &at_b));
		/* The threshold is reached when it is posted. */
		ct_op_prepare(&bench, type, &at_b);
		ct_op_describe(&bench, &op, type, 0);
		OK(ct_op_call(&op, type));
		ct_done(a, ct_op_queue(a, type), &op.context);
		if (ct_op_sends(type))
			ct_done(b, &b->rx, &at_b);
		UNTIL(a, ct_op_done(&bench, type, &at_b));
	}
	ct_memory_close(&at_b);
	ct_trigger_close(&bench);
}

static void triggered_manual(void)
{
	triggered(FI_PROGRESS_MANUAL, CT_TRIGGER_ENDPOINT);
}

static void triggered_auto(void)
{
	triggered(FI_PROGRESS_AUTO, CT_TRIGGER_ENDPOINT);
}

static void triggered_on_contexts(void)
{
	triggered(FI_PROGRESS_MANUAL, CT_TRIGGER_CONTEXTS);
}

/* Calls without flags, through an alias that has FI_TRIGGER by default. */
static void alias(void)
{
	struct ct_trigger bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct fid_ep *ep = NULL;
	struct ct_op op, plain;

	setup(&bench, FI_PROGRESS_MANUAL);
	OK(fi_ep_alias(a->ep, &ep, FI_TRANSMIT | FI_TRIGGER));
	ct_fill(bench.local.data, LEN, 1);
	ct_op_describe(&bench, &op, FI_OP_WRITE, 0);
	OK(fi_write(ep, bench.local.data, LEN, bench.local.desc, a->to,
		    bench.remote.addr, bench.remote.key, &op.context));
	CHECK(ct_stays_empty(a, &a->tx), "alias waits");
	/* The endpoint itself does not. */
	ct_op_describe(&bench, &plain, FI_OP_READ, 0);
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
	ct_trigger_close(&bench);
}

static void deferred(enum fi_progress progress, uint64_t flags, enum ct_trigger_form form)
{
	struct ct_trigger bench;
	struct ct_memory at_b;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	uint64_t counts[CT_CNTR_MAX];
	struct ct_op op;

	ct_trigger_open(&bench, progress, form);
	ct_memory_open(b, &at_b, LEN, FI_SEND | FI_RECV);
	for (size_t i = 0; i < CT_CNTR_MAX; i++)
		counts[i] = a->cntr[i] ? fi_cntr_read(a->cntr[i]) : 0;
	for (size_t i = 0; i < CT_OP_KINDS; i++) {
		enum fi_op_type type = ct_op_kinds[i].type;

		for (int due = 0; due < 2; due++) {
			ct_op_prepare(&bench, type, &at_b);
			ct_op_describe(&bench, &op, type, flags);
			OK(fi_cntr_set(bench.trigger, due));
			OK(fi_cntr_set(bench.done, 0));
			OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work));
			if (!due) {
				CHECK(ct_stays_empty(a, ct_op_queue(a, type)) &&
				      !fi_cntr_read(bench.done) &&
				      !ct_op_done(&bench, type, &at_b),
				      "%s waits", ct_op_kinds[i].name);
				OK(fi_cntr_add(bench.trigger, 1));
			}
			UNTIL(a, fi_cntr_read(bench.done) == 1);
			if (flags & FI_COMPLETION) {
				struct ct_completion done =
					ct_done(a, ct_op_queue(a, type), &op.context);

				CHECK((done.flags & ct_op_kinds[i].flags) == ct_op_kinds[i].flags,
				      "%s flags", ct_op_kinds[i].name);
			}
			if (ct_op_sends(type))
				ct_done(b, &b->rx, &at_b);
			UNTIL(a, ct_op_done(&bench, type, &at_b));
			REQUIRE(fi_cntr_read(bench.done) == 1);
			REQUIRE(fi_cntr_readerr(bench.done) == 0);
		}
	}
	CHECK(ct_stays_empty(a, &a->tx) && ct_stays_empty(a, &a->rx), "no completions");
	for (size_t i = 0; i < CT_CNTR_MAX; i++)
		CHECK(!a->cntr[i] || fi_cntr_read(a->cntr[i]) == counts[i],
		      "counter %zu", i);
	ct_memory_close(&at_b);
	ct_trigger_close(&bench);
}

static void deferred_manual(void)
{
	deferred(FI_PROGRESS_MANUAL, 0, CT_TRIGGER_ENDPOINT);
}

static void deferred_auto(void)
{
	deferred(FI_PROGRESS_AUTO, 0, CT_TRIGGER_ENDPOINT);
}

static void deferred_completions(void)
{
	deferred(FI_PROGRESS_MANUAL, FI_COMPLETION, CT_TRIGGER_ENDPOINT);
}

static void deferred_on_contexts(void)
{
	deferred(FI_PROGRESS_MANUAL, FI_COMPLETION, CT_TRIGGER_CONTEXTS);
}

static void deferred_on_contexts_auto(void)
{
	deferred(FI_PROGRESS_AUTO, 0, CT_TRIGGER_CONTEXTS);
}

static void deferred_with_a_promise(void)
{
	deferred(FI_PROGRESS_MANUAL, FI_COMPLETION, CT_TRIGGER_PROMISED);
}

static void triggered_on_shared(void)
{
	triggered(FI_PROGRESS_MANUAL, CT_TRIGGER_SHARED);
}

static void deferred_on_shared(void)
{
	deferred(FI_PROGRESS_MANUAL, FI_COMPLETION, CT_TRIGGER_SHARED);
}

static void deferred_on_shared_auto(void)
{
	deferred(FI_PROGRESS_AUTO, 0, CT_TRIGGER_SHARED);
}

/* What waits goes with its context, and what waits for the other one of the index stays. */
static void closed_context(void)
{
	struct ct_trigger bench;
	struct ct_memory at_b;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct ct_op send, receive;

	for (int receives = 0; receives < 2; receives++) {
		struct ct_op *gone = receives ? &receive : &send;
		struct ct_op *left = receives ? &send : &receive;
		enum fi_op_type type = receives ? FI_OP_TSEND : FI_OP_TRECV;

		ct_trigger_open(&bench, FI_PROGRESS_AUTO, CT_TRIGGER_CONTEXTS);
		ct_memory_open(b, &at_b, LEN, FI_SEND | FI_RECV);
		ct_op_prepare(&bench, type, &at_b);
		ct_op_describe(&bench, &send, FI_OP_TSEND, 0);
		ct_op_describe(&bench, &receive, FI_OP_TRECV, 0);
		/* A receive is not for a context that sends, nor the other way round. */
		gone->op.tagged.ep = receives ? bench.tx : bench.rx;
		EXPECT(fi_control(&a->domain->fid, FI_QUEUE_WORK, &gone->work), -FI_EINVAL);
		gone->op.tagged.ep = receives ? bench.rx : bench.tx;
		/* A hook writes to what is queued: the call is first. */
		OK(ct_op_call(gone, receives ? FI_OP_TRECV : FI_OP_TSEND));
		OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &gone->work));
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
		UNTIL(a, ct_op_done(&bench, type, &at_b));
		CHECK(ct_stays_empty(a, &a->tx) && ct_stays_empty(a, &a->rx) &&
		      fi_cntr_read(bench.done) == 1 && fi_cntr_readerr(bench.done) == 0,
		      "only what is left, %d", receives);
		ct_memory_close(&at_b);
		ct_trigger_close(&bench);
	}
}

/* A deferred buffer for several messages counts each, and is given back with the last. */
static void multi(enum ct_trigger_form form)
{
	enum { MESSAGES = 3 };
	size_t least = LEN;
	struct ct_trigger bench;
	struct ct_memory at_b, room;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct ct_completion last;
	struct ct_op op;

	ct_trigger_open(&bench, FI_PROGRESS_MANUAL, form);
	ct_memory_open(b, &at_b, LEN, FI_SEND);
	ct_memory_open(a, &room, MESSAGES * LEN, FI_RECV);
	OK(fi_setopt(&bench.rx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least,
		     sizeof(least)));
	ct_op_describe(&bench, &op, FI_OP_RECV, FI_MULTI_RECV);
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
	ct_trigger_close(&bench);
}

static void deferred_multi(void)
{
	multi(CT_TRIGGER_ENDPOINT);
}

static void deferred_multi_on_shared(void)
{
	multi(CT_TRIGGER_SHARED);
}

/* Whether a deferred peek finds a message. */
static bool finds(struct ct_trigger *bench, struct ct_op *op)
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
	struct ct_trigger bench;
	struct ct_memory at_b, at_a;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct ct_completion found;
	struct ct_op op;

	setup(&bench, FI_PROGRESS_MANUAL);
	ct_memory_open(b, &at_b, LEN, FI_SEND);
	ct_memory_open(a, &at_a, LEN, FI_RECV);
	ct_op_describe(&bench, &op, FI_OP_TRECV, FI_PEEK | FI_COMPLETION);
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
	ct_trigger_close(&bench);
}

/* Posts a receive of a tagged message as deferred work, or by a call. */
static void look(struct ct_trigger *bench, struct ct_op *op, bool is_deferred, uint64_t flags)
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
static void claims(enum ct_trigger_form form)
{
	struct ct_trigger bench;
	struct ct_memory at_b, at_a;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct ct_completion found;
	struct ct_op op;
	int ret;

	ct_trigger_open(&bench, FI_PROGRESS_MANUAL, form);
	ct_memory_open(b, &at_b, LEN, FI_SEND);
	ct_memory_open(a, &at_a, LEN, FI_RECV);
	ct_op_describe(&bench, &op, FI_OP_TRECV, FI_PEEK);
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
		/* Work that comes behind other work is queued. */
		ret = fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work);
		if (!ret) {
			UNTIL(a, fi_cntr_readerr(bench.done) == 1);
			REQUIRE(ct_error(a, &a->rx).err == FI_ENOMSG);
			OK(fi_cntr_seterr(bench.done, 0));
		} else {
			EXPECT(ret, -FI_ENOMSG);
		}
		OK(fi_cntr_set(bench.done, 0));
		look(&bench, &op, true, FI_CLAIM);
		UNTIL(a, fi_cntr_readerr(bench.done) == 1);
		REQUIRE(ct_error(a, &a->rx).err == FI_ENOMSG);
		OK(fi_cntr_seterr(bench.done, 0));
	}
	ct_memory_close(&at_a);
	ct_memory_close(&at_b);
	ct_trigger_close(&bench);
}

static void deferred_claim(void)
{
	claims(CT_TRIGGER_ENDPOINT);
}

static void deferred_claim_on_context(void)
{
	claims(CT_TRIGGER_CONTEXTS);
}

static void deferred_claim_on_shared(void)
{
	claims(CT_TRIGGER_SHARED);
}

/* Counters change counters, however far one jumps. */
static void counters(void)
{
	struct ct_trigger bench;
	struct fid_domain *domain;
	struct ct_op add, set, late;

	setup(&bench, FI_PROGRESS_MANUAL);
	domain = bench.pair.a.domain;
	ct_op_describe(&bench, &late, FI_OP_CNTR_ADD, 0);
	late.work.threshold = 30;
	OK(fi_control(&domain->fid, FI_QUEUE_WORK, &late.work));
	ct_op_describe(&bench, &add, FI_OP_CNTR_ADD, 0);
	add.work.threshold = 2;
	OK(fi_control(&domain->fid, FI_QUEUE_WORK, &add.work));
	ct_op_describe(&bench, &set, FI_OP_CNTR_SET, 0);
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
	ct_trigger_close(&bench);
}

/* A receive counts, that sends back, and that a counter tells of, without a call. */
static void chain(enum fi_progress progress)
{
	struct ct_trigger bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct fid_cntr *sent;
	struct ct_op op;
	struct ct_message message = { .len = LEN, .from = FI_ADDR_UNSPEC };
	uint64_t before;

	setup(&bench, progress);
	sent = ct_new_counter(b);
	before = fi_cntr_read(b->cntr[CT_CNTR_RECV]);
	ct_op_describe(&bench, &op, FI_OP_SEND, 0);
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
	ct_trigger_close(&bench);
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
	struct ct_trigger bench;
	struct ct_op op;

	setup(&bench, FI_PROGRESS_AUTO);
	ct_fill(bench.local.data, LEN, 4);
	ct_op_describe(&bench, &op, FI_OP_WRITE, 0);
	OK(fi_control(&bench.pair.a.domain->fid, FI_QUEUE_WORK, &op.work));
	OK(fi_cntr_add(bench.trigger, 1));
	OK(fi_cntr_wait(bench.done, 1, (int)(ct_patience() * 1000)));
	UNTIL(&bench.pair.b, ct_holds(bench.remote.data, LEN, 4));
	CHECK(true, "woken");
	ct_trigger_close(&bench);
}

static void cancellations(enum ct_trigger_form form)
{
	struct ct_trigger bench;
	struct fid_cntr *other;
	struct ct_peer *a = &bench.pair.a;
	struct ct_completion error;
	struct ct_op ops[4], op;

	ct_trigger_open(&bench, FI_PROGRESS_MANUAL, form);
	other = ct_new_counter(a);
	for (int i = 0; i < 4; i++) {
		ct_op_describe(&bench, &ops[i], FI_OP_CNTR_ADD, 0);
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
	ct_op_describe(&bench, &op, FI_OP_TRECV, 0);
	OK(fi_cntr_set(bench.trigger, 0));
	OK(ct_op_call(&op, FI_OP_TRECV));
	OK(fi_cancel(&bench.rx->fid, &op.context));
	error = ct_error(a, &a->rx);
	CHECK(error.err == FI_ECANCELED && error.context == &op.context, "fi_cancel");
	/* So does one whose counter is closed; deferred work ends without a word. */
	ct_op_describe(&bench, &op, FI_OP_TRECV, 0);
	op.context.trigger.threshold.cntr = other;
	op.context.trigger.threshold.threshold = 7;
	OK(ct_op_call(&op, FI_OP_TRECV));
	ct_op_describe(&bench, &ops[0], FI_OP_CNTR_ADD, 0);
	ops[0].work.triggering_cntr = other;
	ops[0].work.threshold = 7;
	OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &ops[0].work));
	OK(fi_close(&other->fid));
	error = ct_error(a, &a->rx);
	CHECK(error.err == FI_ECANCELED && error.context == &op.context, "closed");
	CHECK(fi_cntr_read(bench.done) == 10, "closed without a word");
	ct_trigger_close(&bench);
}

static void cancelled(void)
{
	cancellations(CT_TRIGGER_ENDPOINT);
}

static void cancelled_on_shared(void)
{
	cancellations(CT_TRIGGER_SHARED);
}

/* An operation that fails reports to its counter, and to the queue. */
static void failed(void)
{
	struct ct_trigger bench;
	struct ct_peer *a = &bench.pair.a;
	struct ct_completion error;
	struct ct_op op;

	setup(&bench, FI_PROGRESS_MANUAL);
	ct_op_describe(&bench, &op, FI_OP_WRITE, FI_DELIVERY_COMPLETE);
	op.rma_iov.key += 12345;
	OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work));
	OK(fi_cntr_add(bench.trigger, 1));
	UNTIL(a, fi_cntr_readerr(bench.done) == 1);
	error = ct_error(a, &a->tx);
	CHECK(error.context == &op.context, "context");
	CHECK(fi_cntr_read(bench.done) == 0, "no success");
	ct_trigger_close(&bench);
}

/* What waits for a counter goes with its endpoint. */
static void closed(void)
{
	struct ct_trigger bench;
	struct ct_peer *a = &bench.pair.a;
	struct ct_op op;

	setup(&bench, FI_PROGRESS_AUTO);
	ct_op_describe(&bench, &op, FI_OP_WRITE, 0);
	OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work));
	OK(fi_close(&a->ep->fid));
	a->ep = NULL;
	OK(fi_cntr_add(bench.trigger, 1));
	CHECK(fi_cntr_read(bench.done) == 0 && fi_cntr_readerr(bench.done) == 0, "gone");
	ct_trigger_close(&bench);
}

/* A shared context takes receives alone, and what waits for a counter goes with it. */
static void closed_shared(void)
{
	struct ct_trigger bench;
	struct ct_peer *a = &bench.pair.a;
	struct ct_op op, call;

	ct_trigger_open(&bench, FI_PROGRESS_AUTO, CT_TRIGGER_SHARED);
	ct_op_describe(&bench, &op, FI_OP_TSEND, 0);
	op.op.tagged.ep = bench.rx;
	EXPECT(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work), -FI_EINVAL);
	ct_op_describe(&bench, &op, FI_OP_TRECV, FI_INJECT);
	EXPECT(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work), -FI_EINVAL);
	EXPECT(fi_control(&bench.pair.b.domain->fid, FI_QUEUE_WORK, &op.work), -FI_EINVAL);
	ct_op_describe(&bench, &call, FI_OP_TRECV, 0);
	call.context.event_type = (enum fi_trigger_event)77;
	EXPECT(ct_op_call(&call, FI_OP_TRECV), -FI_EINVAL);
	ct_op_describe(&bench, &call, FI_OP_TRECV, 0);
	OK(ct_op_call(&call, FI_OP_TRECV));
	ct_op_describe(&bench, &op, FI_OP_RECV, 0);
	OK(fi_control(&a->domain->fid, FI_QUEUE_WORK, &op.work));
	OK(fi_close(&a->ep->fid));
	a->ep = NULL;
	OK(fi_close(&a->srx->fid));
	a->srx = NULL;
	EXPECT(fi_control(&a->domain->fid, FI_CANCEL_WORK, &op.work), -FI_ENOENT);
	OK(fi_cntr_add(bench.trigger, 1));
	CHECK(fi_cntr_read(bench.done) == 0 && fi_cntr_readerr(bench.done) == 0, "gone");
	ct_trigger_close(&bench);
}

static const struct ct_test tests[] = {
	{ "triggered", triggered_manual, CT_BOTH },
	{ "triggered-auto", triggered_auto, CT_BOTH },
	{ "triggered-context", triggered_on_contexts, CT_RDM },
	{ "triggered-shared", triggered_on_shared, CT_BOTH },
	{ "alias", alias, CT_BOTH },
	{ "deferred", deferred_manual, CT_BOTH },
	{ "deferred-auto", deferred_auto, CT_BOTH },
	{ "deferred-completions", deferred_completions, CT_BOTH },
	{ "deferred-promise", deferred_with_a_promise, CT_BOTH },
	{ "deferred-context", deferred_on_contexts, CT_RDM },
	{ "deferred-context-auto", deferred_on_contexts_auto, CT_RDM },
	{ "deferred-shared", deferred_on_shared, CT_BOTH },
	{ "deferred-shared-auto", deferred_on_shared_auto, CT_BOTH },
	{ "closed-context", closed_context, CT_RDM },
	{ "deferred-multi", deferred_multi, CT_BOTH },
	{ "deferred-multi-shared", deferred_multi_on_shared, CT_BOTH },
	{ "deferred-peek", deferred_peek, CT_BOTH },
	{ "deferred-claim", deferred_claim, CT_BOTH },
	{ "deferred-claim-context", deferred_claim_on_context, CT_RDM },
	{ "deferred-claim-shared", deferred_claim_on_shared, CT_BOTH },
	{ "counters", counters, CT_BOTH },
	{ "chain", chain_manual, CT_BOTH },
	{ "chain-auto", chain_auto, CT_BOTH },
	{ "sleeps", sleeps, CT_BOTH },
	{ "cancelled", cancelled, CT_BOTH },
	{ "cancelled-shared", cancelled_on_shared, CT_BOTH },
	{ "failed", failed, CT_BOTH },
	{ "closed", closed, CT_BOTH },
	{ "closed-shared", closed_shared, CT_BOTH },
};

CT_MAIN(tests)
