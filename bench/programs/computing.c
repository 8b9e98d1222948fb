/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Long messages, one at a time, to a receiver that polls its queue, from a
 * sender that computes between its calls: it posts a message, computes for a
 * while, and reads its queue then. With -z it is the receiver that computes,
 * between posting the receive and reading its queue. Reports the time for a
 * message that the side which does not compute sees, without the computing.
 */
#include <stdio.h>

#include "side.h"

/* As long as a few copies of a message of 1 MiB take. */
static const double COMPUTES = 500e-6;

/* Makes no calls of the library. */
static void compute(void)
{
	double end = ct_now() + COMPUTES;

	while (ct_now() < end)
		;
}

static void rounds(struct bench_side *side, long count)
{
	static struct fi_context2 there, back;
	bool computes = side->client != side->options.idle;

	for (long i = 0; i < count; i++) {
		if (side->client) {
			bench_post_receive(side, &back);
			bench_post(side, &there);
			if (computes)
				compute();
			bench_wait(side, side->peer.tx.fid);
			bench_wait(side, side->peer.rx.fid);
		} else {
			bench_post_receive(side, &there);
			if (computes)
				compute();
			bench_wait(side, side->peer.rx.fid);
			bench_post(side, &back);
			bench_wait(side, side->peer.tx.fid);
		}
	}
}

static void run(struct bench_side *side)
{
	long count = side->options.iterations;
	double start, each;

	if (!count)
		count = 500;
	bench_connect(side);
	bench_barrier(side);
	rounds(side, count / 10 + 1);
	bench_barrier(side);
	start = ct_now();
	rounds(side, count);
	if (side->client) {
		each = (ct_now() - start) / (double)count - COMPUTES;
		printf("{\"bench\": \"computing\", \"kind\": \"%s\", "
		       "\"who\": \"%s\", \"size\": %zu, \"usec\": %.3f}\n",
		       bench_kind_name(side->options.kind),
		       side->options.idle ? "receiver" : "sender",
		       side->options.size, each * 1e6);
		fflush(stdout);
	}
	bench_close(side);
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
