/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* The data path between two processes. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "child.h"
#include "connect.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define LARGEST (1 << 20)

static struct fi_context2 tx_context[64], rx_context[64];

/* One side of the pair: opens an endpoint and connects it to the other's. */
static void join(struct ct_peer *peer, const struct ct_spec *spec, int fd,
		 bool parent, struct fid_pep **pep)
{
	unsigned char name[CT_NAME] = { 0 };
	struct ct_event request;

	*pep = NULL;
	ct_open_domain(peer, spec, ct_getinfo(spec), NULL, NULL);
	if (ct_opt.type != FI_EP_MSG) {
		ct_open_ep(peer, peer->info);
		ct_name(&peer->ep->fid, name, sizeof(name));
		ct_tell(fd, name, sizeof(name));
		ct_hear(fd, name, sizeof(name));
		peer->to = ct_insert(peer, name);
	} else if (parent) {
		*pep = ct_listen(peer);
		ct_name(&(*pep)->fid, name, sizeof(name));
		ct_tell(fd, name, sizeof(name));
		ct_wait_request(peer, &request);
		ct_accept(peer, &request, NULL, 0);
		ct_wait_connected(peer);
	} else {
		ct_open_ep(peer, peer->info);
		ct_hear(fd, name, sizeof(name));
		OK(fi_connect(peer->ep, name, NULL, 0));
		ct_wait_connected(peer);
	}
}

static void leave(struct ct_peer *peer, struct fid_pep *pep)
{
	if (pep)
		OK(fi_close(&pep->fid));
	ct_close_peer(peer);
}

static void (*the_side)(int fd, bool parent);

static void run_child(int fd)
{
	the_side(fd, false);
}

/* Runs both sides, the second one in a child; each gets its end of a socket
 * to the other. The child's failure is the test's. Only the parent finds out
 * whether the capabilities are there, before the child begins. */
static void both(uint64_t caps, void (*side)(int fd, bool parent))
{
	struct ct_spec spec = { .caps = caps };
	struct ct_child child;

	the_side = side;
	child = ct_spawn(run_child);
	fi_freeinfo(ct_getinfo(&spec));
	ct_begin(&child);
	side(child.fd, true);
	ct_join(&child);
}

static void post_receive(struct ct_peer *peer, bool tagged, int i, void *buf,
			 size_t len, void *desc)
{
	struct ct_message m = {
		.tagged = tagged, .tag = (uint64_t)i, .buf = buf, .len = len,
		.desc = desc, .from = FI_ADDR_UNSPEC,
		.context = &rx_context[i],
	};

	POST(peer, ct_recv(peer, CT_RECV, &m));
}

static void post_send(struct ct_peer *peer, bool tagged, int i, void *buf,
		      size_t len, void *desc)
{
	struct ct_message m = {
		.tagged = tagged, .tag = (uint64_t)i, .buf = buf, .len = len,
		.desc = desc, .context = &tx_context[i],
	};

	POST(peer, ct_send(peer, CT_SEND, &m));
}

/* Every size there and back, contents verified at both ends. */
static void ping_pong(int fd, bool parent, bool tagged)
{
	struct ct_spec spec = { .caps = tagged ? FI_TAGGED : FI_MSG };
	struct ct_memory out, in;
	struct fid_pep *pep;
	struct ct_peer peer;

	join(&peer, &spec, fd, parent, &pep);
	ct_memory_open(&peer, &out, LARGEST, FI_SEND);
	ct_memory_open(&peer, &in, LARGEST, FI_RECV);
	for (size_t len = 0; len <= LARGEST; len = len ? len * 4 : 1) {
		for (int i = 0; i < 20; i++) {
			unsigned there = (unsigned)(len + (size_t)i);

			if (parent) {
				ct_fill(out.data, len, there);
				post_receive(&peer, tagged, 0, in.data, len,
					     in.desc);
				post_send(&peer, tagged, 0, out.data, len,
					  out.desc);
				ct_done(&peer, &peer.tx, &tx_context[0]);
				ct_done(&peer, &peer.rx, &rx_context[0]);
				REQUIRE(ct_holds(in.data, len, there + 1));
			} else {
				post_receive(&peer, tagged, 0, in.data, len,
					     in.desc);
				ct_done(&peer, &peer.rx, &rx_context[0]);
				REQUIRE(ct_holds(in.data, len, there));
				ct_fill(out.data, len, there + 1);
				post_send(&peer, tagged, 0, out.data, len,
					  out.desc);
				ct_done(&peer, &peer.tx, &tx_context[0]);
			}
		}
	}
	ct_memory_close(&out);
	ct_memory_close(&in);
	leave(&peer, pep);
}

