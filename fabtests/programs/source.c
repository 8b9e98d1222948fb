/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* The source of a message (FI_SOURCE) is the index of its peer at the time
 * when the message is matched with its receive, or FI_ADDR_NOTAVAIL (fi_cq(3),
 * fi_av(3)): for each way to receive, and if another process changes the
 * vector. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "transfer.h"
#include "wait.h"

enum { ROOM = 64 << 10 };

static struct fi_context2 tx_context, rx_context;
static uint64_t out;
static unsigned char in[ROOM];

/* How a receives. */
enum way {
	PLAIN,
	SHARED,			/* from a shared context */
	MULTI,			/* into a buffer for many */
	PEEK,			/* found with FI_PEEK */
	CLAIM,			/* and set aside with FI_CLAIM */
};

struct bench {
	enum way way;
	bool is_posted;		/* the buffer for many */
	struct ct_peer a, b;
	unsigned char name_a[256], name_b[256];
};

/* b sends to a, whose vector is empty, or this one of another process. */
static void setup_at(struct bench *bench, enum way way, const char *vector)
{
	struct ct_spec spec = { .caps = FI_TAGGED | FI_SOURCE };
	struct ct_spec receiver;

	memset(bench, 0, sizeof(*bench));
	bench->way = way;
	if (way == MULTI)
		spec.caps = FI_MSG | FI_MULTI_RECV | FI_SOURCE;
	receiver = spec;
	receiver.srx = way == SHARED;
	receiver.av_name = vector;
	receiver.av_flags = vector ? FI_READ : 0;
	ct_open_single(&bench->a, &receiver);
	ct_open_single(&bench->b, &spec);
	bench->a.partner = &bench->b;
	bench->b.partner = &bench->a;
	ct_name(&bench->a.ep->fid, bench->name_a, sizeof(bench->name_a));
	ct_name(&bench->b.ep->fid, bench->name_b, sizeof(bench->name_b));
	bench->b.to = ct_insert(&bench->b, bench->name_a);
}

static void setup(struct bench *bench, enum way way)
{
	setup_at(bench, way, NULL);
}

static void teardown(struct bench *bench)
{
	ct_close_peer(&bench->b);
	ct_close_peer(&bench->a);
}

static void receive(struct bench *bench, uint64_t tag, uint64_t flags)
{
	struct ct_message m = {
		.tagged = bench->way != MULTI, .tag = tag, .buf = in, .len = sizeof(in),
		.from = FI_ADDR_UNSPEC, .flags = flags, .context = &rx_context,
	};

	POST(&bench->a, ct_recv(&bench->a, CT_RECVMSG, &m));
}

/* Posts the receive if it can precede its message. */
static void post(struct bench *bench, uint64_t tag)
{
	if (bench->way == MULTI) {
		if (!bench->is_posted)
			receive(bench, 0, FI_MULTI_RECV);
		bench->is_posted = true;
	} else if (bench->way != PEEK && bench->way != CLAIM) {
		receive(bench, tag, 0);
	}
}

static void send(struct bench *bench, uint64_t tag)
{
	struct ct_message m = {
		.tagged = bench->way != MULTI, .tag = tag, .buf = &out,
		.len = sizeof(out), .context = &tx_context,
	};

	POST(&bench->b, ct_send(&bench->b, CT_SEND, &m));
	ct_done(&bench->b, &bench->b.tx, &tx_context);
}

/* Peeks until the message has arrived. */
static fi_addr_t peek(struct bench *bench, uint64_t tag, uint64_t flags)
{
	double until = ct_now() + ct_patience();
	struct ct_completion seen;

	do {
		REQUIRE(ct_now() < until);
		receive(bench, tag, flags | FI_PEEK);
		seen = ct_next(&bench->a, &bench->a.rx);
	} while (seen.err == FI_ENOMSG);
	REQUIRE(!seen.err && seen.context == &rx_context);
	return seen.src;
}

/* Returns the source of a message, whose receive was posted earlier if
 * possible. */
static fi_addr_t source(struct bench *bench, uint64_t tag)
{
	uint64_t flags = bench->way == CLAIM ? FI_CLAIM : 0;
	fi_addr_t seen, src;

	if (bench->way != PEEK && bench->way != CLAIM)
		return ct_done(&bench->a, &bench->a.rx, &rx_context).src;
	seen = peek(bench, tag, flags);
	receive(bench, tag, flags);
	src = ct_done(&bench->a, &bench->a.rx, &rx_context).src;
	REQUIRE(src == seen);
	return src;
}

/* Leaves an unreceived message with tag 1 at a. */
static void leave_one(struct bench *bench)
{
	send(bench, 1);
	if (bench->way == MULTI) {
		/* A receive would take it. */
		REQUIRE(ct_stays_empty(&bench->a, &bench->a.rx));
		return;
	}
	post(bench, 2);
	send(bench, 2);
	source(bench, 2);
}

static void inserted_later(enum way way)
{
	struct bench bench;
	fi_addr_t number;

	setup(&bench, way);
	leave_one(&bench);
	number = ct_insert(&bench.a, bench.name_b);
	post(&bench, 1);
	CHECK(source(&bench, 1) == number, "kept");
	post(&bench, 3);
	send(&bench, 3);
	CHECK(source(&bench, 3) == number, "next");
	teardown(&bench);
}

