/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Every way to sleep until something arrives. None of them returns before
 * that: a thread that is not woken hangs.
 */
#ifndef SLEEPERS_WAYS_H
#define SLEEPERS_WAYS_H

#include "peer.h"
#include "random.h"

/* An operation; its completion leads back here. */
struct op {
	struct fi_context2 context;	/* first */
	bool open;
};

/* One thread, with the queues that only it reads. */
struct sleeper {
	struct ct_peer *peer;
	struct ct_random chance;
	struct fid_cq *cqs[2];
	size_t cq_count;
	enum fi_wait_obj wait;		/* of these queues, and of counters */
	struct fid_wait *set;		/* with FI_WAIT_SET */
	bool by_threshold;
	int open;			/* operations in progress */
	uint64_t data_came;		/* immediate data without a receive */
};

/* Reads everything that has arrived, without sleeping. */
void sleeper_drain(struct sleeper *sleeper);

/* The operation begins. */
void *sleeper_opens(struct sleeper *sleeper, struct op *op);

/* Sleeps on this queue until no operation is in progress, and until the
 * immediate data have arrived. */
void sleeper_until_done(struct sleeper *sleeper, struct fid_cq *cq,
			uint64_t data);

/* Sleeps until a counter has this value. */
void sleeper_until_counted(struct sleeper *sleeper, struct fid_cntr *cntr,
			   uint64_t value);

/* Sleeps until the next event, of connections; its type. */
uint32_t sleeper_until_event(struct sleeper *sleeper,
			     struct fi_eq_cm_entry *entry);

/* Pauses for a moment, or not at all. */
void sleeper_pauses(struct sleeper *sleeper);

#endif
