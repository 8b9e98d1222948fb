/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "contexts.h"

#include <rdma/fi_tagged.h>
#include <string.h>

#include "connect.h"
#include "pattern.h"

#undef ct_side_sent
#undef ct_side_done
#undef ct_open_ready

/* A call whose refusal is the caller's. */
#define PASS_ON(call)							\
	do {								\
		int ret_ = (call);					\
									\
		if (ret_)						\
			return ret_;					\
	} while (0)

enum {
	SMALL_PLACE = 4096,
	MEMORY = CT_LARGE_PLACES * CT_PLACE + (CT_PLACES - CT_LARGE_PLACES) * SMALL_PLACE,
};

struct fi_context2 ct_sent[CT_PLACES], ct_received[CT_PLACES];

bool ct_is_scalable(enum ct_kind kind)
{
	return kind >= CT_SCALABLE;
}

bool ct_shares_receives(enum ct_kind kind)
{
	return kind == CT_SHARED || kind == CT_SCALABLE_SHARED ||
	       kind == CT_SCALABLE_SEVERAL || kind == CT_SCALABLE_THROUGH;
}

static bool shares_sends(enum ct_kind kind)
{
	return kind == CT_SENDS_SHARED || kind == CT_SCALABLE_SENDS;
}

int ct_find(const struct ct_setup *setup, struct fi_info **info)
{
	enum ct_kind kind = setup->kind;
	struct fi_info *hints = ct_hints(&setup->spec);
	struct fi_ep_attr *attr = hints->ep_attr;
	int ret;

	if (ct_is_scalable(kind)) {
		attr->tx_ctx_cnt = attr->rx_ctx_cnt = CT_CONTEXTS;
		hints->caps |= FI_NAMED_RX_CTX;
	}
	if (kind == CT_SCALABLE_SHARED || (kind == CT_SHARED && !setup->unannounced))
		attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	if (shares_sends(kind))
		attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	ret = fi_getinfo(CT_API_VERSION, ct_opt.source, NULL, ct_opt.source ? FI_SOURCE : 0,
			 hints, info);
	fi_freeinfo(hints);
	return ret;
}

/* The fabric and the domain of a side of its own. */
static int open_domain(struct ct_peer *peer)
{
	struct fi_info *info = fi_dupinfo(peer->info);
	int ret;

	REQUIRE(info);
	OK(fi_fabric(info->fabric_attr, &peer->fabric, NULL));
	peer->owns_fabric = true;
	if (peer->spec.open)
		peer->spec.open(info);
	ret = fi_domain(peer->fabric, info, &peer->domain, NULL);
	peer->owns_domain = !ret;
	fi_freeinfo(info);
	return ret;
}

static int open_queues(struct ct_side *side)
{
	struct ct_peer *peer = &side->peer;
	struct fi_wait_attr waiting = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr attr = { .wait_obj = peer->spec.wait };

	if (attr.wait_obj == FI_WAIT_SET) {
		PASS_ON(fi_wait_open(peer->fabric, &waiting, &side->wait));
		attr.wait_set = side->wait;
	}
	PASS_ON(ct_cq_join(&peer->tx, peer->domain, attr));
	if (!peer->spec.one_cq)
		PASS_ON(ct_cq_join(&peer->rx, peer->domain, attr));
	for (int i = 0; i < CT_CONTEXTS; i++) {
		side->txq[i] = &peer->tx;
		side->rxq[i] = peer->spec.one_cq ? &peer->tx : &peer->rx;
		if (!i || peer->spec.one_cq)
			continue;
		side->txq[i] = &side->further[2 * i];
		PASS_ON(ct_cq_join(side->txq[i], peer->domain, attr));
		if (side->setup.one_queue || side->setup.kind == CT_SCALABLE_SHARED)
			continue;
		side->rxq[i] = &side->further[2 * i + 1];
		PASS_ON(ct_cq_join(side->rxq[i], peer->domain, attr));
	}
	return 0;
}

static int open_shared(struct ct_side *side)
{
	struct ct_peer *peer = &side->peer;
	struct fi_rx_attr rx = *peer->info->rx_attr;
	struct fi_tx_attr tx = *peer->info->tx_attr;
	size_t size = side->setup.size;

	rx.size = size ? size : rx.size;
	tx.size = size ? size : tx.size;
	if (ct_shares_receives(side->setup.kind))
		PASS_ON(fi_srx_context(peer->domain, &rx, &peer->srx, NULL));
	if (shares_sends(side->setup.kind))
		PASS_ON(fi_stx_context(peer->domain, &tx, &side->stx, NULL));
	return 0;
}