static void removed(enum way way)
{
	struct bench bench;
	fi_addr_t number;

	setup(&bench, way);
	number = ct_insert(&bench.a, bench.name_b);
	leave_one(&bench);
	OK(fi_av_remove(bench.a.av, &number, 1, 0));
	post(&bench, 1);
	CHECK(source(&bench, 1) == FI_ADDR_NOTAVAIL, "removed/kept");
	number = ct_insert(&bench.a, bench.name_b);
	post(&bench, 3);
	send(&bench, 3);
	CHECK(source(&bench, 3) == number, "removed/back");
	post(&bench, 4);
	OK(fi_av_remove(bench.a.av, &number, 1, 0));
	send(&bench, 4);
	CHECK(source(&bench, 4) == FI_ADDR_NOTAVAIL, "removed/next");
	teardown(&bench);
}

/* Another peer gets the number. */
static void reused(enum way way)
{
	struct bench bench;
	struct ct_peer other;
	unsigned char name[CT_NAME];
	fi_addr_t number, again;

	setup(&bench, way);
	ct_open_single(&other, &bench.b.spec);
	ct_name(&other.ep->fid, name, sizeof(name));
	number = ct_insert(&bench.a, bench.name_b);
	leave_one(&bench);
	OK(fi_av_remove(bench.a.av, &number, 1, 0));
	again = ct_insert(&bench.a, name);
	post(&bench, 1);
	CHECK(source(&bench, 1) == FI_ADDR_NOTAVAIL, "reused/kept");
	post(&bench, 3);
	send(&bench, 3);
	CHECK(source(&bench, 3) == FI_ADDR_NOTAVAIL, "reused/next");
	number = ct_insert(&bench.a, bench.name_b);
	REQUIRE(number != again);
	post(&bench, 4);
	send(&bench, 4);
	CHECK(source(&bench, 4) == number, "reused/back");
	ct_close_peer(&other);
	teardown(&bench);
}

static void plain_inserted_later(void)
{
	inserted_later(PLAIN);
}

static void plain_removed(void)
{
	removed(PLAIN);
}

static void plain_reused(void)
{
	reused(PLAIN);
}

static void all_of(enum way way)
{
	inserted_later(way);
	removed(way);
	reused(way);
}

static void shared(void)
{
	all_of(SHARED);
}

static void multi(void)
{
	all_of(MULTI);
}

static void peeked(void)
{
	all_of(PEEK);
}

static void claimed(void)
{
	all_of(CLAIM);
}

/* The order for the writer of a vector. */
struct order {
	enum { INSERT, REMOVE, LEAVE } what;
	unsigned char name[CT_NAME];
	fi_addr_t number;
};

static char vector[64];

/* The writer, in a process of its own. */
static void writer(int fd)
{
	struct ct_spec spec = { .caps = FI_TAGGED, .av_name = vector };
	struct ct_peer peer;
	struct order order;

	ct_open_single(&peer, &spec);
	order.number = 0;
	ct_tell(fd, &order.number, sizeof(order.number));
	for (;;) {
		ct_hear(fd, &order, sizeof(order));
		if (order.what == LEAVE)
			break;
		if (order.what == INSERT)
			order.number = ct_insert(&peer, order.name);
		else
			OK(fi_av_remove(peer.av, &order.number, 1, 0));
		ct_tell(fd, &order.number, sizeof(order.number));
	}
	ct_close_peer(&peer);
}

static fi_addr_t have(struct ct_child *child, int what, const void *name, fi_addr_t number)
{
	struct order order = { .number = number };

	order.what = what;
	if (name)
		memcpy(order.name, name, sizeof(order.name));
	ct_tell(child->fd, &order, sizeof(order));
	ct_hear(child->fd, &number, sizeof(number));
	return number;
}

static bool shares_no_vectors(void)
{
	struct ct_spec spec = { .caps = FI_TAGGED };
	struct fi_info *info = ct_getinfo(&spec);
	bool lacks = !strcmp(info->fabric_attr->prov_name, "lnx");

	fi_freeinfo(info);
	return lacks;
}

/* Another process changes the vector. */
static void named(void)
{
	struct order leave = { .what = LEAVE };
	struct bench bench;
	struct ct_child child;
	fi_addr_t number;

	if (shares_no_vectors())
		SKIP("processes share no address vectors");
	snprintf(vector, sizeof(vector), "ct-source-%d", (int)getpid());
	child = ct_spawn(writer);
	ct_begin(&child);
	ct_hear(child.fd, &number, sizeof(number));
	setup_at(&bench, PLAIN, vector);
	leave_one(&bench);
	number = have(&child, INSERT, bench.name_b, 0);
	post(&bench, 1);
	CHECK(source(&bench, 1) == number, "inserted/kept");
	post(&bench, 3);
	send(&bench, 3);
	CHECK(source(&bench, 3) == number, "inserted/next");
	leave_one(&bench);
	have(&child, REMOVE, NULL, number);
	post(&bench, 1);
	CHECK(source(&bench, 1) == FI_ADDR_NOTAVAIL, "removed/kept");
	post(&bench, 3);
	send(&bench, 3);
	CHECK(source(&bench, 3) == FI_ADDR_NOTAVAIL, "removed/next");
	/* Another peer gets the number. */
	number = have(&child, INSERT, bench.name_a, 0);
	leave_one(&bench);
	number = have(&child, INSERT, bench.name_b, 0);
	post(&bench, 1);
	CHECK(source(&bench, 1) == number, "again/kept");
	ct_tell(child.fd, &leave, sizeof(leave));
	ct_join(&child);
	teardown(&bench);
}

static const struct ct_test tests[] = {
	{ "inserted-later", plain_inserted_later, CT_RDM },
	{ "removed", plain_removed, CT_RDM },
	{ "reused", plain_reused, CT_RDM },
	{ "shared-context", shared, CT_RDM },
	{ "multi-receive", multi, CT_RDM },
	{ "peek", peeked, CT_RDM },
	{ "claim", claimed, CT_RDM },
	{ "named", named, CT_RDM },
};

CT_MAIN(tests)
