/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A relay between a connecting and a listening socket, in this thread: bytes
 * move only when told to, in pieces of any size, and the connection breaks
 * when told to.
 */
#ifndef CT_RELAY_H
#define CT_RELAY_H

#include <sys/socket.h>

#include "random.h"

struct ct_relay;

/* Listens beside the target, to which it connects for whoever comes. */
struct ct_relay *ct_relay_open(const struct sockaddr *target);

/* Where to connect to, in place of the target. */
const struct sockaddr *ct_relay_name(const struct ct_relay *relay);

/* Lets some bytes pass each way, or none; all there are without chance. */
void ct_relay_step(struct ct_relay *relay, struct ct_random *random);

/* Ends the connection on both sides: with what is on its way still delivered,
 * or at once with a reset, which destroys it. */
void ct_relay_break(struct ct_relay *relay, bool reset);

/* Takes the next connection, after a break. */
void ct_relay_mend(struct ct_relay *relay);

/* Bytes that have gone through, both ways together. */
unsigned long long ct_relay_bytes(const struct ct_relay *relay);

void ct_relay_close(struct ct_relay *relay);

#endif