static void msg_side(int fd, bool parent)
{
	ping_pong(fd, parent, false);
}

static void tagged_side(int fd, bool parent)
{
	ping_pong(fd, parent, true);
}

static void messages(void)
{
	both(FI_MSG, msg_side);
}

static void tagged_messages(void)
{
	both(FI_TAGGED, tagged_side);
}

/* A stream in windows, one way. */
static void stream_side(int fd, bool parent)
{
	enum { WINDOW = 32, SIZE = 10000, ROUNDS = 20 };
	struct ct_spec spec = { 0 };
	struct ct_memory memory;
	struct fid_pep *pep;
	struct ct_peer peer;

	join(&peer, &spec, fd, parent, &pep);
	ct_memory_open(&peer, &memory, WINDOW * SIZE, FI_SEND | FI_RECV);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < WINDOW; i++) {
			unsigned char *at = memory.data + i * SIZE;
			unsigned seed = round * WINDOW + (unsigned)i;

			if (parent) {
				ct_fill(at, SIZE, seed);
				post_send(&peer, false, i, at, SIZE,
					  memory.desc);
			} else {
				post_receive(&peer, false, i, at, SIZE,
					     memory.desc);
			}
		}
		for (int i = 0; i < WINDOW; i++) {
			if (parent) {
				ct_done(&peer, &peer.tx, &tx_context[i]);
				continue;
			}
			ct_done(&peer, &peer.rx, &rx_context[i]);
			REQUIRE(ct_holds(memory.data + i * SIZE, SIZE,
					 round * WINDOW + (unsigned)i));
		}
	}
	/* Neither side leaves before the other has received everything. */
	ct_tell(fd, "x", 1);
	ct_hear(fd, &(char) { 0 }, 1);
	ct_memory_close(&memory);
	leave(&peer, pep);
}

static void stream(void)
{
	both(FI_MSG, stream_side);
}

/* The parent reaches into the child's memory, which only makes progress. */
static void rma_side(int fd, bool parent)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct ct_memory memory;
	struct fid_pep *pep;
	struct ct_peer peer;
	uint64_t target[2];

	join(&peer, &spec, fd, parent, &pep);
	ct_memory_open(&peer, &memory, LARGEST,
		       FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE);
	if (!parent) {
		target[0] = memory.addr;
		target[1] = memory.key;
		ct_tell(fd, target, sizeof(target));
		post_receive(&peer, false, 0, NULL, 0, NULL);
		ct_done(&peer, &peer.rx, &rx_context[0]);
		REQUIRE(ct_holds(memory.data, LARGEST, 1000));
		ct_tell(fd, "x", 1);
	} else {
		ct_hear(fd, target, sizeof(target));
		for (size_t len = 1; len <= LARGEST; len *= 4) {
			struct ct_rma rma = {
				.buf = memory.data, .len = len,
				.desc = memory.desc, .addr = target[0],
				.key = target[1], .context = &tx_context[0],
				.flags = FI_DELIVERY_COMPLETE,
			};

			ct_fill(memory.data, len, (unsigned)len);
			POST(&peer, ct_rma(&peer, CT_WRITEMSG, &rma));
			ct_done(&peer, &peer.tx, &tx_context[0]);
			memset(memory.data, 0, len);
			POST(&peer, ct_rma(&peer, CT_READ, &rma));
			ct_done(&peer, &peer.tx, &tx_context[0]);
			REQUIRE(ct_holds(memory.data, len, (unsigned)len));
		}
		ct_fill(memory.data, LARGEST, 1000);
		{
			struct ct_rma rma = {
				.buf = memory.data, .len = LARGEST,
				.desc = memory.desc, .addr = target[0],
				.key = target[1], .context = &tx_context[0],
				.flags = FI_DELIVERY_COMPLETE,
			};

			POST(&peer, ct_rma(&peer, CT_WRITEMSG, &rma));
			ct_done(&peer, &peer.tx, &tx_context[0]);
		}
		post_send(&peer, false, 0, NULL, 0, NULL);
		ct_done(&peer, &peer.tx, &tx_context[0]);
		ct_hear(fd, &(char) { 0 }, 1);
	}
	ct_memory_close(&memory);
	leave(&peer, pep);
}

static void remote_access(void)
{
	both(FI_MSG | FI_RMA, rma_side);
}

static const struct ct_test tests[] = {
	{ "messages", messages, CT_BOTH },
	{ "tagged-messages", tagged_messages, CT_BOTH },
	{ "stream", stream, CT_BOTH },
	{ "remote-access", remote_access, CT_BOTH },
};

CT_MAIN(tests)
