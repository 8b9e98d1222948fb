/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * One of two processes that test each other over the wire.
 *
 * Both run the same test at the same time, one as the server, one as the
 * client. Beside the endpoints under test they hold a plain TCP connection,
 * the talk, over which they exchange addresses and keep step. Whatever waits
 * for the talk drives the endpoint meanwhile.
 */
#ifndef WIRE_SIDE_H
#define WIRE_SIDE_H

#include "peer.h"

struct side {
	struct ct_peer peer;
	bool server;
	int talk;
};

/* Reads the role and the server's address for the talk from the environment
 * (WIRE_ROLE is "server" or "client", WIRE_PORT the port, WIRE_HOST the address,
 * by default that of the loopback interface) and meets the other process in the
 * same test. */
void side_meet(struct side *side, const char *test);

/* Connects to the other side, then opens an endpoint that can reach its
 * endpoint: over address vectors for RDM, by fi_connect for MSG. Skips if
 * either side does not have what the specification requires. */
void side_open(struct side *side, const char *test, const struct ct_spec *spec);

/* The same, but a side that does not have what is wanted opens the
 * alternative; returns true if it has. */
bool side_open_as_able(struct side *side, const char *test, const struct ct_spec *wanted,
		       const struct ct_spec *otherwise);

/* The same with a domain only, without any step to reach the other side. */
bool side_prepare_as_able(struct side *side, const char *test, const struct ct_spec *wanted,
			  const struct ct_spec *otherwise);

/* Waits until both are here, and closes everything. */
void side_close(struct side *side);

/* Sends bytes to the other process, takes as many from it. */
void side_swap(struct side *side, const void *mine, void *theirs, size_t size);

/* Returns when the other process has called it too. */
void side_sync(struct side *side);

/* Drives the endpoint for this many seconds. */
void side_linger(struct side *side, double seconds);

#endif
