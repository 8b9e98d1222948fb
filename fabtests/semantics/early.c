/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * An executable that uses the library in the first of its constructors and in the
 * last of its destructors, in preinit functions before the constructors of any
 * library, and in exit handlers that it registers before and after the library's
 * first use. PROVIDER is its argument.
 */
#include <stdio.h>
#include <stdlib.h>

#include "user.h"

static const struct library linked = {
	.getinfo = fi_getinfo,
	.freeinfo = fi_freeinfo,
	.dupinfo = fi_dupinfo,
	.fabric = fi_fabric,
};

static void use(void)
{
	const char *name = getenv("PLUGIN_PROVIDER");

	use_library(&linked, name ? name : "tcp");
}

/* Runs before the constructors of all libraries, that of libfabric too. */
__attribute__((section(".preinit_array"), used))
static void (*const preinit)(void) = use;

static void __attribute__((constructor(101))) first(void)
{
	if (atexit(use))
		give_up("no exit handler");
	use();
}

static void __attribute__((destructor(101))) last(void)
{
	use();
}

int main(void)
{
	use();
	if (atexit(use))
		give_up("no exit handler");
	puts("used from everywhere");
	return 0;
}
