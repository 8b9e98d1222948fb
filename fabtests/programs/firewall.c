/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A peer behind a firewall: nobody can connect to it, and it connects to others. A
 * process that has inserted its address with FI_FIREWALL_ADDR is told so by every
 * operation, until the peer has come by itself; FI_OPT_FIREWALL_ADDR tells whether this
 * node is behind one (FI_TCP_FIREWALL_ADDR).
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "peer.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context, rx_context;
static char space[64];

static struct ct_message message(bool tagged, void *context)
{
	return (struct ct_message) {
		.tagged = tagged, .tag = 5, .buf = space, .len = 8,
		.from = FI_ADDR_UNSPEC, .context = context,
	};
}

static void pass(struct ct_peer *from, struct ct_peer *to, bool tagged)
{
	struct ct_message in = message(tagged, &rx_context);
	struct ct_message out = message(tagged, &tx_context);

	POST(to, ct_recv(to, CT_RECV, &in));
	POST(from, ct_send(from, CT_SEND, &out));
	ct_done(to, &to->rx, &rx_context);
	ct_done(from, &from->tx, &tx_context);
}

/* Each form of a send to a peer that only calls by itself. */
static void refuse(struct ct_peer *from)
{
	for (int tagged = 0; tagged < 2; tagged++) {
		struct ct_message out = message(tagged, &tx_context);

		for (enum ct_send_form form = 0; form < CT_SEND_FORMS; form++) {
			if (ct_send_has_data(form))
				continue;
			EXPECT(ct_send(from, form, &out), -FI_EFIREWALLADDR);
		}
	}
	REQUIRE(ct_stays_empty(from, &from->tx));
}

static void inserted(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED };
	unsigned char inside[256], outside[256];
	struct ct_peer a, b;

	ct_open_single(&a, &spec);
	ct_open_single(&b, &spec);
	a.partner = &b;
	b.partner = &a;
	ct_name(&a.ep->fid, inside, sizeof(inside));
	ct_name(&b.ep->fid, outside, sizeof(outside));
	REQUIRE(fi_av_insert(b.av, inside, 1, &b.to, FI_FIREWALL_ADDR, NULL) == 1);
	refuse(&b);
	a.to = ct_insert(&a, outside);
	for (int tagged = 0; tagged < 2; tagged++) {
		pass(&a, &b, tagged);
		pass(&b, &a, tagged);
	}
	/* Without the flag it is an address like any other. */
	OK(fi_av_remove(b.av, &b.to, 1, 0));
	b.to = ct_insert(&b, inside);
	pass(&b, &a, true);
	a.partner = b.partner = NULL;
	ct_close_peer(&b);
	ct_close_peer(&a);
}

/* Nobody connects to such a peer for a receive that names it, either. */
static void awaited(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV };
	unsigned char inside[256], outside[256];
	struct ct_message in = message(true, &rx_context);
	struct ct_peer a, b;
	double until = ct_now() + 1.5;

	ct_open_single(&a, &spec);
	ct_open_single(&b, &spec);
	a.partner = &b;
	b.partner = &a;
	ct_name(&a.ep->fid, inside, sizeof(inside));
	ct_name(&b.ep->fid, outside, sizeof(outside));
	REQUIRE(fi_av_insert(b.av, inside, 1, &b.to, FI_FIREWALL_ADDR, NULL) == 1);
	in.from = b.to;
	POST(&b, ct_recv(&b, CT_RECV, &in));
	while (ct_now() < until)
		REQUIRE(ct_stays_empty(&b, &b.rx));
	refuse(&b);
	/* It fills the receive when it comes. */
	a.to = ct_insert(&a, outside);
	in.context = &tx_context;
	POST(&a, ct_send(&a, CT_SEND, &in));
	ct_done(&b, &b.rx, &rx_context);
	ct_done(&a, &a.tx, &tx_context);
	a.partner = b.partner = NULL;
	ct_close_peer(&b);
	ct_close_peer(&a);
}

static void option(void)
{
	const char *text = getenv("FI_TCP_FIREWALL_ADDR");
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED };
	struct ct_peer peer;
	size_t length = sizeof(int);
	int value = 7;

	ct_open_single(&peer, &spec);
	if (strchr(peer.info->fabric_attr->prov_name, ';')) {
		ct_close_peer(&peer);
		SKIP("an option of tcp");
	}
	OK(fi_getopt(&peer.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FIREWALL_ADDR, &value, &length));
	REQUIRE(length == sizeof(int));
	REQUIRE(value == (text && *text == '1'));
	length = 1;
	EXPECT(fi_getopt(&peer.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FIREWALL_ADDR, &value,
				&length), -FI_ETOOSMALL);
	REQUIRE(length == sizeof(int));
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "inserted", inserted, CT_RDM },
	{ "awaited", awaited, CT_RDM | CT_SLOW },
	{ "option", option, CT_RDM },
};

CT_MAIN(tests)
