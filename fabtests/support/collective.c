/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include <stdlib.h>

#include "check.h"
#include "collective.h"
#include "element.h"

static const enum fi_op ops[] = {
	FI_MIN, FI_MAX, FI_SUM, FI_PROD, FI_LOR, FI_LAND, FI_BOR, FI_BAND, FI_LXOR, FI_BXOR,
};

static bool combines(enum fi_collective_op kind)
{
	return kind == FI_ALLREDUCE || kind == FI_REDUCE || kind == FI_REDUCE_SCATTER;
}

static bool is_offered(struct fid_domain *domain, const struct ct_collective *it)
{
	struct fi_collective_attr attr = { .op = it->op, .datatype = it->type };

	return !combines(it->kind) ||
	       (ct_op_applies(it->op, it->type) &&
		!fi_query_collective(domain, it->kind, &attr, 0));
}

struct ct_collective ct_draw_collective(struct ct_random *chance,
					struct fid_domain *domain, int number,
					int members, size_t longest)
{
	size_t most = longest / (size_t)members + 1;
	struct ct_collective it = { .number = number };

	it.kind = (enum fi_collective_op)ct_below(chance, FI_GATHER + 1);
	do {
		it.type = ct_datatype((int)ct_below(chance, CT_DATATYPES));
		it.op = ops[ct_below(chance, sizeof(ops) / sizeof(ops[0]))];
	} while (!is_offered(domain, &it));
	it.count = ct_below(chance, ct_once_in(chance, 3) ? most : most < 20 ? most : 20);
	it.root = (int)ct_below(chance, (uint64_t)members);
	it.by_message = ct_once_in(chance, 4);
	return it;
}

size_t ct_collective_input(const struct ct_collective *it, int rank, int members)
{
	switch (it->kind) {
	case FI_ALLTOALL: case FI_REDUCE_SCATTER:
		return it->count * (size_t)members;
	case FI_SCATTER:
		return rank == it->root ? it->count * (size_t)members : 0;
	case FI_ALLREDUCE: case FI_ALLGATHER: case FI_REDUCE: case FI_GATHER:
		return it->count;
	default:
		return 0;
	}
}

size_t ct_collective_output(const struct ct_collective *it, int rank, int members)
{
	switch (it->kind) {
	case FI_ALLTOALL: case FI_ALLGATHER:
		return it->count * (size_t)members;
	case FI_GATHER:
		return rank == it->root ? it->count * (size_t)members : 0;
	case FI_REDUCE:
		return rank == it->root ? it->count : 0;
	case FI_BARRIER:
		return 0;
	default:
		return it->count;
	}
}

/* The contribution of a rank: numbers so small that any type holds what any
 * operation makes of those of all members, and of some of them, exactly. With 64
 * members, sums of types of one byte are at most 8, to which float8-e5m2 holds all
 * whole numbers, and those of two bytes less than 256, for bfloat16. */
static struct ct_value element(const struct ct_collective *it, int rank, size_t at)
{
	size_t mixed = (size_t)it->number * 7 + (size_t)rank * 3 + at * 5;
	struct ct_value value = { 0 };

	if (it->op == FI_PROD)
		value.re = mixed % 16 ? 1 : 2;
	else if (it->op == FI_SUM && ct_datatype_size(it->type) == 1)
		value.re = ((size_t)it->number + (size_t)rank + at) % 8 == 0;
	else if (it->op == FI_SUM && ct_datatype_size(it->type) == 2)
		value.re = (double)(mixed % 4);
	else
		value.re = (double)(mixed % 9);
	if (ct_is_complex(it->type) && it->op != FI_PROD)
		value.im = (double)(mixed % 5);
	return value;
}

static struct ct_value reduced(const struct ct_collective *it, int members, size_t at)
{
	struct ct_value value = element(it, 0, at), none = { 0 };

	for (int rank = 1; rank < members; rank++)
		value = ct_apply(it->op, it->type, value, element(it, rank, at), none);
	return value;
}

static struct ct_value expected(const struct ct_collective *it, int rank, int members,
				size_t at)
{
	size_t block = it->count ? at / it->count : 0;
	size_t within = it->count ? at % it->count : 0;

	switch (it->kind) {
	case FI_BROADCAST:
		return element(it, it->root, at);
	case FI_ALLTOALL:
		return element(it, (int)block, (size_t)rank * it->count + within);
	case FI_ALLGATHER: case FI_GATHER:
		return element(it, (int)block, within);
	case FI_SCATTER:
		return element(it, it->root, (size_t)rank * it->count + at);
	case FI_REDUCE_SCATTER:
		return reduced(it, members, (size_t)rank * it->count + at);
	default:
		return reduced(it, members, at);
	}
}

