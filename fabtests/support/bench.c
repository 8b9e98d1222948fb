/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include <string.h>

#include "bench.h"

static void open_memory(struct ct_peer *peer, struct ct_memory *memory, size_t size,
			uint64_t access)
{
	if (size)
		ct_memory_open(peer, memory, size, access);
}

static void close_memory(struct ct_memory *memory)
{
	if (memory->size)
		ct_memory_close(memory);
}

void ct_open_bench(struct ct_bench *bench, const struct ct_spec *spec,
		   const struct ct_room *room)
{
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;
	uint64_t at_a = room->local_access, at_b = room->remote_access;

	memset(bench, 0, sizeof(*bench));
	ct_open_pair(&bench->pair, spec);
	open_memory(a, &bench->out, room->out, FI_SEND);
	open_memory(b, &bench->in, room->in, FI_RECV);
	open_memory(a, &bench->local, room->local, at_a ? at_a : FI_READ | FI_WRITE);
	open_memory(a, &bench->compare, room->compare, at_a ? at_a : FI_WRITE);
	open_memory(a, &bench->result, room->result, at_a ? at_a : FI_READ);
	open_memory(b, &bench->remote, room->remote,
		    at_b ? at_b : FI_REMOTE_READ | FI_REMOTE_WRITE);
}

void ct_close_bench(struct ct_bench *bench)
{
	close_memory(&bench->out);
	close_memory(&bench->in);
	close_memory(&bench->local);
	close_memory(&bench->compare);
	close_memory(&bench->result);
	close_memory(&bench->remote);
	ct_close_pair(&bench->pair);
}
