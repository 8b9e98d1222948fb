/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * An operation of one integer on another rank's memory, each with a flush. With
 * two ranks, one of them operates and the other waits in a barrier; with more,
 * each of them operates on the next. A ping-pong of eight bytes in the same run
 * is reported for comparison.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

enum { KNOWN = 1000 };

static int rank, ranks;

enum operation { PUT, GET, ACCUMULATE, FETCH };

static enum operation parse(const char *name)
{
	static const char *const names[] = { "put", "get", "accumulate", "fetch" };

	for (int i = 0; i < 4; i++)
		if (name && !strcmp(name, names[i]))
			return (enum operation)i;
	require(false, "operation: put, get, accumulate or fetch");
	return PUT;
}

/* Operations number `first` up to `end` on the memory of the next rank, which
 * no other rank accesses. */
static void operate(enum operation operation, MPI_Win window, long first, long end)
{
	int target = (rank + 1) % ranks, one = 1, value, result = 0;

	for (long i = first; i < end; i++) {
		switch (operation) {
		case PUT:
			value = (int)i + 1;
			MPI_Put(&value, 1, MPI_INT, target, 0, 1, MPI_INT, window);
			break;
		case GET:
			result = -1;
			MPI_Get(&result, 1, MPI_INT, target, 0, 1, MPI_INT, window);
			break;
		case ACCUMULATE:
			MPI_Accumulate(&one, 1, MPI_INT, target, 0, 1, MPI_INT,
				       MPI_SUM, window);
			break;
		case FETCH:
			MPI_Fetch_and_op(&one, &result, MPI_INT, target, 0,
					 MPI_SUM, window);
			break;
		}
		MPI_Win_flush(target, window);
		if (operation == GET)
			require(result == KNOWN + target, "what was read");
		if (operation == FETCH)
			require(result == i, "what was fetched");
	}
}

static double round_trip(long count)
{
	double start = 0;
	long word = 0;

	for (long i = 0; i < count + count / 10; i++) {
		if (i == count / 10)
			start = MPI_Wtime();
		if (rank == 0) {
			MPI_Send(&word, 1, MPI_LONG, 1, 1, MPI_COMM_WORLD);
			MPI_Recv(&word, 1, MPI_LONG, 1, 1, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
		} else if (rank == 1) {
			MPI_Recv(&word, 1, MPI_LONG, 0, 1, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			MPI_Send(&word, 1, MPI_LONG, 0, 1, MPI_COMM_WORLD);
		}
	}
	return (MPI_Wtime() - start) / (double)count;
}

int main(int argc, char **argv)
{
	static const char usage[] = "put|get|accumulate|fetch COUNT";
	enum operation operation;
	struct measure measure;
	char more[64];
	MPI_Win window;
	double trip;
	bool origin;
	long count, warm, done;
	int *memory;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	require(ranks > 1, "number of ranks");
	count = argument(argc, argv, 2, usage);
	operation = parse(argv[1]);
	origin = rank == 0 || ranks > 2;
	warm = count / 10 + 1;

	trip = round_trip(count);
	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
			 &memory, &window);
	MPI_Win_lock_all(0, window);
	*memory = operation == GET ? KNOWN + rank : 0;
	MPI_Win_sync(window);
	MPI_Barrier(MPI_COMM_WORLD);
	if (origin)
		operate(operation, window, 0, warm);
	measure_begin(&measure);
	if (origin)
		operate(operation, window, warm, warm + count);
	/* All that are operated on look after it until all are done. */
	MPI_Barrier(MPI_COMM_WORLD);
	measure_end(&measure);
	MPI_Win_sync(window);
	done = ranks > 2 || rank == 1 ? warm + count : 0;
	require(*memory == (operation == GET ? KNOWN + rank : done),
		"what is left in memory");
	snprintf(more, sizeof(more), ", \"round_trip\": %.4f", trip * 1e6);
	measure_report(&measure, measure.seconds * 1e6 / (double)count, more);
	MPI_Win_unlock_all(window);
	MPI_Win_free(&window);
	MPI_Finalize();
	return 0;
}
