/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The operations in each round, which every process derives from the same
 * seed, and the operations that the provider offers.
 */
#ifndef SLEEPERS_SCRIPT_H
#define SLEEPERS_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <rdma/fi_eq.h>

#include "random.h"

enum { ROUNDS = 24, BURST = 4, LONGEST = 1 << 20 };

/* An operation of one process on another one, which is asleep until a message
 * or its effect has arrived: an operation that it would not notice is followed
 * by a message. */
enum kind {
	INJECT,			/* messages */
	SEND,
	SEND_DATA,		/* with immediate data */
	SEND_DELIVERED,		/* complete when they are delivered */
	SEND_SEVERAL,
	WRITE,			/* of memory */
	WRITE_COUNTED,		/* the other's counter reports it */
	WRITE_DATA,		/* immediate data reports it */
	READ,
	FETCH,			/* an atomic operation */
	KINDS,
};

struct round {
	enum kind kind;
	int from, to;
	int count;		/* messages */
	size_t len;
};

struct offer {
	bool is_something;
	uint64_t caps;
	bool is_auto;			/* automatic progress */
	bool by_threshold;		/* sleeping until this count */
	bool waits[FI_WAIT_POLLFD + 1];	/* of queues and counters */
};

/* The offer of the selected provider. Runs in a process that ends afterwards.
 */
void offer_find(struct offer *offer);

/* How a process leaves at the end of a season. */
enum leaving { CLOSES_AND_STAYS, CLOSES_AND_EXITS, EXITS };

struct script {
	struct offer offer;
	uint64_t seed;
	int members, seasons;
};

struct round script_round(const struct script *script, int season, int round);

/* How long the first message of a guest is. */
size_t script_hello(const struct script *script, int season, int member);

enum leaving script_leaving(const struct script *script, int season, int member);

/* Whether the host starts a season with an endpoint of its own. */
bool script_host_is_new(int season);

/* The random choices of one thread of one process. */
struct ct_random script_chance(const struct script *script, int season,
			       int member, int thread);

/* Contents of a message or of written memory. */
unsigned script_pattern(int season, int round, int number);

const char *kind_name(enum kind kind);

#endif
