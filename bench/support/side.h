/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The two sides of a benchmark: a server and a client, in two processes of one
 * machine or on two machines (or network namespaces), with a socket between
 * them for communication outside of libfabric.
 */
#ifndef BENCH_SIDE_H
#define BENCH_SIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "memory.h"
#include "peer.h"

enum bench_kind {
	BENCH_MSG, BENCH_TAGGED, BENCH_WRITE, BENCH_READ, BENCH_ATOMIC,
	BENCH_KINDS,
};

struct bench_options {
	enum bench_kind kind;
	size_t size;		/* bytes per message */
	long iterations;	/* 0: chosen from the size */
	long window;		/* operations in flight */
	long peers;		/* many-peers program */
	long threads;		/* of a side */
	long endpoints;		/* of each thread */
	bool own_domains;	/* one for each thread */
	bool inside;		/* both sides are one process */
	bool contexts;		/* of one scalable endpoint, in place of endpoints */
	bool pinned;		/* to processors */
	bool fresh;		/* each message has new data */
	bool idle;		/* the target of remote access makes no calls */
	enum fi_threading threading;
};

/* One side, connected to the other. */
struct bench_side {
	struct bench_options options;
	bool client;
	int fd;				/* to the other side */
	struct ct_peer peer;
	struct ct_memory out, in;	/* in may be reached by the other side */
	uint64_t addr, key;		/* of the other side's in */
	struct fid_pep *pep;
};

/* Reads the options, makes the two processes and runs the function in each. */
int bench_main(int argc, char **argv, void (*run)(struct bench_side *side));

/* The same for a program whose threads set their own processors. */
int bench_main_threads(int argc, char **argv,
		       void (*run)(struct bench_side *side));

/* For a program with one endpoint on one side and many on the other: the client, which measures,
 * is the hub. Endpoints are of the type FI_EP_RDM, and there may be as many descriptors as the
 * system permits. */
typedef void bench_part(struct bench_side *side, const struct ct_spec *spec);
void bench_run_crowd(struct bench_side *side, bench_part *hub, bench_part *crowd);

/* Binds this thread to one of the processors that the program may use; how
 * many those are, asked before any thread is bound. */
void bench_pin(int which);
int bench_processors(void);

/* Opens queues of its own, in a domain of its own or in another peer's. */
void bench_open(struct bench_side *side, const struct ct_peer *shared);

/* Opens an endpoint, one more if there are others, connected to the one that
 * the other side opens in the same call: peer.ep and peer.to. */
void bench_meet(struct bench_side *side);

/* All of it for a side with one endpoint, and its buffers. */
void bench_connect(struct bench_side *side);
void bench_close(struct bench_side *side);

/* Returns when both sides have called it. */
void bench_barrier(struct bench_side *side);
void bench_tell(struct bench_side *side, const void *data, size_t len);
void bench_hear(struct bench_side *side, void *data, size_t len);

const char *bench_kind_name(enum bench_kind kind);

/* Posts one operation of the benchmark's kind, from out; drives progress while
 * the queue is full. */
void bench_post(struct bench_side *side, void *context);
void bench_post_receive(struct bench_side *side, void *context);

/* Waits for one completion of a queue. */
void bench_wait(struct bench_side *side, struct fid_cq *cq);

/* Reads up to 64 completions without waiting; how many there were. */
long bench_reap(struct fid_cq *cq);

/* Drives this side until the other one reports over the socket that it is
 * done: the work of the target of remote access. */
void bench_serve(struct bench_side *side);

#endif
