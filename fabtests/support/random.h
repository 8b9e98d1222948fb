/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Reproducible chance: the same seed draws the same numbers everywhere. */
#ifndef CT_RANDOM_H
#define CT_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct ct_random {
	uint64_t state;
};

/* Any 64 bits. */
static inline uint64_t ct_bits(struct ct_random *random)
{
	uint64_t x = random->state += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* A number below the limit, which is not 0. */
static inline uint64_t ct_below(struct ct_random *random, uint64_t limit)
{
	return ct_bits(random) % limit;
}

/* True once in this many times. */
static inline bool ct_once_in(struct ct_random *random, uint64_t times)
{
	return !ct_below(random, times);
}

#endif
