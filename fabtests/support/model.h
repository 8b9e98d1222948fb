/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The expected outcome of the messages of one direction between two endpoints,
 * however long each of them is in flight.
 *
 * One sender's messages arrive in order, each matches the oldest receive that
 * accepts it, and each new receive matches the oldest message that waits.
 * Which message matches which receive then depends only on the two orders of
 * posting: the first message always matches the first receive that accepts it,
 * and so on. So the model needs no clock.
 */
#ifndef CT_MODEL_H
#define CT_MODEL_H

#include <rdma/fi_tagged.h>

#include "check.h"

struct ct_sent {
	struct fi_context2 context;	/* first: completions lead back here */
	struct ct_lane *lane;
	bool tagged;
	uint64_t tag;
	size_t len;
	bool has_data;
	uint64_t data;
	unsigned seed;			/* of the contents */
	unsigned char *buf;
	bool completes, completed;	/* on the sender's side */
	bool removed;			/* peeked away: no receive meets it */
	bool delivered;
	int receive;			/* that it meets by the model, or -1 */
	size_t offset;			/* of its place in a multi-receive buffer */
};

struct ct_posted {
	struct fi_context2 context;	/* first, as above */
	struct ct_lane *lane;
	bool tagged, multi;
	uint64_t tag, ignore;
	size_t room, min;
	unsigned char *buf;
	bool cancelling, cancelled;
	bool released;			/* the buffer is ours again */
	bool closed;			/* takes no more messages by the model */
	size_t used;
	int messages;			/* that it meets by the model */
	int delivered;
};

struct ct_lane {
	struct ct_sent *sent;
	struct ct_posted *posted;
	int sent_count, posted_count, capacity;
	bool dirty;			/* the meetings have to be found anew */
};

void ct_lane_open(struct ct_lane *lane, int capacity);
void ct_lane_close(struct ct_lane *lane);

/* Space for one more, which counts once it is committed. NULL if there is
 * none. */
struct ct_sent *ct_lane_next_sent(struct ct_lane *lane);
struct ct_posted *ct_lane_next_posted(struct ct_lane *lane);
void ct_lane_commit_sent(struct ct_lane *lane);
void ct_lane_commit_posted(struct ct_lane *lane);

/* Finds the matches; earlier deliveries must not change. */
void ct_lane_match(struct ct_lane *lane);

/* The oldest message that no receive meets and this peek accepts, or NULL. */
struct ct_sent *ct_lane_waiting(struct ct_lane *lane, bool tagged,
				uint64_t tag, uint64_t ignore);

/* The next message that the receive has to report: at this place for a
 * multi-receive buffer. NULL: none. */
struct ct_sent *ct_lane_due(struct ct_lane *lane, struct ct_posted *posted,
			    const void *place);

#endif
