/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Address vectors that a provider imports; this program plays their owner
 * (fi_peer(3)). */
#include <string.h>

#include <rdma/providers/fi_peer.h>

#include "check.h"
#include "transfer.h"
#include "wait.h"

/* The owner's vector, and the context for one peer. */
struct owner {
	struct fid_peer_av lent;
	size_t count;
	int queries;
};

static int query(struct fid_peer_av *lent, struct fi_av_attr *attr)
{
	struct owner *owner = (struct owner *)lent;

	memset(attr, 0, sizeof(*attr));
	attr->type = FI_AV_TABLE;
	attr->count = owner->count;
	owner->queries++;
	return 0;
}

static fi_addr_t ep_addr(struct fid_peer_av *lent, struct fid_ep *ep)
{
	(void)lent;
	(void)ep;
	return FI_ADDR_NOTAVAIL;
}

static struct fi_ops_av_owner owner_ops = {
	.size = sizeof(struct fi_ops_av_owner),
	.query = query,
	.ep_addr = ep_addr,
};

static void begin(struct owner *owner, size_t count)
{
	memset(owner, 0, sizeof(*owner));
	owner->lent.fid.fclass = FI_CLASS_PEER_AV;
	owner->lent.owner_ops = &owner_ops;
	owner->count = count;
}

static int import(struct fid_domain *domain, struct owner *owner,
		  struct fid_av **av)
{
	struct fi_peer_av_context context = {
		.size = sizeof(context), .av = &owner->lent,
	};
	struct fi_av_attr attr = { .flags = FI_PEER };
	int ret = fi_av_open(domain, &attr, av, &context);

	/* It may be read only during the call. */
	memset(&context, 0xee, sizeof(context));
	return ret;
}

/* An endpoint with the owner's vector. */
static void open_peer(struct ct_peer *peer, struct owner *owner,
		      struct fid_fabric *fabric)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_SOURCE | FI_DIRECTED_RECV,
	};

	begin(owner, 100);
	ct_open_domain(peer, &spec, ct_getinfo(&spec), fabric, NULL);
	OK(fi_close(&peer->av->fid));
	OK(import(peer->domain, owner, &peer->av));
	ct_open_ep(peer, peer->info);
}

/* The owner's action after it has inserted an address with this index. */
static void forward(struct ct_peer *peer, struct ct_peer *to, fi_addr_t number)
{
	unsigned char name[CT_NAME];
	fi_addr_t given = number;

	ct_name(&to->ep->fid, name, sizeof(name));
	EXPECT(fi_av_insert(peer->av, name, 1, &given, FI_AV_USER_ID, NULL), 1);
	REQUIRE(given == number);
	peer->to = number;
}

static void pass_one(struct ct_peer *from, struct ct_peer *to)
{
	static struct fi_context2 tx_context, rx_context;
	struct ct_completion done;

	POST(to, fi_recv(to->ep, NULL, 0, NULL, to->to, &rx_context));
	POST(from, fi_send(from->ep, NULL, 0, NULL, from->to, &tx_context));
	done = ct_done(to, &to->rx, &rx_context);
	REQUIRE(done.src == to->to || !ct_has(to, FI_SOURCE));
	ct_done(from, &from->tx, &tx_context);
}

/* The numbers that calls take and completions report are the owner's. */
static void numbers(void)
{
	struct owner owners[2];
	struct ct_peer a, b;

	open_peer(&a, &owners[0], NULL);
	CHECK(owners[0].queries > 0, "owner-is-asked");
	open_peer(&b, &owners[1], a.fabric);
	a.partner = &b;
	b.partner = &a;
	forward(&a, &b, 77);
	forward(&b, &a, 5);
	pass_one(&a, &b);
	pass_one(&b, &a);
	CHECK(fi_send(a.ep, NULL, 0, NULL, 0, NULL) == -FI_EINVAL,
	      "other-numbers-mean-nobody");
	/* The owner's address moves. */
	OK(fi_av_remove(a.av, &a.to, 1, 0));
	CHECK(fi_send(a.ep, NULL, 0, NULL, 77, NULL) == -FI_EINVAL, "removed");
	forward(&a, &b, 3);
	pass_one(&a, &b);
	pass_one(&b, &a);
	ct_close_peer(&b);
	ct_close_peer(&a);
}

/* A number is the owner's to give. */
static void arguments(void)
{
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	unsigned char name[CT_NAME];
	struct owner owner;
	struct fid_av *av;
	fi_addr_t number = 9;
	size_t len = sizeof(name);

	begin(&owner, 1);
	ct_open_single(&peer, &spec);
	OK(import(peer.domain, &owner, &av));
	ct_name(&peer.ep->fid, name, sizeof(name));
	CHECK(fi_av_insert(av, name, 1, &number, 0, NULL) == 0, "without");
	number = 9;
	CHECK(fi_av_insert(av, name, 1, NULL, FI_AV_USER_ID, NULL) ==
	      -FI_EINVAL, "nowhere");
	EXPECT(fi_av_insert(av, name, 1, &number, FI_AV_USER_ID, NULL), 1);
	CHECK(number == 9, "as-given");
	CHECK(fi_av_lookup(av, 9, name, &len) == 0, "lookup");
	CHECK(fi_av_lookup(av, 0, name, &len) == -FI_EINVAL, "gap");
	OK(fi_close(&av->fid));
	ct_close_peer(&peer);
}

/* Objects that cannot be imported are refused, not replaced by a vector of the
 * peer's own. */
static void refused(void)
{
	struct fi_peer_av_context context = { .size = sizeof(context) };
	struct fi_av_attr attr = { .flags = FI_PEER };
	struct ct_spec spec = { 0 };
	struct owner owner;
	struct ct_peer peer;
	struct fid_av *av;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	/* Without an object to import it is a vector of its own. */
	CHECK(!fi_av_open(peer.domain, &attr, &av, NULL), "no-context");
	OK(fi_close(&av->fid));
	CHECK(fi_av_open(peer.domain, &attr, &av, &context) == -FI_EINVAL,
	      "no-vector");
	begin(&owner, 1);
	owner.lent.owner_ops = NULL;
	CHECK(import(peer.domain, &owner, &av) == -FI_EINVAL, "no-owner");
	begin(&owner, 1);
	context.av = &owner.lent;
	attr.name = "peer";
	CHECK(fi_av_open(peer.domain, &attr, &av, &context) == -FI_EINVAL,
	      "named");
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "numbers", numbers, CT_RDM },
	{ "arguments", arguments, CT_RDM },
	{ "refused", refused, CT_RDM },
};

CT_MAIN(tests)
