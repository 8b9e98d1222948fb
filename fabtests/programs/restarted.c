/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A peer is killed in each phase of a transfer, and at once there is another
 * one at its address. The operations with the old one end, and those with the
 * new one are carried out. Nobody else is in the network of these processes,
 * who could be given the port in between.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "memory.h"
#include "network.h"
#include "random.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

enum { ROUNDS = 20, WINDOW = 4, ROOM = 1 << 20, TAG = 1 };

enum phase { SETUP, SMALL, LARGE, READS, WRITES, CLOSING };

struct op {
	struct fi_context2 context;	/* first: completions lead back here */
	bool open, failed;
};

static enum phase phase;
static unsigned char wanted_name[CT_NAME];

/* An endpoint at the address of the one before. */
static void at_the_same_address(struct fi_info *info)
{
	if (!wanted_name[0] && !wanted_name[1])
		return;
	REQUIRE(info->src_addr && info->src_addrlen <= sizeof(wanted_name));
	memcpy(info->src_addr, wanted_name, info->src_addrlen);
}

static struct ct_spec spec(void)
{
	return (struct ct_spec) {
		.caps = FI_MSG | FI_TAGGED | FI_RMA,
		.change = at_the_same_address,
	};
}

static void open_memory(struct ct_peer *peer, struct ct_memory *memory)
{
	ct_memory_open(peer, memory, ROOM, FI_SEND | FI_RECV | FI_READ |
		       FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE);
}

/* Whether the other process has said something. */
static bool is_told(int fd)
{
	struct pollfd told = { .fd = fd, .events = POLLIN };

	return poll(&told, 1, 0) == 1;
}

/* Receives until it is killed, or told to close its endpoint. */
static void victim(int fd)
{
	struct ct_spec wanted = spec();
	struct ct_card own = { 0 }, other;
	static struct op receives[WINDOW];
	struct ct_memory memory;
	struct ct_peer peer;

	ct_hear(fd, wanted_name, sizeof(wanted_name));
	ct_open_domain(&peer, &wanted, ct_getinfo(&wanted), NULL, NULL);
	ct_open_ep(&peer, peer.info);
	open_memory(&peer, &memory);
	own.addr = memory.addr;
	own.key = memory.key;
	ct_meet(&peer, &own, &other, fd, NULL);
	while (!is_told(fd)) {
		for (int i = 0; i < WINDOW; i++) {
			struct ct_message message = {
				.tagged = true, .tag = TAG, .buf = memory.data,
				.len = ROOM, .desc = memory.desc,
				.from = FI_ADDR_UNSPEC, .context = &receives[i],
			};

			if (receives[i].open)
				continue;
			OK(CT_POST(&peer, ct_recv(&peer, CT_RECV, &message)));
			receives[i].open = true;
		}
		ct_progress(&peer);
		while (peer.rx.count) {
			struct op *op = peer.rx.stash[peer.rx.first++].context;

			peer.rx.count--;
			op->open = false;
		}
	}
	ct_tell(fd, "c", 1);
	OK(fi_close(&peer.ep->fid));
	for (;;)
		pause();
}

static bool post(struct ct_peer *peer, const struct ct_memory *memory,
		 const struct ct_card *other, enum phase what, struct op *op)
{
	struct ct_message message = {
		.tagged = true, .tag = TAG, .buf = memory->data,
		.len = what == LARGE ? ROOM : 8, .desc = memory->desc,
		.context = op,
	};
	struct ct_rma rma = {
		.buf = memory->data, .len = ROOM, .desc = memory->desc,
		.addr = other->addr, .key = other->key, .context = op,
		.flags = FI_COMPLETION | FI_DELIVERY_COMPLETE,
	};
	ssize_t ret;

	switch (what) {
	case READS:
		ret = ct_rma(peer, CT_READ, &rma);
		break;
	case WRITES:
		ret = ct_rma(peer, CT_WRITEMSG, &rma);
		break;
	default:
		ret = ct_send(peer, CT_SEND, &message);
	}
	if (ret == -FI_EAGAIN)
		return false;
	OK(ret);
	*op = (struct op) { .open = true };
	return true;
}

