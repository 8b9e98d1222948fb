/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Objects shared between providers (fi_peer(3)): the program is the owner. */
#include <string.h>
#include <rdma/providers/fi_peer.h>

#include "check.h"
#include "peer.h"

/* What a provider does not import is refused: the owner would wait for ever. */
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
	{ "refused", refused, CT_BOTH },
};

CT_MAIN(tests)
