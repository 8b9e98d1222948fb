/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Writes to and reads from the memory of the other process, one at a time,
 * from the call to the completion. The target polls its queues meanwhile or,
 * with -z, sleeps without calls of the library.
 */
#include <stdio.h>

#include "side.h"

static void rounds(struct bench_side *side, long count)
{
	static struct fi_context2 context;

	for (long i = 0; i < count; i++) {
		bench_post(side, &context);
		bench_wait(side, side->peer.tx.fid);
	}
}

/* Both know each other well before the target sleeps. */
static void warm_up(struct bench_side *side)
{
	if (side->client)
		rounds(side, 2000);
	else
		bench_serve(side);
	bench_barrier(side);
}

static void run(struct bench_side *side)
{
	long count = side->options.iterations;
	double start;

	/* A sleeping target may accept only a limited number. */
	if (!count && side->options.idle)
		count = 500;
	else if (!count)
		count = side->options.size <= 65536 ? 20000 : 2000;
	bench_connect(side);
	bench_barrier(side);
	warm_up(side);
	if (side->client) {
		start = ct_now();
		rounds(side, count);
		printf("{\"bench\": \"onesided\", \"kind\": \"%s\", "
		       "\"target\": \"%s\", \"size\": %zu, "
		       "\"usec\": %.3f}\n",
		       bench_kind_name(side->options.kind),
		       side->options.idle ? "asleep" : "polls",
		       side->options.size,
		       (ct_now() - start) * 1e6 / (double)count);
		fflush(stdout);
	} else if (!side->options.idle) {
		bench_serve(side);
	}
	bench_close(side);
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