static void reap(struct ct_peer *peer)
{
	ct_progress(peer);
	while (peer->tx.count) {
		struct ct_completion end = peer->tx.stash[peer->tx.first++];
		struct op *op = end.context;

		peer->tx.count--;
		REQUIRE(op->open);
		op->open = false;
		op->failed = end.err;
	}
}

/* Until one operation with the peer has succeeded. */
static void reach(struct ct_peer *peer, const struct ct_memory *memory,
		  const struct ct_card *other, struct op *op)
{
	double until = ct_now() + ct_patience();

	op->failed = true;
	while (op->open || op->failed) {
		if (ct_now() > until)
			ct_fail(__FILE__, __LINE__, "it is never reached");
		if (!op->open)
			post(peer, memory, other, SMALL, op);
		reap(peer);
	}
}

static void keep_busy(struct ct_peer *peer, const struct ct_memory *memory,
		      const struct ct_card *other, struct op *ops)
{
	static const enum phase each[WINDOW] = { SMALL, LARGE, READS, WRITES };

	for (int i = 0; i < WINDOW; i++)
		if (!ops[i].open)
			post(peer, memory, other,
			     phase == CLOSING ? each[i] : phase, &ops[i]);
	reap(peer);
}

static void meet(struct ct_peer *peer, struct ct_child *child,
		 struct ct_card *other)
{
	struct ct_card own = { 0 };
	unsigned char name[CT_NAME];

	memcpy(name, other->name, sizeof(name));
	ct_begin(child);
	ct_tell(child->fd, name, sizeof(name));
	ct_meet(peer, &own, other, child->fd, NULL);
}

static void run_phase(enum phase what)
{
	static struct op ops[WINDOW], last;
	struct ct_child children[ROUNDS + 1];
	struct ct_random chance = { .state = (uint64_t)what };
	struct ct_card other = { 0 };
	struct ct_memory memory;
	struct ct_spec wanted;
	struct ct_peer peer;

	phase = what;
	if (ct_opt.source)
		ct_own_network();
	for (int i = 0; i <= ROUNDS; i++)
		children[i] = ct_spawn(victim);
	wanted = spec();
	ct_open_domain(&peer, &wanted, ct_getinfo(&wanted), NULL, NULL);
	ct_open_ep(&peer, peer.info);
	open_memory(&peer, &memory);
	meet(&peer, &children[0], &other);
	for (int i = 0; i < ROUNDS; i++) {
		double until = ct_now() + ct_patience();
		int open = WINDOW;

		if (what != SETUP)
			reach(&peer, &memory, &other, &last);
		for (uint64_t n = ct_below(&chance, 200); n; n--)
			keep_busy(&peer, &memory, &other, ops);
		if (what == CLOSING) {
			char word = 'c';

			ct_tell(children[i].fd, &word, 1);
			while (!is_told(children[i].fd))
				keep_busy(&peer, &memory, &other, ops);
			ct_hear(children[i].fd, &word, 1);
			for (uint64_t n = ct_below(&chance, 200); n; n--)
				keep_busy(&peer, &memory, &other, ops);
		}
		ct_kill(&children[i]);
		meet(&peer, &children[i + 1], &other);
		reach(&peer, &memory, &other, &last);
		while (open) {
			if (ct_now() > until)
				ct_fail(__FILE__, __LINE__, "operations with "
					"the old peer never end");
			reap(&peer);
			open = 0;
			for (int n = 0; n < WINDOW; n++)
				open += ops[n].open;
		}
	}
	ct_kill(&children[ROUNDS]);
	ct_memory_close(&memory);
	ct_close_peer(&peer);
}

static void setup(void) { run_phase(SETUP); }
static void small(void) { run_phase(SMALL); }
static void large(void) { run_phase(LARGE); }
static void reads(void) { run_phase(READS); }
static void writes(void) { run_phase(WRITES); }
static void closing(void) { run_phase(CLOSING); }

static const struct ct_test tests[] = {
	{ "set-up", setup, CT_RDM | CT_SLOW },
	{ "small-messages", small, CT_RDM | CT_SLOW },
	{ "large-messages", large, CT_RDM | CT_SLOW },
	{ "reads", reads, CT_RDM | CT_SLOW },
	{ "writes", writes, CT_RDM | CT_SLOW },
	{ "closing", closing, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
