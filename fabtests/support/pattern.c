/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "pattern.h"

#include <stdint.h>
#include <string.h>

/* A cheap mix: neighbours differ, and so do equal offsets of two seeds. */
static unsigned char byte_at(size_t i, unsigned seed)
{
	uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15ULL +
		     (uint64_t)seed * 0xff51afd7ed558ccdULL;

	return (unsigned char)((x >> 32) ^ (x >> 56));
}

void ct_fill(void *buf, size_t len, unsigned seed)
{
	unsigned char *bytes = buf;

	for (size_t i = 0; i < len; i++)
		bytes[i] = byte_at(i, seed);
}

bool ct_holds(const void *buf, size_t len, unsigned seed)
{
	const unsigned char *bytes = buf;

	for (size_t i = 0; i < len; i++)
		if (bytes[i] != byte_at(i, seed))
			return false;
	return true;
}

bool ct_is_all(const void *buf, size_t len, unsigned char value)
{
	const unsigned char *bytes = buf;

	return !len || (bytes[0] == value && !memcmp(bytes, bytes + 1, len - 1));
}

void ct_split(void *buf, size_t len, struct iovec *iov, size_t count)
{
	char *at = buf;

	for (size_t i = 0; i < count; i++) {
		size_t left = len - (size_t)(at - (char *)buf);
		size_t piece = i + 1 == count ? left : left / (count - i);

		/* Uneven on purpose, so that a mixed-up order shows. */
		if (i + 1 < count && piece > 1)
			piece -= i % 2 ? 0 : piece / 3;
		iov[i].iov_base = at;
		iov[i].iov_len = piece;
		at += piece;
	}
}
