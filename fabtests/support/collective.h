/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Collective operations (fi_collective(3)) and their definitions: what each
 * member contributes, and what it has afterwards.
 */
#ifndef CT_COLLECTIVE_H
#define CT_COLLECTIVE_H

#include <stdbool.h>
#include <rdma/fi_collective.h>

#include "random.h"

struct ct_collective {
	int number;
	enum fi_collective_op kind;
	enum fi_datatype type;
	enum fi_op op;
	size_t count;
	int root;
	bool by_message;		/* fi_collectivemsg and its like */
};

/* Any operation that the domain has for so many members, with up to `longest`
 * elements of a member in all. The number distinguishes contributions. */
struct ct_collective ct_draw_collective(struct ct_random *chance,
					struct fid_domain *domain, int number,
					int members, size_t longest);

/* Elements of a member's buffers. */
size_t ct_collective_input(const struct ct_collective *it, int rank, int members);
size_t ct_collective_output(const struct ct_collective *it, int rank, int members);

/* Allocates the buffers and writes the contribution. */
void ct_collective_prepare(const struct ct_collective *it, int rank, int members,
			   void **input, void **output);

/* Begins the operation at a member: `addr` is the group's address and `root`
 * that of the root. */
ssize_t ct_collective_post(const struct ct_collective *it, int rank, int members,
			   struct fid_ep *ep, fi_addr_t addr, fi_addr_t root,
			   void *input, void *output, void *context);

/* Compares the result with the definition; a difference ends the test. */
void ct_collective_verify(const struct ct_collective *it, int rank, int members,
			  const void *output);

#endif
