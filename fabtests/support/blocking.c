/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "blocking.h"

#include "check.h"

struct fid_wait *ct_blocking_set(struct ct_peer *peer, enum ct_blocking call)
{
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_FD };
	struct fid_wait *set = NULL;
	int ret;

	if (call != CT_BLOCK_SET)
		return NULL;
	ret = fi_wait_open(peer->fabric, &attr, &set);
	if (ret == -FI_ENOSYS)
		SKIP("no wait sets");
	OK(ret);
	return set;
}

long ct_block(struct ct_peer *peer, enum ct_blocking call, struct fid_wait *set)
{
	struct fi_cq_tagged_entry entry;
	struct fi_eq_entry event;
	fi_addr_t from;
	uint32_t type;

	switch (call) {
	case CT_BLOCK_CQ:
		return fi_cq_sread(peer->rx.fid, &entry, 1, NULL, -1);
	case CT_BLOCK_CQ_FROM:
		return fi_cq_sreadfrom(peer->rx.fid, &entry, 1, &from, NULL, -1);
	case CT_BLOCK_EQ:
		return fi_eq_sread(peer->eq.fid, &type, &event, sizeof(event), -1, 0);
	case CT_BLOCK_CNTR:
		return fi_cntr_wait(peer->cntr[CT_CNTR_RECV], 1u << 30, -1);
	case CT_BLOCK_SET:
		return fi_wait(set, -1);
	}
	return -FI_EINVAL;
}
