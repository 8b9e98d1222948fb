/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Shared receive contexts: several endpoints receive into one queue. */
#include <string.h>

#include "check.h"
#include "connect.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define SENDERS 3

static struct fi_context2 tx_context[64], rx_context[64];

/* Side b of each pair has an endpoint of its own over one shared context. */
struct bench {
	struct ct_peer hub;		/* domain, queues and context, no endpoint */
	struct ct_peer sender[SENDERS];
	struct ct_peer receiver[SENDERS];
	struct fid_pep *pep;
};

static void borrow(struct ct_peer *peer, struct ct_peer *hub)
{
	*peer = *hub;
	peer->ep = NULL;
	peer->owns_domain = peer->owns_fabric = false;
}

static void setup(struct bench *bench, uint64_t caps)
{
	struct ct_spec spec = { .caps = caps, .srx = true };
	struct ct_spec plain = { .caps = caps };
	struct ct_peer *hub = &bench->hub;
	unsigned char name[CT_NAME];

	memset(bench, 0, sizeof(*bench));
	ct_open_domain(hub, &spec, ct_getinfo(&spec), NULL, NULL);
	if (ct_opt.type == FI_EP_MSG) {
		bench->pep = ct_listen(hub);
		ct_name(&bench->pep->fid, name, sizeof(name));
	}
	for (int i = 0; i < SENDERS; i++) {
		struct ct_peer *from = &bench->sender[i];
		struct ct_peer *to = &bench->receiver[i];

		ct_open_domain(from, &plain, ct_getinfo(&plain), NULL, NULL);
		from->partner = hub;
		hub->partner = from;
		ct_open_ep(from, from->info);
		if (ct_opt.type == FI_EP_MSG) {
			struct ct_event request;

			OK(fi_connect(from->ep, name, NULL, 0));
			ct_wait_request(hub, &request);
			borrow(to, hub);
			ct_open_ep(to, request.info);
			hub->ep = to->ep;
			OK(fi_accept(to->ep, NULL, 0));
			fi_freeinfo(request.info);
			ct_wait_connected(from);
			ct_wait_connected(hub);
			hub->ep = NULL;
		} else {
			unsigned char own[256];

			borrow(to, hub);
			ct_open_ep(to, hub->info);
			ct_name(&to->ep->fid, own, sizeof(own));
			from->to = ct_insert(from, own);
		}
	}
}

static void teardown(struct bench *bench)
{
	for (int i = 0; i < SENDERS; i++) {
		OK(fi_close(&bench->receiver[i].ep->fid));
		ct_close_peer(&bench->sender[i]);
	}
	if (bench->pep)
		OK(fi_close(&bench->pep->fid));
	ct_close_peer(&bench->hub);
}

static void post(struct bench *bench, int i, struct ct_memory *in, bool tagged)
{
	struct ct_message m = {
		.tagged = tagged, .tag = 7, .from = FI_ADDR_UNSPEC,
		.buf = in->data + i * 100, .len = 100, .desc = in->desc,
		.context = &rx_context[i],
	};

	POST(&bench->hub, ct_recv(&bench->hub, CT_RECV, &m));
}

/* Buffers posted once serve all senders in the order of arrival. */
static void serve(uint64_t caps, bool tagged, bool expected)
{
	enum { COUNT = 30 };
	struct ct_memory in, out[SENDERS];
	struct bench bench;
	struct ct_peer *hub = &bench.hub;
	bool seen[COUNT] = { false };
	int next[SENDERS] = { 0 };

	setup(&bench, caps);
	ct_memory_open(hub, &in, COUNT * 100, FI_RECV);
	for (int i = 0; expected && i < COUNT; i++)
		post(&bench, i, &in, tagged);
	for (int i = 0; i < SENDERS; i++)
		ct_memory_open(&bench.sender[i], &out[i], COUNT * 100, FI_SEND);
	for (int i = 0; i < COUNT; i++) {
		int who = i % SENDERS;
		struct ct_peer *from = &bench.sender[who];
		struct ct_message m = {
			.tagged = tagged, .tag = 7, .len = 100,
			.buf = out[who].data + i * 100, .desc = out[who].desc,
			.context = &tx_context[i],
		};

		hub->partner = from;
		ct_fill(m.buf, 100, (unsigned)i);
		POST(from, ct_send(from, CT_SEND, &m));
	}
	for (int i = 0; !expected && i < COUNT; i++)
		post(&bench, i, &in, tagged);
	for (int i = 0; i < COUNT; i++) {
		struct ct_completion done;
		int who = -1;
		long slot;

		hub->partner = &bench.sender[i % SENDERS];
		done = ct_next(hub, &hub->rx);
		REQUIRE(!done.err && done.len == 100);
		slot = (struct fi_context2 *)done.context - rx_context;
		REQUIRE(slot >= 0 && slot < COUNT && !seen[slot]);
		seen[slot] = true;
		/* In order from each sender, in whatever order among them. */
		for (int j = 0; j < SENDERS; j++)
			if (ct_holds(in.data + slot * 100, 100,
				     (unsigned)(j + next[j] * SENDERS)))
				who = j;
		REQUIRE(who >= 0);
		next[who]++;
	}
	for (int i = 0; i < COUNT; i++)
		ct_done(&bench.sender[i % SENDERS],
			&bench.sender[i % SENDERS].tx, &tx_context[i]);
	ct_memory_close(&in);
	for (int i = 0; i < SENDERS; i++)
		ct_memory_close(&out[i]);
	teardown(&bench);
}

