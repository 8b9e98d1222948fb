/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A peer is killed, again and again, in each phase of a transfer. What the
 * survivor has under way with it ends, it is told, and it goes on with another
 * peer that lives through all of it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <rdma/fi_atomic.h>

#include "check.h"
#include "child.h"
#include "connect.h"
#include "memory.h"
#include "random.h"
#include "transfer.h"
#include "wait.h"

enum { ROUNDS = 20, WINDOW = 4, ROOM = 8 << 20, CHUNK = 1 << 20 };
enum { TAG = 1, NOTICE = 2 };

enum phase { IDLE, SMALL, DELIVERY, LARGE, READS, WRITES, ATOMICS };

/* What one side tells the other about itself. */
struct card {
	unsigned char name[256];
	uint64_t addr, key;
};

struct op {
	struct fi_context2 context;	/* first: completions lead back here */
	bool open, failed;
};

/* One end of a connection, in either process. */
struct side {
	struct ct_peer *peer;
	struct ct_memory memory;
	struct card other;
	struct op tx[WINDOW], rx[WINDOW], notice;
	int done;			/* operations that succeeded */
	bool gone;			/* the other side: one did not */
};

static struct plan {
	enum phase phase;
	bool victim_acts;		/* or else the survivor does */
	bool survivor_listens;		/* MSG */
} plan;

static bool rdm(void)
{
	return ct_opt.type == FI_EP_RDM;
}

static struct ct_spec spec(void)
{
	return (struct ct_spec) {
		.caps = FI_MSG | FI_TAGGED | FI_RMA |
			(rdm() ? FI_DIRECTED_RECV : 0) |
			(plan.phase == ATOMICS ? FI_ATOMIC : 0),
	};
}

/* Both sides of the introduction: each has the other's card afterwards, and MSG
 * endpoints are connected. */
static void meet(struct side *side, int fd, struct fid_pep *pep)
{
	struct card own = { .addr = side->memory.addr, .key = side->memory.key };
	struct ct_peer *peer = side->peer;
	struct ct_event request;

	if (rdm() || pep)
		ct_name(rdm() ? &peer->ep->fid : &pep->fid, own.name,
			sizeof(own.name));
	ct_tell(fd, &own, sizeof(own));
	ct_hear(fd, &side->other, sizeof(side->other));
	if (rdm()) {
		peer->to = ct_insert(peer, side->other.name);
		return;
	}
	if (pep) {
		ct_wait_request(peer, &request);
		ct_accept(peer, &request, NULL, 0);
	} else {
		ct_open_ep(peer, peer->info);
		OK(fi_connect(peer->ep, side->other.name, NULL, 0));
	}
	ct_wait_connected(peer);
}

static ssize_t post_tx(struct side *side, struct op *op)
{
	struct ct_message message = {
		.tagged = true, .tag = TAG, .buf = side->memory.data, .len = 8,
		.desc = side->memory.desc, .context = op,
	};
	struct ct_rma rma = {
		.buf = side->memory.data, .len = CHUNK,
		.desc = side->memory.desc, .addr = side->other.addr,
		.key = side->other.key, .context = op,
		.flags = FI_COMPLETION | FI_DELIVERY_COMPLETE,
	};
	struct ct_peer *peer = side->peer;

	switch (plan.phase) {
	case DELIVERY:
		message.flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
		return ct_send(peer, CT_SENDMSG, &message);
	case LARGE:
		message.len = ROOM;
		return ct_send(peer, CT_SEND, &message);
	case READS:
		return ct_rma(peer, CT_READ, &rma);
	case WRITES:
		return ct_rma(peer, CT_WRITEMSG, &rma);
	case ATOMICS:
		return fi_fetch_atomic(peer->ep, side->memory.data, 1,
				       side->memory.desc,
				       side->memory.data + 8,
				       side->memory.desc, peer->to,
				       side->other.addr, side->other.key,
				       FI_UINT64, FI_SUM, op);
	default:
		return ct_send(peer, CT_SEND, &message);
	}
}

static void post_rx(struct side *side, struct op *op, uint64_t tag,
		    fi_addr_t from)
{
	struct ct_message message = {
		.tagged = true, .tag = tag, .buf = side->memory.data,
		.len = ROOM, .desc = side->memory.desc, .from = from,
		.context = op,
	};
	ssize_t ret = CT_POST(side->peer, ct_recv(side->peer, CT_RECV,
						  &message));

	if (ret) {
		REQUIRE(!rdm());
		side->gone = true;
		return;
	}
	*op = (struct op) { .open = true };
}

