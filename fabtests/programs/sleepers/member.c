/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "member.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "child.h"
#include "connect.h"
#include "memory.h"
#include "round.h"
#include "ways.h"
#include "watch.h"

/* How an endpoint sleeps, as long as it is open. */
struct habit {
	enum fi_wait_obj wait;
	enum fi_progress progress;
	enum fi_threading threading;
	bool one_cq;
	bool by_threshold;
	bool has_signals;	/* another thread disturbs the sleepers */
	bool has_threads;	/* one receives, one sends */
};

static bool may(struct ct_random *chance, bool is_offered)
{
	return is_offered && ct_once_in(chance, 2);
}

static struct habit draw_habit(const struct script *script,
			       struct ct_random *chance)
{
	static const enum fi_wait_obj waits[] = {
		FI_WAIT_UNSPEC, FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_FD,
		FI_WAIT_FD, FI_WAIT_SET, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD,
	};
	const struct offer *offer = &script->offer;
	struct habit habit = {
		.progress = may(chance, offer->is_auto) ? FI_PROGRESS_AUTO :
							  FI_PROGRESS_MANUAL,
		.by_threshold = may(chance, offer->by_threshold),
	};

	do {
		habit.wait = waits[ct_below(chance, 8)];
	} while (!offer->waits[habit.wait]);
	switch (ct_below(chance, 4)) {
	case 0:
		/* Which of two threads that sleep on a set is woken is not
		 * defined. */
		habit.has_threads = habit.wait != FI_WAIT_SET;
		break;
	case 1:
		habit.has_signals = habit.wait != FI_WAIT_SET;
		break;
	case 2:
		habit.one_cq = true;
		break;
	default:
		break;
	}
	habit.threading = habit.has_threads || habit.has_signals ||
			  ct_once_in(chance, 2) ? FI_THREAD_SAFE :
						  FI_THREAD_DOMAIN;
	return habit;
}

static void open_queue(struct member *member, const struct habit *habit,
		       struct fid_cq **cq)
{
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = habit->wait,
		.wait_set = member->set,
		.wait_cond = habit->by_threshold ? FI_CQ_COND_THRESHOLD :
						   FI_CQ_COND_NONE,
	};

	OK(fi_close(&(*cq)->fid));
	OK(fi_cq_open(member->peer.domain, &attr, cq, NULL));
}

/* Queues and counters that are woken in the way that is drawn. */
static void open_queues(struct member *member, const struct habit *habit)
{
	struct ct_peer *peer = &member->peer;
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_FD };

	if (habit->wait == FI_WAIT_SET) {
		struct fi_wait_attr attr = { .wait_obj = FI_WAIT_UNSPEC };

		OK(fi_wait_open(peer->fabric, &attr, &member->set));
	}
	open_queue(member, habit, &peer->tx.fid);
	if (habit->one_cq)
		peer->rx.fid = peer->tx.fid;
	else
		open_queue(member, habit, &peer->rx.fid);
	for (int i = 0; i < CT_CNTR_MAX; i++) {
		struct fi_cntr_attr attr = {
			.events = FI_CNTR_EVENTS_COMP,
			.wait_obj = habit->wait, .wait_set = member->set,
		};

		if (!peer->cntr[i])
			continue;
		OK(fi_close(&peer->cntr[i]->fid));
		OK(fi_cntr_open(peer->domain, &attr, &peer->cntr[i], NULL));
	}
	OK(fi_close(&peer->eq.fid->fid));
	OK(fi_eq_open(peer->fabric, &eq, &peer->eq.fid, NULL));
}

static void open_member(struct member *member, const struct script *script,
			struct ct_random *chance)
{
	struct habit habit = draw_habit(script, chance);
	struct ct_spec spec = {
		.caps = script->offer.caps, .threading = habit.threading,
		.progress = habit.progress, .one_cq = habit.one_cq,
		.counters = FI_SEND | FI_RECV,
	};
	struct sleeper sleeper = {
		.peer = &member->peer, .chance = *chance, .wait = habit.wait,
		.by_threshold = habit.by_threshold,
	};

	if (spec.caps & FI_RMA)
		spec.counters |= FI_READ | FI_WRITE;
	if (spec.caps & FI_RMA_EVENT)
		spec.counters |= FI_REMOTE_WRITE;
	ct_open_domain(&member->peer, &spec, ct_getinfo(&spec), NULL, NULL);
	open_queues(member, &habit);
	member->has_signals = habit.has_signals;
	member->has_threads = habit.has_threads;
	sleeper.set = member->set;
	sleeper.cqs[sleeper.cq_count++] = member->peer.tx.fid;
	if (!habit.one_cq)
		sleeper.cqs[sleeper.cq_count++] = member->peer.rx.fid;
	member->main = sleeper;
}

