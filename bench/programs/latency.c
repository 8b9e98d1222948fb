/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Latency. Messages: half of a round trip. Remote reads, writes with
 * FI_DELIVERY_COMPLETE and fetching atomics: from the call to the completion.
 */
#include <stdio.h>
#include <string.h>

#include "side.h"

static bool is_message(const struct bench_side *side)
{
	return side->options.kind == BENCH_MSG ||
	       side->options.kind == BENCH_TAGGED;
}

static void write_and_wait(struct bench_side *side)
{
	struct ct_peer *peer = &side->peer;
	struct iovec iov = { side->out.data, side->options.size };
	struct fi_rma_iov target = {
		side->addr, side->options.size, side->key,
	};
	static struct fi_context2 context;
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .desc = &side->out.desc, .iov_count = 1,
		.addr = peer->to, .rma_iov = &target, .rma_iov_count = 1,
		.context = &context,
	};
	ssize_t ret;

	while ((ret = fi_writemsg(peer->ep, &msg, FI_DELIVERY_COMPLETE)) ==
	       -FI_EAGAIN)
		fi_cq_read(peer->tx.fid, NULL, 0);
	OK(ret);
	bench_wait(side, peer->tx.fid);
}

static void send_one(struct bench_side *side, void *context, long number)
{
	if (side->options.fresh)
		memset(side->out.data, (int)number, side->options.size);
	bench_post(side, context);
	bench_wait(side, side->peer.tx.fid);
}

static void rounds(struct bench_side *side, long count)
{
	static struct fi_context2 tx_context, rx_context;
	struct ct_peer *peer = &side->peer;

	for (long i = 0; i < count; i++) {
		if (side->options.kind == BENCH_WRITE) {
			write_and_wait(side);
			continue;
		}
		if (!is_message(side)) {
			bench_post(side, &tx_context);
			bench_wait(side, peer->tx.fid);
			continue;
		}
		if (side->client) {
			send_one(side, &tx_context, i);
			bench_wait(side, peer->rx.fid);
			bench_post_receive(side, &rx_context);
		} else {
			bench_wait(side, peer->rx.fid);
			bench_post_receive(side, &rx_context);
			send_one(side, &tx_context, i);
		}
	}
}

static void run(struct bench_side *side)
{
	static struct fi_context2 first;
	long count = side->options.iterations;
	double start, took;

	if (!count)
		count = side->options.size <= 65536 ? 20000 : 2000;
	bench_connect(side);
	if (is_message(side))
		bench_post_receive(side, &first);
	bench_barrier(side);
	if (is_message(side) || side->client) {
		rounds(side, count / 10 + 10);
		start = ct_now();
		rounds(side, count);
		took = ct_now() - start;
		if (side->client)
			printf("{\"bench\": \"latency\", \"kind\": \"%s\", "
			       "\"size\": %zu, \"usec\": %.3f}\n",
			       bench_kind_name(side->options.kind),
			       side->options.size,
			       took * 1e6 / (double)count /
			       (is_message(side) ? 2 : 1));
		fflush(stdout);
	} else {
		bench_serve(side);
	}
	bench_close(side);
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
