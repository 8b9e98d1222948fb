/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * One-sided access within a host: writes to and reads from the memory of a process
 * that has met this one and never calls the library again. It sleeps, with manual
 * progress; it closes a region while others write to it; or it is killed.
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

#define ROOM (1 << 20)
#define TRIPS 200	/* until two processes know each other well */
#define LOOKS 2		/* of either side after the last message */
#define PUTS 20000
#define ROUNDS 200
#define PIECE (64 << 10)

static const struct ct_spec spec = {
	.caps = FI_MSG | FI_RMA,
};

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

/* Each side makes a call, and then the other one. */
static void look_again(struct ct_peer *peer, int fd, bool begins)
{
	char word = 'l';

	for (int i = 0; i < LOOKS; i++) {
		if (!begins)
			ct_hear(fd, &word, 1);
		ct_nudge(peer);
		ct_tell(fd, &word, 1);
		if (begins)
			ct_hear(fd, &word, 1);
	}
}

static int trips = TRIPS;

/* A message each way, and one after the other. */
static void exchange(struct ct_peer *peer, int fd, bool begins)
{
	static struct fi_context2 rx, tx;
	char in = 0, out = 'w';
	struct ct_message incoming = {
		.buf = &in, .len = 1, .from = FI_ADDR_UNSPEC, .context = &rx,
	};
	struct ct_message outgoing = {
		.buf = &out, .len = 1, .context = &tx,
	};

	for (int i = 0; i < trips; i++) {
		POST(peer, ct_recv(peer, CT_RECV, &incoming));
		if (begins) {
			POST(peer, ct_send(peer, CT_SEND, &outgoing));
			ct_done(peer, &peer->tx, &tx);
		}
		ct_done(peer, &peer->rx, &rx);
		if (!begins) {
			POST(peer, ct_send(peer, CT_SEND, &outgoing));
			ct_done(peer, &peer->tx, &tx);
		}
	}
	look_again(peer, fd, begins);
}

/* Whether the target registers its memory when the two have met. */
static bool registers_late;

static void open_memory(struct side *side)
{
	ct_memory_open(&side->peer, &side->memory, ROOM,
		       FI_REMOTE_READ | FI_REMOTE_WRITE);
}

static void open_child(struct side *side, int fd)
{
	struct ct_card late = { 0 };

	ct_open_domain(&side->peer, &spec, ct_getinfo(&spec), NULL, NULL);
	if (ct_opt.type == FI_EP_RDM)
		ct_open_ep(&side->peer, side->peer.info);
	if (!registers_late)
		open_memory(side);
	meet(side, fd, NULL);
	exchange(&side->peer, fd, false);
	if (registers_late) {
		open_memory(side);
		late.addr = side->memory.addr;
		late.key = side->memory.key;
		ct_tell(fd, &late, sizeof(late));
	}
}

/* Whether the initiator carries accesses out by itself: with shm, and with
 * providers that have a parameter for shared memory between two processes of
 * tcp. */
static bool needs_nobody(const char *provider)
{
	struct fi_param *params;
	bool knows = !strcmp(provider, "shm");
	int count;

	OK(fi_getparams(&params, &count));
	for (int i = 0; i < count; i++) {
		if (!strcmp(params[i].name, "FI_TCP_LOCAL") &&
		    strstr(provider, "tcp"))
			knows = !params[i].value ||
				!strcmp(params[i].value, "auto");
	}
	fi_freeparams(params);
	return knows;
}

static struct fid_pep *open_parent(struct side *side, struct ct_child *child)
{
	struct fi_info *info = ct_getinfo(&spec);
	struct fid_pep *pep = NULL;

	if (!needs_nobody(info->fabric_attr->prov_name)) {
		fi_freeinfo(info);
		ct_kill(child);
		SKIP("the target of an access has to make progress");
	}
	ct_open_domain(&side->peer, &spec, info, NULL, NULL);
	if (ct_opt.type == FI_EP_RDM)
		ct_open_ep(&side->peer, side->peer.info);
	else
		pep = ct_listen(&side->peer);
	ct_memory_open(&side->peer, &side->memory, ROOM, FI_READ | FI_WRITE);
	ct_begin(child);
	meet(side, child->fd, pep);
	exchange(&side->peer, child->fd, true);
	if (registers_late) {
		struct ct_card late;

		ct_hear(child->fd, &late, sizeof(late));
		side->other.addr = late.addr;
		side->other.key = late.key;
	}
	return pep;
}