static void open_memory(struct member *member, struct ct_card *card)
{
	ct_memory_open(&member->peer, &member->local, LOCAL_SIZE,
		       FI_SEND | FI_RECV | FI_READ | FI_WRITE);
	ct_memory_open(&member->peer, &member->window, WINDOW_SIZE,
		       member->script->offer.caps & FI_RMA ?
		       FI_REMOTE_READ | FI_REMOTE_WRITE : 0);
	card->addr = member->window.addr;
	card->key = member->window.key;
}

/* An endpoint that others reach by the name on the card: that of a listener
 * for connections. */
static void open_reachable(struct member *member, const struct script *script,
			   struct ct_random *chance, struct ct_card *card)
{
	struct ct_peer *peer = &member->peer;
	struct fid *fid;

	member->has_guests = false;
	open_member(member, script, chance);
	if (ct_opt.type == FI_EP_MSG) {
		member->pep = ct_listen(peer);
		fid = &member->pep->fid;
	} else {
		ct_open_ep(peer, peer->info);
		fid = &peer->ep->fid;
	}
	ct_name(fid, card->name, sizeof(card->name));
	open_memory(member, card);
}

static void close_member(struct member *member)
{
	ct_memory_close(&member->local);
	ct_memory_close(&member->window);
	if (member->pep)
		OK(fi_close(&member->pep->fid));
	member->pep = NULL;
	if (member->set) {
		/* Objects that are closed after the set that they belong to. */
		struct fid_wait *set = member->set;
		struct fid_fabric *fabric = member->peer.fabric;

		member->peer.owns_fabric = false;
		ct_close_peer(&member->peer);
		OK(fi_close(&set->fid));
		OK(fi_close(&fabric->fid));
		member->set = NULL;
		return;
	}
	ct_close_peer(&member->peer);
}

/* Sleeps until an event of this type of the endpoint. The next guest's request
 * may arrive before that: events of different objects are not ordered. */
static void until_event(struct member *member, uint32_t type)
{
	for (;;) {
		struct fi_eq_cm_entry entry;
		uint32_t event = sleeper_until_event(&member->main, &entry);

		if (event == FI_CONNREQ) {
			REQUIRE(!member->request);
			member->request = entry.info;
		} else {
			REQUIRE(entry.fid == &member->peer.ep->fid);
			EXPECT(event, type);
		}
		if (event == type)
			return;
	}
}

static void accept_guest(struct member *member)
{
	if (!member->request)
		until_event(member, FI_CONNREQ);
	ct_open_ep(&member->peer, member->request);
	OK(fi_accept(member->peer.ep, NULL, 0));
	fi_freeinfo(member->request);
	member->request = NULL;
	until_event(member, FI_CONNECTED);
}

static void reach_host(struct member *member, const struct ct_card *host)
{
	struct ct_peer *peer = &member->peer;

	if (ct_opt.type == FI_EP_MSG) {
		OK(fi_connect(peer->ep, host->name, NULL, 0));
		until_event(member, FI_CONNECTED);
		return;
	}
	member->others[0] = ct_insert(peer, host->name);
}

static void *receive_all(void *arg)
{
	struct member *member = arg;
	struct sleeper sleeper = member->main;

	watch_self(member->self, 1);
	sleeper.chance.state ^= 1;
	sleeper.cqs[0] = member->peer.rx.fid;
	sleeper.cq_count = 1;
	for (int i = 0; i < ROUNDS; i++)
		round_receive(member, &sleeper, i);
	watch_part(NULL, member->season, ROUNDS);
	return NULL;
}

/* Wakes sleepers without an event. */
static void *signal_often(void *arg)
{
	struct member *member = arg;
	struct ct_random chance = member->main.chance;

	while (!atomic_load(&member->is_quiet)) {
		OK(fi_cq_signal(member->peer.tx.fid));
		OK(fi_cq_signal(member->peer.rx.fid));
		usleep((useconds_t)ct_below(&chance, 2000));
	}
	return NULL;
}

static void with_threads(struct member *member)
{
	struct sleeper sender = member->main;
	pthread_t thread;

	REQUIRE(!pthread_create(&thread, NULL, receive_all, member));
	sender.cqs[0] = member->peer.tx.fid;
	sender.cq_count = 1;
	for (int i = 0; i < ROUNDS; i++)
		round_send(member, &sender, i);
	watch_doing("waiting for the thread that receives");
	pthread_join(thread, NULL);
}

