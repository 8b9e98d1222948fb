/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* A peer that closes its endpoint in good order: receives that name it stay
 * posted, and so do those that are posted afterwards. Another endpoint at its
 * address fills them, and fi_cancel(3) takes them back. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "peer.h"
#include "transfer.h"
#include "wait.h"

enum { BEFORE = 6, AFTER = 3, ALL = BEFORE + AFTER };

static struct fi_context2 tx_context, rx_context[ALL];
static char space[64];

struct way {
	bool a_sends, b_sends;		/* before a leaves */
	bool shared;			/* b receives through a shared context */
};

static struct ct_spec plain(void)
{
	return (struct ct_spec) { .caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV };
}

static void post(struct ct_peer *b, int i)
{
	struct ct_message m = {
		.tagged = i % 2, .tag = (uint64_t)i, .buf = space,
		.len = sizeof(space), .from = b->to, .context = &rx_context[i],
	};

	POST(b, ct_recv(b, CT_RECV, &m));
}

static void send_to(struct ct_peer *from, struct ct_peer *to, int i)
{
	struct ct_message m = {
		.tagged = i % 2, .tag = (uint64_t)i, .buf = space, .len = 8,
		.context = &tx_context,
	};
	struct ct_completion done;

	POST(from, ct_send(from, CT_SEND, &m));
	done = ct_next(to, &to->rx);
	REQUIRE(!done.err && done.context == &rx_context[i]);
	ct_done(from, &from->tx, &tx_context);
}

/* A message with a receive of any source, so that the two are connected. */
static void pass(struct ct_peer *from, struct ct_peer *to)
{
	static struct fi_context2 any;
	struct ct_message m = {
		.tagged = true, .tag = 1000, .buf = space, .len = 8,
		.from = FI_ADDR_UNSPEC, .context = &any,
	};

	POST(to, ct_recv(to, CT_RECV, &m));
	m.context = &tx_context;
	POST(from, ct_send(from, CT_SEND, &m));
	ct_done(to, &to->rx, &any);
	ct_done(from, &from->tx, &tx_context);
}

static void leaves(struct way way)
{
	struct ct_spec spec = plain(), shared = plain();
	struct ct_peer a, b;
	unsigned char name[CT_NAME], other[256];
	struct fi_info *again;
	size_t length = sizeof(name);
	int ret;

	shared.srx = way.shared;
	ct_open_single(&a, &spec);
	ct_open_single(&b, &shared);
	a.partner = &b;
	b.partner = &a;
	OK(fi_getname(&a.ep->fid, name, &length));
	ct_name(&b.ep->fid, other, sizeof(other));
	b.to = ct_insert(&b, name);
	a.to = ct_insert(&a, other);
	if (way.a_sends)
		pass(&a, &b);
	if (way.b_sends)
		pass(&b, &a);
	for (int i = 0; i < BEFORE; i++)
		post(&b, i);
	REQUIRE(ct_stays_empty(&b, &b.rx));
	OK(fi_close(&a.ep->fid));
	a.ep = NULL;
	for (int i = 0; i < 5; i++)
		REQUIRE(ct_stays_empty(&b, &b.rx));
	for (int i = BEFORE; i < ALL; i++)
		post(&b, i);
	for (int i = 0; i < 5; i++)
		REQUIRE(ct_stays_empty(&b, &b.rx));

	/* It comes back, unless somebody else got its address meanwhile. */
	again = fi_dupinfo(a.info);
	REQUIRE(again);
	free(again->src_addr);
	again->src_addr = malloc(length);
	REQUIRE(again->src_addr);
	memcpy(again->src_addr, name, length);
	again->src_addrlen = length;
	ret = fi_endpoint(a.domain, again, &a.ep, NULL);
	if (!ret) {
		OK(fi_ep_bind(a.ep, &a.av->fid, 0));
		OK(fi_ep_bind(a.ep, &a.tx.fid->fid, FI_TRANSMIT));
		OK(fi_ep_bind(a.ep, &a.rx.fid->fid, FI_RECV));
		ret = fi_enable(a.ep);
	}
	fi_freeinfo(again);
	if (!ret) {
		for (int i = 0; i < 3; i++)
			send_to(&a, &b, i);
		send_to(&a, &b, BEFORE + 1);
		/* And leaves again. */
		OK(fi_close(&a.ep->fid));
		a.ep = NULL;
		REQUIRE(ct_stays_empty(&b, &b.rx));
	}
	for (int i = 3; i < BEFORE; i++) {
		struct fid *at = way.shared ? &b.srx->fid : &b.ep->fid;
		struct ct_completion error;

		OK(fi_cancel(at, &rx_context[i]));
		error = ct_error(&b, &b.rx);
		REQUIRE(error.err == FI_ECANCELED && error.context == &rx_context[i]);
	}
	REQUIRE(ct_stays_empty(&b, &b.rx));
	a.partner = b.partner = NULL;
	ct_close_peer(&b);
	ct_close_peer(&a);
}

static void after_both(void)
{
	leaves((struct way) { .a_sends = true, .b_sends = true });
}

static void after_its_message(void)
{
	leaves((struct way) { .a_sends = true });
}

static void after_a_message_to_it(void)
{
	leaves((struct way) { .b_sends = true });
}

static void unmet(void)
{
	leaves((struct way) { 0 });
}

static void shared(void)
{
	leaves((struct way) { .a_sends = true, .b_sends = true, .shared = true });
}

static const struct ct_test tests[] = {
	{ "after-both", after_both, CT_RDM | CT_SLOW },
	{ "after-its-message", after_its_message, CT_RDM | CT_SLOW },
	{ "after-a-message-to-it", after_a_message_to_it, CT_RDM | CT_SLOW },
	{ "unmet", unmet, CT_RDM | CT_SLOW },
	{ "shared", shared, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
