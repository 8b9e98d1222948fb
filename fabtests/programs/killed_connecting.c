/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* A peer is killed while it connects or is connected to. The other side is
 * informed, and continues with another peer. */
#include <unistd.h>

#include "check.h"
#include "connect.h"
#include "survivor.h"
#include "wait.h"

enum { ROUNDS = 20 };

static struct plan {
	bool victim_acts;		/* or else the survivor does */
	bool drives;			/* its request may arrive */
} plan;

struct op {
	struct fi_context2 context;	/* first: completions lead back here */
	bool open, failed;
};

static bool rdm(void)
{
	return ct_opt.type == FI_EP_RDM;
}

static struct ct_spec spec(void)
{
	return (struct ct_spec) {
		.caps = FI_MSG | (rdm() ? FI_DIRECTED_RECV : 0),
	};
}

/* A message for each of the victims. */
static void send_to_all(struct ct_survivor *survivor, struct op *ops,
			const fi_addr_t *victims)
{
	static char byte;

	for (int i = 0; i < ROUNDS; i++) {
		POST(&survivor->peer,
		     fi_send(survivor->peer.ep, &byte, 1, NULL, victims[i],
			     &ops[i]));
		ops[i].open = true;
	}
}

/* They end, and the steady peer is still connected. */
static void all_end(struct ct_survivor *survivor)
{
	struct ct_peer *peer = &survivor->peer;

	for (int i = 0; i < ROUNDS; i++) {
		struct ct_completion end = ct_next(peer, &peer->tx);
		struct op *op = end.context;

		REQUIRE(op->open);
		op->open = false;
		op->failed = end.err;
	}
	ct_exchange(survivor, 'c');
}

/* Starts to connect, or waits to be connected to, and does nothing more. */
static void shy_victim(int fd)
{
	struct ct_spec wanted = spec();
	struct ct_card own = { 0 }, other;
	static struct fi_context2 op;
	struct fid_pep *pep = NULL;
	struct ct_peer peer;

	ct_open_domain(&peer, &wanted, ct_getinfo(&wanted), NULL, NULL);
	if (rdm() || plan.victim_acts)
		ct_open_ep(&peer, peer.info);
	if (!rdm() && !plan.victim_acts)
		pep = ct_listen(&peer);
	ct_name(pep ? &pep->fid : &peer.ep->fid, own.name, sizeof(own.name));
	ct_hear(fd, &other, sizeof(other));
	if (plan.victim_acts && rdm()) {
		peer.to = ct_insert(&peer, other.name);
		POST(&peer, fi_send(peer.ep, NULL, 0, NULL, peer.to, &op));
	} else if (plan.victim_acts) {
		OK(fi_connect(peer.ep, other.name, NULL, 0));
	}
	/* Its request gets out at times. */
	if (plan.drives)
		ct_progress(&peer);
	ct_tell(fd, &own, sizeof(own));
	for (;;)
		pause();
}

/* MSG: a connection to a victim fails; one that a victim asked for may still be
 * accepted, and then ends. */
static void connecting_msg(struct ct_survivor *survivor, struct ct_child *child)
{
	struct ct_peer *peer = &survivor->peer;
	struct ct_card own = { 0 }, other;
	double until = ct_now() + ct_patience();
	struct ct_event event;

	ct_name(&survivor->pep->fid, own.name, sizeof(own.name));
	ct_tell(child->fd, &own, sizeof(own));
	ct_hear(child->fd, &other, sizeof(other));
	if (!plan.victim_acts) {
		ct_open_ep(peer, peer->info);
		OK(fi_connect(peer->ep, other.name, NULL, 0));
		for (int i = 0; i < 20; i++)
			ct_progress(peer);
		ct_kill(child);
		event = ct_any_event(peer);
		REQUIRE(event.failed && event.fid == NULL);
		REQUIRE(event.err.fid == &peer->ep->fid && event.err.err > 0);
	} else {
		ct_kill(child);
		while (!peer->eq.count && ct_now() < until &&
		       plan.drives)
			ct_progress_events(peer);
		if (!peer->eq.count)
			return;
		ct_wait_request(peer, &event);
		ct_open_ep(peer, event.info);
		if (!fi_accept(peer->ep, NULL, 0))
			do
				fi_freeinfo(event.info),
				event = ct_any_event(peer);
			while (!event.failed && event.type != FI_SHUTDOWN);
		fi_freeinfo(event.info);
	}
	OK(fi_close(&peer->ep->fid));
	peer->ep = NULL;
}

/* A victim has a listening socket and a request on its way when it dies. */
static void connecting(void)
{
	struct ct_child children[ROUNDS];
	struct plan plans[ROUNDS];
	struct op under_way[ROUNDS] = { 0 };
	struct ct_spec wanted = spec();
	struct ct_survivor survivor;
	fi_addr_t victims[ROUNDS];
	struct ct_card card = { 0 };

	for (int i = 0; i < ROUNDS; i++) {
		plan.victim_acts = i & 1;
		plan.drives = i & 2;
		plans[i] = plan;
		children[i] = ct_spawn(shy_victim);
	}
	ct_open_survivor(&survivor, &wanted);
	for (int i = 0; i < ROUNDS; i++) {
		plan = plans[i];
		ct_begin(&children[i]);
		if (!rdm()) {
			connecting_msg(&survivor, &children[i]);
			ct_exchange(&survivor, 'b');
			continue;
		}
		ct_name(&survivor.peer.ep->fid, card.name, sizeof(card.name));
		ct_tell(children[i].fd, &card, sizeof(card));
		ct_hear(children[i].fd, &card, sizeof(card));
		victims[i] = ct_insert(&survivor.peer, card.name);
	}
	if (rdm()) {
		send_to_all(&survivor, under_way, victims);
		/* Their requests are processed at any time around their death.
		 */
		for (int i = 0; i < ROUNDS; i++) {
			ct_kill(&children[i]);
			if (plans[i].drives)
				ct_progress(&survivor.peer);
		}
		all_end(&survivor);
		/* If the victim had connected, a message may have been sent. */
		for (int i = 0; i < ROUNDS; i++)
			REQUIRE(under_way[i].failed || plans[i].victim_acts);
	}
	ct_close_survivor(&survivor);
}

static const struct ct_test tests[] = {
	{ "connecting", connecting, CT_BOTH },
};

CT_MAIN(tests)