int ct_open_side(struct ct_side *side, const struct ct_setup *setup)
{
	struct ct_peer *peer = &side->peer;
	struct fi_eq_attr events = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr vector = {
		.type = setup->spec.av_type, .rx_ctx_bits = setup->spec.rx_ctx_bits,
	};

	memset(side, 0, sizeof(*side));
	side->setup = *setup;
	peer->spec = setup->spec;
	peer->info = setup->info;
	if (!peer->info) {
		int ret = ct_find(setup, &peer->info);

		if (ret == -FI_ENODATA)
			SKIP("not advertised");
		OK(ret);
	}
	if (ct_is_scalable(setup->kind) && ct_shares_receives(setup->kind) &&
	    !peer->info->domain_attr->max_ep_srx_ctx)
		SKIP("no shared receive contexts");
	if (setup->beside) {
		peer->fabric = setup->beside->fabric;
		peer->domain = setup->beside->domain;
	} else {
		PASS_ON(open_domain(peer));
	}
	PASS_ON(open_queues(side));
	if (ct_opt.type == FI_EP_MSG || peer->spec.eq)
		OK(fi_eq_open(peer->fabric, &events, &peer->eq.fid, NULL));
	if (ct_is_scalable(setup->kind))
		vector.rx_ctx_bits = CT_CONTEXT_BITS;
	if (ct_opt.type != FI_EP_MSG)
		PASS_ON(fi_av_open(peer->domain, &vector, &peer->av, NULL));
	PASS_ON(open_shared(side));
	ct_memory_open(peer, &side->out, MEMORY, FI_SEND);
	ct_memory_open(peer, &side->in, MEMORY, FI_RECV);
	return 0;
}

int ct_open_sep(struct ct_side *side)
{
	PASS_ON(fi_scalable_ep(side->peer.domain, side->peer.info, &side->sep, NULL));
	OK(fi_scalable_ep_bind(side->sep, &side->peer.av->fid, 0));
	ct_name(&side->sep->fid, side->name[0], sizeof(side->name[0]));
	return 0;
}

int ct_open_tx(struct ct_side *side, int i)
{
	OK(fi_tx_context(side->sep, i, NULL, &side->tx[i], NULL));
	OK(fi_ep_bind(side->tx[i], &side->txq[i]->fid->fid, FI_TRANSMIT));
	return fi_enable(side->tx[i]);
}

int ct_open_rx(struct ct_side *side, int i)
{
	OK(fi_rx_context(side->sep, i, NULL, &side->rx[i], NULL));
	if (side->setup.kind == CT_SCALABLE_SEVERAL)
		OK(fi_ep_bind(side->rx[i], &side->peer.srx->fid, 0));
	OK(fi_ep_bind(side->rx[i], &side->rxq[i]->fid->fid, FI_RECV));
	return fi_enable(side->rx[i]);
}

void ct_bind_shared(struct ct_side *side, int i)
{
	OK(fi_ep_bind(side->tx[i], &side->peer.srx->fid, 0));
	side->bound[i] = true;
}

static void reach(struct ct_side *side, int i, enum ct_stage stage)
{
	const struct ct_setup *setup = &side->setup;
	bool is_early = setup->first_at_once && !i;

	if (setup->kind == CT_SHARED && stage == (is_early ? CT_AT_ONCE : setup->bound))
		ct_bind_shared(side, i);
}

static int open_endpoint(struct ct_side *side, int i, struct fi_info *info)
{
	struct ct_peer *peer = &side->peer;

	PASS_ON(fi_endpoint(peer->domain, info, &side->tx[i], NULL));
	side->rx[i] = side->tx[i];
	if (peer->av)
		OK(fi_ep_bind(side->tx[i], &peer->av->fid, 0));
	if (peer->eq.fid)
		OK(fi_ep_bind(side->tx[i], &peer->eq.fid->fid, 0));
	if (side->txq[i] == side->rxq[i]) {
		OK(fi_ep_bind(side->tx[i], &side->txq[i]->fid->fid, FI_TRANSMIT | FI_RECV));
	} else {
		OK(fi_ep_bind(side->tx[i], &side->txq[i]->fid->fid, FI_TRANSMIT));
		OK(fi_ep_bind(side->tx[i], &side->rxq[i]->fid->fid, FI_RECV));
	}
	if (side->stx)
		OK(fi_ep_bind(side->tx[i], &side->stx->fid, 0));
	reach(side, i, CT_AT_ONCE);
	PASS_ON(fi_enable(side->tx[i]));
	reach(side, i, CT_ENABLED);
	if (ct_opt.type != FI_EP_MSG)
		ct_name(&side->tx[i]->fid, side->name[i], sizeof(side->name[i]));
	return 0;
}

