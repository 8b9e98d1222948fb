/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Reproducible contents for messages, and memory to send them from. */
#ifndef CT_PATTERN_H
#define CT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

/* Fills a buffer with bytes that depend on the seed and on the position. */
void ct_fill(void *buf, size_t len, unsigned seed);

/* True if ct_fill with this seed would leave the buffer as it is. */
bool ct_holds(const void *buf, size_t len, unsigned seed);

/* True if every byte of the buffer has this value. */
bool ct_is_all(const void *buf, size_t len, unsigned char value);

/* Splits a buffer into uneven pieces that cover it in order. */
void ct_split(void *buf, size_t len, struct iovec *iov, size_t count);

#endif
