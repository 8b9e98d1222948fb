/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Message rate and bandwidth: one side keeps a window of operations in flight
 * to the other. The clock stops when the last one has arrived there. Datagrams
 * are in flight until the receiver says that half a window of them has arrived,
 * so that none is dropped for want of room.
 */
#include <stdio.h>
#include <stdlib.h>

#include "side.h"
#include "wait.h"

static bool is_message(const struct bench_side *side)
{
	return side->options.kind == BENCH_MSG ||
	       side->options.kind == BENCH_TAGGED;
}

/* Sends a message back, which means that everything has arrived. */
static void send_ack(struct bench_side *side)
{
	static struct fi_context2 context;

	bench_post(side, &context);
	bench_wait(side, side->peer.tx.fid);
}

static void transmit(struct bench_side *side, struct fi_context2 *contexts,
		     long count)
{
	struct fid_cq *cq = side->peer.tx.fid;
	long window = side->options.window, in_flight = 0;

	for (long i = 0; i < count; i++) {
		while (in_flight == window)
			in_flight -= bench_reap(cq);
		bench_post(side, &contexts[i % window]);
		in_flight++;
	}
	while (in_flight)
		in_flight -= bench_reap(cq);
}

static void receive(struct bench_side *side, struct fi_context2 *contexts,
		    long count)
{
	struct fid_cq *cq = side->peer.rx.fid;
	long window = side->options.window, posted = 0, received = 0;

	while (received < count) {
		while (posted < count && posted - received < window) {
			bench_post_receive(side, &contexts[posted % window]);
			posted++;
		}
		received += bench_reap(cq);
	}
}

/* Datagrams that one acknowledgement is for. */
static long half_window(const struct bench_side *side)
{
	return side->options.window > 2 ? side->options.window / 2 : 1;
}

static void send_datagrams(struct bench_side *side,
			   struct fi_context2 *contexts, long count)
{
	static struct fi_context2 acks[4];
	struct fid_cq *cq = side->peer.tx.fid;
	long window = side->options.window, half = half_window(side);
	long sent = 0, completed = 0, awaited = 0, arrived = 0;

	while (arrived < count) {
		for (; awaited < 4 && (arrived / half + awaited) * half < count;
		     awaited++)
			bench_post_receive(side, &acks[awaited]);
		for (; sent < count && sent - arrived < window; sent++)
			bench_post(side, &contexts[sent % window]);
		completed += bench_reap(cq);
		for (long acked = bench_reap(side->peer.rx.fid); acked; acked--) {
			awaited--;
			arrived += half;
		}
	}
	while (completed < count)
		completed += bench_reap(cq);
}

static void receive_datagrams(struct bench_side *side,
			      struct fi_context2 *contexts, long count)
{
	long window = side->options.window, posted = 0, received = 0;
	long acked = 0;

	while (received < count) {
		for (; posted < count && posted - received < window; posted++)
			bench_post_receive(side, &contexts[posted % window]);
		received += bench_reap(side->peer.rx.fid);
		for (; received - acked >= half_window(side);
		     acked += half_window(side))
			send_ack(side);
	}
}

static void one_pass(struct bench_side *side, struct fi_context2 *contexts,
		     long count)
{
	static struct fi_context2 ack;

	if (ct_opt.type == FI_EP_DGRAM) {
		if (side->client)
			send_datagrams(side, contexts, count);
		else
			receive_datagrams(side, contexts, count);
		return;
	}
	if (!is_message(side)) {
		if (side->client)
			transmit(side, contexts, count);
		return;
	}
	if (side->client) {
		bench_post_receive(side, &ack);
		transmit(side, contexts, count);
		bench_wait(side, side->peer.rx.fid);
	} else {
		receive(side, contexts, count);
		send_ack(side);
	}
}

/* Operations before the clock starts. */
static long warm_up(const struct bench_side *side, long count)
{
	long half = half_window(side);

	return (count / 20 / half + 1) * half;
}

static void run(struct bench_side *side)
{
	size_t size = side->options.size;
	long count = side->options.iterations;
	struct fi_context2 *contexts =
		calloc((size_t)side->options.window, sizeof(*contexts));
	double start, took;

	REQUIRE(contexts);
	if (!count)
		count = size <= 1024 ? 400000 : size <= 16384 ? 100000 :
			(long)((4ULL << 30) / size);
	if (ct_opt.type == FI_EP_DGRAM)
		count -= count % half_window(side);
	bench_connect(side);
	bench_barrier(side);
	if (is_message(side) || side->client) {
		one_pass(side, contexts, warm_up(side, count));
		start = ct_now();
		one_pass(side, contexts, count);
		took = ct_now() - start;
		if (side->client)
			printf("{\"bench\": \"bandwidth\", \"kind\": \"%s\", "
			       "\"size\": %zu, \"rate\": %.0f, "
			       "\"mbytes\": %.2f}\n",
			       bench_kind_name(side->options.kind), size,
			       (double)count / took,
			       (double)count * (double)size / took / 1e6);
		fflush(stdout);
	} else {
		bench_serve(side);
	}
	bench_close(side);
	free(contexts);
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