static int open_contexts(struct ct_side *side)
{
	enum ct_kind kind = side->setup.kind;
	struct ct_peer *peer = &side->peer;

	PASS_ON(ct_open_sep(side));
	if (kind == CT_SCALABLE_SHARED || kind == CT_SCALABLE_THROUGH)
		OK(fi_scalable_ep_bind(side->sep, &peer->srx->fid, 0));
	if (kind == CT_SCALABLE_SHARED)
		OK(fi_scalable_ep_bind(side->sep, &side->rxq[0]->fid->fid, FI_RECV));
	if (kind == CT_SCALABLE_SENDS)
		OK(fi_scalable_ep_bind(side->sep, &side->stx->fid, 0));
	if (side->setup.enabled_first)
		OK(fi_enable(side->sep));
	for (int i = side->setup.first; i < ct_count_of(side); i++) {
		/* Those that are bound one by one have nothing to send. */
		if (kind != CT_SCALABLE_SEVERAL && (kind != CT_SCALABLE_SENDS || !i))
			PASS_ON(ct_open_tx(side, i));
		if (kind != CT_SCALABLE_SHARED)
			PASS_ON(ct_open_rx(side, i));
	}
	if (!side->setup.enabled_first)
		OK(fi_enable(side->sep));
	return 0;
}

int ct_open_all(struct ct_side *side)
{
	if (ct_is_scalable(side->setup.kind))
		return open_contexts(side);
	for (int i = side->setup.first; i < ct_count_of(side); i++)
		PASS_ON(open_endpoint(side, i, side->peer.info));
	return 0;
}

void ct_open_ready(struct ct_side *side, const struct ct_setup *setup)
{
	OK(ct_open_side(side, setup));
	OK(ct_open_all(side));
}

static void connected(struct ct_side *side, int i)
{
	side->peer.ep = side->tx[i];
	(ct_wait_connected)(&side->peer);
	side->peer.ep = NULL;
}

void ct_introduce(struct ct_side *a, struct ct_side *b)
{
	unsigned char name[CT_NAME];
	struct ct_event request;

	if (ct_opt.type != FI_EP_MSG) {
		OK(ct_open_all(a));
		OK(ct_open_all(b));
		return;
	}
	a->peer.partner = &b->peer;
	b->peer.partner = &a->peer;
	a->pep = ct_listen(&a->peer);
	ct_name(&a->pep->fid, name, sizeof(name));
	for (int i = 0; i < ct_count_of(a); i++) {
		OK(open_endpoint(b, i, b->peer.info));
		OK(fi_connect(b->tx[i], name, NULL, 0));
		reach(b, i, CT_BEGUN);
		ct_wait_request(&a->peer, &request);
		OK(open_endpoint(a, i, request.info));
		fi_freeinfo(request.info);
		OK(fi_accept(a->tx[i], NULL, 0));
		reach(a, i, CT_BEGUN);
		connected(b, i);
		connected(a, i);
		reach(a, i, CT_CONNECTED);
		reach(b, i, CT_CONNECTED);
	}
}

static void shut(void *object)
{
	if (object)
		OK(fi_close(object));
}

void ct_close_endpoints(struct ct_side *side)
{
	shut(side->pep);
	side->pep = NULL;
	for (int i = 0; i < CT_CONTEXTS; i++) {
		shut(side->tx[i]);
		if (side->rx[i] != side->tx[i])
			shut(side->rx[i]);
		side->tx[i] = side->rx[i] = NULL;
	}
	shut(side->sep);
	shut(side->peer.srx);
	shut(side->stx);
	side->sep = side->peer.srx = NULL;
	side->stx = NULL;
}