/* Takes in what has ended. */
static void reap(struct side *side)
{
	struct ct_cq *cqs[] = { &side->peer->tx, &side->peer->rx };

	ct_progress(side->peer);
	for (size_t i = 0; i < 2; i++)
		while (cqs[i]->count) {
			struct ct_completion end = cqs[i]->stash[cqs[i]->first++];
			struct op *op = end.context;

			cqs[i]->count--;
			REQUIRE(op->open);
			op->open = false;
			op->failed = end.err;
			side->gone |= end.err && end.err != FI_ECANCELED;
			side->done += !end.err;
		}
}

static int open_count(const struct op *ops, int count)
{
	int open = 0;

	for (int i = 0; i < count; i++)
		open += ops[i].open;
	return open;
}

/* Keeps the window full, or the receives for the other's one. */
static void keep_busy(struct side *side, bool acts)
{
	reap(side);
	/* One message, so that RDM endpoints are connected in any phase. */
	if (acts && plan.phase == IDLE && (side->done || side->tx[0].open))
		return;
	for (int i = 0; i < WINDOW && !side->gone; i++) {
		if (!acts && !side->rx[i].open) {
			post_rx(side, &side->rx[i], TAG, FI_ADDR_UNSPEC);
		} else if (acts && !side->tx[i].open) {
			ssize_t ret = post_tx(side, &side->tx[i]);

			if (ret == -FI_EAGAIN)
				return;
			if (ret)
				side->gone = true;
			else
				side->tx[i] = (struct op) { .open = true };
			if (plan.phase == IDLE)
				return;
		}
	}
}

/* How many operations show that they are under way. */
static int enough(void)
{
	switch (plan.phase) {
	case IDLE:
	case LARGE:
		return 1;
	default:
		return 10;
	}
}

static void open_memory(struct side *side)
{
	ct_memory_open(side->peer, &side->memory, ROOM, FI_SEND | FI_RECV |
		       FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE);
}

/* Goes on until it is killed. */
static void victim(int fd)
{
	struct ct_spec wanted = spec();
	struct fid_pep *pep = NULL;
	static struct side side;
	struct ct_peer peer;
	bool told = false;

	ct_open_domain(&peer, &wanted, ct_getinfo(&wanted), NULL, NULL);
	side.peer = &peer;
	open_memory(&side);
	if (rdm())
		ct_open_ep(&peer, peer.info);
	else if (!plan.survivor_listens)
		pep = ct_listen(&peer);
	meet(&side, fd, pep);
	for (;;) {
		keep_busy(&side, plan.victim_acts);
		if (plan.victim_acts && !told && side.done >= enough()) {
			told = true;
			ct_tell(fd, "x", 1);
		}
	}
}

