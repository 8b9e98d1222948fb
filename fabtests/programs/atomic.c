/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Atomic operations: every operation, datatype and form of fi_atomic(3). */
#include <pthread.h>
#include <string.h>

#include "bench.h"
#include "check.h"
#include "element.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define COUNT 6			/* elements per operation */
#define ROOM 4096

enum family { BASE, FETCH, COMPARE, FAMILIES };
enum form { PLAIN, VECTOR, MESSAGE, INJECT, FORMS };

static const char *const family_names[] = { "base", "fetch", "compare" };

/* Operands at a, a target at b. */
static struct fi_context2 context;

static void setup(struct ct_bench *bench, struct ct_spec spec)
{
	spec.caps |= FI_MSG | FI_ATOMIC;
	ct_open_bench(bench, &spec, &(struct ct_room) {
		.local = ROOM, .compare = ROOM, .result = ROOM, .remote = ROOM,
	});
}

static int valid(struct fid_ep *ep, enum family family, enum fi_datatype type,
		 enum fi_op op, size_t *count)
{
	switch (family) {
	case BASE:
		return fi_atomicvalid(ep, type, op, count);
	case FETCH:
		return fi_fetch_atomicvalid(ep, type, op, count);
	default:
		return fi_compare_atomicvalid(ep, type, op, count);
	}
}

/* Does fi_atomic(3) list the operation for the family? */
static bool listed(enum family family, enum fi_op op)
{
	if (family == COMPARE || ct_is_compare(op))
		return family == COMPARE && ct_is_compare(op);
	return family == FETCH || op != FI_ATOMIC_READ;
}

/* Two local pieces, three remote ones: they are cut at different places. */
static ssize_t post(struct ct_bench *bench, enum family family, enum form form,
		    enum fi_datatype type, enum fi_op op, size_t count)
{
	struct ct_peer *a = &bench->pair.a;
	size_t size = ct_datatype_size(type);
	size_t half = form == PLAIN || count < 3 ||
		      a->info->tx_attr->iov_limit < 2 ? count : count / 3;
	size_t pieces = half < count ? 2 : 1;
	struct fi_ioc source[2] = {
		{ bench->local.data, half },
		{ bench->local.data + half * size, count - half },
	}, compare[2] = {
		{ bench->compare.data, half },
		{ bench->compare.data + half * size, count - half },
	}, result[2] = {
		{ bench->result.data, count - half ? count - half : half },
		{ bench->result.data + (count - half) * size, half },
	};
	size_t remote_pieces = a->info->tx_attr->rma_iov_limit > 1 && count > 1
			       ? 2 : 1;
	struct fi_rma_ioc remote[2] = {
		{ bench->remote.addr, remote_pieces > 1 ? count - 1 : count,
		  bench->remote.key },
		{ bench->remote.addr + (count - 1) * size, 1,
		  bench->remote.key },
	};
	void *source_desc[2] = { bench->local.desc, bench->local.desc };
	void *compare_desc[2] = { bench->compare.desc, bench->compare.desc };
	void *result_desc[2] = { bench->result.desc, bench->result.desc };
	struct fi_msg_atomic msg = {
		.msg_iov = source, .desc = source_desc, .iov_count = pieces,
		.addr = a->to, .rma_iov = remote,
		.rma_iov_count = remote_pieces, .datatype = type, .op = op,
		.context = &context,
	};
	uint64_t addr = bench->remote.addr, key = bench->remote.key;

