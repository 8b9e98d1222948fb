/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Preloaded into another project's MPI program: writes the wake-ups between
 * MPI_Init and MPI_Finalize, and the seconds, to the file $BENCH_WATCH.<pid>.
 * It is loaded into the launcher's processes as well, and needs no MPI library
 * there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "wakeups.h"

static double start;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The next definition of a function: the MPI library's. */
static void *next(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found) {
		fprintf(stderr, "no %s\n", name);
		abort();
	}
	return found;
}

int MPI_Init(int *argc, char ***argv)
{
	int (*init)(int *, char ***) = next("MPI_Init");
	int ret = init(argc, argv);

	start = now();
	return ret;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	int (*init)(int *, char ***, int, int *) = next("MPI_Init_thread");
	int ret = init(argc, argv, required, provided);

	start = now();
	return ret;
}

int MPI_Finalize(void)
{
	int (*finalize)(void) = next("MPI_Finalize");
	const char *prefix = getenv("BENCH_WATCH");
	char path[4096];
	FILE *file = NULL;

	if (prefix) {
		snprintf(path, sizeof(path), "%s.%d", prefix, (int)getpid());
		file = fopen(path, "w");
	}
	if (file) {
		fprintf(file, "%ld %.6f\n", bench_wakeups(), now() - start);
		fclose(file);
	}
	return finalize();
}
