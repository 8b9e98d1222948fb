/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The time that a process needs before it can open an object: loading the
 * library, and the first fi_getinfo(3), without hints. Both are measured in
 * many new processes; the program prints the medians in microseconds, and
 * their sum.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <rdma/fabric.h>

enum { PROCESSES = 200, PARTS = 3 };

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

/* A new process; returns no result if the library answers nothing. */
static void start(int fd)
{
	int (*getinfo)(uint32_t version, const char *node, const char *service,
		       uint64_t flags, const struct fi_info *hints,
		       struct fi_info **info);
	struct fi_info *info = NULL;
	double times[PARTS], begin = now();
	void *library = dlopen("libfabric.so.1", RTLD_NOW), *address;

	if (!library)
		_exit(1);
	address = dlsym(library, "fi_getinfo");
	memcpy(&getinfo, &address, sizeof(getinfo));
	times[0] = now() - begin;
	if (getinfo(FI_VERSION(1, 18), NULL, NULL, 0, NULL, &info) || !info)
		_exit(1);
	times[2] = now() - begin;
	times[1] = times[2] - times[0];
	_exit(write(fd, times, sizeof(times)) != sizeof(times));
}

static int compare(const void *a, const void *b)
{
	double of_a = *(const double *)a, of_b = *(const double *)b;

	return (of_a > of_b) - (of_a < of_b);
}

int main(void)
{
	static double all[PARTS][PROCESSES];
	int ends[2];

	if (pipe(ends))
		return 1;
	for (int i = 0; i < PROCESSES; i++) {
		double times[PARTS];
		pid_t pid = fork();
		int status;

		if (pid < 0)
			return 1;
		if (!pid)
			start(ends[1]);
		if (waitpid(pid, &status, 0) != pid || status ||
		    read(ends[0], times, sizeof(times)) != sizeof(times)) {
			fprintf(stderr, "a process has not started\n");
			return 1;
		}
		for (int part = 0; part < PARTS; part++)
			all[part][i] = times[part];
	}
	for (int part = 0; part < PARTS; part++)
		qsort(all[part], PROCESSES, sizeof(double), compare);
	printf("{\"load_usec\": %.1f, \"first_usec\": %.1f, "
	       "\"start_usec\": %.1f}\n", all[0][PROCESSES / 2], all[1][PROCESSES / 2],
	       all[2][PROCESSES / 2]);
	return 0;
}
