/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Connections between MSG endpoints. */
#ifndef CT_CONNECT_H
#define CT_CONNECT_H

#include "peer.h"

/* A listening endpoint that reports to the peer's event queue. */
struct fid_pep *ct_listen(struct ct_peer *peer);

/* The next connection request; its info is the caller's to free. */
void ct_wait_request(struct ct_peer *peer, struct ct_event *event);

/* Opens the peer's endpoint from a request and accepts it. */
void ct_accept(struct ct_peer *peer, struct ct_event *request,
	       const void *data, size_t len);

/* The FI_CONNECTED event of the peer's endpoint. */
void ct_wait_connected(struct ct_peer *peer);

/* Connects an open endpoint to a peer that listens at this name, and is given
 * an endpoint for the connection. */
void ct_connect(struct ct_peer *from, struct ct_peer *to, const void *name);

/* Connects b, open with its domain but without an endpoint, to a. */
void ct_connect_pair(struct ct_pair *pair);

#endif