/* Answers each message until it is told to leave. */
static void steady(int fd)
{
	struct ct_spec wanted = spec();
	static struct fi_context2 tx, rx;
	struct side side = { 0 };
	struct ct_peer peer;
	char word = 0;

	ct_open_domain(&peer, &wanted, ct_getinfo(&wanted), NULL, NULL);
	side.peer = &peer;
	if (rdm())
		ct_open_ep(&peer, peer.info);
	meet(&side, fd, NULL);
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

struct survivor {
	struct ct_peer peer;		/* of the victims */
	struct ct_peer second;		/* MSG: of the steady one */
	struct fid_pep *pep;
	struct ct_child steady;
	fi_addr_t steady_addr;
};

static void exchange(struct survivor *survivor, char word)
{
	struct ct_peer *peer = rdm() ? &survivor->peer : &survivor->second;
	static struct fi_context2 tx, rx;
	char back = 0;

	POST(peer, fi_recv(peer->ep, &back, 1, NULL, FI_ADDR_UNSPEC, &rx));
	POST(peer, fi_send(peer->ep, &word, 1, NULL, survivor->steady_addr,
			   &tx));
	ct_done(peer, &peer->tx, &tx);
	ct_done(peer, &peer->rx, &rx);
	REQUIRE(back == word);
}

static void open_survivor(struct survivor *survivor)
{
	struct ct_spec wanted = spec();
	struct fi_info *info;
	struct side side = { 0 };

	memset(survivor, 0, sizeof(*survivor));
	survivor->steady = ct_spawn(steady);
	/* Attempts to reach a dead peer do not take long. */
	REQUIRE(!setenv("FI_TCP_CONNECT_TIMEOUT", "5000", 1));
	info = ct_getinfo(&wanted);
	ct_open_domain(&survivor->peer, &wanted, info, NULL, NULL);
	ct_begin(&survivor->steady);
	if (rdm()) {
		ct_open_ep(&survivor->peer, info);
		side.peer = &survivor->peer;
		meet(&side, survivor->steady.fd, NULL);
		survivor->steady_addr = survivor->peer.to;
	} else {
		ct_open_domain(&survivor->second, &wanted, fi_dupinfo(info),
			       survivor->peer.fabric, survivor->peer.domain);
		survivor->pep = ct_listen(&survivor->second);
		side.peer = &survivor->second;
		meet(&side, survivor->steady.fd, survivor->pep);
		OK(fi_close(&survivor->pep->fid));
		survivor->pep = ct_listen(&survivor->peer);
	}
	exchange(survivor, 'a');
}

static void close_survivor(struct survivor *survivor)
{
	exchange(survivor, 'q');
	ct_tell(survivor->steady.fd, "x", 1);
	ct_join(&survivor->steady);
	if (!rdm()) {
		OK(fi_close(&survivor->pep->fid));
		ct_close_peer(&survivor->second);
	}
	ct_close_peer(&survivor->peer);
}

#define DRIVE_UNTIL(side, acts, cond)					\
	do {								\
		double until_ = ct_now() + ct_patience();		\
									\
		while (!(cond)) {					\
			if (ct_now() > until_)				\
				ct_fail(__FILE__, __LINE__,		\
					"never: %s", #cond);		\
			keep_busy(side, acts);				\
		}							\
	} while (0)

static bool told(int fd)
{
	char word;

	return recv(fd, &word, 1, MSG_DONTWAIT) == 1;
}

/* What still waits is nobody's: the application gets it back on demand. */
static void take_back_receives(struct side *side)
{
	for (int i = 0; i < WINDOW; i++)
		if (side->rx[i].open)
			EXPECT(fi_cancel(&side->peer->ep->fid, &side->rx[i]), 0);
}

static unsigned char spare[ROOM];

/* An operation for each of the victims. */
static void send_to_all(struct survivor *survivor, struct op *ops,
			const fi_addr_t *victims)
{
	struct side side = { .peer = &survivor->peer, .memory.data = spare };

	for (int i = 0; i < ROUNDS; i++) {
		survivor->peer.to = victims[i];
		POST(side.peer, post_tx(&side, &ops[i]));
		ops[i].open = true;
	}
}

static void receive_from_all(struct survivor *survivor, struct op *ops,
			     const fi_addr_t *victims)
{
	struct side side = { .peer = &survivor->peer, .memory.data = spare };

	for (int i = 0; i < ROUNDS; i++)
		post_rx(&side, &ops[i], TAG, victims[i]);
}

static void all_end(struct survivor *survivor, const struct op *ops)
{
	struct side side = { .peer = &survivor->peer, .gone = true };

	DRIVE_UNTIL(&side, true, !open_count(ops, ROUNDS));
	exchange(survivor, 'c');
}

static void all_fail(struct survivor *survivor, const struct op *ops)
{
	all_end(survivor, ops);
	for (int i = 0; i < ROUNDS; i++)
		REQUIRE(ops[i].failed);
}

static void kill_one(struct survivor *survivor, struct ct_child *child,
		     struct ct_random *chance)
{
	static struct side side;
	struct fid_pep *pep = plan.survivor_listens ? survivor->pep : NULL;
	bool acts = !plan.victim_acts;

	memset(&side, 0, sizeof(side));
	side.peer = &survivor->peer;
	open_memory(&side);
	ct_begin(child);
	meet(&side, child->fd, rdm() ? NULL : pep);
	if (acts)
		DRIVE_UNTIL(&side, acts, side.done >= enough());
	else
		DRIVE_UNTIL(&side, acts, side.done >=
			    (plan.phase > LARGE ? 0 : enough()) &&
			    told(child->fd));
	if (rdm())
		post_rx(&side, &side.notice, NOTICE, survivor->peer.to);
	for (uint64_t i = ct_below(chance, 200); i; i--)
		keep_busy(&side, acts);
	ct_kill(child);

	/* The survivor is told, ... */
	if (rdm()) {
		DRIVE_UNTIL(&side, acts, !side.notice.open);
		REQUIRE(side.notice.failed);
	} else {
		struct ct_event end = ct_event_of(&survivor->peer, FI_SHUTDOWN);

		REQUIRE(end.fid == &survivor->peer.ep->fid);
	}
	/* ... all that it had under way ends, ... */
	side.gone = true;
	DRIVE_UNTIL(&side, acts, !open_count(side.tx, WINDOW));
	if (rdm())
		take_back_receives(&side);
	DRIVE_UNTIL(&side, acts, !open_count(side.rx, WINDOW));
	ct_memory_close(&side.memory);
	if (!rdm()) {
		OK(fi_close(&survivor->peer.ep->fid));
		survivor->peer.ep = NULL;
	}
	/* ... and it goes on with others. */
	exchange(survivor, 'b');
}

static void run_phase(enum phase phase)
{
	struct ct_child children[ROUNDS];
	struct ct_random chance = { .state = (uint64_t)phase };
	struct op late[2][ROUNDS] = { 0 };
	fi_addr_t dead[ROUNDS];
	struct plan plans[ROUNDS];
	struct survivor survivor;

	plan.phase = phase;
	for (int i = 0; i < ROUNDS; i++) {
		plan.victim_acts = i & 1;
		plan.survivor_listens = i & 2;
		plans[i] = plan;
		children[i] = ct_spawn(victim);
	}
	open_survivor(&survivor);
	for (int i = 0; i < ROUNDS; i++) {
		plan = plans[i];
		kill_one(&survivor, &children[i], &chance);
		dead[i] = survivor.peer.to;
	}
	if (rdm() && phase == IDLE) {
		receive_from_all(&survivor, late[0], dead);
		all_fail(&survivor, late[0]);
		send_to_all(&survivor, late[1], dead);
		all_fail(&survivor, late[1]);
	}
	close_survivor(&survivor);
}

/* Begins to connect, or waits to be connected to, and does nothing more. */
static void shy_victim(int fd)
{
	struct ct_spec wanted = spec();
	struct card own = { 0 }, other;
	static struct op op;
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
	if (plan.survivor_listens)
		ct_progress(&peer);
	ct_tell(fd, &own, sizeof(own));
	for (;;)
		pause();
}

/* MSG: a connection to a victim fails; one that a victim asked for may still be
 * accepted, and then ends. */
static void connecting_msg(struct survivor *survivor, struct ct_child *child)
{
	struct ct_peer *peer = &survivor->peer;
	struct card own = { 0 }, other;
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
		       plan.survivor_listens)
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
	struct survivor survivor;
	fi_addr_t victims[ROUNDS];
	struct card card = { 0 };

	plan.phase = IDLE;
	for (int i = 0; i < ROUNDS; i++) {
		plan.victim_acts = i & 1;
		plan.survivor_listens = i & 2;
		plans[i] = plan;
		children[i] = ct_spawn(shy_victim);
	}
	open_survivor(&survivor);
	for (int i = 0; i < ROUNDS; i++) {
		plan = plans[i];
		ct_begin(&children[i]);
		if (!rdm()) {
			connecting_msg(&survivor, &children[i]);
			exchange(&survivor, 'b');
			continue;
		}
		ct_name(&survivor.peer.ep->fid, card.name, sizeof(card.name));
		ct_tell(children[i].fd, &card, sizeof(card));
		ct_hear(children[i].fd, &card, sizeof(card));
		victims[i] = ct_insert(&survivor.peer, card.name);
	}
	if (rdm()) {
		send_to_all(&survivor, under_way, victims);
		/* Their requests are taken in at any time around their death. */
		for (int i = 0; i < ROUNDS; i++) {
			ct_kill(&children[i]);
			if (plans[i].survivor_listens)
				ct_progress(&survivor.peer);
		}
		all_end(&survivor, under_way);
		/* Where the victim had connected a message may have left. */
		for (int i = 0; i < ROUNDS; i++)
			REQUIRE(under_way[i].failed || plans[i].victim_acts);
	}
	close_survivor(&survivor);
}

static void idle(void) { run_phase(IDLE); }
static void small(void) { run_phase(SMALL); }
static void delivery(void) { run_phase(DELIVERY); }
static void large(void) { run_phase(LARGE); }
static void reads(void) { run_phase(READS); }
static void writes(void) { run_phase(WRITES); }
static void atomics(void) { run_phase(ATOMICS); }

static const struct ct_test tests[] = {
	{ "connecting", connecting, CT_BOTH },
	{ "idle", idle, CT_BOTH },
	{ "small-messages", small, CT_BOTH },
	{ "delivery-complete", delivery, CT_BOTH },
	{ "large-messages", large, CT_BOTH },
	{ "reads", reads, CT_BOTH },
	{ "writes", writes, CT_BOTH },
	{ "atomics", atomics, CT_BOTH },
};

CT_MAIN(tests)
