/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* A message that is sent while the test sleeps. */
#ifndef CT_LATE_H
#define CT_LATE_H

#include "peer.h"

/* Sends one empty message from a peer after a delay, and drives that peer until
 * it is stopped; its completion is left to the caller. */
struct ct_late;
struct ct_late *ct_late_start(struct ct_peer *from, struct fi_context2 *context);
void ct_late_stop(struct ct_late *late);

#endif
