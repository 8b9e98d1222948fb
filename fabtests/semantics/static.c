/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * static PATH [PROVIDER]: a static executable that loads the library and asks for
 * its version, and uses a provider if one is named.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "user.h"

int main(int argc, char **argv)
{
	struct library library;
	uint32_t (*version)(void);
	void *address;

	if (argc < 2)
		give_up("usage: %s PATH [PROVIDER]", argv[0]);
	take_library(&library, dlopen(argv[1], RTLD_NOW));
	address = dlsym(library.handle, "fi_version");
	memcpy(&version, &address, sizeof(version));
	printf("version %u.%u\n", FI_MAJOR(version()), FI_MINOR(version()));
	if (argc > 2)
		use_library(&library, argv[2]);
	return 0;
}
