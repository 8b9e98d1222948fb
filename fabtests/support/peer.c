/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

#include "connect.h"

const uint64_t ct_counter_flags[CT_CNTR_MAX] = {
	[CT_CNTR_SEND] = FI_SEND,
	[CT_CNTR_RECV] = FI_RECV,
	[CT_CNTR_READ] = FI_READ,
	[CT_CNTR_WRITE] = FI_WRITE,
	[CT_CNTR_REMOTE_READ] = FI_REMOTE_READ,
	[CT_CNTR_REMOTE_WRITE] = FI_REMOTE_WRITE,
};

struct fi_info *ct_hints(const struct ct_spec *spec)
{
	struct fi_info *hints = fi_allocinfo();

	REQUIRE(hints);
	hints->caps = spec->caps ? spec->caps : FI_MSG;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = ct_opt.type;
	hints->domain_attr->mr_mode =
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
		FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_RMA_EVENT | FI_MR_RAW;
	hints->domain_attr->progress =
		spec->progress ? spec->progress : FI_PROGRESS_MANUAL;
	hints->domain_attr->threading = spec->threading;
	hints->domain_attr->av_type = spec->av_type;
	hints->tx_attr->op_flags = spec->tx_op_flags;
	hints->rx_attr->op_flags = spec->rx_op_flags;
	if (spec->srx)
		hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	if (ct_opt.provider) {
		hints->fabric_attr->prov_name = strdup(ct_opt.provider);
		REQUIRE(hints->fabric_attr->prov_name);
	}
	if (spec->hint)
		spec->hint(hints);
	return hints;
}

struct fi_info *ct_getinfo(const struct ct_spec *spec)
{
	struct fi_info *hints = ct_hints(spec), *info = NULL;
	int ret = fi_getinfo(spec->version ? spec->version : CT_API_VERSION,
			     ct_opt.source, NULL,
			     ct_opt.source ? FI_SOURCE : 0, hints, &info);

	fi_freeinfo(hints);
	if (ret == -FI_ENODATA)
		SKIP("not advertised");
	OK(ret);
	REQUIRE(info);
	return info;
}

static void open_cq(struct ct_peer *peer, struct ct_cq *cq)
{
	struct fi_cq_attr attr = {
		.size = peer->spec.cq_size,
		.format = peer->spec.format ? peer->spec.format
					    : FI_CQ_FORMAT_TAGGED,
		.wait_obj = peer->spec.wait,
		.wait_cond = peer->spec.wait_cond,
	};
	int ret = fi_cq_open(peer->domain, &attr, &cq->fid, cq);

	if (ret == -FI_ENOSYS && attr.wait_obj != FI_WAIT_NONE)
		SKIP("this wait object is not supported");
	OK(ret);
	cq->format = attr.format;
}

void ct_open_domain(struct ct_peer *peer, const struct ct_spec *spec,
		    struct fi_info *info, struct fid_fabric *fabric,
		    struct fid_domain *domain)
{
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };

	memset(peer, 0, sizeof(*peer));
	peer->spec = *spec;
	peer->info = info;
	peer->to = FI_ADDR_UNSPEC;
	peer->fabric = fabric;
	if (!fabric) {
		OK(fi_fabric(info->fabric_attr, &peer->fabric, NULL));
		peer->owns_fabric = true;
	}
	OK(fi_eq_open(peer->fabric, &eq_attr, &peer->eq.fid, NULL));
	peer->domain = domain;
	if (!domain) {
		if (spec->open)
			spec->open(info);
		OK(fi_domain(peer->fabric, info, &peer->domain, NULL));
		peer->owns_domain = true;
	}
	open_cq(peer, &peer->tx);
	if (spec->one_cq)
		peer->rx.fid = peer->tx.fid;
	else
		open_cq(peer, &peer->rx);
	for (int i = 0; i < CT_CNTR_MAX; i++) {
		struct fi_cntr_attr attr = {
			.events = spec->events,
			.wait_obj = spec->wait,
		};
		int ret;

		if (!(spec->counters & ct_counter_flags[i]))
			continue;
		ret = fi_cntr_open(peer->domain, &attr, &peer->cntr[i], NULL);
		if (ret == -FI_ENOSYS)
			SKIP("no such counters");
		OK(ret);
	}
	if (ct_opt.type != FI_EP_MSG) {
		struct fi_av_attr attr = {
			.type = spec->av_type, .flags = spec->av_flags,
			.rx_ctx_bits = spec->rx_ctx_bits,
			.name = spec->av_name,
		};

		if (spec->av_name && !(info->caps & FI_SHARED_AV))
			SKIP("vectors are not shared");
		OK(fi_av_open(peer->domain, &attr, &peer->av, NULL));
	}
	if (spec->srx) {
		struct fi_rx_attr attr = *info->rx_attr;

		if (spec->receives)
			spec->receives(&attr);
		OK(fi_srx_context(peer->domain, &attr, &peer->srx, NULL));
	}
}

/* The queue that holds a side's completions, and its stash. */
static void bind_queues(struct ct_peer *peer)
{
	uint64_t tx = FI_TRANSMIT | (peer->spec.selective_tx ?
				     FI_SELECTIVE_COMPLETION : 0);
	uint64_t rx = FI_RECV | (peer->spec.selective_rx ?
				 FI_SELECTIVE_COMPLETION : 0);

	if (peer->spec.one_cq) {
		OK(fi_ep_bind(peer->ep, &peer->tx.fid->fid, tx | rx));
		return;
	}
	if (!(peer->spec.no_queue & FI_TRANSMIT))
		OK(fi_ep_bind(peer->ep, &peer->tx.fid->fid, tx));
	if (!(peer->spec.no_queue & FI_RECV))
		OK(fi_ep_bind(peer->ep, &peer->rx.fid->fid, rx));
}