	switch (form * FAMILIES + (int)family) {
	case PLAIN * FAMILIES + BASE:
		return fi_atomic(a->ep, bench->local.data, count,
				 bench->local.desc, a->to, addr, key, type,
				 op, &context);
	case VECTOR * FAMILIES + BASE:
		return fi_atomicv(a->ep, source, source_desc, pieces, a->to,
				  addr, key, type, op, &context);
	case MESSAGE * FAMILIES + BASE:
		return fi_atomicmsg(a->ep, &msg, 0);
	case INJECT * FAMILIES + BASE:
		return fi_inject_atomic(a->ep, bench->local.data, count,
					a->to, addr, key, type, op);
	case PLAIN * FAMILIES + FETCH:
		return fi_fetch_atomic(a->ep, bench->local.data, count,
				       bench->local.desc, bench->result.data,
				       bench->result.desc, a->to, addr, key,
				       type, op, &context);
	case VECTOR * FAMILIES + FETCH:
		return fi_fetch_atomicv(a->ep, source, source_desc, pieces,
					result, result_desc, pieces, a->to,
					addr, key, type, op, &context);
	case MESSAGE * FAMILIES + FETCH:
		return fi_fetch_atomicmsg(a->ep, &msg, result, result_desc,
					  pieces, 0);
	case PLAIN * FAMILIES + COMPARE:
		return fi_compare_atomic(a->ep, bench->local.data, count,
					 bench->local.desc,
					 bench->compare.data,
					 bench->compare.desc,
					 bench->result.data,
					 bench->result.desc, a->to, addr, key,
					 type, op, &context);
	case VECTOR * FAMILIES + COMPARE:
		return fi_compare_atomicv(a->ep, source, source_desc, pieces,
					  compare, compare_desc, pieces,
					  result, result_desc, pieces, a->to,
					  addr, key, type, op, &context);
	case MESSAGE * FAMILIES + COMPARE:
		return fi_compare_atomicmsg(a->ep, &msg, compare, compare_desc,
					    pieces, result, result_desc,
					    pieces, 0);
	default:
		return -FI_ENOSYS;
	}
}

static void complete(struct ct_bench *bench, enum family family, enum form form,
		     enum fi_op op)
{
	struct ct_peer *a = &bench->pair.a;
	struct ct_completion done;

	if (form == INJECT)
		return;
	done = ct_done(a, &a->tx, &context);
	REQUIRE(done.flags & FI_ATOMIC);
	if (family == BASE)
		REQUIRE(done.flags & FI_WRITE);
	else if (op == FI_ATOMIC_READ)
		REQUIRE(done.flags & FI_READ);
	else
		REQUIRE(done.flags & (FI_READ | FI_WRITE));
}

/* The target holds these values; more elements may follow. */
static bool target_is(const struct ct_bench *bench, const struct ct_value *want,
		      enum fi_datatype type, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!ct_same(ct_decode(bench->remote.data, i, type), want[i]))
			return false;
	return true;
}

static void one(struct ct_bench *bench, enum family family, enum form form,
		enum fi_datatype type, enum fi_op op, size_t count)
{
	size_t size = ct_datatype_size(type);
	struct ct_value before[COUNT], after[COUNT];

	memset(bench->remote.data, 0xee, (COUNT + 1) * size);
	memset(bench->result.data, 0xee, (COUNT + 1) * size);
	for (size_t i = 0; i < count; i++) {
		bool pair = ct_is_complex(type);
		struct ct_value s = { (double)(i % 3), pair ? (double)(i % 2) : 0 };
		struct ct_value c = { (double)((i + 1) % 3), 0 };

		before[i] = (struct ct_value) { (double)((i * 2 + 1) % 4),
						pair ? (double)(i / 2 % 2) : 0 };
		ct_encode(bench->remote.data, i, type, before[i]);
		ct_encode(bench->local.data, i, type, s);
		ct_encode(bench->compare.data, i, type, c);
		after[i] = ct_apply(op, type, before[i], s, c);
	}
	POST(&bench->pair.a, post(bench, family, form, type, op, count));
	if (form == INJECT)
		memset(bench->local.data, 0x11, count * size);	/* ours again */
	complete(bench, family, form, op);
	UNTIL(&bench->pair.a, target_is(bench, after, type, count));
	REQUIRE(ct_is_all(bench->remote.data + count * size, size, 0xee));
	if (family == BASE)
		return;
	for (size_t i = 0; i < count; i++)
		REQUIRE(ct_same(ct_decode(bench->result.data, i, type),
				before[i]));
	REQUIRE(ct_is_all(bench->result.data + count * size, size, 0xee));
}

