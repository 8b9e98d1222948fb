/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A region that is closed, and its memory unmapped, while its owner answers a read of it,
 * which the initiator does not take in meanwhile. This one read may end in any way;
 * everything else that is under way between the two is carried out: reads of other
 * regions, writes, atomic operations, and messages of both sides that were accepted
 * before and after the region was closed.
 */
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "connect.h"
#include "memory.h"
#include "pattern.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

#define ROOM (64 << 10)		/* of the region that stays */
#define LARGE (48 << 20)	/* more than any socket keeps */
#define SMALL 3000
#define TURNS 300
#define ROUNDS 3

static const struct ct_spec spec = {
	.caps = FI_MSG | FI_RMA,
};
static bool unmaps;

struct side {
	struct ct_peer peer;
	struct ct_memory memory;
	struct ct_card other;
};

static void meet(struct side *side, int fd, struct fid_pep *pep)
{
	struct ct_card own = {
		.addr = side->memory.addr, .key = side->memory.key,
	};

	ct_meet(&side->peer, &own, &side->other, fd, pep);
}

static void drive(struct ct_peer *peer)
{
	for (int i = 0; i < TURNS; i++)
		ct_nudge(peer);
}

/* Makes progress until the other side says something. */
static void hear(struct ct_peer *peer, int fd, void *data, size_t len)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	while (!poll(&pfd, 1, 0))
		ct_nudge(peer);
	ct_hear(fd, data, len);
}

static struct fi_context2 in_context[2];

static void expect_message(struct ct_peer *peer, char *buf, int i)
{
	struct ct_message message = {
		.buf = buf, .len = 1, .from = FI_ADDR_UNSPEC,
		.context = &in_context[i],
	};

	POST(peer, ct_recv(peer, CT_RECV, &message));
}

/* The owner of the regions. It injects one message before it closes the region, and one
 * after that; both are behind the answer, and so is the answer to a later read. */
static void owner(int fd)
{
	static struct side side;
	struct ct_peer *peer = &side.peer;
	char word = 0, in[2];

	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	if (ct_opt.type == FI_EP_RDM)
		ct_open_ep(peer, peer->info);
	ct_memory_open(peer, &side.memory, ROOM,
		       FI_REMOTE_READ | FI_REMOTE_WRITE);
	ct_fill(side.memory.data, ROOM, 1);
	meet(&side, fd, NULL);
	for (int round = 0; round < ROUNDS; round++) {
		struct ct_memory memory;
		struct ct_card card = { 0 };
		unsigned char *data = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct ct_message out = { .buf = &word, .len = 1 };

		REQUIRE(data != MAP_FAILED);
		memset(data, 3, LARGE);
		ct_register(peer, &memory, data, LARGE, FI_REMOTE_READ);
		card.addr = memory.addr;
		card.key = memory.key;
		expect_message(peer, &in[0], 0);
		expect_message(peer, &in[1], 1);
		ct_tell(fd, &card, sizeof(card));
		/* The read is posted, and the other side waits. */
		hear(peer, fd, &word, 1);
		drive(peer);
		word = '0';
		POST(peer, ct_send(peer, CT_INJECT, &out));
		OK(fi_close(&memory.mr->fid));
		if (unmaps)
			REQUIRE(!munmap(data, LARGE));
		word = '1';
		POST(peer, ct_send(peer, CT_INJECT, &out));
		drive(peer);
		ct_tell(fd, "c", 1);
		for (int i = 0; i < 2; i++) {
			ct_done(peer, &peer->rx, &in_context[i]);
			REQUIRE(in[i] == "mn"[i]);
		}
		if (!unmaps)
			munmap(data, LARGE);
	}
	ct_tell(fd, "e", 1);
	hear(peer, fd, &word, 1);
	ct_memory_close(&side.memory);
	ct_close_peer(peer);
	_exit(0);
}

