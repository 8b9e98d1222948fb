/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The default behaviour of Sandia OpenSHMEM: each process has one endpoint,
 * which is enabled with a queue of selective completions, and then bound to
 * its counters. It puts, gets and updates memory of the other process, and
 * waits for its own operations with the counters only.
 */
#include <string.h>

#include <rdma/fi_atomic.h>

#include "check.h"
#include "child.h"
#include "memory.h"
#include "pattern.h"
#include "wait.h"

#define BLOCK (1 << 16)
#define SHORT 8

/* The symmetric heap of a process. */
struct heap {
	uint64_t arrived;		/* barriers reached by the other */
	uint64_t sum, ticket;
	unsigned char put[BLOCK], shorts[SHORT], get[BLOCK];
};

struct pe {
	struct ct_peer peer;
	struct ct_memory heap, local;
	struct heap *own;
	uint64_t addr, key;		/* of the other one's heap */
	uint64_t puts, gets, barriers;	/* that have been issued */
};

/* The data that the two exchange before they use the network. */
struct card {
	unsigned char name[CT_NAME];
	uint64_t addr, key;
};

static const struct ct_spec spec = {
	.caps = FI_RMA | FI_ATOMIC, .tx_op_flags = FI_DELIVERY_COMPLETE,
	.threading = FI_THREAD_SAFE, .selective_tx = true, .selective_rx = true,
};

static void bind_counter(struct ct_peer *peer, enum ct_counter which)
{
	struct fi_cntr_attr attr = {
		.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC,
	};

	OK(fi_cntr_open(peer->domain, &attr, &peer->cntr[which], NULL));
	OK(fi_ep_bind(peer->ep, &peer->cntr[which]->fid,
		      ct_counter_flags[which]));
}

static void start(struct pe *pe, int fd)
{
	struct ct_peer *peer = &pe->peer;
	struct card card = { 0 };

	memset(pe, 0, sizeof(*pe));
	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep(peer, peer->info);
	bind_counter(peer, CT_CNTR_WRITE);
	bind_counter(peer, CT_CNTR_READ);
	ct_memory_open(peer, &pe->heap, sizeof(struct heap),
		       FI_REMOTE_READ | FI_REMOTE_WRITE);
	ct_memory_open(peer, &pe->local, BLOCK, FI_READ | FI_WRITE);
	pe->own = (struct heap *)pe->heap.data;
	ct_name(&peer->ep->fid, card.name, sizeof(card.name));
	card.addr = pe->heap.addr;
	card.key = pe->heap.key;
	ct_tell(fd, &card, sizeof(card));
	ct_hear(fd, &card, sizeof(card));
	peer->to = ct_insert(peer, card.name);
	pe->addr = card.addr;
	pe->key = card.key;
}

static uint64_t there(struct pe *pe, size_t offset)
{
	return pe->addr + offset;
}

/* All puts are in place, and all gets are there. */
static void quiet(struct pe *pe)
{
	struct fid_cntr *puts = pe->peer.cntr[CT_CNTR_WRITE];
	struct fid_cntr *gets = pe->peer.cntr[CT_CNTR_READ];

	OK(fi_cntr_wait(puts, pe->puts, -1));
	OK(fi_cntr_wait(gets, pe->gets, -1));
	REQUIRE(fi_cntr_read(puts) == pe->puts && !fi_cntr_readerr(puts));
	REQUIRE(fi_cntr_read(gets) == pe->gets && !fi_cntr_readerr(gets));
}

static void add(struct pe *pe, size_t offset, uint64_t value)
{
	POST(&pe->peer, fi_inject_atomic(pe->peer.ep, &value, 1, pe->peer.to,
					 there(pe, offset), pe->key, FI_UINT64,
					 FI_SUM));
	pe->puts++;
}

static void barrier(struct pe *pe)
{
	double until = ct_now() + ct_patience();

	quiet(pe);
	add(pe, offsetof(struct heap, arrived), 1);
	pe->barriers++;
	while (__atomic_load_n(&pe->own->arrived, __ATOMIC_ACQUIRE) <
	       pe->barriers) {
		REQUIRE(ct_now() < until);
		fi_cntr_read(pe->peer.cntr[CT_CNTR_WRITE]);
	}
}

static void rounds(struct pe *pe, bool parent)
{
	struct ct_peer *peer = &pe->peer;
	int count = ct_times(200);

	for (int i = 0; i < count; i++) {
		unsigned mine = (unsigned)(2 * i + parent);
		unsigned theirs = (unsigned)(2 * i + !parent);
		size_t len = i % 3 ? 64 : BLOCK;
		uint64_t one = 1, ticket = ~0ULL;
		unsigned char few[SHORT];

		ct_fill(pe->own->get, BLOCK, mine + 1000);
		ct_fill(pe->local.data, len, mine);
		ct_fill(few, sizeof(few), mine + 500);
		barrier(pe);
		POST(peer, fi_write(peer->ep, pe->local.data, len,
				    pe->local.desc, peer->to,
				    there(pe, offsetof(struct heap, put)),
				    pe->key, NULL));
		pe->puts++;
		POST(peer, fi_inject_write(peer->ep, few, sizeof(few), peer->to,
					   there(pe, offsetof(struct heap,
							      shorts)),
					   pe->key));
		pe->puts++;
		add(pe, offsetof(struct heap, sum), (uint64_t)i);
		POST(peer, fi_fetch_atomic(peer->ep, &one, 1, NULL, &ticket,
					   NULL, peer->to,
					   there(pe, offsetof(struct heap,
							      ticket)),
					   pe->key, FI_UINT64, FI_SUM, NULL));
		pe->gets++;
		quiet(pe);
		REQUIRE(ticket == (uint64_t)i);
		POST(peer, fi_read(peer->ep, pe->local.data, len,
				   pe->local.desc, peer->to,
				   there(pe, offsetof(struct heap, get)),
				   pe->key, NULL));
		pe->gets++;
		quiet(pe);
		REQUIRE(ct_holds(pe->local.data, len, theirs + 1000));
		barrier(pe);
		REQUIRE(ct_holds(pe->own->put, len, theirs));
		REQUIRE(ct_holds(pe->own->shorts, SHORT, theirs + 500));
	}
	REQUIRE(pe->own->sum == (uint64_t)count * (count - 1) / 2);
	REQUIRE(pe->own->ticket == (uint64_t)count);
}

static void run(int fd, bool parent)
{
	char bye = 0;
	struct pe pe;

	start(&pe, fd);
	rounds(&pe, parent);
	quiet(&pe);
	ct_tell(fd, &bye, 1);
	ct_hear(fd, &bye, 1);
	REQUIRE(ct_stays_empty(&pe.peer, &pe.peer.tx));
	ct_memory_close(&pe.heap);
	ct_memory_close(&pe.local);
	ct_close_peer(&pe.peer);
}

static void run_child(int fd)
{
	run(fd, false);
}

static void one_endpoint(void)
{
	struct ct_child child = ct_spawn(run_child);

	fi_freeinfo(ct_getinfo(&spec));
	ct_begin(&child);
	run(child.fd, true);
	ct_join(&child);
	CHECK(true, "rounds");
}

static const struct ct_test tests[] = {
	{ "one-endpoint", one_endpoint, CT_RDM },
};

CT_MAIN(tests)
