/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* A library that calls libfabric and leaves the process. */
#ifndef LATE_CALLER_H
#define LATE_CALLER_H

#include "peer.h"

/* The contents of its symbol `late_caller`. */
struct late_caller {
	struct ct_options *options;	/* its own copy of the support library's */
	struct ct_spec spec;
	bool has_own;		/* its destructor opens it */
	bool idle;		/* its destructor does nothing */
	struct ct_pair pair;	/* the objects that `open` has opened */
	void (*open)(void);
};

#endif
