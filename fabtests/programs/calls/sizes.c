/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Attributes of queues, counters and vectors at their ends. */
#include <string.h>

#include "row.h"

static struct fid_cq *opened_cq;
static struct fid_eq *opened_eq;
static struct fid_cntr *opened_cntr;
static struct fid_av *opened_av;
static fi_addr_t addr[4];
static uint32_t event;

static int open_cq(struct fi_cq_attr attr)
{
	return fi_cq_open(domain(), &attr, &opened_cq, NULL);
}

static int open_eq(struct fi_eq_attr attr)
{
	return fi_eq_open(fabric(), &attr, &opened_eq, NULL);
}

static int open_cntr(struct fi_cntr_attr attr)
{
	return fi_cntr_open(domain(), &attr, &opened_cntr, NULL);
}

static struct fid_av *new_av(struct fi_av_attr attr)
{
	OK(fi_av_open(domain(), &attr, &opened_av, NULL));
	return opened_av;
}

#define CQ_ATTR(...) open_cq((struct fi_cq_attr) { __VA_ARGS__ })
#define EQ_ATTR(...) open_eq((struct fi_eq_attr) { __VA_ARGS__ })
#define CNTR_ATTR(...) open_cntr((struct fi_cntr_attr) { __VA_ARGS__ })

COMPARED(BOTH, "size/cq-huge", CQ_ATTR(.size = SIZE_MAX))
COMPARED(BOTH, "size/cq-million", CQ_ATTR(.size = 1 << 20))
COMPARED(BOTH, "size/cq-affinity",
    CQ_ATTR(.flags = FI_AFFINITY, .signaling_vector = 0))
COMPARED(BOTH, "size/cq-wait-yield", CQ_ATTR(.wait_obj = FI_WAIT_YIELD))
COMPARED(BOTH, "size/cq-wait-mutex", CQ_ATTR(.wait_obj = FI_WAIT_MUTEX_COND))
COMPARED(BOTH, "size/cq-wait-pollfd", CQ_ATTR(.wait_obj = FI_WAIT_POLLFD))
COMPARED(BOTH, "size/cq-threshold",
    CQ_ATTR(.wait_obj = FI_WAIT_UNSPEC, .wait_cond = FI_CQ_COND_THRESHOLD))
COMPARED(BOTH, "size/cq-peer-without-context", CQ_ATTR(.flags = FI_PEER))
COMPARED(BOTH, "size/cq-no-attributes",
    fi_cq_open(domain(), NULL, &opened_cq, NULL))
COMPARED(BOTH, "size/eq-huge", EQ_ATTR(.size = SIZE_MAX))
COMPARED(BOTH, "size/eq-wait-yield", EQ_ATTR(.wait_obj = FI_WAIT_YIELD))
COMPARED(BOTH, "size/eq-wait-mutex", EQ_ATTR(.wait_obj = FI_WAIT_MUTEX_COND))
COMPARED(BOTH, "size/eq-wait-pollfd", EQ_ATTR(.wait_obj = FI_WAIT_POLLFD))
COMPARED(BOTH, "size/eq-affinity", EQ_ATTR(.flags = FI_AFFINITY))
COMPARED(BOTH, "size/eq-no-attributes",
    fi_eq_open(fabric(), NULL, &opened_eq, NULL))
COMPARED(BOTH, "size/cntr-wait-yield", CNTR_ATTR(.wait_obj = FI_WAIT_YIELD))
COMPARED(BOTH, "size/cntr-wait-mutex",
    CNTR_ATTR(.wait_obj = FI_WAIT_MUTEX_COND))
COMPARED(BOTH, "size/cntr-wait-pollfd", CNTR_ATTR(.wait_obj = FI_WAIT_POLLFD))
COMPARED(BOTH, "size/cntr-bytes", CNTR_ATTR(.events = FI_CNTR_EVENTS_BYTES))
COMPARED(BOTH, "size/cntr-peer-without-context", CNTR_ATTR(.flags = FI_PEER))
COMPARED(BOTH, "size/cntr-no-attributes",
    fi_cntr_open(domain(), NULL, &opened_cntr, NULL))

/* Event queues opened without FI_WRITE */
COMPARED(BOTH, "event/write-not-asked", ({
	struct fi_eq_entry entry = { .data = 7 };

	OK(EQ_ATTR(.flags = 0));
	fi_eq_write(opened_eq, FI_NOTIFY, &entry, sizeof(entry), 0);
    }))
COMPARED(BOTH, "event/read-unknown-flag", ({
	struct fi_eq_entry entry = { .data = 7 };

	OK(EQ_ATTR(.flags = FI_WRITE));
	EXPECT(fi_eq_write(opened_eq, FI_NOTIFY, &entry, sizeof(entry), 0),
	       sizeof(entry));
	fi_eq_read(opened_eq, &event, memory, 64, UNKNOWN_FLAG);
    }))
COMPARED(BOTH, "event/readerr-nowhere", fi_eq_readerr(eq(), NULL, 0))
COMPARED(BOTH, "event/readerr-unknown-flag", ({
	struct fi_eq_err_entry error = { 0 };

	fi_eq_readerr(eq(), &error, UNKNOWN_FLAG);
    }))

/* Vectors */
COMPARED(RDM, "vector/count-huge",
    fi_av_insert(new_av((struct fi_av_attr) { .count = 1 << 20 }), somewhere(),
		 1, addr, 0, NULL))
COMPARED(RDM, "vector/peer-without-context", ({
	struct fi_av_attr attr = { .flags = FI_PEER };

	fi_av_open(domain(), &attr, &opened_av, NULL);
    }))
COMPARED(RDM, "vector/symmetric", ({
	struct fi_av_attr attr = { .flags = FI_SYMMETRIC };

	fi_av_open(domain(), &attr, &opened_av, NULL);
    }))
COMPARED(RDM, "vector/insert-more",
    fi_av_insert(new_av((struct fi_av_attr) { 0 }), somewhere(), 1, addr,
		 FI_MORE, NULL))
COMPARED(RDM, "vector/insertsvc-no-service",
    (internet(), fi_av_insertsvc(new_av((struct fi_av_attr) { 0 }),
				 "127.0.0.1", NULL, addr, 0, NULL)))
COMPARED(RDM, "vector/insertsym-no-nodes",
    (internet(), fi_av_insertsym(new_av((struct fi_av_attr) { 0 }),
				 "127.0.0.1", 0, "7471", 1, addr, 0, NULL)))
COMPARED(RDM, "vector/straddr-nowhere", ({
	size_t len = 0;

	new_av((struct fi_av_attr) { 0 });
	fi_av_straddr(opened_av, somewhere(), NULL, &len) || len ? 0 : -1;
    }))
COMPARED(RDM, "vector/remove-none",
    fi_av_remove(new_av((struct fi_av_attr) { 0 }), addr, 0, 0))
