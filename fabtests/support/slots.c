/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "slots.h"

#include <stdlib.h>
#include <string.h>
#include <rdma/fi_atomic.h>

#include "pattern.h"
#include "transfer.h"

static const size_t cells_at = (size_t)CT_SLOTS * CT_SLOT;

void ct_slots_open(struct ct_peer *peer, struct ct_slots *slots)
{
	*slots = (struct ct_slots) { .data = 0 };
	ct_memory_open(peer, &slots->memory,
		       cells_at + CT_CELLS * sizeof(uint64_t),
		       ct_has(peer, FI_RMA) || ct_has(peer, FI_ATOMIC) ?
		       FI_REMOTE_READ | FI_REMOTE_WRITE : 0);
}

void ct_slots_close(struct ct_slots *slots)
{
	ct_memory_close(&slots->memory);
}

bool ct_slots_placed(const struct ct_slots *slots)
{
	for (int slot = 0; slot < CT_SLOTS; slot++)
		if (!ct_holds(slots->memory.data + slot * CT_SLOT,
			      slots->len[slot], slots->seed[slot]))
			return false;
	return !memcmp(slots->memory.data + cells_at, slots->cell,
		       sizeof(slots->cell));
}

static ssize_t post_rma(struct ct_peer *peer, struct ct_access *access,
			struct ct_random *random)
{
	struct ct_slots *slots = access->slots;
	enum ct_rma_form form = ct_below(random, CT_RMA_FORMS);
	struct ct_rma rma;
	ssize_t ret;

	if (!ct_rma_completes(form))
		return -FI_EAGAIN;
	access->kind = ct_rma_is_read(form) ? CT_ACCESS_READ : CT_ACCESS_WRITE;
	if (access->kind == CT_ACCESS_READ) {
		access->len = slots->len[access->slot];
		access->seed = slots->seed[access->slot];
	} else {
		access->len = ct_below(random, CT_SLOT + 1);
		if (access->len > ct_rma_limit(peer, form))
			access->len = ct_rma_limit(peer, form);
	}
	ct_fill(access->buf, access->len,
		access->kind == CT_ACCESS_READ ? ~access->seed : access->seed);
	rma = (struct ct_rma) {
		.buf = access->buf, .len = access->len,
		.pieces = 1 + ct_below(random, 4),
		.remote_pieces = 1 + ct_below(random, 4),
		.addr = slots->memory.addr + (uint64_t)access->slot * CT_SLOT,
		.key = slots->memory.key, .data = (uint32_t)ct_bits(random),
		.context = access,
	};
	ret = ct_rma(peer, form, &rma);
	if (!ret && access->kind == CT_ACCESS_WRITE) {
		slots->seed[access->slot] = access->seed;
		slots->len[access->slot] = access->len;
	}
	if (!ret)
		slots->data += ct_rma_has_data(form);
	return ret;
}

/* Fetching forms only: their results show whether the order was right. */
static ssize_t post_atomic(struct ct_peer *peer, struct ct_access *access,
			   struct ct_random *random)
{
	struct ct_slots *slots = access->slots;
	uint64_t *cell = &slots->cell[access->slot - CT_SLOTS];
	uint64_t addr = slots->memory.addr + cells_at +
			(uint64_t)(access->slot - CT_SLOTS) * sizeof(*cell);
	uint64_t key = slots->memory.key, new;
	ssize_t ret;

	access->kind = CT_ACCESS_ATOMIC;
	access->old = *cell;
	access->operand = ct_bits(random);
	switch (ct_below(random, 3)) {
	case 0:
		new = *cell + access->operand;
		ret = fi_fetch_atomic(peer->ep, &access->operand, 1, NULL,
				      &access->fetched, NULL, peer->to, addr,
				      key, FI_UINT64, FI_SUM, access);
		break;
	case 1:
		new = *cell;
		ret = fi_fetch_atomic(peer->ep, NULL, 1, NULL,
				      &access->fetched, NULL, peer->to, addr,
				      key, FI_UINT64, FI_ATOMIC_READ, access);
		break;
	default:
		access->compare = ct_once_in(random, 2) ? *cell : ~*cell;
		new = access->compare == *cell ? access->operand : *cell;
		ret = fi_compare_atomic(peer->ep, &access->operand, 1, NULL,
					&access->compare, NULL,
					&access->fetched, NULL, peer->to, addr,
					key, FI_UINT64, FI_CSWAP, access);
	}
	if (!ret)
		*cell = new;
	return ret;
}

bool ct_access_post(struct ct_peer *peer, struct ct_access *access,
		    struct ct_slots *slots, struct ct_random *random)
{
	bool atomic = ct_has(peer, FI_ATOMIC) && ct_once_in(random, 2);
	ssize_t ret;

	*access = (struct ct_access) {
		.slots = slots, .seed = (unsigned)ct_bits(random),
		.slot = atomic ? CT_SLOTS + (int)ct_below(random, CT_CELLS)
			       : (int)ct_below(random, CT_SLOTS),
	};
	if (slots->busy[access->slot])
		return false;
	access->buf = malloc(CT_SLOT);
	REQUIRE(access->buf);
	ret = atomic ? post_atomic(peer, access, random)
		     : post_rma(peer, access, random);
	if (ret == -FI_EAGAIN) {
		free(access->buf);
		return false;
	}
	OK(ret);
	slots->busy[access->slot] = true;
	return true;
}

void ct_access_check(struct ct_access *access, uint64_t flags)
{
	switch (access->kind) {
	case CT_ACCESS_READ:
		REQUIRE(flags & FI_RMA && flags & FI_READ);
		REQUIRE(ct_holds(access->buf, access->len, access->seed));
		break;
	case CT_ACCESS_WRITE:
		REQUIRE(flags & FI_RMA && flags & FI_WRITE);
		break;
	case CT_ACCESS_ATOMIC:
		REQUIRE(flags & FI_ATOMIC);
		REQUIRE(access->fetched == access->old);
	}
}

void ct_access_end(struct ct_access *access)
{
	REQUIRE(!access->done);
	access->done = true;
	access->slots->busy[access->slot] = false;
	free(access->buf);
	access->buf = NULL;
}
