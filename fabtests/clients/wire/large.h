/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#ifndef WIRE_LARGE_H
#define WIRE_LARGE_H

/* A test of wire.c: a message, a write and a read of more than 2 GiB, from
 * the server's memory to the client's. */
void beyond_2_gib(void);

#endif
