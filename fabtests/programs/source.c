/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* The source of a message (FI_SOURCE) is the number that its peer has when the
 * message meets its receive, or FI_ADDR_NOTAVAIL (fi_cq(3), fi_av(3)). */
#include "check.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context, rx_context;
static uint64_t out, in;

struct bench {
	struct ct_peer a, b;
	unsigned char name_a[256], name_b[256];
};

/* b sends to a, whose vector is empty. */
static void setup(struct bench *bench)
{
	struct ct_spec spec = { .caps = FI_TAGGED | FI_SOURCE };

	ct_open_single(&bench->a, &spec);
	ct_open_single(&bench->b, &spec);
	bench->a.partner = &bench->b;
	bench->b.partner = &bench->a;
	ct_name(&bench->a.ep->fid, bench->name_a, sizeof(bench->name_a));
	ct_name(&bench->b.ep->fid, bench->name_b, sizeof(bench->name_b));
	bench->b.to = ct_insert(&bench->b, bench->name_a);
}

static void teardown(struct bench *bench)
{
	ct_close_peer(&bench->b);
	ct_close_peer(&bench->a);
}

static void post(struct bench *bench, uint64_t tag)
{
	POST(&bench->a, fi_trecv(bench->a.ep, &in, sizeof(in), NULL,
				 FI_ADDR_UNSPEC, tag, 0, &rx_context));
}

static void send(struct bench *bench, uint64_t tag)
{
	POST(&bench->b, fi_tsend(bench->b.ep, &out, sizeof(out), NULL,
				 bench->b.to, tag, &tx_context));
}

static fi_addr_t source(struct bench *bench)
{
	return ct_done(&bench->a, &bench->a.rx, &rx_context).src;
}

/* Leaves a message with tag 1 at a, which nobody has received. */
static void leave_one(struct bench *bench)
{
	post(bench, 2);
	send(bench, 1);
	send(bench, 2);
	source(bench);
	ct_done(&bench->b, &bench->b.tx, &tx_context);
}

static void inserted_later(void)
{
	struct bench bench;
	fi_addr_t number;

	setup(&bench);
	leave_one(&bench);
	number = ct_insert(&bench.a, bench.name_b);
	post(&bench, 1);
	CHECK(source(&bench) == number, "kept");
	post(&bench, 3);
	send(&bench, 3);
	CHECK(source(&bench) == number, "next");
	teardown(&bench);
}

static void removed(void)
{
	struct bench bench;
	fi_addr_t number;

	setup(&bench);
	number = ct_insert(&bench.a, bench.name_b);
	leave_one(&bench);
	OK(fi_av_remove(bench.a.av, &number, 1, 0));
	post(&bench, 1);
	CHECK(source(&bench) == FI_ADDR_NOTAVAIL, "kept");
	number = ct_insert(&bench.a, bench.name_b);
	post(&bench, 3);
	send(&bench, 3);
	CHECK(source(&bench) == number, "back");
	post(&bench, 4);
	OK(fi_av_remove(bench.a.av, &number, 1, 0));
	send(&bench, 4);
	CHECK(source(&bench) == FI_ADDR_NOTAVAIL, "next");
	teardown(&bench);
}

/* Another peer gets the number. */
static void reused(void)
{
	struct bench bench;
	struct ct_peer other;
	unsigned char name[256];
	fi_addr_t number, again;

	setup(&bench);
	ct_open_single(&other, &bench.a.spec);
	ct_name(&other.ep->fid, name, sizeof(name));
	number = ct_insert(&bench.a, bench.name_b);
	leave_one(&bench);
	OK(fi_av_remove(bench.a.av, &number, 1, 0));
	again = ct_insert(&bench.a, name);
	post(&bench, 1);
	CHECK(source(&bench) == FI_ADDR_NOTAVAIL, "kept");
	post(&bench, 3);
	send(&bench, 3);
	CHECK(source(&bench) == FI_ADDR_NOTAVAIL, "next");
	number = ct_insert(&bench.a, bench.name_b);
	REQUIRE(number != again);
	post(&bench, 4);
	send(&bench, 4);
	CHECK(source(&bench) == number, "back");
	ct_close_peer(&other);
	teardown(&bench);
}

static const struct ct_test tests[] = {
	{ "inserted-later", inserted_later, CT_RDM },
	{ "removed", removed, CT_RDM },
	{ "reused", reused, CT_RDM },
};

CT_MAIN(tests)