static void withdraw(enum ct_rma_form form, size_t len)
{
	static struct fi_context2 doomed, later, written, sent;
	struct ct_child child = ct_spawn(owner);
	static struct side side;
	struct ct_peer *peer = &side.peer;
	struct fi_info *info = ct_getinfo(&spec);
	struct fid_pep *pep = NULL;
	unsigned char *space;
	struct ct_memory local;
	char word, in[2];

	ct_open_domain(peer, &spec, info, NULL, NULL);
	if (ct_opt.type == FI_EP_RDM)
		ct_open_ep(peer, peer->info);
	else
		pep = ct_listen(peer);
	ct_memory_open(peer, &side.memory, ROOM, FI_READ | FI_WRITE);
	ct_memory_open(peer, &local, LARGE, FI_READ | FI_WRITE);
	space = side.memory.data;
	ct_begin(&child);
	meet(&side, child.fd, pep);
	for (int round = 0; round < ROUNDS; round++) {
		struct ct_rma rma = {
			.buf = local.data, .len = len, .desc = local.desc,
			.pieces = form == CT_READ ? 1 : 2,
			.context = &doomed,
		};
		struct ct_message out = {
			.buf = &word, .len = 1, .context = &sent,
		};
		unsigned ends = 0;
		struct ct_card card;

		for (int i = 0; i < 2; i++)
			expect_message(peer, &in[i], i);
		hear(peer, child.fd, &card, sizeof(card));
		rma.addr = card.addr;
		rma.key = card.key;
		POST(peer, ct_rma(peer, form, &rma));
		rma = (struct ct_rma) {
			.buf = space, .len = SMALL, .desc = side.memory.desc,
			.addr = side.other.addr, .key = side.other.key,
			.context = &later,
		};
		memset(space, 0, SMALL);
		POST(peer, ct_rma(peer, CT_READ, &rma));
		ct_tell(child.fd, "r", 1);
		ct_hear(child.fd, &word, 1);
		rma.buf = space + SMALL;
		rma.addr += ROOM / 2;
		rma.context = &written;
		ct_fill(rma.buf, SMALL, 5 + round);
		POST(peer, ct_rma(peer, CT_WRITE, &rma));
		word = 'm';
		POST(peer, ct_send(peer, CT_SEND, &out));
		while (ends < 4) {
			struct ct_completion end = ct_next(peer, &peer->tx);

			ends++;
			REQUIRE(end.context == &doomed || !end.err);
		}
		REQUIRE(ct_holds(space, SMALL, 1));
		for (int i = 0; i < 2; i++) {
			ct_done(peer, &peer->rx, &in_context[i]);
			REQUIRE(in[i] == '0' + i);
		}
		rma.buf = space;
		rma.context = &later;
		memset(space, 0, SMALL);
		POST(peer, ct_rma(peer, CT_READ, &rma));
		ct_done(peer, &peer->tx, &later);
		REQUIRE(ct_holds(space, SMALL, 5 + round));
		word = 'n';
		POST(peer, ct_send(peer, CT_INJECT, &out));
	}
	hear(peer, child.fd, &word, 1);
	ct_tell(child.fd, "q", 1);
	ct_join(&child);
	ct_memory_close(&local);
	ct_memory_close(&side.memory);
	if (pep)
		OK(fi_close(&pep->fid));
	ct_close_peer(peer);
}

static void large(void)
{
	withdraw(CT_READ, LARGE);
}

static void medium(void)
{
	withdraw(CT_READV, 1 << 20);
}

static void small(void)
{
	withdraw(CT_READMSG, 9000);
}

static void unmapped(void)
{
	unmaps = true;
	withdraw(CT_READ, LARGE);
}

static const struct ct_test tests[] = {
	{ "large", large, CT_BOTH },
	{ "medium", medium, CT_BOTH },
	{ "small", small, CT_BOTH },
	{ "unmapped", unmapped, CT_BOTH },
};

CT_MAIN(tests)
