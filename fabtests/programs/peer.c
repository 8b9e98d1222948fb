/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Objects shared between providers (fi_peer(3)): the program is the owner. */
#include <stddef.h>
#include <string.h>
#include <rdma/providers/fi_peer.h>

#include "check.h"
#include "connect.h"
#include "memory.h"
#include "peer.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context, rx_context;

/* The reports of side b, as the owner's functions get them. */
struct owner {
	struct fid_peer_cq cq;
	struct fid_peer_cntr cntr;
	struct fid_eq eq;
	struct ct_completion got[8];
	size_t count;
	uint64_t counted, failed;
	uint32_t event;
	struct fi_eq_cm_entry about;
	struct fid_cq *peer_cq;		/* the provider's side of each */
	struct fid_cntr *peer_cntr;
	struct fid_eq *peer_eq;
};

static struct ct_completion *next_of(struct fid_peer_cq *cq)
{
	struct owner *owner = (struct owner *)cq;

	REQUIRE(owner->count < sizeof(owner->got) / sizeof(owner->got[0]));
	return &owner->got[owner->count++];
}

static ssize_t cq_write(struct fid_peer_cq *cq, void *context, uint64_t flags,
			size_t len, void *buf, uint64_t data, uint64_t tag,
			fi_addr_t src)
{
	*next_of(cq) = (struct ct_completion) {
		.context = context, .flags = flags, .len = len, .buf = buf,
		.data = data, .tag = tag, .src = src,
	};
	return 0;
}

static ssize_t cq_writeerr(struct fid_peer_cq *cq,
			   const struct fi_cq_err_entry *entry)
{
	*next_of(cq) = (struct ct_completion) {
		.context = entry->op_context, .flags = entry->flags,
		.len = entry->len, .err = entry->err, .olen = entry->olen,
	};
	return 0;
}

static struct owner *of_cntr(struct fid_peer_cntr *cntr)
{
	return (struct owner *)((char *)cntr - offsetof(struct owner, cntr));
}

static void cntr_inc(struct fid_peer_cntr *cntr)
{
	of_cntr(cntr)->counted++;
}

static void cntr_incerr(struct fid_peer_cntr *cntr)
{
	of_cntr(cntr)->failed++;
}

static ssize_t eq_write(struct fid_eq *eq, uint32_t event, const void *buf,
			size_t len, uint64_t flags)
{
	struct owner *owner =
		(struct owner *)((char *)eq - offsetof(struct owner, eq));

	REQUIRE(!flags && len >= sizeof(owner->about) && !owner->event);
	owner->event = event;
	memcpy(&owner->about, buf, sizeof(owner->about));
	return (ssize_t)len;
}

static struct fi_ops_cq_owner cq_ops = {
	.size = sizeof(cq_ops), .write = cq_write, .writeerr = cq_writeerr,
};
static struct fi_ops_cntr_owner cntr_ops = {
	.size = sizeof(cntr_ops), .inc = cntr_inc, .incerr = cntr_incerr,
};
static struct fi_ops_eq eq_ops = { .size = sizeof(eq_ops), .write = eq_write };
static struct fi_ops fid_ops = { .size = sizeof(fid_ops) };

/* The peer's queue and counter in place of b's own. */
static void import(struct owner *owner, struct ct_peer *b)
{
	struct fi_peer_cq_context cq = { sizeof(cq), &owner->cq };
	struct fi_peer_cntr_context cntr = { sizeof(cntr), &owner->cntr };
	struct fi_cq_attr cq_attr = {
		.format = FI_CQ_FORMAT_TAGGED, .flags = FI_PEER,
	};
	struct fi_cntr_attr cntr_attr = { .flags = FI_PEER };

	memset(owner, 0, sizeof(*owner));
	owner->cq.fid = (struct fid) { FI_CLASS_PEER_CQ, NULL, &fid_ops };
	owner->cq.owner_ops = &cq_ops;
	owner->cntr.fid = (struct fid) { FI_CLASS_PEER_CNTR, NULL, &fid_ops };
	owner->cntr.owner_ops = &cntr_ops;
	OK(fi_close(&b->tx.fid->fid));
	OK(fi_cq_open(b->domain, &cq_attr, &owner->peer_cq, &cq));
	b->tx.fid = owner->peer_cq;
	OK(fi_cntr_open(b->domain, &cntr_attr, &owner->peer_cntr, &cntr));
	b->cntr[CT_CNTR_RECV] = owner->peer_cntr;
}

/* The owner drives the peer: it has no entries to read. */
static void drive(struct owner *owner)
{
	fi_cq_read(owner->peer_cq, NULL, 0);
	fi_cntr_read(owner->peer_cntr);
}

#define UNTIL_DRIVEN(owner, a, cond) UNTIL(a, (drive(owner), (cond)))

