/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* All ranks but one send to that one as fast as they can, and it verifies what
 * it receives. The result is the time of a message. */
#include <mpi.h>
#include <stdlib.h>

#include "measure.h"

static int rank, ranks;

static void flood(long *data, int words, long count)
{
	for (long i = 0; i < count; i++) {
		data[0] = i;
		data[words - 1] = i;
		MPI_Send(data, words, MPI_LONG, 0, 1, MPI_COMM_WORLD);
	}
}

static void receive(long *data, int words, long count)
{
	long *next = calloc((size_t)ranks, sizeof(*next));

	require(next, "memory");
	for (long i = 0; i < count * (ranks - 1); i++) {
		MPI_Status status;
		int got;

		MPI_Recv(data, words, MPI_LONG, MPI_ANY_SOURCE, 1,
			 MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_LONG, &got);
		require(got == words, "length");
		require(data[0] == next[status.MPI_SOURCE] &&
			data[words - 1] == data[0], "order or content");
		next[status.MPI_SOURCE]++;
	}
	free(next);
}

static void round_of(long *data, int words, long count)
{
	if (rank)
		flood(data, words, count);
	else
		receive(data, words, count);
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	static const char usage[] = "SIZE COUNT";
	struct measure measure;
	long size, count, *data;
	int words;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	require(ranks > 1, "number of ranks");
	size = argument(argc, argv, 1, usage);
	count = argument(argc, argv, 2, usage);
	require(size % (long)sizeof(long) == 0, "size");
	words = (int)(size / (long)sizeof(long));
	data = calloc((size_t)words, sizeof(*data));
	require(data, "memory");
	round_of(data, words, count / 10 + 1);
	measure_begin(&measure);
	round_of(data, words, count);
	measure_end(&measure);
	measure_report(&measure, measure.seconds * 1e6 /
		       (double)(count * (ranks - 1)), "");
	free(data);
	MPI_Finalize();
	return 0;
}
