/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* The end of connections: fi_shutdown(3), closed endpoints, and what was on the way. */
#include "bench.h"
#include "check.h"
#include "connect.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

void shutdown_event(void)
{
	struct ct_event event;
	struct bench bench;

	setup(&bench);
	connect_pair(&bench);
	exchange(&bench.pair);
	OK(fi_shutdown(bench.pair.a.ep, 0));
	event = ct_event_of(&bench.pair.b, FI_SHUTDOWN);
	REQUIRE(event.fid == &bench.pair.b.ep->fid);
	CHECK(ct_no_event(&bench.pair.b), "once");
	ct_close_pair(&bench.pair);
}

/* Closing an endpoint is a shutdown to the other side. */
void close_event(void)
{
	struct bench bench;

	setup(&bench);
	connect_pair(&bench);
	OK(fi_close(&bench.pair.b.ep->fid));
	bench.pair.b.ep = NULL;
	ct_event_of(&bench.pair.a, FI_SHUTDOWN);
	ct_close_pair(&bench.pair);
}

/* Messages sent before the shutdown arrive before the event matters. */
void shutdown_delivers(void)
{
	enum { SIZE = 50000 };
	struct ct_memory out, in;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;

	setup(&bench);
	connect_pair(&bench);
	ct_memory_open(a, &out, SIZE, FI_SEND);
	ct_memory_open(b, &in, SIZE, FI_RECV);
	ct_fill(out.data, SIZE, 1);
	POST(b, fi_recv(b->ep, in.data, SIZE, in.desc, 0, &rx_context));
	POST(a, fi_send(a->ep, out.data, SIZE, out.desc, 0, &tx_context));
	ct_done(a, &a->tx, &tx_context);
	OK(fi_shutdown(a->ep, 0));
	ct_done(b, &b->rx, &rx_context);
	REQUIRE(ct_holds(in.data, SIZE, 1));
	ct_event_of(b, FI_SHUTDOWN);
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_close_pair(&bench.pair);
}

/* After the end nothing can be sent, and posted receives are cancelled. */
void after_shutdown(void)
{
	struct ct_completion done;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	ssize_t ret;

	setup(&bench);
	connect_pair(&bench);
	POST(b, fi_recv(b->ep, NULL, 0, NULL, 0, &rx_context));
	OK(fi_close(&a->ep->fid));
	a->ep = NULL;
	ct_event_of(b, FI_SHUTDOWN);
	done = ct_error(b, &b->rx);
	CHECK(done.context == &rx_context, "receive-returned");
	ret = CT_POST(b, fi_send(b->ep, NULL, 0, NULL, 0, &tx_context));
	if (!ret)
		CHECK(ct_error(b, &b->tx).err > 0, "send-fails");
	else
		CHECK(ret < 0, "send-fails");
	ret = CT_POST(b, fi_recv(b->ep, NULL, 0, NULL, 0, &rx_context));
	if (!ret)
		CHECK(ct_error(b, &b->rx).err > 0, "receive-fails");
	else
		CHECK(ret < 0, "receive-fails");
	ct_close_pair(&bench.pair);
}

/* Messages that arrived before the end can be received after it, and nothing
 * else. */
void received_after_shutdown(void)
{
	struct ct_completion done;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;

	setup(&bench);
	connect_pair(&bench);
	POST(a, fi_send(a->ep, NULL, 0, NULL, 0, &tx_context));
	ct_done(a, &a->tx, &tx_context);
	OK(fi_close(&a->ep->fid));
	a->ep = NULL;
	ct_event_of(b, FI_SHUTDOWN);
	POST(b, fi_recv(b->ep, NULL, 0, NULL, 0, &rx_context));
	ct_done(b, &b->rx, &rx_context);
	POST(b, fi_recv(b->ep, NULL, 0, NULL, 0, &rx_context));
	done = ct_error(b, &b->rx);
	CHECK(done.context == &rx_context && done.err == FI_ECANCELED,
	      "receive-returned");
	ct_close_pair(&bench.pair);
}

/*
 * Messages of several endpoints that have come before their connections end are received
 * before any receive is cancelled: the reader of the queue may stop at the first error.
 */
void messages_before_ends(void)
{
	enum { COUNT = 4 };
	static struct fi_context2 sent[COUNT], received[COUNT], left[COUNT];
	static unsigned char place[COUNT][8];
	struct ct_peer *a, *b;
	struct fid_ep *ends[2][COUNT];
	struct bench bench;

	setup(&bench);
	a = &bench.pair.a;
	b = &bench.pair.b;
	for (int i = 0; i < COUNT; i++) {
		connect_pair(&bench);
		ends[0][i] = a->ep;
		ends[1][i] = b->ep;
		POST(a, fi_recv(a->ep, place[i], 8, NULL, 0, &received[i]));
		POST(a, fi_recv(a->ep, place[i], 8, NULL, 0, &left[i]));
	}
	a->ep = b->ep = NULL;
	/* Nothing is received before all connections have ended. */
	b->partner = NULL;
	for (int i = 0; i < COUNT; i++) {
		POST(b, fi_send(ends[1][i], "message", 8, NULL, 0, &sent[i]));
		ct_done(b, &b->tx, &sent[i]);
	}
	for (int i = 0; i < COUNT; i++)
		OK(fi_close(&ends[1][i]->fid));
	for (int i = 0; i < COUNT; i++) {
		struct ct_completion done = ct_next(a, &a->rx);

		REQUIRE(!done.err);
	}
	for (int i = 0; i < COUNT; i++) {
		struct ct_completion end = ct_next(a, &a->rx);

		REQUIRE(end.err == FI_ECANCELED);
	}
	for (int i = 0; i < COUNT; i++)
		OK(fi_close(&ends[0][i]->fid));
	ct_close_pair(&bench.pair);
}
