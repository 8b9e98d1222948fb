/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "wakeups.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static long of_thread(const char *name)
{
	char path[300], line[200];
	long wakeups = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", name);
	file = fopen(path, "r");
	if (!file)
		return 0;
	/* The name is in the first line, the count in one of the last. */
	if (fgets(line, sizeof(line), file) && !strncmp(line, "Name:\tfi_", 9))
		while (fgets(line, sizeof(line), file))
			sscanf(line, "voluntary_ctxt_switches: %ld", &wakeups);
	fclose(file);
	return wakeups;
}

long bench_wakeups(void)
{
	DIR *threads = opendir("/proc/self/task");
	struct dirent *thread;
	long wakeups = 0;

	if (!threads)
		return 0;
	while ((thread = readdir(threads)))
		wakeups += of_thread(thread->d_name);
	closedir(threads);
	return wakeups;
}
