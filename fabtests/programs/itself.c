/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Messages for which there is no receive yet: of all lengths of an endpoint to itself, and
 * eager ones to an endpoint that makes no calls. Each is complete before there is a receive, and
 * arrives.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "child.h"
#include "connect.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

#define LONGEST (64UL << 20)

static struct fi_context2 tx_context[8], rx_context[8];
static unsigned char *out, *in;

static void fill(void)
{
	out = mmap(NULL, 2 * LONGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(out != MAP_FAILED);
	in = out + LONGEST;
	for (size_t i = 0; i < LONGEST; i += 64)
		out[i] = (unsigned char)(i / 64 * 7 + 1);
}

static void change(unsigned char by, size_t len)
{
	for (size_t i = 0; i < len; i += 64)
		out[i] = (unsigned char)(out[i] + by);
}

static bool is_over(const struct ct_peer *peer, const char *layer)
{
	return strstr(peer->info->fabric_attr->prov_name, layer);
}

static void open_itself(struct ct_peer *peer, uint64_t flags)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED, .tx_op_flags = flags };
	char name[256];

	ct_open_single(peer, &spec);
	if (is_over(peer, "rxm"))
		SKIP("long messages wait for receives, as with the C library");
	ct_name(&peer->ep->fid, name, sizeof(name));
	peer->to = ct_insert(peer, name);
}

static struct ct_message message(int i, bool tagged, size_t len)
{
	return (struct ct_message) {
		.tagged = tagged, .tag = (uint64_t)i, .buf = out, .len = len,
		.context = &tx_context[i],
	};
}

static void receive(struct ct_peer *peer, int i, bool tagged, size_t len)
{
	struct ct_message m = message(i, tagged, len);
	struct ct_completion done;

	m.buf = in;
	m.from = FI_ADDR_UNSPEC;
	m.context = &rx_context[i];
	memset(in, 0, len);
	POST(peer, ct_recv(peer, CT_RECV, &m));
	done = ct_done(peer, &peer->rx, &rx_context[i]);
	REQUIRE(done.len == len);
}

/* Sends, waits until that is complete, overwrites, and then receives. */
static void to_itself(bool tagged, uint64_t flags)
{
	static const size_t lens[] = {
		0, 8, 4096, 20000, 100000, 1 << 20, 2000000, 3 << 20, 8 << 20, LONGEST,
	};
	struct ct_peer peer;

	fill();
	open_itself(&peer, flags);
	for (size_t n = 0; n < sizeof(lens) / sizeof(lens[0]); n++) {
		size_t len = lens[n];
		struct ct_message m = message(0, tagged, len);

		POST(&peer, ct_send(&peer, CT_SEND, &m));
		ct_done(&peer, &peer.tx, &tx_context[0]);
		change(1, len);
		receive(&peer, 0, tagged, len);
		change((unsigned char)-1, len);
		REQUIRE(!memcmp(in, out, len));
	}
	ct_close_peer(&peer);
}

static void plain(void)
{
	to_itself(false, 0);
}

static void tagged(void)
{
	to_itself(true, 0);
}

static void delivered(void)
{
	to_itself(true, FI_DELIVERY_COMPLETE);
}

/* Several at a time, received in another order than they were sent. */
static void several(void)
{
	enum { COUNT = 6 };
	size_t len = 12 << 20;
	struct ct_peer peer;

	fill();
	open_itself(&peer, 0);
	for (int i = 0; i < COUNT; i++) {
		struct ct_message m = message(i, true, len + (size_t)i);

		POST(&peer, ct_send(&peer, CT_SEND, &m));
	}
	for (int i = 0; i < COUNT; i++)
		OK(ct_next(&peer, &peer.tx).err);
	for (int i = COUNT - 1; i >= 0; i--) {
		receive(&peer, i, true, len + (size_t)i);
		REQUIRE(!memcmp(in, out, len + (size_t)i));
	}
	ct_close_peer(&peer);
}