static void close_parent(struct side *side, struct fid_pep *pep)
{
	ct_memory_close(&side->memory);
	if (pep)
		OK(fi_close(&pep->fid));
	ct_close_peer(&side->peer);
}

static struct fi_context2 context;

static struct ct_rma rma_of(struct side *side, size_t len)
{
	return (struct ct_rma) {
		.buf = side->memory.data, .len = len,
		.desc = side->memory.desc, .addr = side->other.addr,
		.key = side->other.key, .context = &context,
	};
}

static void access_memory(struct side *side, enum ct_rma_form form,
			  const struct ct_rma *rma)
{
	struct ct_peer *peer = &side->peer;

	POST(peer, ct_rma(peer, form, rma));
	if (ct_rma_completes(form))
		ct_done(peer, &peer->tx, &context);
}

/* Waits for the socket only, which does not belong to the library. */
static void sleeper(int fd)
{
	static struct side side;
	char word;

	open_child(&side, fd);
	ct_tell(fd, "r", 1);
	for (;;) {
		uint64_t seed, len;
		char good;

		ct_hear(fd, &word, 1);
		if (word == 'q')
			_exit(0);
		ct_hear(fd, &seed, sizeof(seed));
		ct_hear(fd, &len, sizeof(len));
		good = ct_holds(side.memory.data, len, (unsigned)seed);
		ct_tell(fd, &good, 1);
	}
}

/* Whether the sleeper finds these bytes in its memory. */
static bool is_there(struct ct_child *child, uint64_t seed, uint64_t len)
{
	char good;

	ct_tell(child->fd, "l", 1);
	ct_tell(child->fd, &seed, sizeof(seed));
	ct_tell(child->fd, &len, sizeof(len));
	ct_hear(child->fd, &good, 1);
	return good;
}

static void asleep(void)
{
	struct ct_child child = ct_spawn(sleeper);
	static struct side side;
	static const size_t sizes[] = { 1, 8, 96, 4096, 16385, PIECE, ROOM };
	struct fid_pep *pep = open_parent(&side, &child);
	unsigned char *data = side.memory.data;
	struct ct_rma rma;
	struct ct_completion end;
	unsigned seed = 0;
	char ready;

	ct_hear(child.fd, &ready, 1);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		enum ct_rma_form put, get = CT_READ;

		for (put = CT_WRITE; put < CT_RMA_FORMS; put++) {
			rma = rma_of(&side, sizes[i]);
			if (ct_rma_has_data(put) ||
			    rma.len > ct_rma_limit(&side.peer, put))
				continue;
			rma.pieces = rma.len > 8 ? 2 : 1;
			ct_fill(data, rma.len, ++seed);
			access_memory(&side, put, &rma);
			/* An injected write is complete when a later one is. */
			memset(data, 0, rma.len);
			access_memory(&side, get, &rma);
			REQUIRE(ct_holds(data, rma.len, seed));
			REQUIRE(is_there(&child, seed, rma.len));
			get = (get + 1) % CT_WRITE;
		}
	}
	CHECK(true, "sizes");
	rma = rma_of(&side, 8);
	for (int i = 0; i < PUTS; i++) {
		ct_fill(data, 8, ++seed);
		access_memory(&side, CT_WRITE, &rma);
	}
	REQUIRE(is_there(&child, seed, 8));
	CHECK(true, "many");
	rma = rma_of(&side, 8);
	rma.addr += ROOM - 7;
	POST(&side.peer, ct_rma(&side.peer, CT_READ, &rma));
	end = ct_error(&side.peer, &side.peer.tx);
	REQUIRE(end.context == &context);
	CHECK(true, "refused");
	ct_tell(child.fd, "q", 1);
	ct_join(&child);
	close_parent(&side, pep);
}

/* What an initiator does before it reads: nothing, a message that the target does not
 * take in, a write, an injected one, a read; each in any order. */
static const char *const orders[] = {
	"", "s", "w", "i", "r", "sw", "ws", "is", "rs", "sws", "wswi", "siwrs",
};

static void do_before(struct side *side, char what)
{
	struct ct_peer *peer = &side->peer;
	struct ct_rma rma = rma_of(side, 8);
	struct ct_message out = {
		.buf = side->memory.data, .len = 1, .desc = side->memory.desc,
		.context = &context,
	};

	switch (what) {
	case 's':
		POST(peer, ct_send(peer, CT_SEND, &out));
		ct_done(peer, &peer->tx, &context);
		break;
	case 'w':
		access_memory(side, CT_WRITE, &rma);
		break;
	case 'i':
		access_memory(side, CT_INJECT_WRITE, &rma);
		break;
	default:
		access_memory(side, CT_READ, &rma);
	}
}

