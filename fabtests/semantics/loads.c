/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * loads [PLUGIN]...: loads libraries and closes them, then does so once more and
 * leaves them to the end of the process.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	for (int i = 1; i < 2 * argc - 1; i++) {
		void *handle = dlopen(argv[(i - 1) % (argc - 1) + 1], RTLD_NOW);

		if (!handle) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		if (i < argc)
			dlclose(handle);
	}
	return write(STDOUT_FILENO, "main\n", 5) != 5;
}
