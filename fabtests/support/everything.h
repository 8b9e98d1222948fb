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

/* The specification of a pair for ct_everything, with the given threading and
 * progress. */
struct ct_spec ct_everything_spec(enum fi_threading threading,
				  enum fi_progress progress);

/*
 * Calls the functions of the interface that the provider offers, from
 * fi_getinfo to the closing of all objects. Apart from blocking calls, it
 * contains no cancellation point unless the library does.
 */
void ct_everything(const struct ct_spec *spec, struct ct_everything how);

#endif
