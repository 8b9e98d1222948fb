/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A peer's host becomes unreachable without any message, not even the end of
 * the connection. Operations end with an error all the same, and communication
 * continues when the host is back.
 */
#include <stdlib.h>

#include "check.h"
#include "network.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context, rx_context, unanswered;

static bool rdm(void)
{
	return ct_opt.type == FI_EP_RDM;
}

/* An operation that ends when the peer receives. */
static void ask(struct ct_peer *peer)
{
	struct ct_message message = {
		.flags = FI_COMPLETION | FI_DELIVERY_COMPLETE,
		.context = &unanswered,
	};

	POST(peer, ct_send(peer, CT_SENDMSG, &message));
}

static void receive(struct ct_peer *peer)
{
	POST(peer, fi_recv(peer->ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
			   &rx_context));
}

static void open_pair(struct ct_pair *pair)
{
	struct ct_spec spec = {
		.caps = FI_MSG, .tx_op_flags = FI_TRANSMIT_COMPLETE,
	};

	/* So that the test need not be patient. */
	REQUIRE(!setenv("FI_TCP_CONNECT_TIMEOUT", "2000", 1));
	/* Shared memory does not depend on the network. */
	REQUIRE(!setenv("FI_TCP_LOCAL", "off", 1));
	ct_own_network();
	ct_open_pair(pair, &spec);
	ct_warm_up(pair);
}

/* The operation ends, and the host returns. */
static void ends(struct ct_pair *pair, bool was_delivered)
{
	struct ct_peer *a = &pair->a, *b = &pair->b;
	struct ct_completion done = ct_error(a, &a->tx);

	CHECK(done.context == &unanswered && done.err == FI_ETIMEDOUT,
	      "completion");
	ct_set_network(true);
	if (!rdm()) {
		ct_event_of(a, FI_SHUTDOWN);
	} else {
		if (was_delivered) {
			receive(b);
			ct_done(b, &b->rx, &rx_context);
		}
		receive(b);
		POST(a, fi_send(a->ep, NULL, 0, NULL, a->to, &tx_context));
		ct_done(a, &a->tx, &tx_context);
		ct_done(b, &b->rx, &rx_context);
	}
	ct_close_pair(pair);
}

/* Data in flight is not acknowledged. */
static void in_flight(void)
{
	struct ct_pair pair;

	open_pair(&pair);
	ct_set_network(false);
	ask(&pair.a);
	ends(&pair, false);
}

/* Everything was acknowledged, and the answer never arrives. */
static void awaited(void)
{
	struct ct_pair pair;

	open_pair(&pair);
	ask(&pair.a);
	REQUIRE(ct_stays_empty(&pair.a, &pair.a.tx));
	ct_set_network(false);
	ends(&pair, true);
}

/* A host whose process only does not read is not considered unreachable. */
static void busy(void)
{
	enum { LEN = 64 << 20 };
	struct ct_message message = {
		.len = LEN, .flags = FI_COMPLETION | FI_DELIVERY_COMPLETE,
		.context = &unanswered,
	};
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;
	char *out = calloc(1, LEN), *in = malloc(LEN);
	double until;

	REQUIRE(out && in);
	open_pair(&pair);
	a->partner = NULL;
	message.buf = out;
	POST(a, ct_send(a, CT_SENDMSG, &message));
	for (until = ct_now() + 4; ct_now() < until;)
		REQUIRE(ct_stays_empty(a, &a->tx));
	a->partner = b;
	POST(b, fi_recv(b->ep, in, LEN, NULL, FI_ADDR_UNSPEC, &rx_context));
	ct_done(b, &b->rx, &rx_context);
	ct_done(a, &a->tx, &unanswered);
	free(out);
	free(in);
	ct_close_pair(&pair);
}

static const struct ct_test tests[] = {
	{ "in-flight", in_flight, CT_BOTH },
	{ "awaited", awaited, CT_BOTH },
	{ "busy", busy, CT_BOTH },
};

CT_MAIN(tests)