/* Every valid combination of one family, a line per datatype. */
static void all_of(enum family family)
{
	struct ct_bench bench;
	int combinations = 0;

	setup(&bench, (struct ct_spec) { 0 });
	for (int t = 0; t < CT_DATATYPES; t++) {
		enum fi_datatype type = ct_datatype(t);
		int before = combinations;

		for (int o = 0; o < CT_OPS; o++) {
			enum fi_op op = ct_op(o);
			size_t limit = 0;

			if (!listed(family, op) || !ct_op_applies(op, type) ||
			    valid(bench.pair.a.ep, family, type, op, &limit))
				continue;
			REQUIRE(limit >= 1);
			combinations++;
			for (enum form form = 0; form < FORMS; form++) {
				size_t inject = bench.pair.a.info->tx_attr
						->inject_size;
				size_t most = form == INJECT ?
					inject / ct_datatype_size(type) : COUNT;

				if (form == INJECT && family != BASE)
					continue;
				one(&bench, family, form, type, op, 1);
				if (limit >= COUNT && most >= COUNT)
					one(&bench, family, form, type, op,
					    COUNT);
			}
		}
		if (combinations > before)
			CHECK(true, "%s", ct_datatype_name(type));
	}
	CHECK(combinations > 0, "some");
	ct_close_bench(&bench);
}

static void base(void)
{
	all_of(BASE);
}

static void fetch(void)
{
	all_of(FETCH);
}

static void compare(void)
{
	all_of(COMPARE);
}

/* Every combination that makes sense is offered. */
static void complete_set(void)
{
	struct ct_bench bench;

	setup(&bench, (struct ct_spec) { 0 });
	for (enum family family = 0; family < FAMILIES; family++) {
		for (int t = 0; t < CT_DATATYPES; t++) {
			enum fi_datatype type = ct_datatype(t);
			bool all = true;

			for (int o = 0; o < CT_OPS; o++) {
				enum fi_op op = ct_op(o);
				size_t limit;

				if (listed(family, op) &&
				    ct_op_applies(op, type) &&
				    valid(bench.pair.a.ep, family, type, op,
					  &limit))
					all = false;
			}
			CHECK(all, "%s/%s", family_names[family],
			      ct_datatype_name(type));
		}
	}
	ct_close_bench(&bench);
}

/* The endpoint and the domain agree; invalid arguments are refused. */
static void validity(void)
{
	static const uint64_t flags[] = {
		0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC,
	};
	struct ct_bench bench;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fi_atomic_attr attr;
	size_t count;

	setup(&bench, (struct ct_spec) { 0 });
	domain = bench.pair.a.domain;
	ep = bench.pair.a.ep;
	for (enum family family = 0; family < FAMILIES; family++) {
		bool agree = true, sizes = true;

		for (int t = 0; t < CT_DATATYPES; t++) {
			for (int o = 0; o < CT_OPS; o++) {
				enum fi_datatype type = ct_datatype(t);
				enum fi_op op = ct_op(o);
				int by_ep, by_domain;

				memset(&attr, 0, sizeof(attr));
				by_ep = valid(ep, family, type, op, &count);
				by_domain = fi_query_atomic(domain, type, op,
							    &attr,
							    flags[family]);
				agree &= !by_ep == !by_domain;
				if (!by_ep && !by_domain) {
					agree &= attr.count == count;
					sizes &= attr.size ==
						 ct_datatype_size(type);
				}
			}
		}
		CHECK(agree, "%s-agree", family_names[family]);
		CHECK(sizes, "%s-sizes", family_names[family]);
	}
	CHECK(fi_atomicvalid(ep, FI_UINT64, (enum fi_op)1000, &count) < 0,
	      "no-such-op");
	CHECK(fi_atomicvalid(ep, (enum fi_datatype)1000, FI_SUM, &count) < 0,
	      "no-such-datatype");
	CHECK(fi_atomicvalid(ep, FI_UINT64, FI_CSWAP, &count) < 0,
	      "compare-is-not-base");
	CHECK(fi_compare_atomicvalid(ep, FI_UINT64, FI_SUM, &count) < 0,
	      "base-is-not-compare");
	CHECK(fi_atomicvalid(ep, FI_UINT64, FI_ATOMIC_READ, &count) < 0,
	      "read-is-not-base");
	CHECK(fi_query_atomic(domain, FI_UINT64, FI_SUM, &attr,
			      FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) < 0,
	      "both-flags");
	CHECK(post(&bench, BASE, PLAIN, FI_UINT64, (enum fi_op)1000, 1) < 0,
	      "post-no-such-op");
	count = bench.pair.a.info->tx_attr->inject_size + 1;
	CHECK(count > ROOM ||
	      post(&bench, BASE, INJECT, FI_UINT8, FI_SUM, count) < 0,
	      "inject-too-much");
	ct_close_bench(&bench);
}