static void expected(void)
{
	serve(FI_MSG, false, true);
}

static void unexpected(void)
{
	serve(FI_MSG, false, false);
}

static void tagged(void)
{
	serve(FI_TAGGED, true, true);
}

static void tagged_unexpected(void)
{
	serve(FI_TAGGED, true, false);
}

/* One endpoint less: the buffers serve the others. */
static void one_leaves(void)
{
	struct ct_memory in;
	struct bench bench;
	struct ct_peer *hub = &bench.hub, *from = &bench.sender[1];

	setup(&bench, FI_MSG);
	ct_memory_open(hub, &in, 200, FI_RECV);
	post(&bench, 0, &in, false);
	OK(fi_close(&bench.receiver[0].ep->fid));
	hub->partner = from;
	POST(from, fi_send(from->ep, NULL, 0, NULL, from->to, &tx_context[0]));
	ct_done(hub, &hub->rx, &rx_context[0]);
	ct_done(from, &from->tx, &tx_context[0]);
	borrow(&bench.receiver[0], hub);
	ct_open_ep(&bench.receiver[0], hub->info);
	ct_memory_close(&in);
	teardown(&bench);
}

static void one_leaves_msg(void)
{
	struct ct_memory in;
	struct bench bench;
	struct ct_peer *hub = &bench.hub, *from = &bench.sender[1];

	setup(&bench, FI_MSG);
	ct_memory_open(hub, &in, 200, FI_RECV);
	post(&bench, 0, &in, false);
	ct_close_peer(&bench.sender[0]);
	hub->partner = from;
	ct_event_of(hub, FI_SHUTDOWN);
	CHECK(ct_stays_empty(hub, &hub->rx), "buffer-stays");
	POST(from, fi_send(from->ep, NULL, 0, NULL, from->to, &tx_context[0]));
	ct_done(hub, &hub->rx, &rx_context[0]);
	ct_done(from, &from->tx, &tx_context[0]);
	ct_memory_close(&in);
	ct_open_single(&bench.sender[0], &from->spec);
	teardown(&bench);
}

static void cancel(void)
{
	struct ct_completion err;
	struct ct_memory in;
	struct bench bench;

	setup(&bench, FI_MSG);
	ct_memory_open(&bench.hub, &in, 300, FI_RECV);
	for (int i = 0; i < 3; i++)
		post(&bench, i, &in, false);
	OK(fi_cancel(&bench.hub.srx->fid, &rx_context[1]));
	err = ct_error(&bench.hub, &bench.hub.rx);
	REQUIRE(err.err == FI_ECANCELED && err.context == &rx_context[1]);
	ct_memory_close(&in);
	teardown(&bench);
}

static void busy(void)
{
	struct bench bench;

	setup(&bench, FI_MSG);
	EXPECT(fi_close(&bench.hub.srx->fid), -FI_EBUSY);
	teardown(&bench);
}

static const struct ct_test tests[] = {
	{ "expected", expected, CT_BOTH },
	{ "unexpected", unexpected, CT_BOTH },
	{ "tagged", tagged, CT_BOTH },
	{ "tagged-unexpected", tagged_unexpected, CT_BOTH },
	{ "one-leaves", one_leaves, CT_RDM },
	{ "one-leaves", one_leaves_msg, CT_MSG },
	{ "cancel", cancel, CT_BOTH },
	{ "busy", busy, CT_BOTH },
};

CT_MAIN(tests)