static void all_rounds(struct member *member)
{
	if (member->has_threads) {
		with_threads(member);
		return;
	}
	for (int i = 0; i < ROUNDS; i++) {
		round_send(member, &member->main, i);
		round_receive(member, &member->main, i);
	}
}

static void run_rounds(struct member *member)
{
	pthread_t thread;

	if (!member->has_signals) {
		all_rounds(member);
		return;
	}
	atomic_store(&member->is_quiet, false);
	REQUIRE(!pthread_create(&thread, NULL, signal_often, member));
	all_rounds(member);
	atomic_store(&member->is_quiet, true);
	pthread_join(thread, NULL);
}

/* Replaces the addresses of all earlier guests, to which no operation is in
 * progress since they have left, by those of the new ones. */
static void know_guests(struct member *member)
{
	size_t count = (size_t)member->script->members - 1;

	if (member->has_guests)
		OK(fi_av_remove(member->peer.av, member->others + 1, count, 0));
	for (size_t i = 1; i <= count; i++)
		member->others[i] = ct_insert(&member->peer,
					      member->cards[i].name);
	member->has_guests = true;
}

/* The host sleeps while guests leave and arrive, learns their addresses, and
 * sends them to all. */
static void host_season(struct member *member, int season)
{
	member->season = season;
	/* Some of this one's may arrive before its rounds begin here. */
	member->main.data_came = 0;
	watch_part("welcoming", season, -1);
	window_clear(member);
	if (ct_opt.type == FI_EP_MSG)
		accept_guest(member);
	welcome(member);
	if (ct_opt.type != FI_EP_MSG)
		know_guests(member);
	introduce(member);
	run_rounds(member);
	watch_part("parting", season, ROUNDS);
	part(member);
	if (ct_opt.type == FI_EP_MSG) {
		until_event(member, FI_SHUTDOWN);
		OK(fi_close(&member->peer.ep->fid));
		member->peer.ep = NULL;
	}
}

/* Closes the host's endpoint as soon as its last sends are complete, although
 * some messages have not been received yet, and waits for its guests to leave.
 */
static void close_alone(struct member *member, int fd)
{
	char word;

	watch_doing("closing");
	close_member(member);
	watch_doing("waiting for the guests to leave");
	while (recv(fd, &word, 1, MSG_DONTWAIT) != 1)
		usleep(200);
}

void host_run(const struct script *script, int fd)
{
	static struct member member;

	member.script = script;
	watch_self(0, 0);
	for (int season = 0; season < script->seasons; season++) {
		struct ct_random chance = script_chance(script, season, 0, 0);

		if (script_host_is_new(season)) {
			watch_part("opening", season, -1);
			if (season)
				close_alone(&member, fd);
			open_reachable(&member, script, &chance,
				       &member.cards[0]);
			ct_tell(fd, &member.cards[0], sizeof(member.cards[0]));
		}
		member.main.chance = chance;
		host_season(&member, season);
	}
	close_alone(&member, fd);
	watch_part(NULL, script->seasons, 0);
}

static void guest_season(struct member *member, const struct call *call)
{
	const struct script *script = member->script;
	struct ct_card *own = &member->cards[member->self];
	struct ct_random chance = script_chance(script, call->season,
						member->self, 0);

	member->season = call->season;
	watch_part("opening", call->season, -1);
	memset(own, 0, sizeof(*own));
	open_member(member, script, &chance);
	ct_open_ep(&member->peer, member->peer.info);
	if (ct_opt.type != FI_EP_MSG)
		ct_name(&member->peer.ep->fid, own->name, sizeof(own->name));
	open_memory(member, own);
	window_clear(member);
	reach_host(member, &call->host);
	say_hello(member);
	if (ct_opt.type != FI_EP_MSG)
		for (int i = 1; i < script->members; i++)
			if (i != member->self)
				member->others[i] =
					ct_insert(&member->peer,
						  member->cards[i].name);
	run_rounds(member);
	take_leave(member);
}

void guest_run(const struct script *script, int fd, int self)
{
	static struct member member;
	struct call call;

	member.script = script;
	member.self = self;
	watch_self(self, 0);
	for (;;) {
		enum leaving leaving;

		ct_hear(fd, &call, sizeof(call));
		leaving = script_leaving(script, call.season, self);
		guest_season(&member, &call);
		ct_tell(fd, "e", 1);
		if (leaving == EXITS)
			return;
		watch_doing("closing");
		close_member(&member);
		watch_part(NULL, call.season, ROUNDS);
		if (leaving == CLOSES_AND_EXITS)
			return;
	}
}
