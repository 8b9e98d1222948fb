/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "memory.h"

#include <stdlib.h>

#define REMOTE (FI_REMOTE_READ | FI_REMOTE_WRITE)

uint64_t ct_fresh_key(void)
{
	static uint64_t last = 0x51;

	return ++last;
}

void ct_register_finish(struct ct_peer *peer, struct fid_mr *mr)
{
	int mode = ct_mr_mode(peer);

	if (mode & FI_MR_ENDPOINT)
		OK(fi_mr_bind(mr, &peer->ep->fid, 0));
	if (mode & (FI_MR_ENDPOINT | FI_MR_RMA_EVENT))
		OK(fi_mr_enable(mr));
}

/* The key by which the other side, or the only one, knows a region whose own key is long. */
static void map_raw(struct ct_peer *peer, struct ct_memory *memory)
{
	uint8_t raw[256];
	size_t size = sizeof(raw);

	OK(fi_mr_raw_attr(memory->mr, &memory->addr, raw, &size, 0));
	memory->mapped = peer->partner ? peer->partner->domain : peer->domain;
	OK(fi_mr_map_raw(memory->mapped, memory->addr, raw, size, &memory->key, 0));
}

void ct_register(struct ct_peer *peer, struct ct_memory *memory, void *data,
		 size_t size, uint64_t access)
{
	uint64_t flags = ct_mr_mode(peer) & FI_MR_RMA_EVENT && access & REMOTE ?
			 FI_RMA_EVENT : 0;

	memory->data = data;
	memory->size = size;
	OK(fi_mr_reg(peer->domain, data, size, access, 0, ct_fresh_key(),
		     flags, &memory->mr, NULL));
	ct_register_finish(peer, memory->mr);
	memory->desc = fi_mr_desc(memory->mr);
	memory->key = fi_mr_key(memory->mr);
	memory->addr = ct_mr_mode(peer) & FI_MR_VIRT_ADDR ?
		       (uint64_t)(uintptr_t)data : 0;
	if (ct_mr_mode(peer) & FI_MR_RAW && access & REMOTE)
		map_raw(peer, memory);
}

void ct_memory_open(struct ct_peer *peer, struct ct_memory *memory,
		    size_t size, uint64_t access)
{
	unsigned char *data = calloc(1, size ? size : 1);

	REQUIRE(data);
	*memory = (struct ct_memory) { .data = data, .size = size };
	if (size && (access & REMOTE || ct_mr_mode(peer) & FI_MR_LOCAL))
		ct_register(peer, memory, data, size, access);
}

void ct_memory_close(struct ct_memory *memory)
{
	if (memory->mapped)
		OK(fi_mr_unmap_key(memory->mapped, memory->key));
	if (memory->mr)
		OK(fi_close(&memory->mr->fid));
	free(memory->data);
	*memory = (struct ct_memory) { 0 };
}
