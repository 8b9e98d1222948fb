/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Small operations allocate no memory, at either end, after the initial
 * set-up: counted where the library, which has no allocator of its own,
 * requests memory.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <rdma/fi_atomic.h>

#include "check.h"
#include "memory.h"
#include "transfer.h"
#include "wait.h"

#define TIMES 1000
#define PIECES 3

/* The requests of all threads. */
static atomic_long asked;

#ifdef __SANITIZE_ADDRESS__
static const bool own_allocator = false;
#else
static const bool own_allocator = true;

/* These precede the C library's in the order of symbol look-up. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
	atomic_fetch_add(&asked, 1);
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	atomic_fetch_add(&asked, 1);
	return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	atomic_fetch_add(&asked, 1);
	return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size)
{
	atomic_fetch_add(&asked, 1);
	return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
	void *memory = memalign(alignment, size);

	if (!memory)
		return ENOMEM;
	*out = memory;
	return 0;
}
#endif

static struct fi_context2 tx_context, rx_context;

/* A pair, and memory of b that a may reach. */
struct work {
	struct ct_pair pair;
	struct ct_memory out, in;
};

/* Both sides are driven until a has a completion, b has one, or both. */
static void finish(struct work *work, bool at_a, bool at_b)
{
	struct ct_peer *a = &work->pair.a, *b = &work->pair.b;
	struct fi_cq_tagged_entry entry;
	double until = ct_now() + ct_patience();

	while (at_a || at_b) {
		ssize_t from_a = fi_cq_read(a->tx.fid, &entry, 1);
		ssize_t from_b = fi_cq_read(b->rx.fid, &entry, 1);

		REQUIRE(from_a == -FI_EAGAIN || (from_a == 1 && at_a));
		REQUIRE(from_b == -FI_EAGAIN || (from_b == 1 && at_b));
		at_a &= from_a != 1;
		at_b &= from_b != 1;
		REQUIRE(ct_now() < until);
	}
}

static void message(struct work *work)
{
	struct ct_peer *a = &work->pair.a, *b = &work->pair.b;

	OK(fi_recv(b->ep, work->in.data, 8, work->in.desc, FI_ADDR_UNSPEC,
		   &rx_context));
	OK(fi_send(a->ep, work->out.data, 8, work->out.desc, a->to,
		   &tx_context));
	finish(work, true, true);
}

static void tagged(struct work *work)
{
	struct ct_peer *a = &work->pair.a, *b = &work->pair.b;

	OK(fi_trecv(b->ep, work->in.data, 8, work->in.desc, FI_ADDR_UNSPEC, 1,
		    0, &rx_context));
	OK(fi_tsend(a->ep, work->out.data, 8, work->out.desc, a->to, 1,
		    &tx_context));
	finish(work, true, true);
}

static void rma(struct work *work, enum ct_rma_form form, size_t pieces)
{
	const struct fi_tx_attr *limits = work->pair.a.info->tx_attr;
	size_t limit = limits->rma_iov_limit < limits->iov_limit ?
		       limits->rma_iov_limit : limits->iov_limit;
	struct ct_rma access = {
		.buf = work->out.data, .len = 8 * pieces,
		.desc = work->out.desc, .addr = work->in.addr,
		.key = work->in.key, .data = 1, .context = &tx_context,
		.flags = FI_COMPLETION,
		.pieces = pieces < limit ? pieces : limit,
	};

	access.remote_pieces = access.pieces;
	OK(ct_rma(&work->pair.a, form, &access));
	finish(work, true, ct_rma_has_data(form));
}

static void write_with_data(struct work *work)
{
	rma(work, CT_WRITEDATA, 1);
}

static void write_pieces(struct work *work)
{
	rma(work, CT_WRITEMSG_DATA, PIECES);
}

static void read_one(struct work *work)
{
	rma(work, CT_READ, 1);
}

static void read_pieces(struct work *work)
{
	rma(work, CT_READMSG, PIECES);
}

static void fetch_atomic(struct work *work)
{
	struct ct_peer *a = &work->pair.a;

	OK(fi_fetch_atomic(a->ep, work->out.data, 1, work->out.desc,
			   work->out.data + 8, work->out.desc, a->to,
			   work->in.addr, work->in.key, FI_UINT64, FI_SUM,
			   &tx_context));
	finish(work, true, false);
}

static void compare_atomic(struct work *work)
{
	struct ct_peer *a = &work->pair.a;
	unsigned char *data = work->out.data;

	OK(fi_compare_atomic(a->ep, data, 1, work->out.desc, data + 8,
			     work->out.desc, data + 16, work->out.desc, a->to,
			     work->in.addr, work->in.key, FI_UINT64, FI_CSWAP,
			     &tx_context));
	finish(work, true, false);
}

static void count(void (*operation)(struct work *work), uint64_t caps)
{
	struct ct_spec spec = { .caps = caps };
	static struct work work;
	long before, allocations;

	if (!own_allocator || ct_opt.valgrind)
		SKIP("a memory checker allocates in place of the C library");
	before = atomic_load(&asked);
	ct_open_pair(&work.pair, &spec);
	/* Opening a pair needs memory. */
	REQUIRE(atomic_load(&asked) > before);
	ct_memory_open(&work.pair.a, &work.out, 64,
		       FI_SEND | FI_READ | FI_WRITE);
	ct_memory_open(&work.pair.b, &work.in, 64,
		       caps & (FI_RMA | FI_ATOMIC) ?
		       FI_REMOTE_READ | FI_REMOTE_WRITE : FI_RECV);
	ct_warm_up(&work.pair);
	for (int i = 0; i < TIMES; i++)
		operation(&work);
	before = atomic_load(&asked);
	for (int i = 0; i < TIMES; i++)
		operation(&work);
	allocations = atomic_load(&asked) - before;
	if (allocations)
		ct_fail(__FILE__, __LINE__, "%ld allocations in %d operations",
			allocations, TIMES);
	ct_memory_close(&work.out);
	ct_memory_close(&work.in);
	ct_close_pair(&work.pair);
}

#define COUNTED(operation, caps)					\
	static void count_##operation(void)				\
	{								\
		count(operation, caps);					\
	}

COUNTED(message, FI_MSG)
COUNTED(tagged, FI_TAGGED)
COUNTED(write_with_data, FI_MSG | FI_RMA)
COUNTED(write_pieces, FI_MSG | FI_RMA)
COUNTED(read_one, FI_MSG | FI_RMA)
COUNTED(read_pieces, FI_MSG | FI_RMA)
COUNTED(fetch_atomic, FI_MSG | FI_ATOMIC)
COUNTED(compare_atomic, FI_MSG | FI_ATOMIC)

static const struct ct_test tests[] = {
	{ "message", count_message, CT_BOTH },
	{ "tagged", count_tagged, CT_BOTH },
	{ "write-with-data", count_write_with_data, CT_BOTH },
	{ "write-pieces", count_write_pieces, CT_BOTH },
	{ "read", count_read_one, CT_BOTH },
	{ "read-pieces", count_read_pieces, CT_BOTH },
	{ "fetch-atomic", count_fetch_atomic, CT_BOTH },
	{ "compare-atomic", count_compare_atomic, CT_BOTH },
};

CT_MAIN(tests)
