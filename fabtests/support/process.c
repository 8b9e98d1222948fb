/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "process.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

int ct_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	REQUIRE(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

long ct_resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long total, pages;

	REQUIRE(file);
	REQUIRE(fscanf(file, "%ld %ld", &total, &pages) == 2);
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

void ct_allow_descriptors(unsigned long most)
{
	struct rlimit limit;

	REQUIRE(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
	REQUIRE(!setrlimit(RLIMIT_NOFILE, &limit));
}
