/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Triggered operations and deferred work. */
#include <rdma/fi_trigger.h>

#include "row.h"

/* Endpoints that may have them. */
static struct fid_ep *sender(void)
{
	spec.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_TRIGGER;
	return pair()->a.ep;
}

static struct fid_domain *at(void)
{
	sender();
	return pair()->a.domain;
}

static struct fid_cntr *counter(void)
{
	static struct fid_cntr *cntr;

	if (!cntr)
		OK(fi_cntr_open(at(), NULL, &cntr, NULL));
	return cntr;
}

/* A message that is sent when the counter reaches 1. */
static struct fi_deferred_work *work(void)
{
	static struct iovec iov = { memory, 8 };
	static struct fi_op_msg send;
	static struct fi_deferred_work queued;

	send = (struct fi_op_msg) {
		.ep = sender(),
		.msg = { .msg_iov = &iov, .iov_count = 1, .addr = pair()->a.to,
			 .context = context },
	};
	queued = (struct fi_deferred_work) {
		.threshold = 1, .triggering_cntr = counter(),
		.op_type = FI_OP_SEND, .op.msg = &send,
	};
	return &queued;
}

static int control(int command, struct fi_deferred_work *of)
{
	return fi_control(&at()->fid, command, of);
}

/* Queues it with a change. */
#define QUEUED(change) ({						\
	struct fi_deferred_work *of = work();				\
									\
	change;								\
	control(FI_QUEUE_WORK, of);					\
    })

ROW(BOTH, "trigger/queue", "fi_trigger(3)", 0, QUEUED((void)0))
ROW(BOTH, "trigger/queue-nothing", "fi_trigger(3)", -FI_EINVAL,
    control(FI_QUEUE_WORK, NULL))
ROW(BOTH, "trigger/queue-no-counter", "fi_trigger(3)", -FI_EINVAL,
    QUEUED(of->triggering_cntr = NULL))
ROW(BOTH, "trigger/queue-no-operation", "fi_trigger(3)", -FI_EINVAL,
    QUEUED(of->op.msg = NULL))
ROW(BOTH, "trigger/queue-no-endpoint", "fi_trigger(3)", -FI_EINVAL,
    QUEUED(of->op.msg->ep = NULL))
ROW(BOTH, "trigger/queue-endpoint-of-another-domain", "fi_trigger(3)", -FI_EINVAL,
    QUEUED(of->op.msg->ep = pair()->b.ep))
ROW(BOTH, "trigger/queue-unknown-operation", "fi_trigger(3)", -FI_ENOSYS,
    QUEUED(of->op_type = UNKNOWN_NUMBER))
ROW(BOTH, "trigger/queue-injected", "fi_trigger(3)", -FI_EINVAL,
    QUEUED(of->op.msg->flags = FI_INJECT))
ROW(BOTH, "trigger/queue-multi-receive", "fi_trigger(3)", 0,
    QUEUED((of->op_type = FI_OP_RECV, of->op.msg->flags = FI_MULTI_RECV)))
ROW(BOTH, "trigger/queue-claim", "fi_trigger(3)", 0,
    QUEUED((of->op_type = FI_OP_RECV, of->op.msg->flags = FI_CLAIM)))
ROW(BOTH, "trigger/queue-count-with-completion", "fi_trigger(3)", -FI_EINVAL, ({
	struct fi_op_cntr add = { counter(), 1 };

	QUEUED((of->op_type = FI_OP_CNTR_ADD, of->op.cntr = &add,
		of->completion_cntr = counter()));
    }))
ROW(BOTH, "trigger/queue-count", "fi_trigger(3)", 0, ({
	static struct fi_op_cntr add = { NULL, 1 };

	add.cntr = counter();
	QUEUED((of->op_type = FI_OP_CNTR_ADD, of->op.cntr = &add));
    }))
