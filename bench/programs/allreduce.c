/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * All-reduce (fi_allreduce(3)) of floats among the processes of one machine,
 * one operation after the other: the time of one, from the first member's
 * point of view. Members let one another have the processor when they find
 * nothing to do.
 */
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_collective.h>

#include "check.h"
#include "child.h"
#include "peer.h"
#include "wait.h"

enum { MOST = 64, NAME = 256, ROUNDS = 5 };

static struct {
	int members;
	size_t count;
	long iterations;	/* of a round; 0: chosen from the size */
} options = { .members = 4, .count = 2 };

static int rank;
static struct ct_peer peer;
static struct fid_av_set *set;
static struct fid_mc *mc;
static float *in, *out;

static void reduce(void)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	OK(fi_allreduce(peer.ep, in, options.count, NULL, out, NULL, fi_mc_addr(mc),
			FI_FLOAT, FI_SUM, 0, NULL));
	while ((ret = fi_cq_read(peer.tx.fid, &entry, 1)) == -FI_EAGAIN)
		sched_yield();
	REQUIRE(ret == 1);
}

static void join(int fd)
{
	static char names[MOST][NAME];
	struct ct_spec spec = { .caps = FI_TAGGED | FI_COLLECTIVE, .eq = true, .one_cq = true };
	struct fi_av_set_attr attr = {
		.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL,
	};

	ct_open_single(&peer, &spec);
	ct_name(&peer.ep->fid, names[rank], NAME);
	ct_tell(fd, names[rank], NAME);
	ct_hear(fd, names, (size_t)options.members * NAME);
	OK(fi_av_set(peer.av, &attr, &set, NULL));
	for (int i = 0; i < options.members; i++)
		OK(fi_av_set_insert(set, ct_insert(&peer, names[i])));
	OK(fi_join_collective(peer.ep, FI_ADDR_NOTAVAIL, set, 0, &mc, NULL));
	ct_event_of(&peer, FI_JOIN_COMPLETE);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void run_member(int fd)
{
	double usec[ROUNDS];
	char word;

	join(fd);
	in = calloc(options.count, sizeof(*in));
	out = calloc(options.count, sizeof(*out));
	REQUIRE(in && out);
	for (size_t i = 0; i < options.count; i++)
		in[i] = (float)(i % 5);
	for (long i = 0; i < options.iterations / 10 + 2; i++)
		reduce();
	for (int round = 0; round < ROUNDS; round++) {
		double start = ct_now();

		for (long i = 0; i < options.iterations; i++)
			reduce();
		usec[round] = (ct_now() - start) * 1e6 / (double)options.iterations;
	}
	for (size_t i = 0; i < options.count; i++)
		REQUIRE(out[i] == (float)(options.members * (int)(i % 5)));
	if (!rank) {
		qsort(usec, ROUNDS, sizeof(*usec), by_value);
		printf("{\"bench\": \"allreduce\", \"members\": %d, \"size\": %zu, "
		       "\"usec\": %.3f}\n", options.members,
		       options.count * sizeof(float), usec[ROUNDS / 2]);
		fflush(stdout);
	}
	/* Nobody leaves before all have what they need of the others. */
	ct_tell(fd, "d", 1);
	ct_hear(fd, &word, 1);
	OK(fi_close(&mc->fid));
	OK(fi_close(&set->fid));
	ct_close_peer(&peer);
	free(in);
	free(out);
}

static void read_options(int argc, char **argv)
{
	int c;

	ct_opt.type = FI_EP_RDM;
	while ((c = getopt(argc, argv, "N:s:n:p:a:1")) != -1) {
		switch (c) {
		case 'N':
			options.members = atoi(optarg);
			break;
		case 's':
			options.count = strtoull(optarg, NULL, 0) / sizeof(float);
			break;
		case 'n':
			options.iterations = atol(optarg);
			break;
		case 'p':
			ct_opt.provider = optarg;
			break;
		case 'a':
			ct_opt.source = strcmp(optarg, "none") ? optarg : NULL;
			break;
		case '1':
			break;
		default:
			fprintf(stderr, "usage: %s [-N members] [-s bytes] [-n iterations] "
				"[-p provider] [-a node|none]\n", argv[0]);
			exit(1);
		}
	}
	REQUIRE(options.members > 0 && options.members <= MOST && options.count);
	if (!options.iterations)
		options.iterations = options.count > 10000 ? 20 : 500;
}

int main(int argc, char **argv)
{
	static char names[MOST][NAME];
	struct ct_child members[MOST];
	char word;

	read_options(argc, argv);
	for (rank = 0; rank < options.members; rank++)
		members[rank] = ct_spawn(run_member);
	for (int i = 0; i < options.members; i++) {
		ct_begin(&members[i]);
		ct_hear(members[i].fd, names[i], NAME);
	}
	for (int i = 0; i < options.members; i++)
		ct_tell(members[i].fd, names, (size_t)options.members * NAME);
	for (int i = 0; i < options.members; i++)
		ct_hear(members[i].fd, &word, 1);
	for (int i = 0; i < options.members; i++)
		ct_tell(members[i].fd, "c", 1);
	for (int i = 0; i < options.members; i++)
		ct_join(&members[i]);
	return 0;
}
