/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "script.h"

#include <string.h>

#include "peer.h"

/* Chance that all draw alike, in place of a process of its own. */
enum { OF_ALL = 100, OF_HELLO, OF_LEAVING };

static const char *const names[KINDS] = {
	"inject", "send", "send with data", "send, delivery complete",
	"several sends", "write", "counted write", "write with data", "read",
	"fetch",
};

const char *kind_name(enum kind kind)
{
	return names[kind];
}

struct ct_random script_chance(const struct script *script, int season,
			       int member, int thread)
{
	struct ct_random chance = {
		.state = script->seed << 32 ^ (uint64_t)season << 16 ^
			 (uint64_t)member << 8 ^ (uint64_t)thread,
	};

	chance.state = ct_bits(&chance);
	return chance;
}

static bool is_offered(const struct offer *offer, enum kind kind)
{
	switch (kind) {
	case WRITE_COUNTED:
		return offer->caps & FI_RMA_EVENT;
	case WRITE:
	case WRITE_DATA:
	case READ:
		return offer->caps & FI_RMA;
	case FETCH:
		return offer->caps & FI_ATOMIC;
	default:
		return true;
	}
}

static size_t length(struct ct_random *chance)
{
	static const size_t lengths[] = {
		8, 8, 0, 200, 4096, 20000, 200000, LONGEST,
	};

	return lengths[ct_below(chance, sizeof(lengths) / sizeof(lengths[0]))];
}

struct round script_round(const struct script *script, int season, int round)
{
	struct ct_random chance = script_chance(script, season, OF_ALL, round);
	uint64_t members = (uint64_t)script->members;
	struct round it = { .count = 1 };

	do {
		it.kind = (enum kind)ct_below(&chance, KINDS);
	} while (!is_offered(&script->offer, it.kind));
	it.from = (int)ct_below(&chance, members);
	it.to = (int)((it.from + 1 + ct_below(&chance, members - 1)) % members);
	it.len = length(&chance);
	if (it.kind == SEND_SEVERAL) {
		it.count = 2 + (int)ct_below(&chance, BURST - 1);
		it.len = it.len > 20000 ? 8 : it.len;
	}
	if (it.kind == INJECT)
		it.len = it.len > 64 ? 16 : it.len;
	/* Changed memory is what reports it. */
	if (it.kind == WRITE_COUNTED && it.len == 0)
		it.len = 64;
	return it;
}

size_t script_hello(const struct script *script, int season, int member)
{
	static const size_t lengths[] = { 0, 20000, 200000, LONGEST };
	struct ct_random chance = script_chance(script, season, OF_HELLO, member);

	return lengths[ct_below(&chance, 4)];
}

enum leaving script_leaving(const struct script *script, int season, int member)
{
	struct ct_random chance = script_chance(script, season, OF_LEAVING,
						member);

	if (season + 1 == script->seasons)
		return CLOSES_AND_EXITS;
	return (enum leaving)ct_below(&chance, EXITS + 1);
}

bool script_host_is_new(int season)
{
	return season % 3 == 0;
}

unsigned script_pattern(int season, int round, int number)
{
	return (unsigned)((season * ROUNDS + round) * BURST + number + 1);
}