void ct_close_side(struct ct_side *side)
{
	ct_close_endpoints(side);
	if (side->out.data)
		ct_memory_close(&side->out);
	if (side->in.data)
		ct_memory_close(&side->in);
	ct_cq_leave(&side->peer.tx);
	ct_cq_leave(&side->peer.rx);
	for (int i = 0; i < 2 * CT_CONTEXTS; i++)
		ct_cq_leave(&side->further[i]);
	shut(side->wait);
	ct_close_peer(&side->peer);
}

int ct_count_of(const struct ct_side *side)
{
	return side->setup.count ? side->setup.count : CT_CONTEXTS;
}

int ct_takers(const struct ct_side *side)
{
	return side->setup.kind == CT_SCALABLE_SHARED ? 1 : ct_count_of(side);
}

struct fid_ep *ct_taker(const struct ct_side *side, int i)
{
	bool is_shared = ct_is_scalable(side->setup.kind) || side->bound[i] || !side->rx[i];

	return ct_shares_receives(side->setup.kind) && is_shared ? side->peer.srx : side->rx[i];
}

fi_addr_t ct_side_insert(struct ct_side *side, const void *name)
{
	return ct_insert(&side->peer, name);
}

static const fi_addr_t *known(struct ct_side *side, struct ct_side *other)
{
	struct ct_known *of = side->known;

	while (of->side && of->side != other)
		REQUIRE(++of < side->known + sizeof(side->known) / sizeof(side->known[0]));
	if (!of->side) {
		of->side = other;
		for (int i = 0; i < CT_CONTEXTS; i++)
			if (i < (other->sep ? 1 : ct_count_of(other)) && (other->sep || other->tx[i]))
				of->at[i] = ct_side_insert(side, other->name[i]);
	}
	return of->at;
}

fi_addr_t ct_address(struct ct_side *side, struct ct_side *other, int i)
{
	if (ct_opt.type == FI_EP_MSG || !other->sep)
		return ct_opt.type == FI_EP_MSG ? 0 : known(side, other)[i];
	return ct_takers(other) == 1 ? known(side, other)[0]
				     : fi_rx_addr(known(side, other)[0], i, CT_CONTEXT_BITS);
}

fi_addr_t ct_source(struct ct_side *side, struct ct_side *other, int i)
{
	if (ct_opt.type == FI_EP_MSG)
		return FI_ADDR_NOTAVAIL;
	return known(side, other)[other->sep ? 0 : i];
}

unsigned char *ct_place(const struct ct_memory *memory, int place)
{
	int small = place > CT_LARGE_PLACES ? place - CT_LARGE_PLACES : 0;

	return memory->data + (place - small) * CT_PLACE + small * SMALL_PLACE;
}

void ct_side_send(struct ct_side *side, int i, fi_addr_t to, int place, size_t len, int tag)
{
	unsigned char *buf = ct_place(&side->out, place);

	ct_fill(buf, len, (unsigned)place);
	if (tag == CT_UNTAGGED)
		TRY(fi_send(side->tx[i], buf, len, side->out.desc, to, &ct_sent[place]));
	else
		TRY(fi_tsend(side->tx[i], buf, len, side->out.desc, to, (uint64_t)tag,
			     &ct_sent[place]));
}

void ct_side_receive(struct ct_side *side, int i, int place, size_t len, fi_addr_t from, int tag)
{
	unsigned char *buf = ct_place(&side->in, place);
	struct fid_ep *ep = ct_taker(side, i);

	memset(buf, 0, len);
	if (tag == CT_UNTAGGED)
		OK(fi_recv(ep, buf, len, side->in.desc, from, &ct_received[place]));
	else
		OK(fi_trecv(ep, buf, len, side->in.desc, from, (uint64_t)tag, 0,
			    &ct_received[place]));
}

void ct_side_sent(struct ct_side *side, int i, int place)
{
	(ct_done_of)(side->txq[i], &ct_sent[place]);
}

struct ct_completion ct_side_done(struct ct_side *side, int i, int place, size_t len, int sent)
{
	struct ct_completion got = (ct_done_of)(side->rxq[i], &ct_received[place]);

	REQUIRE(got.len == len);
	REQUIRE(ct_side_holds(side, place, len, sent));
	return got;
}

bool ct_side_holds(const struct ct_side *side, int place, size_t len, int sent)
{
	return ct_holds(ct_place(&side->in, place), len, (unsigned)sent);
}
