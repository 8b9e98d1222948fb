/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Many peers: one endpoint knows and is connected to N others, of which one
 * exchanges messages. Prints the latency with that one only and with all of
 * them, and the memory that a connection costs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "process.h"
#include "side.h"
#include "wait.h"

#define TAG 7
#define ROUNDS 20000

static struct fi_context2 tx_context, rx_context;

static void post_receive(struct fid_ep *ep)
{
	ssize_t ret;

	while ((ret = fi_trecv(ep, NULL, 0, NULL, FI_ADDR_UNSPEC, TAG, 0,
			       &rx_context)) == -FI_EAGAIN)
		;
	OK(ret);
}

static void send_to(struct ct_peer *peer, struct fid_ep *ep, fi_addr_t to)
{
	ssize_t ret;

	while ((ret = fi_tsend(ep, NULL, 0, NULL, to, TAG, &tx_context)) ==
	       -FI_EAGAIN) {
		fi_cq_read(peer->tx.fid, NULL, 0);
		fi_cq_read(peer->rx.fid, NULL, 0);
	}
	OK(ret);
}

/* Both sides: rounds of one message each way between the hub and a peer. */
static double ping_pong(struct bench_side *side, struct fid_ep *ep,
			fi_addr_t to)
{
	struct ct_peer *peer = &side->peer;
	double start = 0;

	post_receive(ep);
	bench_barrier(side);
	for (long i = -ROUNDS / 10; i < ROUNDS; i++) {
		if (i == 0)
			start = ct_now();
		if (!side->client)
			bench_wait(side, peer->rx.fid);
		else
			send_to(peer, ep, to);
		if (side->client) {
			bench_wait(side, peer->tx.fid);
			bench_wait(side, peer->rx.fid);
			post_receive(ep);
		} else {
			post_receive(ep);
			send_to(peer, ep, to);
			bench_wait(side, peer->tx.fid);
		}
	}
	OK(fi_cancel(&ep->fid, &rx_context));
	start = (ct_now() - start) * 1e6 / ROUNDS / 2;
	/* The cancelled receive's entry. */
	for (;;) {
		struct fi_cq_err_entry err = { 0 };
		struct fi_cq_entry entry;

		fi_cq_read(peer->rx.fid, &entry, 1);
		if (fi_cq_readerr(peer->rx.fid, &err, 0) == 1)
			break;
	}
	return start;
}

/* The endpoint that everybody talks to. */
static void hub(struct bench_side *side, const struct ct_spec *spec)
{
	struct ct_peer *peer = &side->peer;
	long count = side->options.peers, before, after;
	unsigned char name[256] = { 0 };
	double alone, among;
	fi_addr_t first = 0;

	ct_open_domain(peer, spec, ct_getinfo(spec), NULL, NULL);
	ct_open_ep(peer, peer->info);
	ct_name(&peer->ep->fid, name, sizeof(name));
	bench_tell(side, name, sizeof(name));
	for (long i = 0; i < count; i++) {
		fi_addr_t addr;

		bench_hear(side, name, sizeof(name));
		addr = ct_insert(peer, name);
		first = i ? first : addr;
	}
	alone = ping_pong(side, peer->ep, first);
	before = ct_resident();
	for (long i = 1; i < count; i++) {
		post_receive(peer->ep);
		bench_wait(side, peer->rx.fid);
	}
	after = ct_resident();
	among = ping_pong(side, peer->ep, first);
	printf("{\"bench\": \"peers\", \"peers\": %ld, \"alone_usec\": %.3f, "
	       "\"among_usec\": %.3f, \"bytes_per_connection\": %ld}\n",
	       count, alone, among,
	       count > 1 ? (after - before) / (count - 1) : 0);
	fflush(stdout);
	bench_barrier(side);
	ct_close_peer(peer);
}

/* The others, all in one process and on one pair of queues. */
static void crowd(struct bench_side *side, const struct ct_spec *spec)
{
	struct ct_peer *peer = &side->peer;
	long count = side->options.peers;
	struct fid_ep **eps = calloc((size_t)count, sizeof(*eps));
	unsigned char name[256] = { 0 };

	REQUIRE(eps);
	ct_open_domain(peer, spec, ct_getinfo(spec), NULL, NULL);
	bench_hear(side, name, sizeof(name));
	peer->to = ct_insert(peer, name);
	for (long i = 0; i < count; i++) {
		ct_open_ep(peer, peer->info);
		eps[i] = peer->ep;
		ct_name(&eps[i]->fid, name, sizeof(name));
		bench_tell(side, name, sizeof(name));
	}
	ping_pong(side, eps[0], peer->to);
	for (long i = 1; i < count; i++) {
		send_to(peer, eps[i], peer->to);
		bench_wait(side, peer->tx.fid);
	}
	ping_pong(side, eps[0], peer->to);
	bench_barrier(side);
	for (long i = 0; i < count; i++)
		OK(fi_close(&eps[i]->fid));
	peer->ep = NULL;
	ct_close_peer(peer);
	free(eps);
}

static void run(struct bench_side *side)
{
	bench_run_crowd(side, hub, crowd);
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