ROW(BOTH, "trigger/queue-count-of-nothing", "fi_trigger(3)", -FI_EINVAL, ({
	struct fi_op_cntr add = { NULL, 1 };

	QUEUED((of->op_type = FI_OP_CNTR_ADD, of->op.cntr = &add));
    }))
/* A receive of a shared context, with one change. */
#define QUEUED_AT_SHARED(change) ({					\
	static struct iovec iov = { memory, 8 };			\
	static struct fi_op_msg receive;				\
	struct fi_deferred_work *of;					\
									\
	spec.srx = true;						\
	of = work();							\
	receive = (struct fi_op_msg) {					\
		.ep = pair()->a.srx,					\
		.msg = { .msg_iov = &iov, .iov_count = 1,		\
			 .addr = FI_ADDR_UNSPEC, .context = context },	\
	};								\
	of->op_type = FI_OP_RECV;					\
	of->op.msg = &receive;						\
	change;								\
	control(FI_QUEUE_WORK, of);					\
    })

ROW(BOTH, "trigger/queue-shared-receive", "fi_trigger(3)", 0, QUEUED_AT_SHARED((void)0))
ROW(BOTH, "trigger/queue-shared-send", "fi_trigger(3)", -FI_EINVAL,
    QUEUED_AT_SHARED(of->op_type = FI_OP_SEND))
ROW(BOTH, "trigger/queue-shared-injected", "fi_trigger(3)", -FI_EINVAL,
    QUEUED_AT_SHARED(receive.flags = FI_INJECT))
ROW(BOTH, "trigger/cancel", "fi_trigger(3)", 0, ({
	struct fi_deferred_work *of = work();

	OK(control(FI_QUEUE_WORK, of));
	control(FI_CANCEL_WORK, of);
    }))
ROW(BOTH, "trigger/cancel-what-is-not-queued", "fi_trigger(3)", -FI_ENOENT,
    control(FI_CANCEL_WORK, work()))
ROW(BOTH, "trigger/cancel-nothing", "fi_trigger(3)", -FI_EINVAL,
    control(FI_CANCEL_WORK, NULL))
ROW(BOTH, "trigger/flush", "fi_trigger(3)", 0, control(FI_FLUSH_WORK, NULL))
ROW(BOTH, "trigger/flush-one-counter", "fi_trigger(3)", 0,
    control(FI_FLUSH_WORK, work()))

/* A message with FI_TRIGGER, and what it has as its context. */
static ssize_t triggered(void *with, uint64_t flags)
{
	struct iovec iov = { memory, 8 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .context = with,
	};
	struct fid_ep *ep = sender();

	msg.addr = pair()->a.to;
	return fi_sendmsg(ep, &msg, FI_TRIGGER | flags);
}

static struct fi_triggered_context2 *condition(void)
{
	static struct fi_triggered_context2 triggered;

	triggered.event_type = FI_TRIGGER_THRESHOLD;
	triggered.trigger.threshold.cntr = counter();
	triggered.trigger.threshold.threshold = 1;
	return &triggered;
}

ROW(BOTH, "trigger/message", "fi_trigger(3)", 0, triggered(condition(), 0))
ROW(BOTH, "trigger/message-without-condition", "fi_trigger(3)", -FI_EINVAL,
    triggered(NULL, 0))
ROW(BOTH, "trigger/message-unknown-event", "fi_trigger(3)", -FI_EINVAL, ({
	struct fi_triggered_context2 *with = condition();

	with->event_type = UNKNOWN_NUMBER;
	triggered(with, 0);
    }))
ROW(BOTH, "trigger/message-no-counter", "fi_trigger(3)", -FI_EINVAL, ({
	struct fi_triggered_context2 *with = condition();

	with->trigger.threshold.cntr = NULL;
	triggered(with, 0);
    }))
ROW(BOTH, "trigger/message-injected", "fi_trigger(3)", -FI_EINVAL,
    triggered(condition(), FI_INJECT))
