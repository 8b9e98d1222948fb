/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* A message between two ranks, there and back; half of that is reported. */
#include <mpi.h>
#include <stdlib.h>

#include "measure.h"

static void rounds(char *data, int size, long count)
{
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (long i = 0; i < count; i++) {
		char mark = (char)i;

		if (rank == 0) {
			data[0] = data[size - 1] = mark;
			MPI_Send(data, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
			data[0] = data[size - 1] = (char)~mark;
			MPI_Recv(data, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			require(data[0] == mark && data[size - 1] == mark,
				"what came back");
		} else {
			MPI_Recv(data, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			MPI_Send(data, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
		}
	}
}

int main(int argc, char **argv)
{
	static const char usage[] = "SIZE COUNT";
	struct measure measure;
	char *data;
	long size, count;
	int ranks;

	MPI_Init(&argc, &argv);
	size = argument(argc, argv, 1, usage);
	count = argument(argc, argv, 2, usage);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	require(ranks == 2, "number of ranks");
	data = calloc(1, (size_t)size);
	require(data, "memory");
	rounds(data, (int)size, count / 10 + 1);
	measure_begin(&measure);
	rounds(data, (int)size, count);
	measure_end(&measure);
	measure_report(&measure, measure.seconds * 1e6 / (double)count / 2, "");
	free(data);
	MPI_Finalize();
	return 0;
}