/* A receive that was posted before, and one that is too short. */
static void awaited(void)
{
	size_t len = 32 << 20;
	struct ct_message m, r;
	struct ct_peer peer;

	fill();
	open_itself(&peer, 0);
	m = message(0, true, len);
	r = m;
	r.buf = in;
	r.from = FI_ADDR_UNSPEC;
	r.context = &rx_context[0];
	POST(&peer, ct_recv(&peer, CT_RECV, &r));
	POST(&peer, ct_send(&peer, CT_SEND, &m));
	ct_done(&peer, &peer.tx, &tx_context[0]);
	ct_done(&peer, &peer.rx, &rx_context[0]);
	REQUIRE(!memcmp(in, out, len));

	POST(&peer, ct_send(&peer, CT_SEND, &m));
	ct_done(&peer, &peer.tx, &tx_context[0]);
	r.len = len - 1;
	POST(&peer, ct_recv(&peer, CT_RECV, &r));
	EXPECT(ct_next(&peer, &peer.rx).err, FI_ETRUNC);
	ct_close_peer(&peer);
}

/* The endpoint is closed with messages to itself that nobody has received. */
static void closed(void)
{
	struct ct_message m;
	struct ct_peer peer;

	fill();
	open_itself(&peer, 0);
	m = message(0, true, LONGEST);
	POST(&peer, ct_send(&peer, CT_SEND, &m));
	ct_done(&peer, &peer.tx, &tx_context[0]);
	POST(&peer, ct_send(&peer, CT_SEND, &m));
	ct_close_peer(&peer);
}

static const struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED };

/* Makes no calls between a first message and the word of its parent. */
static void idle_child(int fd)
{
	struct ct_card own = { 0 }, other;
	struct ct_peer peer;
	char word;
	size_t len;

	fill();
	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	if (ct_opt.type == FI_EP_RDM)
		ct_open_ep(&peer, peer.info);
	ct_meet(&peer, &own, &other, fd, NULL);
	receive(&peer, 1, true, 8);
	ct_tell(fd, "x", 1);
	ct_hear(fd, &len, sizeof(len));
	receive(&peer, 0, true, len);
	REQUIRE(!memcmp(in, out, len));
	ct_tell(fd, "x", 1);
	ct_hear(fd, &word, 1);
	ct_close_peer(&peer);
}

static void to_idle(size_t len)
{
	bool alone = ct_opt.provider && !strcmp(ct_opt.provider, "loopback");
	struct ct_child child = ct_spawn(idle_child);
	struct ct_card own = { 0 }, other;
	struct fid_pep *pep = NULL;
	struct pollfd told = { .fd = child.fd, .events = POLLIN };
	struct ct_message m;
	struct ct_peer peer;
	char word;

	if (alone) {
		ct_kill(&child);
		SKIP("there are no other processes");
	}
	fill();
	ct_begin(&child);
	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	if (ct_opt.type == FI_EP_RDM)
		ct_open_ep(&peer, peer.info);
	else
		pep = ct_listen(&peer);
	if (is_over(&peer, "rxd")) {
		ct_kill(&child);
		SKIP("what was sent is complete when the peer has acknowledged it");
	}
	ct_meet(&peer, &own, &other, child.fd, pep);
	if (pep)
		OK(fi_close(&pep->fid));
	m = message(1, true, 8);
	POST(&peer, ct_send(&peer, CT_SEND, &m));
	ct_done(&peer, &peer.tx, &tx_context[1]);
	ct_hear(child.fd, &word, 1);
	m = message(0, true, len);
	POST(&peer, ct_send(&peer, CT_SEND, &m));
	ct_done(&peer, &peer.tx, &tx_context[0]);
	ct_tell(child.fd, &len, sizeof(len));
	UNTIL(&peer, poll(&told, 1, 0) == 1);
	ct_hear(child.fd, &word, 1);
	ct_tell(child.fd, "x", 1);
	ct_join(&child);
	ct_close_peer(&peer);
}

static void to_idle_16k(void)
{
	to_idle(16 << 10);
}

static const struct ct_test tests[] = {
	{ "plain", plain, CT_RDM | CT_SLOW },
	{ "tagged", tagged, CT_RDM | CT_SLOW },
	{ "delivered", delivered, CT_RDM | CT_SLOW },
	{ "several", several, CT_RDM | CT_SLOW },
	{ "awaited", awaited, CT_RDM | CT_SLOW },
	{ "closed", closed, CT_RDM | CT_SLOW },
	{ "idle/16KiB", to_idle_16k, CT_BOTH },
};

CT_MAIN(tests)
