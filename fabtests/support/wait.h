/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Progress, completions and events. */
#ifndef CT_WAIT_H
#define CT_WAIT_H

#include "peer.h"

/* Drives this peer and its partner once; completions go to the stashes. */
void ct_progress_busily(struct ct_peer *peer);

/* The same, and lets other threads and processes run. A program that drives
 * many peers in turn does that once for all of them: where processors are
 * wanted, each time costs what others need. */
void ct_progress(struct ct_peer *peer);

/* Drives the event queues of this peer and its partner once. */
void ct_progress_events(struct ct_peer *peer);

/* Drives without reading completions: fi_cq_read with room for none. */
void ct_nudge(struct ct_peer *peer);

/* Reads the contents of a queue into its stash; returns false if it was empty.
 */
bool ct_pull(struct ct_cq *cq);

/* The next completion of a queue, successful or not. */
struct ct_completion ct_next(struct ct_peer *peer, struct ct_cq *cq);

/* The same, and it has to be a success with this context. */
struct ct_completion ct_done(struct ct_peer *peer, struct ct_cq *cq,
			     void *context);

/* The same for a transfer of many megabytes, which takes as many turns of both
 * ends: its patience is ten times as long. */
struct ct_completion ct_done_large(struct ct_peer *peer, struct ct_cq *cq,
				   void *context);

/* The next completion, which has to be an error. */
struct ct_completion ct_error(struct ct_peer *peer, struct ct_cq *cq);

/* Drives both sides for a moment; true if the queue stayed empty. */
bool ct_stays_empty(struct ct_peer *peer, struct ct_cq *cq);

/* Repeats a step until the condition holds; the test fails if it never does. */
#define CT_UNTIL(cond, step)						\
	do {								\
		double ct_until_ = ct_now() + ct_patience();		\
									\
		while (!(cond)) {					\
			if (ct_now() > ct_until_)			\
				ct_fail(__FILE__, __LINE__,		\
					"never: %s", #cond);		\
			step;						\
		}							\
	} while (0)

/* Drives both sides until the condition holds. */
#define UNTIL(peer, cond) CT_UNTIL(cond, ct_progress(peer))

/* Drives both sides until a counter has reached the value. */
void ct_count(struct ct_peer *peer, enum ct_counter which, uint64_t value);

/* The next event of the peer's queue, of any type or failed. */
struct ct_event ct_any_event(struct ct_peer *peer);

/* The next event, which has to be of this type. */
struct ct_event ct_event_of(struct ct_peer *peer, uint32_t type);

/* True if there was no event for a moment. */
bool ct_no_event(struct ct_peer *peer);

/* A failure inside these names the line that called them. */
#define ct_next(...) CT_HERE(ct_next, __VA_ARGS__)
#define ct_done(...) CT_HERE(ct_done, __VA_ARGS__)
#define ct_done_large(...) CT_HERE(ct_done_large, __VA_ARGS__)
#define ct_error(...) CT_HERE(ct_error, __VA_ARGS__)
#define ct_count(...) CT_HERE(ct_count, __VA_ARGS__)
#define ct_any_event(...) CT_HERE(ct_any_event, __VA_ARGS__)
#define ct_event_of(...) CT_HERE(ct_event_of, __VA_ARGS__)

/* Retries a posting call while it returns -FI_EAGAIN; its last result. */
#define CT_POST(peer, call)						\
	({								\
		double ct_until_ = ct_now() + ct_patience();		\
		ssize_t ct_ret_;					\
									\
		while ((ct_ret_ = (call)) == -FI_EAGAIN) {		\
			if (ct_now() > ct_until_)			\
				ct_fail(__FILE__, __LINE__,		\
					"%s: EAGAIN for ever", #call);	\
			ct_progress(peer);				\
		}							\
		ct_ret_;						\
	})

/* The same, and it has to succeed. */
#define POST(peer, call) OK(CT_POST(peer, call))

/* A thread that drives a peer without taking completions from it. */
struct ct_driver;
struct ct_driver *ct_driver_start(struct ct_peer *peer);
void ct_driver_stop(struct ct_driver *driver);

#endif
