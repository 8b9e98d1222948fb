/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Completion queues, event queues, counters, poll sets and wait sets. */
#include <string.h>

#include "row.h"

/* Completion queues, fi_cq(3) */
static struct fid_cq *opened_cq;

#define open_cq(...)							\
	fi_cq_open(domain(), &(struct fi_cq_attr) { __VA_ARGS__ },	\
		   &opened_cq, NULL)

/* The queue that was opened so. */
#define CQ(...) (FIRST(open_cq(__VA_ARGS__)), opened_cq)

ROW(BOTH, "cq/no-place", "fi_cq(3)", -FI_EINVAL,
    fi_cq_open(domain(), &(struct fi_cq_attr) { 0 }, NULL, NULL))
ROW(BOTH, "cq/unknown-flag", "fi_cq(3)", REFUSED, open_cq(.flags = UNKNOWN_FLAG))
ROW(BOTH, "cq/unknown-format", "fi_cq(3)", REFUSED,
    open_cq(.format = UNKNOWN_NUMBER))
ROW(BOTH, "cq/unknown-wait-object", "fi_cq(3)", REFUSED,
    open_cq(.wait_obj = UNKNOWN_NUMBER))
ROW(BOTH, "cq/unknown-condition", CARRIED_OUT, 0,
    open_cq(.wait_obj = FI_WAIT_UNSPEC, .wait_cond = UNKNOWN_NUMBER))
ROW(BOTH, "cq/condition-without-wait", "fi_cq(3)", 0,
    open_cq(.wait_obj = FI_WAIT_NONE, .wait_cond = UNKNOWN_NUMBER))
ROW(BOTH, "cq/no-wait-set", "fi_cq(3)", REFUSED,
    open_cq(.wait_obj = FI_WAIT_SET))
ROW(BOTH, "cq/wait-set-of-another-class", "fi_cq(3)", REFUSED,
    open_cq(.wait_obj = FI_WAIT_SET, .wait_set = (struct fid_wait *)cq()))
ROW(BOTH, "cq/read-empty", "fi_cq(3)", -FI_EAGAIN,
    fi_cq_read(CQ(.size = 4), memory, 4))
ROW(BOTH, "cq/readfrom-empty", "fi_cq(3)", -FI_EAGAIN,
    fi_cq_readfrom(CQ(.size = 4), memory, 4, NULL))
ROW(BOTH, "cq/readerr-empty", "fi_cq(3)", -FI_EAGAIN, ({
	struct fi_cq_err_entry error = { 0 };

	fi_cq_readerr(CQ(.size = 4), &error, 0);
    }))
ROW(BOTH, "cq/readerr-nowhere", "fi_cq(3)", REFUSED,
    fi_cq_readerr(CQ(.size = 4), NULL, 0))
ROW(BOTH, "cq/sread-without-wait", "fi_cq(3)", REFUSED,
    fi_cq_sread(CQ(.wait_obj = FI_WAIT_NONE), memory, 1, NULL, 0))
ROW(BOTH, "cq/sread-at-once", "fi_cq(3)", -FI_EAGAIN,
    fi_cq_sread(CQ(.wait_obj = FI_WAIT_UNSPEC), memory, 1, NULL, 0))
ROW(BOTH, "cq/sread-timeout", "fi_cq(3)", -FI_EAGAIN,
    fi_cq_sread(CQ(.wait_obj = FI_WAIT_UNSPEC), memory, 1, NULL, 10))
ROW(BOTH, "cq/signalled", "fi_cq(3)", -FI_EAGAIN,
    (fi_cq_signal(CQ(.wait_obj = FI_WAIT_UNSPEC)),
     fi_cq_sread(opened_cq, memory, 1, NULL, -1)))
ROW(BOTH, "cq/signal-without-wait", "fi_cq(3)", REFUSED,
    fi_cq_signal(CQ(.wait_obj = FI_WAIT_NONE)))
ROW(BOTH, "cq/wait-object-of-none", "fi_cq(3)", REFUSED,
    fi_control(&CQ(.wait_obj = FI_WAIT_NONE)->fid, FI_GETWAIT, memory))
ROW(BOTH, "cq/wait-object-nowhere", "fi_cq(3)", REFUSED,
    fi_control(&CQ(.wait_obj = FI_WAIT_FD)->fid, FI_GETWAIT, NULL))
ROW(BOTH, "cq/wait-object", "fi_cq(3)", 0,
    fi_control(&CQ(.wait_obj = FI_WAIT_FD)->fid, FI_GETWAIT, memory))
ROW(BOTH, "cq/unknown-command", "fi_control(3)", -FI_ENOSYS,
    fi_control(&cq()->fid, UNKNOWN_NUMBER, memory))
