/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include <string.h>

#include "check.h"
#include "scalable.h"

void ct_open_objects(struct ct_side *side, const struct ct_spec *spec)
{
	struct fi_av_attr attr = { .rx_ctx_bits = CT_CONTEXT_BITS };
	struct fi_info *of_domain;

	memset(side, 0, sizeof(*side));
	side->info = ct_getinfo(spec);
	OK(fi_fabric(side->info->fabric_attr, &side->fabric, NULL));
	of_domain = fi_dupinfo(side->info);
	REQUIRE(of_domain);
	if (spec->open)
		spec->open(of_domain);
	OK(fi_domain(side->fabric, of_domain, &side->domain, NULL));
	fi_freeinfo(of_domain);
	OK(fi_av_open(side->domain, &attr, &side->av, NULL));
	for (int i = 0; i < CT_CONTEXTS; i++) {
		ct_cq_join(&side->txq[i], side->domain);
		ct_cq_join(&side->rxq[i], side->domain);
	}
}

void ct_open_sep(struct ct_side *side)
{
	OK(fi_scalable_ep(side->domain, side->info, &side->sep, NULL));
	OK(fi_scalable_ep_bind(side->sep, &side->av->fid, 0));
	ct_name(&side->sep->fid, side->name, sizeof(side->name));
}

void ct_open_tx(struct ct_side *side, int i)
{
	OK(fi_tx_context(side->sep, i, NULL, &side->tx[i], NULL));
	OK(fi_ep_bind(side->tx[i], &side->txq[i].fid->fid, FI_TRANSMIT));
	OK(fi_enable(side->tx[i]));
}

void ct_open_rx(struct ct_side *side, int i)
{
	OK(fi_rx_context(side->sep, i, NULL, &side->rx[i], NULL));
	OK(fi_ep_bind(side->rx[i], &side->rxq[i].fid->fid, FI_RECV));
	OK(fi_enable(side->rx[i]));
}

void ct_open_plain(struct ct_side *side)
{
	OK(fi_endpoint(side->domain, side->info, &side->tx[0], NULL));
	OK(fi_ep_bind(side->tx[0], &side->av->fid, 0));
	OK(fi_ep_bind(side->tx[0], &side->txq[0].fid->fid, FI_TRANSMIT));
	OK(fi_ep_bind(side->tx[0], &side->rxq[0].fid->fid, FI_RECV));
	OK(fi_enable(side->tx[0]));
	side->rx[0] = side->tx[0];
	ct_name(&side->tx[0]->fid, side->name, sizeof(side->name));
}

static void shut(void *object)
{
	if (object)
		OK(fi_close(object));
}

void ct_close_objects(struct ct_side *side)
{
	for (int i = 0; i < CT_CONTEXTS; i++) {
		ct_cq_leave(&side->txq[i]);
		ct_cq_leave(&side->rxq[i]);
	}
	OK(fi_close(&side->av->fid));
	OK(fi_close(&side->domain->fid));
	OK(fi_close(&side->fabric->fid));
	fi_freeinfo(side->info);
}

void ct_close_side(struct ct_side *side)
{
	for (int i = 0; i < CT_CONTEXTS; i++) {
		shut(side->tx[i]);
		if (side->rx[i] != side->tx[i])
			shut(side->rx[i]);
	}
	shut(side->sep);
	shut(side->srx);
	shut(side->stx);
	ct_close_objects(side);
}

fi_addr_t ct_side_insert(struct ct_side *side, const void *name)
{
	fi_addr_t number;

	EXPECT(fi_av_insert(side->av, name, 1, &number, 0, NULL), 1);
	return number;
}