/* Signs and overflow, which the small numbers of the other tests do not cover.
 */
static void edges(void)
{
	struct ct_bench bench;
	int8_t *s8, *t8;
	uint64_t *s64, *t64;

	setup(&bench, (struct ct_spec) { 0 });
	s8 = (int8_t *)bench.local.data;
	t8 = (int8_t *)bench.remote.data;
	s64 = (uint64_t *)bench.local.data;
	t64 = (uint64_t *)bench.remote.data;

	*t8 = -1;
	*s8 = 1;
	POST(&bench.pair.a, post(&bench, BASE, PLAIN, FI_INT8, FI_MIN, 1));
	complete(&bench, BASE, PLAIN, FI_MIN);
	UNTIL(&bench.pair.a, *t8 == -1);
	POST(&bench.pair.a, post(&bench, BASE, PLAIN, FI_UINT8, FI_MIN, 1));
	complete(&bench, BASE, PLAIN, FI_MIN);
	UNTIL(&bench.pair.a, *t8 == 1);
	CHECK(true, "sign");

	*t64 = UINT64_MAX - 1;
	*s64 = 5;
	POST(&bench.pair.a, post(&bench, BASE, PLAIN, FI_UINT64, FI_SUM, 1));
	complete(&bench, BASE, PLAIN, FI_SUM);
	UNTIL(&bench.pair.a, *t64 == 3);
	CHECK(true, "unsigned-wraps");

	*t64 = INT64_MAX;
	*s64 = 1;
	POST(&bench.pair.a, post(&bench, BASE, PLAIN, FI_INT64, FI_SUM, 1));
	complete(&bench, BASE, PLAIN, FI_SUM);
	UNTIL(&bench.pair.a, *t64 == (uint64_t)INT64_MIN);
	CHECK(true, "signed-wraps");

	*t64 = 0x00ff00ff00ff00ffULL;
	*s64 = 0x1234567890abcdefULL;
	*(uint64_t *)bench.compare.data = 0xffff0000ffff0000ULL;
	POST(&bench.pair.a, post(&bench, COMPARE, PLAIN, FI_UINT64, FI_MSWAP,
				 1));
	complete(&bench, COMPARE, PLAIN, FI_MSWAP);
	UNTIL(&bench.pair.a, *t64 == 0x123400ff90ab00ffULL);
	REQUIRE(*(uint64_t *)bench.result.data == 0x00ff00ff00ff00ffULL);
	CHECK(true, "wide-mask");
	ct_close_bench(&bench);
}

/* As many elements as the provider reports for one call. */
static void longest(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_ATOMIC };
	struct ct_memory source, result, target;
	struct ct_pair pair;
	size_t count = 0;

	ct_open_pair(&pair, &spec);
	OK(fi_fetch_atomicvalid(pair.a.ep, FI_UINT64, FI_SUM, &count));
	count = count > 1 << 16 ? 1 << 16 : count;
	ct_memory_open(&pair.a, &source, count * 8, FI_WRITE);
	ct_memory_open(&pair.a, &result, count * 8, FI_READ);
	ct_memory_open(&pair.b, &target, count * 8,
		       FI_REMOTE_READ | FI_REMOTE_WRITE);
	for (size_t i = 0; i < count; i++) {
		((uint64_t *)source.data)[i] = i;
		((uint64_t *)target.data)[i] = 1000000 + i;
	}
	POST(&pair.a, fi_fetch_atomic(pair.a.ep, source.data, count,
				      source.desc, result.data, result.desc,
				      pair.a.to, target.addr, target.key,
				      FI_UINT64, FI_SUM, &context));
	ct_done(&pair.a, &pair.a.tx, &context);
	for (size_t i = 0; i < count; i++) {
		REQUIRE(((uint64_t *)result.data)[i] == 1000000 + i);
		REQUIRE(((uint64_t *)target.data)[i] == 1000000 + 2 * i);
	}
	ct_memory_close(&source);
	ct_memory_close(&result);
	ct_memory_close(&target);
	ct_close_pair(&pair);
}

