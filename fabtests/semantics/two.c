/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * two HOW FIRST SECOND PROVIDER: two libraries in one process. HOW is one of
 *
 *   local      each loaded with RTLD_LOCAL, as plugins are
 *   global     the first one with RTLD_GLOBAL, as if the program were linked with it
 *   deepbind   the second one with RTLD_DEEPBIND
 *   namespace  the second one in a namespace of its own (dlmopen(3))
 *
 * Each passes messages by itself, then their endpoints to one another, while the
 * objects of both are open; then one is closed and the other one used. Each keeps
 * its own parameters and reads its own (fi_getparams(3)).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "user.h"

static void *load(const char *path, int flags)
{
	void *handle = dlopen(path, RTLD_NOW | flags);

	if (!handle)
		give_up("%s: %s", path, dlerror());
	return handle;
}

/* How many parameters of this name prefix a library lists. */
static int parameters(const struct library *library, const char *prefix)
{
	int (*getparams)(struct fi_param **params, int *count);
	void (*freeparams)(struct fi_param *params);
	void *of = dlsym(library->handle, "fi_getparams"),
	     *end = dlsym(library->handle, "fi_freeparams");
	struct fi_param *params;
	int count, found = 0;

	memcpy(&getparams, &of, sizeof(of));
	memcpy(&freeparams, &end, sizeof(end));
	if (getparams(&params, &count))
		give_up("no parameters");
	for (int i = 0; i < count; i++)
		found += !strncmp(params[i].name, prefix, strlen(prefix));
	freeparams(params);
	return found;
}

int main(int argc, char **argv)
{
	struct library first, second;
	struct user a, b;
	const char *how, *provider;
	int alone;

	if (argc != 5)
		give_up("usage: %s HOW FIRST SECOND PROVIDER", argv[0]);
	how = argv[1];
	provider = argv[4];
	take_library(&first, load(argv[2], strcmp(how, "global") ? RTLD_LOCAL
								 : RTLD_GLOBAL));
	use_library(&first, provider);
	alone = parameters(&first, "FI_TCP_");
	if (!alone)
		give_up("the first one has no parameters of tcp");
	if (!strcmp(how, "namespace"))
		take_library(&second, dlmopen(LM_ID_NEWLM, argv[3], RTLD_NOW));
	else
		take_library(&second,
			     load(argv[3], strcmp(how, "deepbind")
						   ? RTLD_LOCAL
						   : RTLD_LOCAL | RTLD_DEEPBIND));
	if (second.getinfo == first.getinfo)
		give_up("they are the same");
	use_library(&second, provider);
	if (!parameters(&second, "FI_TCP_"))
		give_up("the second one has no parameters of tcp");
	if (parameters(&first, "FI_TCP_") != alone)
		give_up("the second one has defined parameters of the first one");
	open_user(&a, &first, provider);
	open_user(&b, &second, provider);
	exchange(&a, &b);
	use_library(&first, provider);
	use_library(&second, provider);
	close_user(&a);
	use_library(&second, provider);
	close_user(&b);
	use_library(&first, provider);
	dlclose(second.handle);
	use_library(&first, provider);
	dlclose(first.handle);
	puts("they do not disturb one another");
	return 0;
}
