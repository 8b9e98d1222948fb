/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A peer is killed, again and again, in each phase of a transfer. The
 * survivor's operations with it end, it is informed, and it continues with
 * another peer that lives through all of it.
 *
 * On a library that is built for simulation, with steps.so preloaded
 * (fabtests/simulated/steps.c), it ends itself at some access to the memory that
 * the processes share, or some system call, which CT_SEED=<number> decides. Half
 * of them stop there before they end: that concerns nobody else, but for regions in
 * which they are in the middle of a copy.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/fi_atomic.h>

#include "check.h"
#include "connect.h"
#include "memory.h"
#include "random.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

enum { ROUNDS = 20, WINDOW = 4, ROOM = 8 << 20, CHUNK = 1 << 20 };
enum { TAG = 1, NOTICE = 2 };
enum { FURTHEST = 4000, PATIENCE = 1000000 };	/* steps until an end, and calls that wait for it */
enum { STOPPED = 3 };				/* seconds that a victim stops, at most */

enum phase { IDLE, SMALL, DELIVERY, LARGE, READS, WRITES, ATOMICS };

struct op {
	struct fi_context2 context;	/* first: completions lead back here */
	bool open, failed;
};

/* One end of a connection, in either process. */
struct side {
	struct ct_peer *peer;
	struct ct_memory memory;
	struct ct_card other;
	struct op tx[WINDOW], rx[WINDOW], notice;
	int done;			/* operations that succeeded */
	bool gone;			/* the other side: one did not */
};

static struct plan {
	enum phase phase;
	bool victim_acts;		/* or else the survivor does */
	bool survivor_listens;		/* MSG */
} plan;

/* How a victim ends. */
struct end {
	uint64_t steps;
	int signal;
};

typedef void (*ends_fn)(uint64_t steps, int signal);
typedef void (*step_fn)(bool is_rare);

/* NULL if the library is not built for that. */
static ends_fn ends(void)
{
	return (ends_fn)dlsym(RTLD_DEFAULT, "simulated_ends");
}

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