/* Increments in flight from both sides at one place: none is lost, and every
 * fetched value is seen once. */
static void contended(void)
{
	enum { EACH = 200 };
	static struct fi_context2 contexts[2][EACH];
	static uint64_t results[2][EACH];
	static bool seen[2 * EACH];
	struct ct_spec spec = { .caps = FI_MSG | FI_ATOMIC };
	struct ct_memory source[2], result[2], target;
	struct ct_peer third, *initiators[2];
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_open_third(&third, &pair.b);
	initiators[0] = &pair.a;
	initiators[1] = &third;
	ct_memory_open(&pair.b, &target, 8, FI_REMOTE_READ | FI_REMOTE_WRITE);
	for (int side = 0; side < 2; side++) {
		struct ct_peer *p = initiators[side];

		ct_memory_open(p, &source[side], 8, FI_WRITE);
		*(uint64_t *)source[side].data = 1;
		ct_memory_open(p, &result[side], EACH * 8, FI_READ);
		for (int i = 0; i < EACH; i++)
			POST(p, fi_fetch_atomic(p->ep, source[side].data, 1,
						source[side].desc,
						result[side].data + i * 8,
						result[side].desc, p->to,
						target.addr, target.key,
						FI_UINT64, FI_SUM,
						&contexts[side][i]));
	}
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < EACH; i++)
			REQUIRE(!ct_next(initiators[side],
					 &initiators[side]->tx).err);
	REQUIRE(*(uint64_t *)target.data == 2 * EACH);
	for (int side = 0; side < 2; side++) {
		memcpy(results[side], result[side].data, sizeof(results[side]));
		for (int i = 0; i < EACH; i++) {
			REQUIRE(results[side][i] < 2 * EACH);
			REQUIRE(!seen[results[side][i]]);
			seen[results[side][i]] = true;
		}
		ct_memory_close(&source[side]);
		ct_memory_close(&result[side]);
	}
	ct_memory_close(&target);
	ct_close_peer(&third);
	ct_close_pair(&pair);
}

/* An atomic to the same place as the one before it sees its result. */
static void ordered(void)
{
	struct ct_bench bench;
	uint64_t *source, *target;

	setup(&bench, (struct ct_spec) { 0 });
	if (!(bench.pair.a.info->tx_attr->msg_order & FI_ORDER_ATOMIC_WAW))
		SKIP("no FI_ORDER_ATOMIC_WAW");
	source = (uint64_t *)bench.local.data;
	target = (uint64_t *)bench.remote.data;
	for (uint64_t i = 1; i <= 100; i++) {
		*source = i;
		POST(&bench.pair.a, post(&bench, BASE, INJECT, FI_UINT64,
					 FI_ATOMIC_WRITE, 1));
	}
	POST(&bench.pair.a, post(&bench, FETCH, PLAIN, FI_UINT64,
				 FI_ATOMIC_READ, 1));
	complete(&bench, FETCH, PLAIN, FI_ATOMIC_READ);
	REQUIRE(*target == 100);
	if (bench.pair.a.info->tx_attr->msg_order & FI_ORDER_ATOMIC_RAW)
		REQUIRE(*(uint64_t *)bench.result.data == 100);
	ct_close_bench(&bench);
}

/* A wrong key, a range beyond the region, missing permission: an error at the
 * initiator, and the target stays as it was. */
