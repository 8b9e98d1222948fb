/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Access to memory that is not permitted fails by itself: later messages
 * arrive. */
#include <rdma/fi_atomic.h>
#include <string.h>

#include "bench.h"
#include "check.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define SIZE 4096
#define LONG 300000		/* more than one call sends */
#define BEHIND 3		/* messages after each access */

static struct fi_context2 context, tx_context[BEHIND], rx_context[BEHIND];

/* The fault of an access, and how its initiator may be informed. */
struct wrong {
	const char *name;
	uint64_t access;	/* of the region */
	bool unknown;		/* no region has the key */
	uint64_t offset;	/* into the region */
	int err;
};

static const struct wrong wrongs[] = {
	{ "key", FI_REMOTE_READ | FI_REMOTE_WRITE, true, 0, FI_EACCES },
	{ "range", FI_REMOTE_READ | FI_REMOTE_WRITE, false, SIZE - 4,
	  FI_EACCES },
	{ "write", FI_REMOTE_READ, false, 0, FI_EACCES },
	{ "read", FI_REMOTE_WRITE, false, 0, FI_EACCES },
};

/* The access of the test: the one with this fault. */
static const struct wrong *fault;
static uint64_t address, key;

static void setup(struct ct_bench *bench, const struct wrong *wrong, uint64_t caps)
{
	struct ct_spec spec = { .caps = FI_MSG | caps };

	ct_open_bench(bench, &spec, &(struct ct_room) {
		.local = LONG, .out = SIZE, .in = SIZE, .remote = SIZE,
		.remote_access = wrong->access,
	});
	memset(bench->remote.data, 0xee, SIZE);
	fault = wrong;
	address = bench->remote.addr + wrong->offset;
	key = wrong->unknown ? bench->remote.key + 12345 : bench->remote.key;
	ct_warm_up(&bench->pair);
}

static void teardown(struct ct_bench *bench)
{
	struct ct_peer *a = &bench->pair.a;

	REQUIRE(ct_is_all(bench->remote.data, SIZE, 0xee));
	REQUIRE(ct_is_all(bench->local.data, LONG, 0x55));
	REQUIRE(ct_stays_empty(a, &a->tx));
	if (ct_opt.type == FI_EP_MSG)
		REQUIRE(ct_no_event(a));
	ct_close_bench(bench);
}

/*
 * An access has just been posted. Sends messages after it, which have to be
 * received; the access completes as its flags say, with an error if it waits
 * for the target.
 */
static void goes_on(struct ct_bench *bench, bool completes, bool waits)
{
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;
	bool seen[BEHIND] = { false };

	ct_fill(bench->out.data, SIZE, 1);
	for (int i = 0; i < BEHIND; i++)
		POST(b, fi_recv(b->ep, bench->in.data + 8 * i, 8,
				bench->in.desc, FI_ADDR_UNSPEC,
				&rx_context[i]));
	for (int i = 0; i < BEHIND; i++)
		POST(a, fi_send(a->ep, bench->out.data + 8 * i, 8,
				bench->out.desc, a->to, &tx_context[i]));
	for (int i = 0; i < BEHIND; i++)
		ct_done(b, &b->rx, &rx_context[i]);
	REQUIRE(ct_holds(bench->in.data, 8 * BEHIND, 1));
	for (int i = 0; i < BEHIND + completes; i++) {
		struct ct_completion done = ct_next(a, &a->tx);
		long which = (struct fi_context2 *)done.context - tx_context;

		if (done.context == &context) {
			REQUIRE(done.err == fault->err ||
				(!done.err && !waits));
			continue;
		}
		REQUIRE(!done.err);
		REQUIRE(which >= 0 && which < BEHIND && !seen[which]);
		seen[which] = true;
	}
}

static void access_with(struct ct_bench *bench, enum ct_rma_form form, size_t len,
			uint64_t flags)
{
	struct ct_peer *a = &bench->pair.a;
	struct ct_rma rma = {
		.buf = bench->local.data, .len = len,
		.desc = bench->local.desc, .addr = address,
		.key = key, .data = 7, .flags = flags,
		.context = &context,
	};
	bool waits = ct_rma_is_read(form) || flags & FI_DELIVERY_COMPLETE;

	memset(bench->local.data, 0x55, LONG);
	POST(a, ct_rma(a, form, &rma));
	goes_on(bench, ct_rma_completes(form), waits);
}

static bool concerns(const struct wrong *wrong, bool reads)
{
	return strcmp(wrong->name, reads ? "write" : "read");
}

static void accesses(void)
{
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		struct ct_bench bench;

		setup(&bench, &wrongs[i], FI_RMA);
		for (int form = 0; form < CT_RMA_FORMS; form++) {
			size_t limit = ct_rma_limit(&bench.pair.a, form);

			if (!concerns(&wrongs[i], ct_rma_is_read(form)))
				continue;
			access_with(&bench, form, 8, 0);
			if (limit >= LONG)
				access_with(&bench, form, LONG, 0);
			if (form == CT_WRITEMSG || form == CT_WRITEMSG_DATA) {
				access_with(&bench, form, 8,
					    FI_DELIVERY_COMPLETE);
				access_with(&bench, form, LONG,
					    FI_DELIVERY_COMPLETE);
			}
			CHECK(true, "%s/%s", wrongs[i].name, ct_rma_name(form));
		}
		teardown(&bench);
	}
}

static void atomics(void)
{
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		struct ct_bench bench;
		struct ct_peer *a = &bench.pair.a;
		uint64_t *old;

		setup(&bench, &wrongs[i], FI_ATOMIC);
		memset(bench.local.data, 0x55, LONG);
		old = (uint64_t *)bench.local.data + 1;
		if (concerns(&wrongs[i], false)) {
			POST(a, fi_atomic(a->ep, bench.local.data, 1,
					  bench.local.desc, a->to, address,
					  key, FI_UINT64, FI_SUM,
					  &context));
			goes_on(&bench, true, true);
		}
		POST(a, fi_fetch_atomic(a->ep, bench.local.data, 1,
					bench.local.desc, old,
					bench.local.desc, a->to, address,
					key, FI_UINT64, FI_SUM,
					&context));
		goes_on(&bench, true, true);
		POST(a, fi_compare_atomic(a->ep, bench.local.data, 1,
					  bench.local.desc, old,
					  bench.local.desc, old,
					  bench.local.desc, a->to, address,
					  key, FI_UINT64, FI_CSWAP,
					  &context));
		goes_on(&bench, true, true);
		CHECK(true, "%s", wrongs[i].name);
		teardown(&bench);
	}
}

static const struct ct_test tests[] = {
	{ "accesses", accesses, CT_BOTH },
	{ "atomics", atomics, CT_BOTH },
};

CT_MAIN(tests)
