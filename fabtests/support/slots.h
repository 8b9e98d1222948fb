/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A peer's memory in slots, and the expected effects of reads, writes and
 * atomic operations of the other side. One operation at a time uses a slot, so
 * the outcome of each is known.
 */
#ifndef CT_SLOTS_H
#define CT_SLOTS_H

#include "memory.h"
#include "random.h"

enum {
	CT_SLOTS = 16,
	CT_SLOT = 3000,			/* bytes */
	CT_CELLS = 16,			/* 64-bit numbers after the slots */
};

struct ct_slots {
	struct ct_memory memory;
	unsigned seed[CT_SLOTS];	/* of the last write */
	size_t len[CT_SLOTS];
	uint64_t cell[CT_CELLS];	/* the result of the last operation */
	bool busy[CT_SLOTS + CT_CELLS];
	int data;			/* immediate data on their way here */
};

/* One operation. */
struct ct_access {
	struct fi_context2 context;	/* first: completions lead back here */
	struct ct_slots *slots;
	enum { CT_ACCESS_READ, CT_ACCESS_WRITE, CT_ACCESS_ATOMIC } kind;
	bool done;
	int slot;
	size_t len;
	unsigned seed;
	unsigned char *buf;
	uint64_t operand, compare, old, fetched;
};

void ct_slots_open(struct ct_peer *peer, struct ct_slots *slots);
void ct_slots_close(struct ct_slots *slots);

/* Whether all written data is in place: a write may complete before. */
bool ct_slots_placed(const struct ct_slots *slots);

/* Posts any operation on a free slot; false if it was not posted. */
bool ct_access_post(struct ct_peer *peer, struct ct_access *access,
		    struct ct_slots *slots, struct ct_random *random);

/* Checks a successful operation, according to the completion's flags. */
void ct_access_check(struct ct_access *access, uint64_t flags);

/* Handles the end of the operation; its buffer is freed. */
void ct_access_end(struct ct_access *access);

#endif
