/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* The parts of mesh: what its members have under way, and what they know of one another. */
#ifndef MESH_H
#define MESH_H

#include "memory.h"
#include "random.h"
#include "transfer.h"
#include "wait.h"

enum {
	CLASSES = 4,		/* untagged messages, and those of three tags */
	SENDS = 8,		/* of a member in progress */
	RECEIVES = 24,		/* of a member, posted; the same number of each class */
	SEVERAL = 2,		/* of a member: buffers for several untagged messages */
	PEEKS = 2,		/* of a member in progress */
	LONGEST = 40000,
	ROOM = 3 * LONGEST,	/* of a buffer for several messages */
	CELL = 4096,		/* bytes of a member's memory for each initiator */
	FORMER = 4,		/* memory of closed regions that is kept, of each member */
	CANARY = 0xa5,		/* fills it */
	NUMBERS = 512,		/* the most messages of a member to another one in a class */
};

/* Classes with a use of their own, where the provider has what it needs. */
enum {
	TO_SEVERAL = 0,		/* received into buffers for several messages, too */
	DIRECTED = 2,		/* some receives name their sender */
	PEEKED = 3,		/* looked for, claimed and discarded; carries immediate data */
};

/* The beginning of each message. */
struct head {
	uint32_t from, class, number, len;
};

/* What has been received of a member in a class. Receives may complete in another order than that in
 * which they were posted, which is the one in which messages are matched. */
struct seen {
	uint64_t bits[NUMBERS / 64];
	uint64_t failed[NUMBERS / 64];	/* their sends ended with an error */
	uint64_t late[NUMBERS / 64];	/* came out of order, or not after it was claimed, which only those may */
	bool is_any;
	uint32_t top;			/* the largest number */
	long posted;			/* its receive */
};

enum what { SEND, RECEIVE, RECEIVE_SEVERAL, PEEK, CLAIMED, WRITE, READ, ADD, FETCH };

struct operation {
	struct fi_context2 context;	/* first: completions name it */
	enum what what;
	bool is_under_way;
	int owner, other, class;
	uint32_t number;		/* of the message that it sends, or has claimed */
	uint64_t flags;			/* of a peek */
	bool is_directed;
	int region;			/* that it accesses */
	long posted;			/* a receive: its number */
	size_t len;
	unsigned seed;
	unsigned char *bytes;
};

/* What a member has added to the cells of another one's region, with atomic operations that completed. */
struct added {
	int region;
	uint64_t common, common_perhaps;	/* where all do; those that failed may have been carried out */
	uint64_t own, own_perhaps;		/* where only this one does */
};

/* The operations that a member's counters are to have counted. */
struct counted {
	uint64_t done, failed;
	uint64_t perhaps;		/* done, or failed without an entry: injected writes to closed regions */
};

struct member {
	struct ct_peer peer;
	unsigned char name[CT_NAME];
	fi_addr_t *others;		/* how it calls them */
	struct ct_memory memory, buffers;
	int region;			/* number of what `memory` is registered as */
	bool is_closing;		/* that region: nobody accesses it any more */
	bool is_busy;			/* a thread makes calls on it */
	unsigned char *former[FORMER];
	struct operation sends[SENDS], receives[RECEIVES], several[SEVERAL], peeks[PEEKS], access;
	struct counted counted[CT_CNTR_MAX];
	uint32_t *sent;			/* to each other one, of each class */
	struct seen *seen;		/* of each other one, of each class */
	struct added *added;		/* to each other one */
	long posted;
	long outstanding;		/* sent to it and not received */
};

/* All that are under way, or were. */
struct tally {
	long messages, accesses, atomics, claimed, discarded, cancelled, renewed, closed, failed;
};

extern struct member *members;
extern int count;
extern struct ct_random chance;
extern bool breaks;			/* connections are reset */
extern struct tally tally;

/* The first one that is idle; NULL for none. */
struct operation *idle(struct operation *from, int number);

/* messages.c */
void post_send(struct member *from, int other, int class);
void post_receive(struct member *member, int class);
void post_several(struct member *member);
void peek(struct member *member);
void cancel_one(struct member *member);
void cancel_directed(struct member *member);
void take_what_is_left(struct member *member);
void message_done(struct operation *op, const struct ct_completion *done);
void message_failed(struct operation *op, const struct ct_completion *done);
/* Whether a message has arrived, and whether its send has failed. */
bool has_seen(const struct member *to, int from, int class, uint32_t number);
bool has_failed(const struct member *to, int from, int class, uint32_t number);
uint32_t *number_of(struct member *from, int other, int class);
/* Only messages whose sends have failed have come out of order. */
void check_order(const struct member *member);

/* accesses.c */
size_t memory_size(void);
void open_region(struct member *member);
/* Closes a member's region, whatever is under way to it, and opens another one. */
void close_region(struct member *member);
void look_at_former(const struct member *member);
void post_write(struct member *from, int other);
void post_atomic(struct member *from, int other);
void access_done(struct operation *op, const struct ct_completion *done);
/* What has been added to the cells that all share is there. Nothing is under way. */
void check_sums(const struct member *member);

#endif
