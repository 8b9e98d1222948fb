/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Endpoints at a link-local IPv6 address, which is valid only with the
 * interface that its scope names. */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "child.h"
#include "connect.h"
#include "memory.h"
#include "network.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define LENGTH 100000 /* long enough for every way that bytes can take */

static struct fi_context2 tx_context, rx_context;
static unsigned char out[LENGTH], in[LENGTH];

/* Datagrams are shorter. */
static size_t fitting(const struct ct_peer *peer, size_t len)
{
	size_t most = peer->info->ep_attr->max_msg_size;

	return len < most ? len : most;
}

static void pass(struct ct_peer *from, struct ct_peer *to, size_t len)
{
	len = fitting(from, len);
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

/* One end of two links. */
struct ends {
	struct ct_peer peers[2];
	struct fid_pep *peps[2];
};

/* With the port of the first one for both, or with any. */
static void open_ends(struct ends *ends, const char *address, const char *prefix,
		      bool same_port)
{
	struct ct_spec spec = { .caps = FI_MSG };
	char service[8] = "0";

	for (int i = 0; i < 2; i++) {
		struct fi_info *hints = ct_hints(&spec), *info;
		struct ct_peer *peer = &ends->peers[i];
		struct sockaddr_in6 name;
		char node[32];

		snprintf(node, sizeof(node), "%s%%%s%d", address, prefix, i);
		if (fi_getinfo(CT_API_VERSION, node, service, FI_SOURCE, hints,
			       &info) == -FI_ENODATA)
			SKIP("not advertised");
		fi_freeinfo(hints);
		ct_open_domain(peer, &spec, info, NULL, NULL);
		if (ct_opt.type != FI_EP_MSG)
			ct_open_ep(peer, info);
		else if (same_port)
			ends->peps[i] = ct_listen(peer);
		if (!same_port)
			continue;
		ct_name(ends->peps[i] ? &ends->peps[i]->fid : &peer->ep->fid,
			&name, sizeof(name));
		snprintf(service, sizeof(service), "%d", ntohs(name.sin6_port));
	}
	ends->peers[0].partner = &ends->peers[1];
	ends->peers[1].partner = &ends->peers[0];
}

/* The address of an end, from the other side of link `i`. */
static struct sockaddr_in6 far_name(int fd, const char *prefix, int i)
{
	struct sockaddr_in6 name;
	char interface[8];

	ct_hear(fd, &name, sizeof(name));
	snprintf(interface, sizeof(interface), "%s%d", prefix, i);
	name.sin6_scope_id = if_nametoindex(interface);
	REQUIRE(name.sin6_scope_id);
	return name;
}

static void tell_name(int fd, struct fid *fid)
{
	struct sockaddr_in6 name;

	ct_name(fid, &name, sizeof(name));
	ct_tell(fd, &name, sizeof(name));
}

static unsigned char places[2][LENGTH];
static struct fi_context2 rx_contexts[2], tx_contexts[2];

/* Messages on both links, each of which names its link. */
static void receive_both(struct ends *ends, size_t len, unsigned seed)
{
	len = fitting(&ends->peers[0], len);
	for (int i = 0; i < 2; i++)
		ct_done(&ends->peers[i], &ends->peers[i].rx, &rx_contexts[i]);
	for (unsigned i = 0; i < 2; i++)
		REQUIRE(ct_holds(places[i], len, seed + i));
}

static void post_both(struct ends *ends, size_t len)
{
	for (int i = 0; i < 2; i++)
		POST(&ends->peers[i],
		     fi_recv(ends->peers[i].ep, places[i], len, NULL,
			     FI_ADDR_UNSPEC, &rx_contexts[i]));
}

static void send_both(struct ends *ends, size_t len, unsigned seed)
{
	static unsigned char bytes[2][LENGTH];

	len = fitting(&ends->peers[0], len);
	for (unsigned i = 0; i < 2; i++) {
		struct ct_peer *peer = &ends->peers[i];

		ct_fill(bytes[i], len, seed + i);
		POST(peer, fi_send(peer->ep, bytes[i], len, NULL, peer->to,
				   &tx_contexts[i]));
	}
	for (int i = 0; i < 2; i++)
		ct_done(&ends->peers[i], &ends->peers[i].tx, &tx_contexts[i]);
}

static void close_ends(struct ends *ends)
{
	for (int i = 0; i < 2; i++) {
		if (ends->peps[i])
			OK(fi_close(&ends->peps[i]->fid));
		ct_close_peer(&ends->peers[i]);
	}
}

/* Two ends that have the same address and port. */
static void far_ends(int fd)
{
	struct ends ends = { 0 };
	struct ct_event request;
	char bye;

	open_ends(&ends, CT_FAR, "b", true);
	for (int i = 0; i < 2; i++)
		tell_name(fd, ends.peps[i] ? &ends.peps[i]->fid
					       : &ends.peers[i].ep->fid);
	for (int i = 0; i < 2; i++) {
		struct ct_peer *peer = &ends.peers[i];

		if (ends.peps[i]) {
			ct_wait_request(peer, &request);
			ct_accept(peer, &request, NULL, 0);
			ct_wait_connected(peer);
		} else {
			struct sockaddr_in6 name = far_name(fd, "b", i);

			peer->to = ct_insert(peer, &name);
		}
	}
	post_both(&ends, LENGTH);
	ct_tell(fd, "", 1);
	receive_both(&ends, LENGTH, 1);
	send_both(&ends, 8, 11);
	ct_hear(fd, &bye, 1);
	close_ends(&ends);
}

/* A peer is identified by its interface, even if everything else in its
 * address is the same as in another one's. */
static void two_links(void)
{
	struct ends ends = { 0 };
	struct sockaddr_in6 names[2];
	struct ct_child child = ct_two_links(far_ends);
	char ready;

	open_ends(&ends, CT_NEAR, "a", false);
	ct_begin(&child);
	for (int i = 0; i < 2; i++)
		names[i] = far_name(child.fd, "a", i);
	REQUIRE(names[0].sin6_port == names[1].sin6_port);
	for (int i = 0; i < 2; i++) {
		struct ct_peer *peer = &ends.peers[i];

		if (ct_opt.type != FI_EP_MSG) {
			tell_name(child.fd, &peer->ep->fid);
			peer->to = ct_insert(peer, &names[i]);
		} else {
			ct_open_ep(peer, peer->info);
			OK(fi_connect(peer->ep, &names[i], NULL, 0));
		}
	}
	for (int i = 0; i < 2 && ct_opt.type == FI_EP_MSG; i++)
		ct_wait_connected(&ends.peers[i]);
	post_both(&ends, 8);
	ct_hear(child.fd, &ready, 1);
	send_both(&ends, LENGTH, 1);
	receive_both(&ends, 8, 11);
	ct_tell(child.fd, "", 1);
	close_ends(&ends);
	ct_join(&child);
}

static const struct ct_test tests[] = {
	{ "exchange", plain, CT_RDM | CT_MSG },
	{ "through-sockets", through_sockets, CT_RDM | CT_MSG },
	{ "ports-of-a-range", ports_of_a_range, CT_RDM | CT_MSG },
	{ "inserted-without-scope", inserted_without_scope, CT_RDM },
	{ "two-links", two_links, CT_RDM | CT_MSG },
};

CT_MAIN(tests)
