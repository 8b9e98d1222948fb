/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* A network of the test's own, whose one address can be removed and added. */
#ifndef CT_NETWORK_H
#define CT_NETWORK_H

#include <stdbool.h>

#include "child.h"

/* Moves the process, which must have a single thread, into a network namespace
 * with one address, which becomes the source of what the test opens. Skips the
 * test without the privilege. */
void ct_own_network(void);

/* The same with a link-local IPv6 address, which is valid only with its
 * interface. */
void ct_own_link(void);

/* Two links between this process and another one, each in a network namespace
 * of its own: interfaces a0 and a1 here, which both have the address CT_NEAR,
 * and b0 and b1 there, which both have CT_FAR. Their numbers have no meaning:
 * a0 is as high as b1. The calling process must have a single thread. The
 * other one runs the function after ct_begin. */
#define CT_NEAR "fe80::1"
#define CT_FAR "fe80::77"
struct ct_child ct_two_links(void (*far)(int fd));

/* The same with any number of links, each a network of its own: interface ai
 * here has the address 10.78.i.1, and bi there 10.78.i.2. */
struct ct_child ct_links(int count, void (*far)(int fd));

/* Takes the interface ai down, or up. Nobody is informed of that. */
void ct_set_link(int i, bool up);

/* How many bytes interface ai has sent. */
unsigned long long ct_link_sent(int i);

/* Adds the network's address or removes it; without it nothing gets through,
 * and nobody is informed. */
void ct_set_network(bool up);

#endif
