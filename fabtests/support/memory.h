/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Buffers, registered as the provider wants it. */
#ifndef CT_MEMORY_H
#define CT_MEMORY_H

#include "peer.h"

struct ct_memory {
	unsigned char *data;
	size_t size;
	struct fid_mr *mr;		/* NULL if not registered */
	void *desc;			/* for local use */
	uint64_t key, addr;		/* for the other side */
	struct fid_domain *mapped;	/* whose key it is; NULL if the region's own */
};

/*
 * Allocates zeroed memory. It is registered if the access includes something
 * remote, or if the provider wants local buffers registered (FI_MR_LOCAL).
 */
void ct_memory_open(struct ct_peer *peer, struct ct_memory *memory,
		    size_t size, uint64_t access);
void ct_memory_close(struct ct_memory *memory);

/* Registers existing memory; the data needed to use it is stored in the
 * struct. */
void ct_register(struct ct_peer *peer, struct ct_memory *memory, void *data,
		 size_t size, uint64_t access);

/* Binds a new region to its endpoint and enables it if the mode requires it. */
void ct_register_finish(struct ct_peer *peer, struct fid_mr *mr);

/* A key that no earlier call of this process returned. */
uint64_t ct_fresh_key(void);

#endif
