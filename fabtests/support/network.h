/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* A network of the test's own, whose one address comes and goes. */
#ifndef CT_NETWORK_H
#define CT_NETWORK_H

#include <stdbool.h>

/* Moves the process, which must have a single thread, into a network namespace
 * with one address, which becomes the source of what the test opens. Skips the
 * test without the privilege. */
void ct_own_network(void);

/* The same with a link-local IPv6 address, which means nothing without its
 * interface. */
void ct_own_link(void);

/* Gives the network its address or takes it away; then nothing gets through,
 * and nobody is told. */
void ct_set_network(bool up);

#endif