static void refused(void)
{
	static const char *const names[] = {
		"wrong-key", "out-of-bounds", "read-only",
	};

	for (int what = 0; what < 3; what++) {
		struct ct_memory read_only;
		struct ct_bench bench;

		setup(&bench, (struct ct_spec) { 0 });
		ct_memory_open(&bench.pair.b, &read_only, ROOM, FI_REMOTE_READ);
		memset(bench.remote.data, 0x33, ROOM);
		memset(read_only.data, 0x33, ROOM);
		*(uint64_t *)bench.local.data = 1;
		if (what == 0) {
			bench.remote.key += 0x1234567;
		} else if (what == 1) {
			bench.remote.addr += ROOM - 4;
		} else {
			bench.remote.key = read_only.key;
			bench.remote.addr = read_only.addr;
		}
		POST(&bench.pair.a, post(&bench, FETCH, PLAIN, FI_UINT64,
					 FI_SUM, 1));
		CHECK(ct_error(&bench.pair.a, &bench.pair.a.tx).err > 0, "%s",
		      names[what]);
		REQUIRE(ct_is_all(bench.remote.data, ROOM, 0x33));
		REQUIRE(ct_is_all(read_only.data, ROOM, 0x33));
		ct_memory_close(&read_only);
		ct_close_bench(&bench);
	}
}

/* Fetching and comparing operations are reads of the target, the others writes
 * (fi_cntr(3), FI_REMOTE_READ and FI_REMOTE_WRITE). */
static const struct {
	const char *name;
	enum family family;
	enum fi_op op;
} kinds[] = {
	{ "base", BASE, FI_SUM },
	{ "fetch", FETCH, FI_SUM },
	{ "fetch-write", FETCH, FI_ATOMIC_WRITE },
	{ "read", FETCH, FI_ATOMIC_READ },
	{ "compare", COMPARE, FI_CSWAP },
	{ "masked", COMPARE, FI_MSWAP },
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* With immediate data, the target gets a completion for the operation, with
 * its kind. */
static void immediate(void)
{
	struct ct_bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	struct fi_ioc ioc = { .count = 1 }, compare, result;
	struct fi_rma_ioc remote = { .count = 1 };
	void *desc;
	struct fi_msg_atomic msg = {
		.msg_iov = &ioc, .desc = &desc, .iov_count = 1,
		.rma_iov = &remote, .rma_iov_count = 1,
		.datatype = FI_UINT64, .context = &context,
	};

	setup(&bench, (struct ct_spec) { 0 });
	desc = bench.local.desc;
	ioc.addr = bench.local.data;
	remote.addr = bench.remote.addr;
	remote.key = bench.remote.key;
	compare = (struct fi_ioc) { bench.compare.data, 1 };
	result = (struct fi_ioc) { bench.result.data, 1 };
	msg.addr = a->to;
	for (int kind = 0; kind < KINDS; kind++) {
		uint64_t done_flags = FI_ATOMIC | FI_REMOTE_CQ_DATA |
			(kinds[kind].family == BASE ? FI_REMOTE_WRITE :
			 FI_REMOTE_READ);
		struct ct_completion done;

		msg.op = kinds[kind].op;
		msg.data = 0x5a + (uint64_t)kind;
		switch (kinds[kind].family) {
		case BASE:
			POST(a, fi_atomicmsg(a->ep, &msg, FI_REMOTE_CQ_DATA));
			break;
		case FETCH:
			POST(a, fi_fetch_atomicmsg(a->ep, &msg, &result,
						   &bench.result.desc, 1,
						   FI_REMOTE_CQ_DATA));
			break;
		default:
			POST(a, fi_compare_atomicmsg(a->ep, &msg, &compare,
						     &bench.compare.desc, 1,
						     &result,
						     &bench.result.desc, 1,
						     FI_REMOTE_CQ_DATA));
		}
		ct_done(a, &a->tx, &context);
		done = ct_next(b, &b->rx);
		REQUIRE(!done.err);
		CHECK(done.data == msg.data && done.flags == done_flags,
		      "%s", kinds[kind].name);
	}
	ct_close_bench(&bench);
}

/* With FI_RMA_EVENT the target counts, by the kind and in no other counter. */
static void counted_at_the_target(void)
{
	struct ct_bench bench;
	uint64_t reads = 0, writes = 0;

	setup(&bench, (struct ct_spec) {
		.caps = FI_RMA_EVENT,
		.counters = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RECV,
	});
	for (int kind = 0; kind < KINDS; kind++) {
		enum family family = kinds[kind].family;

		for (enum form form = 0; form < FORMS; form++) {
			if (form == INJECT && family != BASE)
				continue;
			POST(&bench.pair.a, post(&bench, family, form,
						 FI_UINT64, kinds[kind].op,
						 COUNT));
			if (family == BASE)
				writes++;
			else
				reads++;
			complete(&bench, family, form, kinds[kind].op);
			ct_count(&bench.pair.b, CT_CNTR_REMOTE_READ, reads);
			ct_count(&bench.pair.b, CT_CNTR_REMOTE_WRITE, writes);
		}
		CHECK(true, "%s", kinds[kind].name);
	}
	EXPECT(fi_cntr_read(bench.pair.b.cntr[CT_CNTR_RECV]), 0);
	ct_close_bench(&bench);
}

/* The counter of a region counts what modifies it (fi_mr(3), FI_REMOTE_WRITE),
 * whatever is fetched. */
static void counted_by_the_region(void)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *cntr;
	struct ct_bench bench;
	uint64_t writes = 0;

	setup(&bench, (struct ct_spec) { .caps = FI_RMA_EVENT });
	if (fi_cntr_open(bench.pair.b.domain, &attr, &cntr, NULL))
		SKIP("no counters");
	OK(fi_mr_bind(bench.remote.mr, &cntr->fid, FI_REMOTE_WRITE));
	for (int kind = 0; kind < KINDS; kind++) {
		if (kinds[kind].op == FI_ATOMIC_READ)
			continue;
		POST(&bench.pair.a, post(&bench, kinds[kind].family, PLAIN,
					 FI_UINT64, kinds[kind].op, 1));
		complete(&bench, kinds[kind].family, PLAIN, kinds[kind].op);
		writes++;
		UNTIL(&bench.pair.b, fi_cntr_read(cntr) == writes);
		CHECK(true, "%s", kinds[kind].name);
	}
	ct_memory_close(&bench.local);
	ct_memory_close(&bench.compare);
	ct_memory_close(&bench.result);
	ct_memory_close(&bench.remote);
	OK(fi_close(&cntr->fid));
	ct_close_pair(&bench.pair);
}

