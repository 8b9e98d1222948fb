/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Two sides that have not met, and others at their door. */
#ifndef CT_STRANGER_H
#define CT_STRANGER_H

#include "peer.h"

/* A pair without a connection, of which b may go to a: at the name, of 256
 * bytes, a listens. */
void ct_open_strangers(struct ct_pair *pair, const struct ct_spec *spec,
		       unsigned char *name);

/* b connects to a, opened again (MSG) if it has no endpoint, and sends it an
 * empty message. */
void ct_get_through(struct ct_pair *pair, const unsigned char *name);

/* A plain connection to a name; the socket. */
int ct_connect_plainly(const void *name);

#endif
