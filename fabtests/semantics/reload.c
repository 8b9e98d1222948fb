/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * reload PATH PROVIDER: loads a library, uses it, and closes it, again and
 * again. Nothing may grow from round to round. The last line says whether the
 * library stays in memory, and what it leaves there.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "user.h"

enum {
	WARM = 5,
	ROUNDS = 40,
	GROWTH = 3072,	/* kilobytes, less than the library takes */
};

int main(int argc, char **argv)
{
	long kilobytes = 0, first = 0;
	int files = 0, started = 0;

	if (argc != 3)
		give_up("usage: %s PATH PROVIDER", argv[0]);
	first = mapped_kilobytes();
	for (int i = 0; i < ROUNDS; i++) {
		struct library library;

		take_library(&library, dlopen(argv[1], i & 1 ? RTLD_NOW
							     : RTLD_LAZY));
		use_library(&library, argv[2]);
		if (dlclose(library.handle))
			give_up("dlclose: %s", dlerror());
		if (i == WARM) {
			kilobytes = mapped_kilobytes();
			files = descriptors();
			started = threads();
		}
	}
	/* Connections are closed in the background. */
	for (int i = 0; i < 600 && (descriptors() > files || threads() > started);
	     i++)
		usleep(100000);
	if (descriptors() > files)
		give_up("%d descriptors after %d rounds, %d after %d",
			descriptors(), ROUNDS, files, WARM);
	if (threads() > started)
		give_up("%d threads after %d rounds, %d after %d", threads(),
			ROUNDS, started, WARM);
	/* The heap grows for some rounds, and then no more. */
	if (mapped_kilobytes() > kilobytes + GROWTH)
		give_up("%ld kB after %d rounds, %ld after %d",
			mapped_kilobytes(), ROUNDS, kilobytes, WARM);
	printf("%s, %ld kB of address space more than before\n",
	       is_mapped(argv[1]) ? "stays in memory" : "leaves",
	       mapped_kilobytes() - first);
	return 0;
}