static void introduce(struct side *side, int fd, struct fid_pep *pep)
{
	struct ct_card own = {
		.addr = side->memory.addr, .key = side->memory.key,
	};

	ct_meet(side->peer, &own, &side->other, fd, pep);
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

/* Handles completions. */
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
			/* The notice is not cancelled. */
			side->gone |= end.err && (end.err != FI_ECANCELED ||
						  op == &side->notice);
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

/* The number of operations that show that they are in progress. */
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

/* Continues until it is killed. */
static void victim(int fd)
{
	struct ct_spec wanted = spec();
	struct fid_pep *pep = NULL;
	static struct side side;
	struct ct_peer peer;
	step_fn step = (step_fn)dlsym(RTLD_DEFAULT, "simulated_step");
	bool told = false, is_ending = false;
	struct end end;

	ct_open_domain(&peer, &wanted, ct_getinfo(&wanted), NULL, NULL);
	side.peer = &peer;
	open_memory(&side);
	if (rdm())
		ct_open_ep(&peer, peer.info);
	else if (!plan.survivor_listens)
		pep = ct_listen(&peer);
	introduce(&side, fd, pep);
	for (;;) {
		keep_busy(&side, plan.victim_acts);
		if (plan.victim_acts && !told && side.done >= enough()) {
			told = true;
			ct_tell(fd, "x", 1);
		}
		/* Where it only waits, this is its one step. */
		if (is_ending)
			step(false);
		if (!is_ending && ends() && recv(fd, &end, sizeof(end), MSG_DONTWAIT) == sizeof(end)) {
			is_ending = true;
			ends()(end.steps, end.signal);
		}
	}
}

#define DRIVE_UNTIL(side, acts, cond) CT_UNTIL(cond, keep_busy(side, acts))

static bool told(int fd)
{
	char word;

	return recv(fd, &word, 1, MSG_DONTWAIT) == 1;
}

/* Receives that still wait belong to no peer: the application can cancel them.
 */
static void take_back_receives(struct side *side)
{
	for (int i = 0; i < WINDOW; i++)
		if (side->rx[i].open)
			EXPECT(fi_cancel(&side->peer->ep->fid, &side->rx[i]), 0);
}

static unsigned char spare[ROOM];

/* An operation for each of the victims. */
static void send_to_all(struct ct_survivor *survivor, struct op *ops,
			const fi_addr_t *victims)
{
	struct side side = { .peer = &survivor->peer, .memory.data = spare };

	for (int i = 0; i < ROUNDS; i++) {
		survivor->peer.to = victims[i];
		POST(side.peer, post_tx(&side, &ops[i]));
		ops[i].open = true;
	}
}

static void receive_from_all(struct ct_survivor *survivor, struct op *ops,
			     const fi_addr_t *victims)
{
	struct side side = { .peer = &survivor->peer, .memory.data = spare };

	for (int i = 0; i < ROUNDS; i++)
		post_rx(&side, &ops[i], TAG, victims[i]);
}

static void all_fail(struct ct_survivor *survivor, const struct op *ops)
{
	struct side side = { .peer = &survivor->peer, .gone = true };

	DRIVE_UNTIL(&side, true, !open_count(ops, ROUNDS));
	ct_exchange(survivor, 'c');
	for (int i = 0; i < ROUNDS; i++)
		REQUIRE(ops[i].failed);
}

/* Whether the child has ended or stopped. */
static bool rests(const struct ct_child *child)
{
	siginfo_t info = { 0 };

	REQUIRE(!waitid(P_PID, (id_t)child->pid, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT));
	return info.si_pid == child->pid;
}

/* A message to the steady peer and back, while operations with the victim are in progress. */
static void exchange_meanwhile(struct ct_survivor *survivor, struct side *side)
{
	struct op there = { .open = true }, back = { .open = true };
	char word = 's';

	if (!rdm()) {
		ct_exchange(survivor, word);
		return;
	}
	POST(side->peer, fi_recv(side->peer->ep, &word, 1, NULL, FI_ADDR_UNSPEC, &back));
	POST(side->peer, fi_send(side->peer->ep, &word, 1, NULL, survivor->steady_addr, &there));
	CT_UNTIL(!there.open && !back.open, keep_busy(side, !plan.victim_acts));
	REQUIRE(!there.failed && !back.failed);
}

static volatile pid_t stopped;

static void kill_stopped(int unused)
{
	(void)unused;
	kill(stopped, SIGKILL);
}

/* The victim ends at one of its steps, while the survivor goes on. If it does nothing any more, it is killed. */
static void end_at_a_step(struct ct_survivor *survivor, struct side *side, struct ct_child *child,
			  struct ct_random *chance)
{
	struct end end = {
		.steps = 1 + ct_below(chance, 1 + ct_below(chance, FURTHEST)),
		.signal = ct_once_in(chance, 2) ? SIGKILL : SIGSTOP,
	};

	ct_tell(child->fd, &end, sizeof(end));
	for (int i = 0; i < PATIENCE && !rests(child); i++)
		keep_busy(side, !plan.victim_acts);
	if (end.signal == SIGSTOP) {
		/* One that stops in the middle of a copy to or from memory of the survivor holds up the end of
		 * its region, until it goes on or ends. */
		stopped = child->pid;
		signal(SIGALRM, kill_stopped);
		alarm(STOPPED);
		for (uint64_t i = ct_below(chance, 200); i; i--)
			keep_busy(side, !plan.victim_acts);
		exchange_meanwhile(survivor, side);
		alarm(0);
	}
	ct_kill(child);
}

static void kill_one(struct ct_survivor *survivor, struct ct_child *child,
		     struct ct_random *chance)
{
	static struct side side;
	struct fid_pep *pep = plan.survivor_listens ? survivor->pep : NULL;
	bool acts = !plan.victim_acts;

	memset(&side, 0, sizeof(side));
	side.peer = &survivor->peer;
	open_memory(&side);
	ct_begin(child);
	introduce(&side, child->fd, rdm() ? NULL : pep);
	if (acts)
		DRIVE_UNTIL(&side, acts, side.done >= enough());
	else
		DRIVE_UNTIL(&side, acts, side.done >=
			    (plan.phase > LARGE ? 0 : enough()) &&
			    told(child->fd));
	if (rdm())
		post_rx(&side, &side.notice, NOTICE, survivor->peer.to);
	if (ends()) {
		end_at_a_step(survivor, &side, child, chance);
	} else {
		for (uint64_t i = ct_below(chance, 200); i; i--)
			keep_busy(&side, acts);
		ct_kill(child);
	}

	/* The survivor is informed, ... */
	if (rdm()) {
		DRIVE_UNTIL(&side, acts, !side.notice.open);
		REQUIRE(side.notice.failed);
	} else {
		struct ct_event end = ct_event_of(&survivor->peer, FI_SHUTDOWN);

		REQUIRE(end.fid == &survivor->peer.ep->fid);
	}
	/* ... all its operations end, ... */
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
	/* ... and it continues with others. */
	ct_exchange(survivor, 'b');
}

static void run_phase(enum phase phase)
{
	struct ct_child children[ROUNDS];
	const char *seed = getenv("CT_SEED");
	struct ct_random chance = { .state = (uint64_t)phase + (seed ? strtoull(seed, NULL, 0) * 8 : 0) };
	struct op late[2][ROUNDS] = { 0 };
	fi_addr_t dead[ROUNDS];
	struct plan plans[ROUNDS];
	struct ct_survivor survivor;
	struct ct_spec wanted;

	plan.phase = phase;
	wanted = spec();
	for (int i = 0; i < ROUNDS; i++) {
		plan.victim_acts = i & 1;
		plan.survivor_listens = i & 2;
		plans[i] = plan;
		children[i] = ct_spawn(victim);
	}
	ct_open_survivor(&survivor, &wanted);
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
	ct_close_survivor(&survivor);
}

static void idle(void) { run_phase(IDLE); }
static void small(void) { run_phase(SMALL); }
static void delivery(void) { run_phase(DELIVERY); }
static void large(void) { run_phase(LARGE); }
static void reads(void) { run_phase(READS); }
static void writes(void) { run_phase(WRITES); }
static void atomics(void) { run_phase(ATOMICS); }

static const struct ct_test tests[] = {
	{ "idle", idle, CT_BOTH | CT_SLOW },
	{ "small-messages", small, CT_BOTH | CT_SLOW },
	{ "delivery-complete", delivery, CT_BOTH | CT_SLOW },
	{ "large-messages", large, CT_BOTH | CT_SLOW },
	{ "reads", reads, CT_BOTH | CT_SLOW },
	{ "writes", writes, CT_BOTH | CT_SLOW },
	{ "atomics", atomics, CT_BOTH | CT_SLOW },
};

CT_MAIN(tests)
