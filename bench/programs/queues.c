/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Several queues read in turn, as runtimes with endpoints for requests and for
 * replies do: each endpoint has a completion queue of its own and multi-receive
 * buffers. A request that arrives at one endpoint is answered from the next
 * one, so that the answer comes to another queue than the request left from.
 *
 *   -m number      of endpoints (default 2)
 *   -w window      requests under way: 1 for round trips, more for a flood
 *
 * Prints the time of a request and its answer. With FI_THREAD_SAFE, unless
 * told otherwise.
 */
#include <stdio.h>
#include <stdlib.h>

#include "memory.h"
#include "peer.h"
#include "side.h"

#define BUFFERS 2
#define ROOM (64 << 10)

struct buffer {
	struct fi_context2 context;	/* first: completions lead back here */
	struct ct_memory memory;
};

struct queue {
	struct bench_side side;
	struct buffer buffers[BUFFERS];
};

static struct {
	struct queue *queues;
	long count, arrived;
	struct bench_options options;
	bool client;
} run;

static void post_buffer(struct queue *queue, struct buffer *buffer)
{
	struct iovec iov = { buffer->memory.data, ROOM };
	struct fi_msg msg = {
		.msg_iov = &iov, .desc = &buffer->memory.desc, .iov_count = 1,
		.addr = FI_ADDR_UNSPEC, .context = &buffer->context,
	};
	ssize_t ret;

	while ((ret = fi_recvmsg(queue->side.peer.ep, &msg, FI_MULTI_RECV)) ==
	       -FI_EAGAIN)
		fi_cq_read(queue->side.peer.rx.fid, NULL, 0);
	OK(ret);
}

static void look(long number);

static void send_from(long number)
{
	struct ct_peer *peer = &run.queues[number].side.peer;
	char message[64] = { 0 };
	ssize_t ret;

	while ((ret = fi_inject(peer->ep, message, run.options.size,
				peer->to)) == -FI_EAGAIN)
		fi_cq_read(peer->rx.fid, NULL, 0);
	OK(ret);
}

/* One read of one queue. */
static void look(long number)
{
	struct queue *queue = &run.queues[number];
	struct fi_cq_data_entry entries[16];
	ssize_t count = fi_cq_read(queue->side.peer.rx.fid, entries, 16);

	if (count == -FI_EAGAIN)
		return;
	REQUIRE(count >= 0);
	for (ssize_t i = 0; i < count; i++) {
		if (entries[i].flags & FI_RECV) {
			run.arrived++;
			if (!run.client)
				send_from((number + 1) % run.count);
		}
		if (entries[i].flags & FI_MULTI_RECV)
			post_buffer(queue, entries[i].op_context);
	}
}

static void rounds(long count)
{
	long before = run.arrived, sent = 0;

	while (run.arrived - before < count) {
		while (run.client && sent < count &&
		       sent - (run.arrived - before) < run.options.window)
			send_from(sent++ % run.count);
		for (long i = 0; i < run.count; i++)
			look(i);
	}
}

static void hint(struct fi_info *hints)
{
	hints->caps |= FI_MULTI_RECV;
}

static void open_queue(struct queue *queue, const struct bench_side *first)
{
	struct ct_peer *peer = &queue->side.peer;
	const struct ct_peer *shared = &run.queues[0].side.peer;
	struct ct_spec spec = {
		.caps = FI_MSG, .format = FI_CQ_FORMAT_DATA, .one_cq = true,
		.threading = run.options.threading, .hint = hint,
	};

	queue->side = *first;
	ct_open_domain(peer, &spec, ct_getinfo(&spec),
		       queue == run.queues ? NULL : shared->fabric,
		       queue == run.queues ? NULL : shared->domain);
	bench_meet(&queue->side);
	for (int i = 0; i < BUFFERS; i++) {
		ct_memory_open(peer, &queue->buffers[i].memory, ROOM, FI_RECV);
		post_buffer(queue, &queue->buffers[i]);
	}
}

static void close_queue(struct queue *queue)
{
	OK(fi_close(&queue->side.peer.ep->fid));
	queue->side.peer.ep = NULL;
	for (int i = 0; i < BUFFERS; i++)
		ct_memory_close(&queue->buffers[i].memory);
	if (queue->side.pep)
		OK(fi_close(&queue->side.pep->fid));
	ct_close_peer(&queue->side.peer);
}

static void queues(struct bench_side *side)
{
	long count = side->options.iterations ? side->options.iterations : 200000;
	double start, took;

	run.options = side->options;
	if (run.options.threading == FI_THREAD_UNSPEC)
		run.options.threading = FI_THREAD_SAFE;
	REQUIRE(run.options.size <= 64);
	run.client = side->client;
	run.count = run.options.endpoints > 1 ? run.options.endpoints : 2;
	run.queues = calloc((size_t)run.count, sizeof(*run.queues));
	REQUIRE(run.queues);
	bench_pin(!side->client);
	for (long i = 0; i < run.count; i++)
		open_queue(&run.queues[i], side);
	bench_barrier(side);
	rounds(count / 10);
	start = ct_now();
	rounds(count);
	took = ct_now() - start;
	if (run.client)
		printf("{\"bench\": \"queues\", \"queues\": %ld, "
		       "\"window\": %ld, \"usec\": %.3f}\n", run.count,
		       run.options.window, took * 1e6 / (double)count);
	fflush(stdout);
	bench_barrier(side);
	for (long i = run.count; i-- > 0;)
		close_queue(&run.queues[i]);
	free(run.queues);
}

int main(int argc, char **argv)
{
	return bench_main_threads(argc, argv, queues);
}
