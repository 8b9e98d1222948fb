/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A relay between a connecting and a listening socket, in this thread: bytes
 * move only on request, in pieces of any size, and the connection breaks on
 * request.
 */
#ifndef CT_RELAY_H
#define CT_RELAY_H

#include <sys/socket.h>

#include "random.h"

struct ct_relay;

/* Listens in place of the target, to which it connects for each connection. */
struct ct_relay *ct_relay_open(const struct sockaddr *target);

/* The address to connect to, in place of the target's. */
const struct sockaddr *ct_relay_name(const struct ct_relay *relay);

/* Lets some bytes pass in each direction, or none; all of them without chance.
 */
void ct_relay_step(struct ct_relay *relay, struct ct_random *random);

/* Ends the connection on both sides: with the data in flight still delivered,
 * or with a reset, which destroys it. */
void ct_relay_break(struct ct_relay *relay, bool reset);

/* Takes the next connection, after a break. */
void ct_relay_mend(struct ct_relay *relay);

/* Bytes that have gone through, both ways together. */
unsigned long long ct_relay_bytes(const struct ct_relay *relay);

void ct_relay_close(struct ct_relay *relay);

#endif
