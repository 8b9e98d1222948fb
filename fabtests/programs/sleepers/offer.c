/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "peer.h"
#include "script.h"

static bool has_endpoints(uint64_t caps, enum fi_progress progress,
			  struct fi_info **info)
{
	struct ct_spec spec = {
		.caps = caps, .progress = progress,
		.threading = FI_THREAD_SAFE,
	};
	struct fi_info *hints = ct_hints(&spec), *found = NULL;
	int ret = fi_getinfo(CT_API_VERSION, ct_opt.source, NULL,
			     ct_opt.source ? FI_SOURCE : 0, hints, &found);

	fi_freeinfo(hints);
	if (ret == -FI_ENODATA)
		return false;
	OK(ret);
	if (info)
		*info = found;
	else
		fi_freeinfo(found);
	return true;
}

static bool opens_queue(struct fid_domain *domain, struct fi_cq_attr attr)
{
	struct fid_cq *cq;

	if (fi_cq_open(domain, &attr, &cq, NULL))
		return false;
	OK(fi_close(&cq->fid));
	return true;
}

static bool opens_counter(struct fid_domain *domain, struct fi_cntr_attr attr)
{
	struct fid_cntr *cntr;

	if (fi_cntr_open(domain, &attr, &cntr, NULL))
		return false;
	OK(fi_close(&cntr->fid));
	return true;
}

static bool opens_both(struct fid_domain *domain, enum fi_wait_obj wait,
		       struct fid_wait *set)
{
	struct fi_cq_attr cq_attr = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait,
		.wait_set = set,
	};
	struct fi_cntr_attr cntr_attr = {
		.events = FI_CNTR_EVENTS_COMP, .wait_obj = wait,
		.wait_set = set,
	};

	return opens_queue(domain, cq_attr) && opens_counter(domain, cntr_attr);
}

static void find_waits(struct offer *offer, struct fid_fabric *fabric,
		       struct fid_domain *domain)
{
	static const enum fi_wait_obj waits[] = {
		FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD,
	};
	struct fi_cq_attr by_threshold = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC,
		.wait_cond = FI_CQ_COND_THRESHOLD,
	};
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_wait *set;

	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
		offer->waits[waits[i]] = opens_both(domain, waits[i], NULL);
	if (!fi_wait_open(fabric, &attr, &set)) {
		offer->waits[FI_WAIT_SET] = opens_both(domain, FI_WAIT_SET, set);
		OK(fi_close(&set->fid));
	}
	offer->by_threshold = opens_queue(domain, by_threshold);
}

void offer_find(struct offer *offer)
{
	static const uint64_t wanted[] = {
		FI_RMA, FI_ATOMIC, FI_RMA_EVENT,
	};
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	struct fi_info *info;

	offer->caps = FI_TAGGED;
	if (!has_endpoints(offer->caps, FI_PROGRESS_MANUAL, NULL))
		return;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (has_endpoints(offer->caps | wanted[i], FI_PROGRESS_MANUAL,
				  NULL))
			offer->caps |= wanted[i];
	offer->is_auto = has_endpoints(offer->caps, FI_PROGRESS_AUTO, NULL);
	REQUIRE(has_endpoints(offer->caps, FI_PROGRESS_MANUAL, &info));
	ct_open_domain(&peer, &spec, info, NULL, NULL);
	find_waits(offer, peer.fabric, peer.domain);
	ct_close_peer(&peer);
	offer->is_something = offer->waits[FI_WAIT_UNSPEC];
}