void ct_open_ep_disabled(struct ct_peer *peer, struct fi_info *info)
{
	if (peer->spec.change)
		peer->spec.change(info);
	OK(fi_endpoint(peer->domain, info, &peer->ep, peer));
	if (peer->av)
		OK(fi_ep_bind(peer->ep, &peer->av->fid, 0));
	if (!peer->av || peer->spec.eq)
		OK(fi_ep_bind(peer->ep, &peer->eq.fid->fid, 0));
	if (peer->srx)
		OK(fi_ep_bind(peer->ep, &peer->srx->fid, 0));
	bind_queues(peer);
	for (int i = 0; i < CT_CNTR_MAX; i++) {
		int ret;

		if (!peer->cntr[i])
			continue;
		ret = fi_ep_bind(peer->ep, &peer->cntr[i]->fid,
				 ct_counter_flags[i]);
		if (ret == -FI_ENOSYS)
			SKIP("endpoints do not take counters");
		OK(ret);
	}
	if (peer->spec.prepare)
		peer->spec.prepare(peer->ep);
}

void ct_open_ep(struct ct_peer *peer, struct fi_info *info)
{
	ct_open_ep_disabled(peer, info);
	OK(fi_enable(peer->ep));
}

void ct_open_single(struct ct_peer *peer, const struct ct_spec *spec)
{
	ct_open_domain(peer, spec, ct_getinfo(spec), NULL, NULL);
	ct_open_ep(peer, peer->info);
}

static void close_fid(struct fid *fid)
{
	if (fid)
		OK(fi_close(fid));
}

#define CLOSE(object) close_fid((object) ? &(object)->fid : NULL)

void ct_close_peer(struct ct_peer *peer)
{
	CLOSE(peer->ep);
	CLOSE(peer->srx);
	CLOSE(peer->av);
	for (int i = 0; i < CT_CNTR_MAX; i++)
		CLOSE(peer->cntr[i]);
	CLOSE(peer->tx.fid);
	if (!peer->spec.one_cq)
		CLOSE(peer->rx.fid);
	if (peer->owns_domain)
		CLOSE(peer->domain);
	CLOSE(peer->eq.fid);
	if (peer->owns_fabric)
		CLOSE(peer->fabric);
	free(peer->tx.stash);
	free(peer->rx.stash);
	fi_freeinfo(peer->info);
	memset(peer, 0, sizeof(*peer));
}

size_t ct_name(struct fid *fid, void *buf, size_t size)
{
	size_t len = size;

	OK(fi_getname(fid, buf, &len));
	REQUIRE(len && len <= size);
	return len;
}

fi_addr_t ct_insert(struct ct_peer *peer, const void *name)
{
	fi_addr_t addr = FI_ADDR_NOTAVAIL;

	EXPECT(fi_av_insert(peer->av, name, 1, &addr, 0, NULL), 1);
	REQUIRE(addr != FI_ADDR_NOTAVAIL);
	return addr;
}

void ct_open_pair(struct ct_pair *pair, const struct ct_spec *spec)
{
	struct fi_info *info = ct_getinfo(spec), *copy = fi_dupinfo(info);
	struct ct_peer *a = &pair->a, *b = &pair->b;

	REQUIRE(copy);
	memset(pair, 0, sizeof(*pair));
	ct_open_domain(a, spec, info, NULL, NULL);
	ct_open_domain(b, spec, copy, a->fabric,
		       spec->one_domain ? a->domain : NULL);
	a->partner = b;
	b->partner = a;
	if (ct_opt.type == FI_EP_MSG) {
		ct_connect_pair(pair);
	} else {
		unsigned char name[CT_NAME];

		ct_open_ep(a, a->info);
		ct_open_ep(b, b->info);
		ct_name(&b->ep->fid, name, sizeof(name));
		a->to = ct_insert(a, name);
		ct_name(&a->ep->fid, name, sizeof(name));
		b->to = ct_insert(b, name);
	}
}

void ct_close_pair(struct ct_pair *pair)
{
	CLOSE(pair->pep);
	/* The fabric is a's; the objects opened from it are closed first. */
	ct_close_peer(&pair->b);
	ct_close_peer(&pair->a);
}

fi_addr_t ct_open_third(struct ct_peer *third, struct ct_peer *target)
{
	unsigned char name[CT_NAME];

	ct_open_domain(third, &target->spec, fi_dupinfo(target->info),
		       target->fabric, NULL);
	ct_open_ep(third, third->info);
	third->partner = target;
	ct_name(&target->ep->fid, name, sizeof(name));
	third->to = ct_insert(third, name);
	ct_name(&third->ep->fid, name, sizeof(name));
	return ct_insert(target, name);
}

bool ct_needs_queues(void)
{
	const char *provider = ct_opt.provider ? ct_opt.provider : "";

	return strcmp(provider, "sockets") && !strstr(provider, "ofi_rxd");
}

struct fid_ep *ct_rx_ep(const struct ct_peer *peer)
{
	return peer->srx ? peer->srx : peer->ep;
}

bool ct_has(const struct ct_peer *peer, uint64_t caps)
{
	return (peer->info->caps & caps) == caps;
}

int ct_mr_mode(const struct ct_peer *peer)
{
	return peer->info->domain_attr->mr_mode;
}