/* An endpoint whose queues all belong to the owner, and its peer. */
static void setup(struct ct_pair *pair, struct owner *owner)
{
	struct ct_spec spec = { .one_cq = true };
	struct ct_peer *a = &pair->a, *b = &pair->b;
	unsigned char name[CT_NAME];

	memset(pair, 0, sizeof(*pair));
	ct_open_domain(a, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_domain(b, &spec, ct_getinfo(&spec), a->fabric, NULL);
	import(owner, b);
	if (ct_opt.type != FI_EP_MSG)
		ct_open_ep(a, a->info);
	ct_open_ep(b, b->info);
	/* The support library would read from it. */
	b->tx.fid = b->rx.fid = NULL;
	if (ct_opt.type != FI_EP_MSG) {
		ct_name(&b->ep->fid, name, sizeof(name));
		a->to = ct_insert(a, name);
		ct_name(&a->ep->fid, name, sizeof(name));
		b->to = ct_insert(b, name);
		return;
	}
	a->partner = b;
	b->partner = a;
	pair->pep = ct_listen(a);
	ct_name(&pair->pep->fid, name, sizeof(name));
	ct_connect(b, a, name);
}

static void teardown(struct ct_pair *pair, struct owner *owner)
{
	OK(fi_close(&pair->b.ep->fid));
	pair->b.ep = NULL;
	OK(fi_close(&owner->peer_cq->fid));
	ct_close_pair(pair);
}

/* Completions and counts of b are the owner's. */
static void queues(void)
{
	struct ct_memory in, out;
	struct ct_completion *got;
	struct owner owner;
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;

	setup(&pair, &owner);
	ct_memory_open(b, &in, 100, FI_RECV | FI_SEND);
	ct_memory_open(a, &out, 100, FI_SEND | FI_RECV);
	got = &owner.got[0];
	OK(fi_recv(b->ep, in.data, 100, in.desc, FI_ADDR_UNSPEC, &rx_context));
	UNTIL_DRIVEN(&owner, a, fi_send(a->ep, out.data, 60, out.desc, a->to,
					&tx_context) == 0);
	UNTIL_DRIVEN(&owner, a, owner.count == 1);
	CHECK(!got->err && got->context == &rx_context && got->len == 60 &&
	      got->flags == (FI_MSG | FI_RECV), "received");
	CHECK(owner.counted == 1 && owner.failed == 0, "counted");
	ct_done(a, &a->tx, &tx_context);

	got = &owner.got[1];
	OK(fi_recv(b->ep, in.data, 10, in.desc, FI_ADDR_UNSPEC, &rx_context));
	UNTIL_DRIVEN(&owner, a, fi_send(a->ep, out.data, 60, out.desc, a->to,
					&tx_context) == 0);
	UNTIL_DRIVEN(&owner, a, owner.count == 2);
	CHECK(got->err == FI_ETRUNC && got->context == &rx_context,
	      "truncated");
	CHECK(owner.counted == 1 && owner.failed == 1, "error-counted");
	ct_done(a, &a->tx, &tx_context);

	got = &owner.got[2];
	OK(fi_recv(a->ep, out.data, 100, out.desc, FI_ADDR_UNSPEC,
		   &rx_context));
	UNTIL_DRIVEN(&owner, a, fi_send(b->ep, in.data, 8, in.desc, b->to,
					&tx_context) == 0);
	UNTIL_DRIVEN(&owner, a, owner.count == 3 && a->tx.count == 1);
	CHECK(!got->err && got->context == &tx_context &&
	      got->flags == (FI_MSG | FI_SEND), "sent");
	ct_done(a, &a->tx, &rx_context);
	ct_memory_close(&in);
	ct_memory_close(&out);
	teardown(&pair, &owner);
}

/* Completions are read from the owner only. */
static void nothing_to_read(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err = { 0 };
	struct owner owner;
	struct ct_pair pair;
	fi_addr_t src;

	setup(&pair, &owner);
	EXPECT(fi_cq_readerr(owner.peer_cq, &err, 0), -FI_ENOSYS);
	EXPECT(fi_cq_readfrom(owner.peer_cq, &entry, 1, &src), -FI_ENOSYS);
	EXPECT(fi_cq_sread(owner.peer_cq, &entry, 1, NULL, 0), -FI_ENOSYS);
	EXPECT(fi_cntr_set(owner.peer_cntr, 1), -FI_ENOSYS);
	EXPECT(fi_cntr_add(owner.peer_cntr, 1), -FI_ENOSYS);
	EXPECT(fi_cntr_wait(owner.peer_cntr, 1, 0), -FI_ENOSYS);
	EXPECT(fi_cntr_read(owner.peer_cntr), 0);
	teardown(&pair, &owner);
}

/* Events of b's connection are the owner's, which has functions of its own. */
static void events(void)
{
	struct fi_eq_attr attr = { .flags = FI_PEER };
	struct fi_peer_eq_context context = { .size = sizeof(context) };
	struct fi_eq_entry nothing;
	struct ct_spec spec = { 0 };
	struct owner owner = { .count = 0 };
	struct ct_event request;
	unsigned char name[CT_NAME];
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;
	uint32_t type;

	memset(&pair, 0, sizeof(pair));
	ct_open_domain(a, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_domain(b, &spec, ct_getinfo(&spec), a->fabric, NULL);
	a->partner = b;
	b->partner = a;
	owner.eq.fid = (struct fid) { FI_CLASS_EQ, NULL, &fid_ops };
	owner.eq.ops = &eq_ops;
	context.eq = &owner.eq;
	OK(fi_close(&b->eq.fid->fid));
	OK(fi_eq_open(b->fabric, &attr, &owner.peer_eq, &context));
	b->eq.fid = owner.peer_eq;
	pair.pep = ct_listen(a);
	ct_name(&pair.pep->fid, name, sizeof(name));
	ct_open_ep(b, b->info);
	OK(fi_connect(b->ep, name, NULL, 0));
	ct_wait_request(a, &request);
	ct_accept(a, &request, NULL, 0);
	UNTIL(a, (ct_progress_events(a), owner.event));
	REQUIRE(owner.event == FI_CONNECTED);
	REQUIRE(owner.about.fid == &b->ep->fid);
	ct_wait_connected(a);
	owner.event = 0;
	OK(fi_close(&a->ep->fid));
	a->ep = NULL;
	UNTIL(a, (ct_progress_events(a), owner.event));
	REQUIRE(owner.event == FI_SHUTDOWN);
	EXPECT(fi_eq_sread(owner.peer_eq, &type, &nothing, sizeof(nothing), 0,
			   0), -FI_ENOSYS);
	EXPECT(fi_eq_write(owner.peer_eq, FI_NOTIFY, &nothing, sizeof(nothing),
			   0), -FI_ENOSYS);
	ct_close_pair(&pair);
}

/* The same, and the owner's is a queue of the library. */
static void events_of_one_library(void)
{
	struct fi_eq_attr attr = { .flags = FI_PEER };
	struct fi_peer_eq_context context = { .size = sizeof(context) };
	struct ct_spec spec = { 0 };
	struct fid_eq *peer_eq, *own;
	unsigned char name[CT_NAME];
	struct ct_event event;
	struct fid_pep *pep;
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;

	memset(&pair, 0, sizeof(pair));
	ct_open_domain(a, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_domain(b, &spec, ct_getinfo(&spec), a->fabric, NULL);
	own = b->eq.fid;
	context.eq = own;
	OK(fi_eq_open(b->fabric, &attr, &peer_eq, &context));
	b->eq.fid = peer_eq;
	ct_open_ep(b, b->info);
	b->eq.fid = own;
	pep = ct_listen(a);
	ct_name(&pep->fid, name, sizeof(name));
	OK(fi_close(&pep->fid));
	OK(fi_connect(b->ep, name, NULL, 0));
	event = ct_any_event(b);
	REQUIRE(event.failed && event.err.err == FI_ECONNREFUSED);
	REQUIRE(event.err.fid == &b->ep->fid);
	OK(fi_close(&b->ep->fid));
	b->ep = NULL;
	OK(fi_close(&peer_eq->fid));
	ct_close_pair(&pair);
}

/* Objects that a provider does not import are refused: the owner would wait
 * for ever. */
static void refused(void)
{
	struct fid_peer_srx peer_srx = { .owner_ops = NULL };
	struct fi_peer_srx_context srx_context = {
		.size = sizeof(srx_context), .srx = &peer_srx,
	};
	struct fi_peer_domain_context domain_context = {
		.size = sizeof(domain_context),
	};
	struct fi_peer_transfer_context transfer_context = {
		.size = sizeof(transfer_context),
	};
	struct fi_rx_attr rx_attr = { .op_flags = FI_PEER };
	struct fid_domain *domain;
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	struct fid_ep *ep;

	ct_open_single(&peer, &spec);
	domain_context.domain = peer.domain;
	EXPECT(fi_srx_context(peer.domain, &rx_attr, &ep, &srx_context),
	       -FI_EINVAL);
	EXPECT(fi_domain2(peer.fabric, peer.info, &domain, FI_PEER,
			  &domain_context), -FI_EINVAL);
	peer.info->mode |= FI_PEER_TRANSFER;
	EXPECT(fi_endpoint(peer.domain, peer.info, &ep, &transfer_context),
	       -FI_EINVAL);
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "queues", queues, CT_BOTH },
	{ "nothing-to-read", nothing_to_read, CT_BOTH },
	{ "events", events, CT_MSG },
	{ "events-of-one-library", events_of_one_library, CT_MSG },
	{ "refused", refused, CT_BOTH },
};

CT_MAIN(tests)
