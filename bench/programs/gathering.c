/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Messages from many endpoints to one: the rate at which it receives them from
 * one of them, and from all at once. The senders are in a few processes, each
 * of which has many endpoints.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"
#include "side.h"
#include "wait.h"

enum { PROCESSES = 4, TAG = 7, WINDOW = 32, RECEIVES = 512 };

static long messages(const struct bench_side *side)
{
	long count = side->options.iterations;

	if (!count)
		count = 8192;
	return count - count % side->options.peers;
}

static double receive_all(struct bench_side *side, char *room)
{
	static struct fi_context2 contexts[RECEIVES];
	struct ct_peer *peer = &side->peer;
	long count = messages(side), posted = 0, received = 0;
	double start;

	for (; posted < count && posted < RECEIVES; posted++)
		OK(fi_trecv(peer->ep, room, side->options.size, NULL,
			    FI_ADDR_UNSPEC, TAG, 0, &contexts[posted]));
	bench_barrier(side);
	start = ct_now();
	while (received < count) {
		long got = bench_reap(peer->rx.fid);

		received += got;
		for (; got && posted < count; got--, posted++)
			OK(fi_trecv(peer->ep, room, side->options.size, NULL,
				    FI_ADDR_UNSPEC, TAG, 0,
				    &contexts[posted % RECEIVES]));
	}
	start = ct_now() - start;
	/* Until the senders know. */
	for (int done = 0; !done;) {
		char byte;

		fi_cq_read(peer->rx.fid, NULL, 0);
		done = recv(side->fd, &byte, 1, MSG_DONTWAIT) == 1;
	}
	return (double)count * (double)side->options.size / start / 1e6;
}

static void hub(struct bench_side *side, const struct ct_spec *spec)
{
	struct ct_peer *peer = &side->peer;
	unsigned char name[256] = { 0 };
	char *room = malloc(side->options.size);
	long before, peers = side->options.peers;
	double one, all;

	REQUIRE(room);
	ct_open_domain(peer, spec, ct_getinfo(spec), NULL, NULL);
	ct_open_ep(peer, peer->info);
	ct_name(&peer->ep->fid, name, sizeof(name));
	bench_tell(side, name, sizeof(name));
	receive_all(side, room);
	one = receive_all(side, room);
	before = ct_resident();
	receive_all(side, room);
	before = ct_resident() - before;
	all = receive_all(side, room);
	printf("{\"bench\": \"gathering\", \"peers\": %ld, \"size\": %zu, "
	       "\"one\": %.2f, \"mbytes\": %.2f, \"ratio\": %.3f, "
	       "\"bytes_per_peer\": %ld}\n", peers, side->options.size, one,
	       all, all / one, peers > 1 ? before / (peers - 1) : 0);
	fflush(stdout);
	bench_barrier(side);
	ct_close_peer(peer);
	free(room);
}

/* One of the processes that send. */
static void send_all(struct ct_peer *peer, struct fid_ep **eps, long count,
		     long each, const char *bytes, size_t size)
{
	static struct fi_context2 context;
	long left = count * each, open = 0;
	long *sent = calloc((size_t)count, sizeof(*sent));

	REQUIRE(sent);
	while (left || open) {
		for (long i = 0; i < count; i++) {
			if (sent[i] == each || open >= count * WINDOW)
				continue;
			if (fi_tsend(eps[i], bytes, size, NULL, peer->to, TAG,
				     &context))
				continue;
			sent[i]++;
			left--;
			open++;
		}
		open -= bench_reap(peer->tx.fid);
		fi_cq_read(peer->rx.fid, NULL, 0);
	}
	free(sent);
}

static void sender(struct bench_side *side, const struct ct_spec *spec, int fd,
		   bool first)
{
	struct ct_peer *peer = &side->peer;
	long count = side->options.peers / PROCESSES;
	struct fid_ep **eps;
	unsigned char name[256] = { 0 };
	char *bytes = calloc(1, side->options.size), order;

	if (first)
		count += side->options.peers % PROCESSES;
	eps = calloc((size_t)count + 1, sizeof(*eps));
	REQUIRE(bytes && eps);
	ct_open_domain(peer, spec, ct_getinfo(spec), NULL, NULL);
	REQUIRE(read(fd, name, sizeof(name)) == sizeof(name));
	peer->to = ct_insert(peer, name);
	for (long i = 0; i < count; i++) {
		ct_open_ep(peer, peer->info);
		eps[i] = peer->ep;
	}
	while (read(fd, &order, 1) == 1 && order != 'q') {
		long each = messages(side) / side->options.peers;

		if (order == 'a')
			send_all(peer, eps, count, each, bytes,
				 side->options.size);
		else if (first)
			send_all(peer, eps, 1, messages(side), bytes,
				 side->options.size);
		REQUIRE(write(fd, "d", 1) == 1);
	}
	for (long i = 0; i < count; i++)
		OK(fi_close(&eps[i]->fid));
	peer->ep = NULL;
	ct_close_peer(peer);
	free(eps);
	free(bytes);
	_exit(0);
}

static void crowd(struct bench_side *side, const struct ct_spec *spec)
{
	static const char orders[] = "11aaq";
	int fds[PROCESSES][2];
	unsigned char name[256];

	for (int i = 0; i < PROCESSES; i++) {
		pid_t pid;

		REQUIRE(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds[i]));
		pid = fork();
		REQUIRE(pid >= 0);
		if (!pid)
			sender(side, spec, fds[i][1], !i);
	}
	bench_hear(side, name, sizeof(name));
	for (int i = 0; i < PROCESSES; i++)
		REQUIRE(write(fds[i][0], name, sizeof(name)) == sizeof(name));
	for (const char *order = orders; *order; order++) {
		char byte;

		bench_barrier(side);
		for (int i = 0; i < PROCESSES; i++)
			REQUIRE(write(fds[i][0], order, 1) == 1);
		for (int i = 0; i < PROCESSES && *order != 'q'; i++)
			REQUIRE(read(fds[i][0], &byte, 1) == 1);
		if (*order != 'q')
			bench_tell(side, "d", 1);
	}
	for (int i = 0; i < PROCESSES; i++)
		wait(NULL);
}

static void run(struct bench_side *side)
{
	bench_run_crowd(side, hub, crowd);
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