ROW(BOTH, "cq/command-of-endpoints", "fi_control(3)", -FI_ENOSYS,
    fi_control(&cq()->fid, FI_ENABLE, NULL))
ROW(BOTH, "cq/bind-av", "fi_cq(3)", REFUSED,
    bind_to(&cq()->fid, &av()->fid, 0))
ROW(BOTH, "cq/bind-nothing", "fi_cq(3)", REFUSED,
    bind_to(&cq()->fid, NULL, 0))
ROW(BOTH, "cq/busy", "fi_cq(3)", -FI_EBUSY, (ep(), fi_close(&cq()->fid)))
ROW(BOTH, "cq/busy-before-enable", "fi_cq(3)", -FI_EBUSY,
    (bound_ep(), fi_close(&cq()->fid)))

/* Event queues, fi_eq(3) */
static struct fid_eq *opened_eq;

#define open_eq(...)							\
	fi_eq_open(fabric(), &(struct fi_eq_attr) { __VA_ARGS__ },	\
		   &opened_eq, NULL)
#define EQ(...) (FIRST(open_eq(.flags = FI_WRITE, ##__VA_ARGS__)), opened_eq)

/* One event of the application, in a queue that has room for it. */
static struct fid_eq *with_event(void)
{
	struct fi_eq_entry entry = { .data = 7 };
	struct fid_eq *queue = EQ();

	EXPECT(fi_eq_write(queue, FI_NOTIFY, &entry, sizeof(entry), 0),
	       sizeof(entry));
	return queue;
}

static uint32_t event;

ROW(BOTH, "eq/no-place", "fi_eq(3)", -FI_EINVAL,
    fi_eq_open(fabric(), &(struct fi_eq_attr) { 0 }, NULL, NULL))
ROW(BOTH, "eq/unknown-flag", "fi_eq(3)", REFUSED, open_eq(.flags = UNKNOWN_FLAG))
ROW(BOTH, "eq/unknown-wait-object", "fi_eq(3)", REFUSED,
    open_eq(.wait_obj = UNKNOWN_NUMBER))
ROW(BOTH, "eq/no-wait-set", "fi_eq(3)", REFUSED,
    open_eq(.wait_obj = FI_WAIT_SET))
ROW(BOTH, "eq/read-empty", "fi_eq(3)", -FI_EAGAIN,
    fi_eq_read(EQ(), &event, memory, 64, 0))
ROW(BOTH, "eq/readerr-empty", "fi_eq(3)", -FI_EAGAIN, ({
	struct fi_eq_err_entry error = { 0 };

	fi_eq_readerr(EQ(), &error, 0);
    }))
ROW(BOTH, "eq/read", "fi_eq(3)", sizeof(struct fi_eq_entry),
    fi_eq_read(with_event(), &event, memory, 64, 0))
ROW(BOTH, "eq/read-too-small", "fi_eq(3)", -FI_ETOOSMALL,
    fi_eq_read(with_event(), &event, memory, 4, 0))
ROW(BOTH, "eq/read-after-too-small", "fi_eq(3)", sizeof(struct fi_eq_entry),
    (fi_eq_read(with_event(), &event, memory, 4, 0),
     fi_eq_read(opened_eq, &event, memory, 64, 0)))
ROW(BOTH, "eq/peek-leaves-it", "fi_eq(3)", sizeof(struct fi_eq_entry),
    (fi_eq_read(with_event(), &event, memory, 64, FI_PEEK),
     fi_eq_read(opened_eq, &event, memory, 64, 0)))
ROW(BOTH, "eq/write-unknown-flag", CARRIED_OUT, 24,
    fi_eq_write(EQ(), FI_NOTIFY, memory, 24, UNKNOWN_FLAG))
ROW(BOTH, "eq/write-too-long", "fi_eq(3)", REFUSED,
    fi_eq_write(EQ(), FI_NOTIFY, memory, SIZE_MAX, 0))
ROW(BOTH, "eq/sread-without-wait", "fi_eq(3)", REFUSED,
    fi_eq_sread(EQ(.wait_obj = FI_WAIT_NONE), &event, memory, 64, 0, 0))
ROW(BOTH, "eq/sread-timeout", "fi_eq(3)", -FI_EAGAIN,
    fi_eq_sread(EQ(.wait_obj = FI_WAIT_UNSPEC), &event, memory, 64, 10, 0))
ROW(BOTH, "eq/wait-object-of-none", "fi_eq(3)", REFUSED,
    fi_control(&EQ(.wait_obj = FI_WAIT_NONE)->fid, FI_GETWAIT, memory))
