/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "../caller.h"

#include "everything.h"

static void open_pair(void);

struct late_caller late_caller = { .options = &ct_opt, .open = open_pair };

static void open_pair(void)
{
	ct_open_pair(&late_caller.pair, &late_caller.spec);
}

static void __attribute__((destructor)) leave(void)
{
	if (late_caller.idle)
		return;
	ct_everything(&late_caller.spec, (struct ct_everything) {
		.waits = true,
		.open = late_caller.has_own ? NULL : &late_caller.pair,
	});
}
