/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* One process's part in the operations between open endpoints. */
#ifndef SLEEPERS_ROUND_H
#define SLEEPERS_ROUND_H

#include <stdatomic.h>

#include "memory.h"
#include "script.h"
#include "survivor.h"
#include "watch.h"
#include "ways.h"

/* Layout of local memory: the sent data, followed by the received. Layout of
 * the window for the others: a part for each round, followed by a word for
 * each. */
enum {
	SENT_SIZE = LONGEST, LOCAL_SIZE = 2 * LONGEST,
	WORDS = ROUNDS * LONGEST,
	WINDOW_SIZE = WORDS + ROUNDS * (int)sizeof(uint64_t),
};

struct member {
	const struct script *script;
	int self, season;
	struct ct_peer peer;
	struct fid_pep *pep;		/* the host of connections */
	struct fi_info *request;	/* to it, not accepted yet */
	struct fid_wait *set;
	struct ct_memory local, window;
	struct sleeper main;		/* the thread that opens and closes */
	bool has_signals, has_threads;
	atomic_bool is_quiet;		/* no more signals */
	struct ct_card cards[MOST];
	fi_addr_t others[MOST];		/* unused for connections */
	bool has_guests;		/* the host knows some */
	struct op tx[BURST], rx[BURST];
};

/* Clears data of earlier seasons from the window. */
void window_clear(struct member *member);

/* The host's part: receives the cards of its guests, sends them to each other,
 * lets them leave. */
void welcome(struct member *member);
void introduce(struct member *member);
void part(struct member *member);

/* A guest's. */
void say_hello(struct member *member);
void take_leave(struct member *member);

/* The operations of this process in a round, if it is its turn. */
void round_send(struct member *member, struct sleeper *sleeper, int number);
void round_receive(struct member *member, struct sleeper *sleeper, int number);

#endif