ROW(BOTH, "eq/wait-object", "fi_eq(3)", 0,
    fi_control(&EQ(.wait_obj = FI_WAIT_FD)->fid, FI_GETWAIT, memory))
ROW(BOTH, "eq/unknown-command", "fi_control(3)", -FI_ENOSYS,
    fi_control(&EQ(.wait_obj = FI_WAIT_FD)->fid, UNKNOWN_NUMBER, memory))
ROW(BOTH, "eq/bind-cq", "fi_eq(3)", REFUSED,
    bind_to(&eq()->fid, &cq()->fid, 0))
ROW(MSG, "eq/busy", "fi_eq(3)", -FI_EBUSY, (ep(), fi_close(&eq()->fid)))

/* Counters, fi_cntr(3) */
static struct fid_cntr *opened_cntr;

#define open_cntr(...)							\
	fi_cntr_open(domain(), &(struct fi_cntr_attr) { __VA_ARGS__ },	\
		     &opened_cntr, NULL)
#define CNTR(...) (FIRST(open_cntr(__VA_ARGS__)), opened_cntr)

ROW(BOTH, "cntr/no-place", "fi_cntr(3)", -FI_EINVAL,
    fi_cntr_open(domain(), &(struct fi_cntr_attr) { 0 }, NULL, NULL))
ROW(BOTH, "cntr/unknown-events", CARRIED_OUT, 0,
    open_cntr(.events = UNKNOWN_NUMBER))
ROW(BOTH, "cntr/unknown-flag", "fi_cntr(3)", REFUSED,
    open_cntr(.flags = UNKNOWN_FLAG))
ROW(BOTH, "cntr/unknown-wait-object", "fi_cntr(3)", REFUSED,
    open_cntr(.wait_obj = UNKNOWN_NUMBER))
ROW(BOTH, "cntr/no-wait-set", "fi_cntr(3)", REFUSED,
    open_cntr(.wait_obj = FI_WAIT_SET))
ROW(BOTH, "cntr/wait-without-wait", "fi_cntr(3)", REFUSED,
    fi_cntr_wait(CNTR(.wait_obj = FI_WAIT_NONE), 1, 0))
ROW(BOTH, "cntr/wait-timeout", "fi_cntr(3)", -FI_ETIMEDOUT,
    fi_cntr_wait(CNTR(.wait_obj = FI_WAIT_UNSPEC), 1, 10))
ROW(BOTH, "cntr/wait-reached", "fi_cntr(3)", 0,
    (fi_cntr_set(CNTR(.wait_obj = FI_WAIT_UNSPEC), 2),
     fi_cntr_wait(opened_cntr, 1, -1)))
ROW(BOTH, "cntr/add", "fi_cntr(3)", 5,
    (fi_cntr_set(cntr(), 2), fi_cntr_add(cntr(), 3), fi_cntr_read(cntr())))
ROW(BOTH, "cntr/add-error", "fi_cntr(3)", 5,
    (fi_cntr_seterr(cntr(), 2), fi_cntr_adderr(cntr(), 3),
     fi_cntr_readerr(cntr())))
ROW(BOTH, "cntr/unknown-command", "fi_control(3)", -FI_ENOSYS,
    fi_control(&cntr()->fid, UNKNOWN_NUMBER, memory))
ROW(BOTH, "cntr/wait-object-of-none", "fi_cntr(3)", REFUSED,
    fi_control(&CNTR(.wait_obj = FI_WAIT_NONE)->fid, FI_GETWAIT, memory))
ROW(BOTH, "cntr/bind-cq", "fi_cntr(3)", REFUSED,
    bind_to(&cntr()->fid, &cq()->fid, 0))
ROW(BOTH, "cntr/busy", "fi_cntr(3)", -FI_EBUSY,
    (FIRST(fi_ep_bind(new_ep(), &cntr()->fid, FI_SEND)),
     fi_close(&cntr()->fid)))

/* Poll sets, fi_poll(3) */
static struct fid_poll *opened_set;
static void *found[4];

ROW(BOTH, "poll/no-place", "fi_poll(3)", -FI_EINVAL,
    fi_poll_open(domain(), &(struct fi_poll_attr) { 0 }, NULL))
ROW(BOTH, "poll/unknown-flag", "fi_poll(3)", REFUSED,
    fi_poll_open(domain(), &(struct fi_poll_attr) { .flags = UNKNOWN_FLAG },
		 &opened_set))
ROW(BOTH, "poll/empty", "fi_poll(3)", 0, fi_poll(pollset(), found, 4))
ROW(BOTH, "poll/negative-count", CARRIED_OUT, 0,
    fi_poll(pollset(), found, -1))
ROW(BOTH, "poll/add-nothing", "fi_poll(3)", -FI_EINVAL,
    fi_poll_add(pollset(), NULL, 0))
