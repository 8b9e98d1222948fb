/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * reload PATH PROVIDER: loads a library, uses it, and closes it, again and
 * again. Nothing may grow from round to round. The last line says whether the
 * library stays in memory, and what it leaves there.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "user.h"

enum {
	WARM = 5,
	ROUNDS = 40,
	PART = 10,	/* rounds */
	GROWTH = 1000,	/* kilobytes in that many rounds */
};

int main(int argc, char **argv)
{
	long before, now, first = 0, least = LONG_MAX;
	int files = 0, started = 0;

	if (argc != 3)
		give_up("usage: %s PATH PROVIDER", argv[0]);
	first = before = resident_kilobytes();
	for (int i = 0; i < ROUNDS; i++) {
		struct library library;

		take_library(&library, dlopen(argv[1], i & 1 ? RTLD_NOW
							     : RTLD_LAZY));
		use_library(&library, argv[2]);
		if (dlclose(library.handle))
			give_up("dlclose: %s", dlerror());
		if (i % PART == WARM) {
			now = resident_kilobytes();
			if (i > WARM && now - before < least)
				least = now - before;
			before = now;
		}
		if (i == WARM) {
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
	/* What leaks does so in each round. The allocator may take much memory at
	 * once, for a thread that meets another one. */
	if (least > GROWTH)
		give_up("memory grows by %ld kB or more in %d rounds", least, PART);
	printf("%s, %ld kB of memory more than before\n",
	       is_mapped(argv[1]) ? "stays in memory" : "leaves",
	       resident_kilobytes() - first);
	return 0;
}
