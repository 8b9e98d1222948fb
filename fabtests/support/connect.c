/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "connect.h"

#include <string.h>

#include "wait.h"

struct fid_pep *ct_listen(struct ct_peer *peer)
{
	struct fid_pep *pep;

	OK(fi_passive_ep(peer->fabric, peer->info, &pep, NULL));
	OK(fi_pep_bind(pep, &peer->eq.fid->fid, 0));
	OK(fi_listen(pep));
	return pep;
}

void ct_wait_request(struct ct_peer *peer, struct ct_event *event)
{
	*event = ct_event_of(peer, FI_CONNREQ);
	REQUIRE(event->info);
	REQUIRE(event->info->handle);
}

void ct_accept(struct ct_peer *peer, struct ct_event *request,
	       const void *data, size_t len)
{
	ct_open_ep(peer, request->info);
	OK(fi_accept(peer->ep, data, len));
	fi_freeinfo(request->info);
	request->info = NULL;
}

void ct_wait_connected(struct ct_peer *peer)
{
	struct ct_event event = ct_event_of(peer, FI_CONNECTED);

	REQUIRE(event.fid == &peer->ep->fid);
}

void ct_connect(struct ct_peer *from, struct ct_peer *to, const void *name)
{
	struct ct_event request;

	OK(fi_connect(from->ep, name, NULL, 0));
	ct_wait_request(to, &request);
	ct_accept(to, &request, NULL, 0);
	ct_wait_connected(from);
	ct_wait_connected(to);
}

void ct_connect_pair(struct ct_pair *pair)
{
	unsigned char name[CT_NAME];

	pair->pep = ct_listen(&pair->a);
	ct_name(&pair->pep->fid, name, sizeof(name));
	ct_open_ep(&pair->b, pair->b.info);
	ct_connect(&pair->b, &pair->a, name);
}