ROW(BOTH, "poll/add-endpoint", "fi_poll(3)", -FI_EINVAL,
    fi_poll_add(pollset(), &new_ep()->fid, 0))
ROW(BOTH, "poll/add-av", "fi_poll(3)", -FI_EINVAL,
    fi_poll_add(pollset(), &av()->fid, 0))
ROW(BOTH, "poll/add-unknown-flag", CARRIED_OUT, 0,
    fi_poll_add(pollset(), &cq()->fid, UNKNOWN_FLAG))
ROW(BOTH, "poll/delete-stranger", CARRIED_OUT, 0,
    fi_poll_del(pollset(), &cq()->fid, 0))
ROW(BOTH, "poll/delete-unknown-flag", CARRIED_OUT, 0,
    (FIRST(fi_poll_add(pollset(), &cq()->fid, 0)),
     fi_poll_del(pollset(), &cq()->fid, UNKNOWN_FLAG)))
ROW(BOTH, "poll/busy", CARRIED_OUT, 0,
    (FIRST(fi_poll_add(pollset(), &cq()->fid, 0)),
     fi_close(&pollset()->fid)))
ROW(BOTH, "poll/close-emptied", "fi_poll(3)", 0,
    (FIRST(fi_poll_add(pollset(), &cq()->fid, 0)),
     FIRST(fi_poll_del(pollset(), &cq()->fid, 0)),
     fi_close(&pollset()->fid)))
ROW(BOTH, "poll/bind", "fi_poll(3)", REFUSED,
    bind_to(&pollset()->fid, &cq()->fid, 0))
ROW(BOTH, "poll/unknown-command", "fi_control(3)", -FI_ENOSYS,
    fi_control(&pollset()->fid, UNKNOWN_NUMBER, memory))

/* Wait sets and fi_trywait, fi_poll(3) */
static struct fid_wait *opened_wait;

#define open_wait(...)							\
	fi_wait_open(fabric(), &(struct fi_wait_attr) { __VA_ARGS__ },	\
		     &opened_wait)

ROW(BOTH, "wait/no-place", "fi_poll(3)", -FI_EINVAL,
    fi_wait_open(fabric(), &(struct fi_wait_attr) { 0 }, NULL))
ROW(BOTH, "wait/unknown-flag", "fi_poll(3)", REFUSED,
    open_wait(.wait_obj = FI_WAIT_UNSPEC, .flags = UNKNOWN_FLAG))
ROW(BOTH, "wait/unknown-object", "fi_poll(3)", REFUSED,
    open_wait(.wait_obj = UNKNOWN_NUMBER))
ROW(BOTH, "wait/no-object", "fi_poll(3)", REFUSED,
    open_wait(.wait_obj = FI_WAIT_NONE))
ROW(BOTH, "wait/timeout", "fi_poll(3)", -FI_ETIMEDOUT,
    (open_cq(.wait_obj = FI_WAIT_SET, .wait_set = waitset()),
     fi_wait(waitset(), 10)))
ROW(BOTH, "wait/busy", CARRIED_OUT, 0,
    (FIRST(open_cq(.wait_obj = FI_WAIT_SET, .wait_set = waitset())),
     fi_close(&waitset()->fid)))
ROW(BOTH, "wait/unknown-command", "fi_control(3)", -FI_ENOSYS,
    fi_control(&waitset()->fid, UNKNOWN_NUMBER, memory))
ROW(BOTH, "wait/bind", "fi_poll(3)", REFUSED,
    bind_to(&waitset()->fid, &cq()->fid, 0))
ROW(BOTH, "trywait/nothing", "fi_poll(3)", 0, fi_trywait(fabric(), NULL, 0))
ROW(BOTH, "trywait/negative-count", CARRIED_OUT, 0, ({
	struct fid *fids[1] = { &cq()->fid };

	fi_trywait(fabric(), fids, -1);
    }))
ROW(BOTH, "trywait/endpoint", "fi_poll(3)", REFUSED, ({
	struct fid *fids[1] = { &new_ep()->fid };

	fi_trywait(fabric(), fids, 1);
    }))
/* It returns whether there is something to read. */
ROW(BOTH, "trywait/without-object", CARRIED_OUT, 0, ({
	struct fid *fids[1] = { &CQ(.wait_obj = FI_WAIT_NONE)->fid };

	fi_trywait(fabric(), fids, 1);
    }))
ROW(BOTH, "trywait/cq", "fi_poll(3)", 0, ({
	struct fid *fids[1] = { &CQ(.wait_obj = FI_WAIT_FD)->fid };

	fi_trywait(fabric(), fids, 1);
    }))
