/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Queues of any number of endpoints in one process, which are read together. */
#ifndef CT_TOGETHER_H
#define CT_TOGETHER_H

#include "peer.h"

/* Opens a queue of tagged entries in a domain, which is read with the others from now on. What
 * the library refuses is returned. */
int ct_cq_join(struct ct_cq *cq, struct fid_domain *domain, struct fi_cq_attr attr);

/* Closes it, if it is open. */
void ct_cq_leave(struct ct_cq *cq);

/* Reads all queues once; completions go to their stashes. */
void ct_drive(void);

/* The next completion of a queue, successful or not. */
struct ct_completion ct_next_of(struct ct_cq *cq);

/* The same, and it has to be a success with this context. Those without one are of what nobody
 * waits for. */
struct ct_completion ct_done_of(struct ct_cq *cq, void *context);

/* Reads all queues for a moment; true if nothing is in any. */
bool ct_all_stay_empty(void);

#define ct_next_of(...) CT_HERE(ct_next_of, __VA_ARGS__)
#define ct_done_of(...) CT_HERE(ct_done_of, __VA_ARGS__)

/* A call that has to be accepted in the end. */
#define TRY(call)							\
	do {								\
		double until_ = ct_now() + ct_patience();		\
		ssize_t ret_;						\
									\
		while ((ret_ = (call)) == -FI_EAGAIN) {			\
			REQUIRE(ct_now() < until_);			\
			ct_drive();					\
		}							\
		OK(ret_);						\
	} while (0)

#endif
