/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A library that is linked with libfabric.so.1 and uses it in its constructor
 * and in its destructor. PLUGIN_PROVIDER names the provider.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "user.h"

static const struct library linked = {
	.getinfo = fi_getinfo,
	.freeinfo = fi_freeinfo,
	.dupinfo = fi_dupinfo,
	.fabric = fi_fabric,
};
static struct user early, late;

static const char *provider(void)
{
	const char *name = getenv("PLUGIN_PROVIDER");

	return name ? name : "tcp";
}

/* Standard output may be closed already in a destructor. */
static void say(const char *line, size_t len)
{
	if (write(STDOUT_FILENO, line, len) != (ssize_t)len)
		_exit(1);
}

static void __attribute__((constructor)) begin(void)
{
	use_library(&linked, provider());
	/* These stay open until the end. */
	open_user(&early, &linked, provider());
	open_user(&late, &linked, provider());
	exchange(&early, &late);
	say("constructor\n", 12);
}

static void __attribute__((destructor)) end(void)
{
	exchange(&early, &late);
	close_user(&early);
	use_library(&linked, provider());
	close_user(&late);
	say("destructor\n", 11);
}
