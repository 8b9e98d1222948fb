/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Endpoints at a link-local IPv6 address, which means nothing without the
 * interface that its scope names. */
#include <netinet/in.h>
#include <stdlib.h>

#include "check.h"
#include "memory.h"
#include "network.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define LENGTH 100000 /* long enough for every way that bytes can take */

static struct fi_context2 tx_context, rx_context;
static unsigned char out[LENGTH], in[LENGTH];

static void pass(struct ct_peer *from, struct ct_peer *to, size_t len)
{
	ct_fill(out, len, (unsigned)len);
	POST(to, fi_recv(to->ep, in, len, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(from, fi_send(from->ep, out, len, NULL, from->to, &tx_context));
	ct_done(to, &to->rx, &rx_context);
	ct_done(from, &from->tx, &tx_context);
	REQUIRE(ct_holds(in, len, (unsigned)len));
}

static void exchange(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct sockaddr_in6 name = { 0 };
	struct ct_pair pair;

	ct_own_link();
	ct_open_pair(&pair, &spec);
	REQUIRE(ct_name(&pair.a.ep->fid, (unsigned char *)&name,
			sizeof(name)) == sizeof(name));
	CHECK(name.sin6_scope_id != 0, "name-has-scope");
	pass(&pair.a, &pair.b, 8);
	pass(&pair.b, &pair.a, 8);
	pass(&pair.a, &pair.b, LENGTH);
	pass(&pair.b, &pair.a, LENGTH);
	CHECK(true, "messages");
	ct_close_pair(&pair);
}

static void plain(void)
{
	exchange();
}

static void through_sockets(void)
{
	setenv("FI_TCP_LOCAL", "off", 1);
	exchange();
}

static void ports_of_a_range(void)
{
	setenv("FI_TCP_PORT_LOW_RANGE", "30000", 1);
	setenv("FI_TCP_PORT_HIGH_RANGE", "39999", 1);
	exchange();
}

/* A peer that the vector has without the interface is the one that asks. */
static void inserted_without_scope(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_SOURCE };
	struct ct_completion done;
	struct sockaddr_in6 name;
	struct ct_peer a, b;
	fi_addr_t of_b;

	ct_own_link();
	ct_open_single(&a, &spec);
	ct_open_single(&b, &spec);
	ct_name(&b.ep->fid, (unsigned char *)&name, sizeof(name));
	name.sin6_scope_id = 0;
	of_b = ct_insert(&a, (unsigned char *)&name);
	ct_name(&a.ep->fid, (unsigned char *)&name, sizeof(name));
	b.to = ct_insert(&b, (unsigned char *)&name);
	a.to = of_b;
	a.partner = &b;
	b.partner = &a;
	POST(&a, fi_recv(a.ep, in, 8, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(&b, fi_send(b.ep, out, 8, NULL, b.to, &tx_context));
	done = ct_done(&a, &a.rx, &rx_context);
	CHECK(done.src == of_b, "source");
	ct_done(&b, &b.tx, &tx_context);
	pass(&a, &b, 8);
	ct_close_peer(&b);
	ct_close_peer(&a);
}

static const struct ct_test tests[] = {
	{ "exchange", plain, CT_RDM | CT_MSG },
	{ "through-sockets", through_sockets, CT_RDM | CT_MSG },
	{ "ports-of-a-range", ports_of_a_range, CT_RDM | CT_MSG },
	{ "inserted-without-scope", inserted_without_scope, CT_RDM },
};

CT_MAIN(tests)
