/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Operations that begin when a counter says so (fi_trigger(3)): by calls, and as deferred work. */
#ifndef CT_TRIGGERED_H
#define CT_TRIGGERED_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_trigger.h>

#include "memory.h"
#include "peer.h"

/* Bytes of messages and of memory. */
#define CT_TRIGGER_LEN 64

/* What triggers, and what tells of deferred work, at a; memory on both sides. */
struct ct_trigger {
	struct ct_pair pair;
	struct fid_ep *sep;		/* NULL without one */
	struct fid_ep *tx, *rx;		/* where a posts: its endpoint, contexts, a shared one */
	struct ct_memory local, remote, result;
	struct fid_cntr *trigger, *done;
};

/* Everything that an operation may be described with. */
struct ct_op {
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

/* What a posts to. */
enum ct_trigger_form {
	CT_TRIGGER_ENDPOINT,
	CT_TRIGGER_CONTEXTS,	/* of a scalable endpoint */
	CT_TRIGGER_SHARED,	/* its endpoint, and a shared receive context */
	CT_TRIGGER_PROMISED,	/* its endpoint, with FI_THREAD_COMPLETION and without the capability */
};

void ct_trigger_open(struct ct_trigger *bench, enum fi_progress progress,
		     enum ct_trigger_form form);
void ct_trigger_close(struct ct_trigger *bench);
struct fid_cntr *ct_new_counter(struct ct_peer *peer);

/* An operation of this kind from a to b, or a receive at a. */
void ct_op_describe(struct ct_trigger *bench, struct ct_op *op, enum fi_op_type type,
		    uint64_t flags);

/* The call of the application with FI_TRIGGER. */
ssize_t ct_op_call(struct ct_op *op, enum fi_op_type type);
bool ct_op_receives(enum fi_op_type type);
bool ct_op_sends(enum fi_op_type type);

/* What b does about it, before it begins. */
void ct_op_prepare(struct ct_trigger *bench, enum fi_op_type type, struct ct_memory *at_b);

/* Whether the operation has done what it is for. */
bool ct_op_done(struct ct_trigger *bench, enum fi_op_type type, struct ct_memory *at_b);
struct ct_cq *ct_op_queue(struct ct_peer *peer, enum fi_op_type type);

/* All kinds but changes of counters. */
#define CT_OP_KINDS 9

struct ct_op_kind {
	const char *name;
	enum fi_op_type type;
	uint64_t flags;		/* of the completion */
};

extern const struct ct_op_kind ct_op_kinds[CT_OP_KINDS];

#endif
