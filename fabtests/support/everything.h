/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* The whole interface, for callers in unusual places. */
#ifndef CT_EVERYTHING_H
#define CT_EVERYTHING_H

#include "peer.h"

struct ct_everything {
	bool waits;		/* blocking calls, too */
	bool prints;		/* lines go to the log */
	struct ct_pair *open;	/* use this one instead of a new pair */
};

/* What a pair for ct_everything needs, with threading and progress as given. */
struct ct_spec ct_everything_spec(enum fi_threading threading,
				  enum fi_progress progress);

/*
 * Calls the functions of the interface that the provider offers, from fi_getinfo
 * to the closing of all that was opened. Apart from blocking calls, there is no
 * cancellation point in it unless the library has one.
 */
void ct_everything(const struct ct_spec *spec, struct ct_everything how);

#endif
