/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "flood.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "side.h"
#include "transfer.h"
#include "wait.h"

struct flood {
	size_t len;
	int count;
};

static uint64_t tag_of(int number)
{
	return 0x7654321000000000ULL + (uint64_t) number;
}

/* Message `number` is the bytes from there on. */
static size_t bytes_of(const struct flood *flood)
{
	return flood->len + (size_t) flood->count;
}

static void send_all(struct ct_peer *peer, const struct flood *flood, struct ct_memory *out,
		     struct fi_context2 *contexts)
{
	for (int i = 0; i < flood->count; i++) {
		struct ct_message tx = {
			.tagged = true, .buf = out->data + i, .len = flood->len,
			.desc = out->desc, .tag = tag_of(i), .context = &contexts[i],
		};

		POST(peer, ct_send(peer, CT_SEND, &tx));
	}
}

static void receive_all(struct ct_peer *peer, const struct flood *flood, bool in_order,
			struct ct_memory *in, const unsigned char *expected)
{
	static struct fi_context2 context;

	for (int i = 0; i < flood->count; i++) {
		int number = in_order ? i : flood->count - 1 - i;
		struct ct_message rx = {
			.tagged = true, .buf = in->data, .len = flood->len, .desc = in->desc,
			.tag = tag_of(number), .from = FI_ADDR_UNSPEC, .context = &context,
		};

		POST(peer, ct_recv(peer, CT_RECV, &rx));
		REQUIRE(ct_done(peer, &peer->rx, &context).len == flood->len);
		REQUIRE(!memcmp(in->data, expected + number, flood->len));
	}
}

static void unexpected(struct side *side, const struct flood *flood, bool in_order, bool sends,
		       bool receives)
{
	struct fi_context2 *contexts = calloc((size_t) flood->count, sizeof(*contexts));
	unsigned char *expected = malloc(bytes_of(flood));
	struct ct_peer *peer = &side->peer;
	struct ct_memory out, in;

	REQUIRE(contexts && expected);
	ct_memory_open(peer, &out, bytes_of(flood), FI_SEND);
	ct_memory_open(peer, &in, flood->len, FI_RECV);
	ct_fill(out.data, bytes_of(flood), side->server ? 1 : 2);
	ct_fill(expected, bytes_of(flood), side->server ? 2 : 1);
	if (sends)
		send_all(peer, flood, &out, contexts);
	side_sync(side);
	side_linger(side, 0.05);
	if (receives)
		receive_all(peer, flood, in_order, &in, expected);
	for (int i = 0; sends && i < flood->count; i++)
		REQUIRE(!ct_next(peer, &peer->tx).err);
	side_sync(side);
	ct_memory_close(&out);
	ct_memory_close(&in);
	free(expected);
	free(contexts);
}

void few_unexpected(void)
{
	static const struct flood floods[] = {
		{ 1 << 10, 64 }, { 64 << 10, 64 }, { 1 << 20, 64 }, { 4 << 20, 50 },
	};
	struct ct_spec spec = { .caps = FI_TAGGED };
	struct side side;

	side_open(&side, "few_unexpected", &spec);
	for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++)
		unexpected(&side, &floods[i], false, true, true);
	side_close(&side);
}

void many_unexpected(void)
{
	static const struct flood floods[] = {
		{ 64 << 10, 3200 }, { 8 << 10, 2000 }, { 1 << 10, 60000 },
	};
	struct ct_spec spec = { .caps = FI_TAGGED };
	struct side side;

	side_open(&side, "many_unexpected", &spec);
	for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++)
		unexpected(&side, &floods[i], true, true, true);
	side_close(&side);
}

void many_unexpected_reversed(void)
{
	static const struct flood floods[] = {
		{ 4 << 20, 50 }, { 64 << 10, 3200 }, { 1 << 10, 60000 },
	};
	/* The C library has no atomic operations on these endpoints. */
	struct ct_spec wanted = { .caps = FI_TAGGED | FI_ATOMIC };
	struct ct_spec otherwise = { .caps = FI_TAGGED };
	struct side side;
	bool mine, theirs;

	mine = side_open_as_able(&side, "many_unexpected_reversed", &wanted, &otherwise);
	side_swap(&side, &mine, &theirs, sizeof(mine));
	for (size_t i = 0; (mine || theirs) && i < sizeof(floods) / sizeof(floods[0]); i++)
		unexpected(&side, &floods[i], false, theirs, mine);
	side_close(&side);
}