void ct_collective_prepare(const struct ct_collective *it, int rank, int members,
			   void **input, void **output)
{
	size_t in = ct_collective_input(it, rank, members);
	size_t out = ct_collective_output(it, rank, members);

	*input = calloc(in + 1, ct_datatype_size(it->type));
	*output = calloc(out + 1, ct_datatype_size(it->type));
	REQUIRE(*input && *output);
	for (size_t at = 0; at < in; at++)
		ct_encode(*input, at, it->type, element(it, rank, at));
	if (it->kind == FI_BROADCAST && rank == it->root)
		for (size_t at = 0; at < out; at++)
			ct_encode(*output, at, it->type, element(it, rank, at));
}

/* The memory in two pieces. */
static size_t in_pieces(struct fi_ioc *ioc, void *buf, size_t count,
			enum fi_datatype type)
{
	ioc[0].addr = buf;
	ioc[0].count = count / 2;
	ioc[1].addr = (char *)buf + count / 2 * ct_datatype_size(type);
	ioc[1].count = count - count / 2;
	return 2;
}

static ssize_t post_message(const struct ct_collective *it, int rank, int members,
			    struct fid_ep *ep, fi_addr_t addr, fi_addr_t root,
			    void *input, void *output, void *context)
{
	size_t in = ct_collective_input(it, rank, members);
	size_t out = ct_collective_output(it, rank, members);
	struct fi_ioc first[2], second[2];
	struct fi_msg_collective msg = {
		.msg_iov = first, .coll_addr = addr, .root_addr = root,
		.coll = it->kind, .datatype = it->type, .op = it->op,
		.context = context,
	};

	if (it->kind == FI_BROADCAST) {
		msg.iov_count = in_pieces(first, output, out, it->type);
		return ep->collective->msg(ep, &msg, NULL, NULL, 0, 0);
	}
	msg.iov_count = in_pieces(first, input, in, it->type);
	return ep->collective->msg(ep, &msg, second, NULL,
				   in_pieces(second, output, out, it->type), 0);
}

ssize_t ct_collective_post(const struct ct_collective *it, int rank, int members,
			   struct fid_ep *ep, fi_addr_t addr, fi_addr_t root,
			   void *input, void *output, void *context)
{
	/* Combined elements are counted by the input's count at all ranks. */
	if (it->by_message && it->kind != FI_SCATTER && it->kind != FI_BARRIER)
		return post_message(it, rank, members, ep, addr, root, input, output,
				    context);
	switch (it->kind) {
	case FI_BARRIER:
		return fi_barrier(ep, addr, context);
	case FI_BROADCAST:
		return fi_broadcast(ep, output, it->count, NULL, addr, root,
				    it->type, 0, context);
	case FI_ALLTOALL:
		return fi_alltoall(ep, input, it->count, NULL, output, NULL, addr,
				   it->type, 0, context);
	case FI_ALLREDUCE:
		return fi_allreduce(ep, input, it->count, NULL, output, NULL, addr,
				    it->type, it->op, 0, context);
	case FI_ALLGATHER:
		return fi_allgather(ep, input, it->count, NULL, output, NULL, addr,
				    it->type, 0, context);
	case FI_REDUCE_SCATTER:
		return fi_reduce_scatter(ep, input, it->count, NULL, output, NULL,
					 addr, it->type, it->op, 0, context);
	case FI_REDUCE:
		return fi_reduce(ep, input, it->count, NULL, output, NULL, addr, root,
				 it->type, it->op, 0, context);
	case FI_SCATTER:
		return fi_scatter(ep, input, it->count, NULL, output, NULL, addr,
				  root, it->type, 0, context);
	default:
		return fi_gather(ep, input, it->count, NULL, output, NULL, addr, root,
				 it->type, 0, context);
	}
}

void ct_collective_verify(const struct ct_collective *it, int rank, int members,
			  const void *output)
{
	size_t out = ct_collective_output(it, rank, members);

	for (size_t at = 0; at < out; at++) {
		struct ct_value is = ct_decode(output, at, it->type);
		struct ct_value want = expected(it, rank, members, at);

		if (!ct_same(is, want))
			ct_fail(__FILE__, __LINE__,
				"kind %d, %d members, %zu of %s, %s, rank %d: element %zu is "
				"%g + %gi, not %g + %gi", it->kind, members, it->count,
				ct_datatype_name(it->type), ct_op_name(it->op), rank, at,
				is.re, is.im, want.re, want.im);
	}
}
