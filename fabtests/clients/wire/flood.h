/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#ifndef WIRE_FLOOD_H
#define WIRE_FLOOD_H

/* Tests of wire.c: messages that are not received until all of them are sent.
 * The C library buffers 64 of them, and stops reading at the next. */

/* As many as that, both ways, the last one received first. */
void few_unexpected(void);

/* More, both ways, received in the order in which they were sent. */
void many_unexpected(void);

/* More, the last one received first: towards sides that can do it. */
void many_unexpected_reversed(void);

#endif
