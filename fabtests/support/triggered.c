/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include <string.h>

#include "check.h"
#include "pattern.h"
#include "transfer.h"
#include "triggered.h"
#include "wait.h"

#define CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_TRIGGER)

/* Contexts of a scalable endpoint: the operations use the last of each direction. */
enum { CONTEXTS = 2, LAST = CONTEXTS - 1, BITS = 2 };

struct fid_cntr *ct_new_counter(struct ct_peer *peer)
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

/* Threads meet nowhere in a domain whose regions count no accesses. */
static void leave_out_events(struct fi_info *info)
{
	info->caps &= ~FI_RMA_EVENT;
}

/* A scalable endpoint beside a's own, with a's queues and counters, which b sends to. */
static void open_contexts(struct ct_trigger *bench)
{
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;
	unsigned char name[CT_NAME];

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

void ct_trigger_open(struct ct_trigger *bench, enum fi_progress progress,
		     enum ct_trigger_form form)
{
	bool contexts = form == CT_TRIGGER_CONTEXTS;
	struct ct_spec spec = {
		.caps = CAPS, .progress = progress, .wait = FI_WAIT_UNSPEC,
		.counters = FI_SEND | FI_RECV | FI_READ | FI_WRITE,
		.hint = contexts ? several : NULL,
		.rx_ctx_bits = contexts ? BITS : 0,
		.srx = form == CT_TRIGGER_SHARED,
	};

	if (form == CT_TRIGGER_PROMISED) {
		spec.threading = FI_THREAD_COMPLETION;
		spec.caps &= ~FI_TRIGGER;
		spec.open = leave_out_events;
	}
	memset(bench, 0, sizeof(*bench));
	ct_open_pair(&bench->pair, &spec);
	ct_warm_up(&bench->pair);
	bench->tx = bench->pair.a.ep;
	bench->rx = ct_rx_ep(&bench->pair.a);
	if (contexts)
		open_contexts(bench);
	ct_memory_open(&bench->pair.a, &bench->local, CT_TRIGGER_LEN, FI_READ | FI_WRITE);
	ct_memory_open(&bench->pair.a, &bench->result, CT_TRIGGER_LEN, FI_READ | FI_WRITE);
	ct_memory_open(&bench->pair.b, &bench->remote, CT_TRIGGER_LEN,
		       FI_REMOTE_READ | FI_REMOTE_WRITE);
	bench->trigger = ct_new_counter(&bench->pair.a);
	bench->done = ct_new_counter(&bench->pair.a);
}

void ct_trigger_close(struct ct_trigger *bench)
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

static void fill_atomic(struct ct_trigger *bench, struct ct_op *op, struct fi_msg_atomic *msg)
{
	*msg = (struct fi_msg_atomic) {
		.msg_iov = &op->ioc, .desc = &op->desc, .iov_count = 1,
		.addr = bench->pair.a.to, .rma_iov = &op->rma_ioc,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM,
		.context = &op->context,
	};
}

void ct_op_describe(struct ct_trigger *bench, struct ct_op *op, enum fi_op_type type,
		     uint64_t flags)
{
	struct ct_peer *a = &bench->pair.a;
	struct fi_msg_fetch fetch = { &op->result_ioc, &op->result_desc, 1 };
	struct fi_msg_compare compare = { &op->compare_ioc, &op->desc, 1 };
	bool receives = type == FI_OP_RECV || type == FI_OP_TRECV;
	struct fid_ep *ep = receives ? bench->rx : bench->tx;

	memset(op, 0, sizeof(*op));
	op->iov = (struct iovec) { bench->local.data, CT_TRIGGER_LEN };
	op->desc = bench->local.desc;
	op->rma_iov = (struct fi_rma_iov) { bench->remote.addr, CT_TRIGGER_LEN, bench->remote.key };
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

ssize_t ct_op_call(struct ct_op *op, enum fi_op_type type)
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

bool ct_op_receives(enum fi_op_type type)
{
	return type == FI_OP_RECV || type == FI_OP_TRECV;
}

bool ct_op_sends(enum fi_op_type type)
{
	return type == FI_OP_SEND || type == FI_OP_TSEND;
}

void ct_op_prepare(struct ct_trigger *bench, enum fi_op_type type, struct ct_memory *at_b)
{
	struct ct_peer *b = &bench->pair.b;
	struct ct_message message = {
		.tagged = type == FI_OP_TRECV || type == FI_OP_TSEND, .tag = 7,
		.buf = at_b->data, .len = CT_TRIGGER_LEN, .desc = at_b->desc,
		.from = FI_ADDR_UNSPEC, .context = at_b,
	};

	ct_fill(bench->local.data, CT_TRIGGER_LEN, 1);
	ct_fill(bench->remote.data, CT_TRIGGER_LEN, 2);
	ct_fill(at_b->data, CT_TRIGGER_LEN, 3);
	memset(bench->result.data, 0, CT_TRIGGER_LEN);
	if (type == FI_OP_COMPARE_ATOMIC)
		memcpy(bench->local.data + 8, bench->remote.data, 8);
	if (ct_op_sends(type))
		POST(b, ct_recv(b, CT_RECV, &message));
	if (ct_op_receives(type)) {
		POST(b, ct_send(b, CT_SEND, &message));
		ct_done(b, &b->tx, at_b);
	}
}

bool ct_op_done(struct ct_trigger *bench, enum fi_op_type type, struct ct_memory *at_b)
{
	uint64_t before, operand, after;
	unsigned char old[CT_TRIGGER_LEN], own[CT_TRIGGER_LEN];

	ct_fill(old, CT_TRIGGER_LEN, 2);
	ct_fill(own, CT_TRIGGER_LEN, 1);
	memcpy(&before, old, 8);
	memcpy(&operand, own, 8);
	memcpy(&after, bench->remote.data, 8);
	switch (type) {
	case FI_OP_RECV:
	case FI_OP_TRECV:
		return ct_holds(bench->local.data, CT_TRIGGER_LEN, 3);
	case FI_OP_SEND:
	case FI_OP_TSEND:
		return ct_holds(at_b->data, CT_TRIGGER_LEN, 1);
	case FI_OP_READ:
		return ct_holds(bench->local.data, CT_TRIGGER_LEN, 2);
	case FI_OP_WRITE:
		return ct_holds(bench->remote.data, CT_TRIGGER_LEN, 1);
	case FI_OP_ATOMIC:
		return after == before + operand;
	case FI_OP_FETCH_ATOMIC:
		return after == before + operand &&
		       !memcmp(bench->result.data, &before, 8);
	default:
		return after == operand && !memcmp(bench->result.data, &before, 8);
	}
}

struct ct_cq *ct_op_queue(struct ct_peer *peer, enum fi_op_type type)
{
	return ct_op_receives(type) ? &peer->rx : &peer->tx;
}

const struct ct_op_kind ct_op_kinds[CT_OP_KINDS] = {
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