static void counted(void)
{
	struct ct_bench bench;

	setup(&bench, (struct ct_spec) { .counters = FI_READ | FI_WRITE });
	POST(&bench.pair.a, post(&bench, BASE, PLAIN, FI_UINT64, FI_SUM, 1));
	ct_count(&bench.pair.a, CT_CNTR_WRITE, 1);
	POST(&bench.pair.a, post(&bench, BASE, INJECT, FI_UINT64, FI_SUM, 1));
	ct_count(&bench.pair.a, CT_CNTR_WRITE, 2);
	POST(&bench.pair.a, post(&bench, FETCH, PLAIN, FI_UINT64, FI_SUM, 1));
	ct_count(&bench.pair.a, CT_CNTR_READ, 1);
	POST(&bench.pair.a, post(&bench, COMPARE, PLAIN, FI_UINT64, FI_CSWAP,
				 1));
	ct_count(&bench.pair.a, CT_CNTR_READ, 2);
	ct_count(&bench.pair.a, CT_CNTR_WRITE, 2);
	ct_close_bench(&bench);
}

static const struct ct_test tests[] = {
	{ "base", base, CT_BOTH | CT_SLOW },
	{ "fetch", fetch, CT_BOTH | CT_SLOW },
	{ "compare", compare, CT_BOTH | CT_SLOW },
	{ "complete-set", complete_set, CT_BOTH },
	{ "validity", validity, CT_BOTH },
	{ "edges", edges, CT_BOTH },
	{ "longest", longest, CT_BOTH },
	{ "contended", contended, CT_RDM },
	{ "ordered", ordered, CT_BOTH },
	{ "refused", refused, CT_BOTH },
	{ "immediate", immediate, CT_BOTH },
	{ "counted", counted, CT_BOTH },
	{ "counted-at-the-target", counted_at_the_target, CT_BOTH },
	{ "counted-by-the-region", counted_by_the_region, CT_BOTH },
};

CT_MAIN(tests)
