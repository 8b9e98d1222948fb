/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Scalable endpoints, with a queue for each of their contexts, and plain ones
 * beside them. All sides are in one process (together.h).
 */
#ifndef CT_SCALABLE_H
#define CT_SCALABLE_H

#include "together.h"

enum { CT_CONTEXTS = 3, CT_CONTEXT_BITS = 4 };

/* What is NULL is not open. A plain endpoint is tx[0] and rx[0], without sep. */
struct ct_side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_stx *stx;
	struct fid_ep *srx, *sep, *tx[CT_CONTEXTS], *rx[CT_CONTEXTS];
	struct ct_cq txq[CT_CONTEXTS], rxq[CT_CONTEXTS];
	unsigned char name[CT_NAME];
};

/* Everything but endpoints and shared contexts; the test is skipped if the
 * provider has nothing like it. */
void ct_open_objects(struct ct_side *side, const struct ct_spec *spec);

/* The scalable endpoint itself, without contexts. */
void ct_open_sep(struct ct_side *side);

/* Context i of it, with its queue, enabled. */
void ct_open_tx(struct ct_side *side, int i);
void ct_open_rx(struct ct_side *side, int i);

/* A plain endpoint, enabled. */
void ct_open_plain(struct ct_side *side);

/* Closes what ct_open_objects has opened, or all that is open. */
void ct_close_objects(struct ct_side *side);
void ct_close_side(struct ct_side *side);

/* Inserts an address and returns how the side's vector calls it. */
fi_addr_t ct_side_insert(struct ct_side *side, const void *name);

#endif
