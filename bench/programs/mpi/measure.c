/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "measure.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "wakeups.h"

void measure_begin(struct measure *measure)
{
	MPI_Barrier(MPI_COMM_WORLD);
	measure->wakeups = bench_wakeups();
	measure->start = MPI_Wtime();
}

void measure_end(struct measure *measure)
{
	long wakeups;

	measure->seconds = MPI_Wtime() - measure->start;
	wakeups = bench_wakeups() - measure->wakeups;
	MPI_Reduce(&wakeups, &measure->wakeups, 1, MPI_LONG, MPI_SUM, 0,
		   MPI_COMM_WORLD);
}

void measure_report(const struct measure *measure, double usec, const char *more)
{
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank)
		return;
	printf("{\"usec\": %.4f, \"wakeups\": %.2f%s}\n", usec,
	       (double)measure->wakeups / measure->seconds, more);
	fflush(stdout);
}

void require(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "wrong: %s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

long argument(int argc, char **argv, int index, const char *usage)
{
	long value = index < argc ? atol(argv[index]) : 0;

	if (value <= 0) {
		fprintf(stderr, "usage: %s %s\n", argv[0], usage);
		MPI_Abort(MPI_COMM_WORLD, 2);
		abort();
	}
	return value;
}