/* The two have exchanged one message each way; the target has then looked once more,
 * and makes no more calls. */
static void met_once(void)
{
	trips = 1;
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		struct ct_child child = ct_spawn(sleeper);
		static struct side side;
		struct fid_pep *pep = open_parent(&side, &child);
		struct ct_rma rma;
		char ready;

		ct_hear(child.fd, &ready, 1);
		for (const char *what = orders[i]; *what; what++)
			do_before(&side, *what);
		for (enum ct_rma_form get = CT_READ; get < CT_WRITE; get++) {
			rma = rma_of(&side, 4000);
			rma.pieces = get == CT_READ ? 1 : 2;
			access_memory(&side, get, &rma);
		}
		CHECK(true, "after \"%s\"", orders[i]);
		ct_tell(child.fd, "q", 1);
		ct_join(&child);
		close_parent(&side, pep);
	}
}

static void registered_late(void)
{
	registers_late = true;
	met_once();
}

static void killed(void)
{
	struct ct_child child = ct_spawn(sleeper);
	static struct side side;
	struct fid_pep *pep = open_parent(&side, &child);
	struct ct_rma rma = rma_of(&side, 8);
	bool failed = false;
	char ready;

	ct_hear(child.fd, &ready, 1);
	access_memory(&side, CT_WRITE, &rma);
	ct_kill(&child);
	for (int i = 0; i < 4 && !failed; i++) {
		ssize_t ret = CT_POST(&side.peer, ct_rma(&side.peer, CT_WRITE,
							 &rma));

		failed = ret || ct_next(&side.peer, &side.peer.tx).err;
	}
	REQUIRE(failed);
	close_parent(&side, pep);
}

static bool has_heard(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) > 0;
}

/* Registers memory, has it written to, closes the region in the middle of that, and
 * has the memory for itself then. */
static void closer(int fd)
{
	static struct side side;
	char word;

	open_child(&side, fd);
	ct_tell(fd, "r", 1);
	for (int i = 0; i < ROUNDS; i++) {
		struct ct_memory memory;
		struct ct_card card = { 0 };
		unsigned char *data = mmap(NULL, PIECE, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		REQUIRE(data != MAP_FAILED);
		ct_register(&side.peer, &memory, data, PIECE, FI_REMOTE_WRITE);
		card.addr = memory.addr;
		card.key = memory.key;
		ct_tell(fd, &card, sizeof(card));
		/* The other side is at it. */
		ct_hear(fd, &word, 1);
		OK(fi_close(&memory.mr->fid));
		memset(data, 0xaa, PIECE);
		/* It has been refused by now, for good. */
		while (word != 'n') {
			ct_nudge(&side.peer);
			if (has_heard(fd))
				ct_hear(fd, &word, 1);
		}
		REQUIRE(ct_is_all(data, PIECE, 0xaa));
		REQUIRE(!munmap(data, PIECE));
	}
	ct_hear(fd, &word, 1);
	_exit(0);
}

static void closed(void)
{
	struct ct_child child = ct_spawn(closer);
	static struct side side;
	struct fid_pep *pep = open_parent(&side, &child);
	struct ct_peer *peer = &side.peer;
	char ready;

	ct_hear(child.fd, &ready, 1);
	memset(side.memory.data, 7, PIECE);
	for (int i = 0; i < ROUNDS; i++) {
		struct ct_rma rma = rma_of(&side, PIECE);
		struct ct_card card;
		int good = 0;

		ct_hear(child.fd, &card, sizeof(card));
		rma.addr = card.addr;
		rma.key = card.key;
		for (;;) {
			struct ct_completion end;

			POST(peer, ct_rma(peer, CT_WRITE, &rma));
			end = ct_next(peer, &peer->tx);
			REQUIRE(end.context == &context);
			if (end.err)
				break;
			if (!good++)
				ct_tell(child.fd, "w", 1);
		}
		REQUIRE(good);
		ct_tell(child.fd, "n", 1);
	}
	ct_tell(child.fd, "q", 1);
	ct_join(&child);
	close_parent(&side, pep);
}

static const struct ct_test tests[] = {
	{ "asleep", asleep, CT_BOTH },
	{ "met-once", met_once, CT_BOTH },
	{ "registered-late", registered_late, CT_BOTH },
	{ "killed", killed, CT_BOTH },
	{ "closed", closed, CT_BOTH },
};

CT_MAIN(tests)
