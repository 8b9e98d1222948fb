/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A process whose peers are killed, and a steady peer in another process with
 * which it continues whatever happens to the others.
 */
#ifndef CT_SURVIVOR_H
#define CT_SURVIVOR_H

#include "child.h"
#include "peer.h"

/* The data about itself that one side sends to the other. */
struct ct_card {
	unsigned char name[CT_NAME];
	uint64_t addr, key;
};

struct ct_survivor {
	struct ct_peer peer;		/* of the victims */
	struct ct_peer second;		/* MSG: of the steady one */
	struct fid_pep *pep;
	struct ct_child steady;
	fi_addr_t steady_addr;
};

/* Both sides of an introduction: each has the other's card afterwards, and MSG
 * endpoints are connected. The name on its own card is filled in here. */
void ct_meet(struct ct_peer *peer, struct ct_card *own, struct ct_card *other,
	     int fd, struct fid_pep *pep);

/* The survivor and its steady peer, which are connected. The victims are
 * spawned before. */
void ct_open_survivor(struct ct_survivor *survivor, const struct ct_spec *spec);

/* A message to the steady peer and back; any word but 'q'. */
void ct_exchange(struct ct_survivor *survivor, char word);

void ct_close_survivor(struct ct_survivor *survivor);

#endif
