/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Two endpoints with memory of their own: what most tests begin with. */
#ifndef CT_BENCH_H
#define CT_BENCH_H

#include "memory.h"

struct ct_bench {
	struct ct_pair pair;
	struct ct_memory out;		/* at a, for what it sends */
	struct ct_memory in;		/* at b, for what it receives */
	struct ct_memory local;		/* at a, for its accesses */
	struct ct_memory compare;	/* at a, for atomic operations */
	struct ct_memory result;	/* at a, for old values */
	struct ct_memory remote;	/* at b, which a accesses */
};

/* Bytes of each memory; none is opened for 0. */
struct ct_room {
	size_t out, in, local, compare, result, remote;
	/* How they may be used; 0 for as the comments above say. */
	uint64_t local_access, remote_access;
};

void ct_open_bench(struct ct_bench *bench, const struct ct_spec *spec,
		   const struct ct_room *room);
void ct_close_bench(struct ct_bench *bench);

#endif
