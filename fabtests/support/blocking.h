/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Calls that block: each kind of them, without a limit of time. */
#ifndef CT_BLOCKING_H
#define CT_BLOCKING_H

#include "peer.h"

enum ct_blocking { CT_BLOCK_CQ, CT_BLOCK_CQ_FROM, CT_BLOCK_EQ, CT_BLOCK_CNTR, CT_BLOCK_SET };

/* What a peer of the call has to have: objects to wait for. */
#define CT_BLOCKING_SPEC .wait = FI_WAIT_FD, .eq = true, .counters = FI_RECV

/* Opens a wait set for the call that waits for one; the test is skipped if there are none. */
struct fid_wait *ct_blocking_set(struct ct_peer *peer, enum ct_blocking call);

/* Calls it; returns what the call returns. */
long ct_block(struct ct_peer *peer, enum ct_blocking call, struct fid_wait *set);

#endif
