/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* The measurements of the MPI programs, and their output. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>

struct measure {
	double start, seconds;
	long wakeups;
};

/* Both are for all ranks to call. The time is this rank's; the wake-ups are
 * those of all. */
void measure_begin(struct measure *measure);
void measure_end(struct measure *measure);

/* Rank 0 prints the figures as one line of JSON: microseconds of an operation
 * and wake-ups per second, and the contents of `more`: ", \"name\": value". */
void measure_report(const struct measure *measure, double usec, const char *more);

/* Ends the program if received data is not what was sent. */
void require(bool condition, const char *what);

/* A positive number from the command line. */
long argument(int argc, char **argv, int index, const char *usage);

#endif
