/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "survivor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connect.h"
#include "wait.h"

static bool rdm(void)
{
	return ct_opt.type != FI_EP_MSG;
}

void ct_meet(struct ct_peer *peer, struct ct_card *own, struct ct_card *other,
	     int fd, struct fid_pep *pep)
{
	struct ct_event request;

	if (rdm() || pep)
		ct_name(rdm() ? &peer->ep->fid : &pep->fid, own->name,
			sizeof(own->name));
	ct_tell(fd, own, sizeof(*own));
	ct_hear(fd, other, sizeof(*other));
	if (rdm()) {
		peer->to = ct_insert(peer, other->name);
		return;
	}
	if (pep) {
		ct_wait_request(peer, &request);
		ct_accept(peer, &request, NULL, 0);
	} else {
		ct_open_ep(peer, peer->info);
		OK(fi_connect(peer->ep, other->name, NULL, 0));
	}
	ct_wait_connected(peer);
}

/* Of the steady peer, which is forked once this is set. */
static struct ct_spec wanted;

/* Answers each message until told to leave. */
static void steady(int fd)
{
	struct ct_card own = { 0 }, other;
	static struct fi_context2 tx, rx;
	struct ct_peer peer;
	char word = 0;

	ct_open_domain(&peer, &wanted, ct_getinfo(&wanted), NULL, NULL);
	if (rdm())
		ct_open_ep(&peer, peer.info);
	ct_meet(&peer, &own, &other, fd, NULL);
	while (word != 'q') {
		POST(&peer, fi_recv(peer.ep, &word, 1, NULL, FI_ADDR_UNSPEC,
				    &rx));
		while (!ct_pull(&peer.rx))
			usleep(200);
		ct_done(&peer, &peer.rx, &rx);
		POST(&peer, fi_send(peer.ep, &word, 1, NULL, peer.to, &tx));
		ct_done(&peer, &peer.tx, &tx);
	}
	ct_hear(fd, &word, 1);
	ct_close_peer(&peer);
}

void ct_exchange(struct ct_survivor *survivor, char word)
{
	struct ct_peer *peer = rdm() ? &survivor->peer : &survivor->second;
	static struct fi_context2 tx, rx;
	char back = 0;

	POST(peer, fi_recv(peer->ep, &back, 1, NULL, FI_ADDR_UNSPEC, &rx));
	POST(peer, fi_send(peer->ep, &word, 1, NULL, survivor->steady_addr,
			   &tx));
	ct_done(peer, &peer->tx, &tx);
	ct_done(peer, &peer->rx, &rx);
	EXPECT(back, word);
}

void ct_open_survivor(struct ct_survivor *survivor, const struct ct_spec *spec)
{
	struct ct_card own = { 0 }, other;
	struct fi_info *info;

	wanted = *spec;
	memset(survivor, 0, sizeof(*survivor));
	survivor->steady = ct_spawn(steady);
	/* Attempts to reach a dead peer do not take long. */
	REQUIRE(!setenv("FI_TCP_CONNECT_TIMEOUT", "5000", 1));
	REQUIRE(!setenv("FI_SHM_CONNECT_TIMEOUT", "5000", 1));
	REQUIRE(!setenv("FI_OFI_RXM_CONNECT_TIMEOUT", "5000", 1));
	info = ct_getinfo(&wanted);
	ct_open_domain(&survivor->peer, &wanted, info, NULL, NULL);
	ct_begin(&survivor->steady);
	if (rdm()) {
		ct_open_ep(&survivor->peer, info);
		ct_meet(&survivor->peer, &own, &other, survivor->steady.fd,
			NULL);
		survivor->steady_addr = survivor->peer.to;
	} else {
		ct_open_domain(&survivor->second, &wanted, fi_dupinfo(info),
			       survivor->peer.fabric, survivor->peer.domain);
		survivor->pep = ct_listen(&survivor->second);
		ct_meet(&survivor->second, &own, &other, survivor->steady.fd,
			survivor->pep);
		OK(fi_close(&survivor->pep->fid));
		survivor->pep = ct_listen(&survivor->peer);
	}
	ct_exchange(survivor, 'a');
}

void ct_close_survivor(struct ct_survivor *survivor)
{
	ct_exchange(survivor, 'q');
	ct_tell(survivor->steady.fd, "x", 1);
	ct_join(&survivor->steady);
	if (!rdm()) {
		OK(fi_close(&survivor->pep->fid));
		ct_close_peer(&survivor->second);
	}
	ct_close_peer(&survivor->peer);
}
