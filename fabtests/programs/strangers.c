/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Thousands of strangers that connect to an endpoint and send anything, while
 * it communicates with a peer that must not be affected: noise, requests that
 * are damaged or truncated, and after a valid request, streams that are. MSG
 * requests are accepted, rejected, or left for a while. Over rxd, strangers send
 * datagrams: noise, requests, and packets of connections that do not exist.
 *
 * CT_SEED=<number> repeats the run that a failure names, CT_RUNS=<number> sets
 * the number of strangers.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "connect.h"
#include "memory.h"
#include "pattern.h"
#include "random.h"
#include "transfer.h"
#include "wait.h"

enum { STRANGERS = 10000, STAYING = 100, ENDPOINTS = 8, LONGEST = 600, REGION = 4096 };

static struct world {
	struct ct_random random;
	struct ct_pair pair;		/* b listens, and works with a */
	struct ct_memory memory;	/* that strangers may reach */
	struct ct_peer guests;		/* MSG: the strangers' side of b */
	struct fid_pep *pep;		/* MSG: where they connect */
	struct fid_ep *accepted[ENDPOINTS];
	struct sockaddr_in name;
	bool datagrams;			/* strangers send them to b */
	int staying[STAYING];
} world;

static uint32_t below(uint32_t limit)
{
	return (uint32_t)ct_below(&world.random, limit);
}

static bool once_in(uint32_t times)
{
	return ct_once_in(&world.random, times);
}

static size_t noise(unsigned char *out, size_t most)
{
	size_t len = below((uint32_t)most + 1);

	for (size_t i = 0; i < len; i++)
		out[i] = (unsigned char)below(256);
	return len;
}

/* docs/tcp-wire.md: a request that is in order. */
static size_t request(unsigned char *out)
{
	uint64_t mark = 1;
	uint16_t port;

	memset(out, 0, 40);
	out[0] = 3;
	memcpy(out + 24, &mark, sizeof(mark));
	if (once_in(2)) {
		/* The extensions, all of them. */
		for (int i = 8; i < 16; i++)
			out[i] = (unsigned char)below(256);
		memcpy(out + 16, "\x70\x66\x72\x53\0\0\0\x07", 8);
	}
	if (ct_opt.type != FI_EP_RDM)
		return 32;
	out[3] = 8;
	out[32] = (unsigned char)below(3);
	/* Not a port at which one of the two listens. */
	port = (uint16_t)(1 + below(1000));
	out[34] = (unsigned char)(port >> 8);
	out[35] = (unsigned char)port;
	out[39] = (unsigned char)below(256);
	return 40;
}

static void put(unsigned char *out, uint64_t value)
{
	memcpy(out, &value, sizeof(value));
}

/* One message of a stream, right or nearly right. */
static size_t message(unsigned char *out)
{
	static const unsigned char operations[] = {
		0, 1, 2, 3, 4, 5, 6, 7, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46,
	};
	size_t header = 16, payload = below(200);

	memset(out, 0, LONGEST);
	out[0] = 3;
	out[1] = operations[below(sizeof(operations))];
	out[2] = once_in(3) ? (unsigned char)below(256) : 0;
	out[3] = once_in(8) ? 1 : 0;
	out[4] = once_in(3) ? (unsigned char)below(256) : 0;
	if (out[1] == 2 || out[1] == 4 || out[1] == 0x45) {
		/* A word more for atomics, then the list. */
		size_t extra = out[1] == 0x45 ? 16 : 0;

		out[5] = 1;
		put(out + 16 + extra, world.memory.addr + below(64));
		put(out + 24 + extra, once_in(4) ? below(1 << 20) : payload);
		put(out + 32 + extra, world.memory.key + once_in(8));
		header += extra + 24;
		if (out[1] == 2)
			payload = 0;
	} else {
		header += 8 * below(4);
		for (size_t i = 16; i < header; i += 8)
			put(out + i, once_in(3) ? ct_bits(&world.random)
						: below(100));
	}
	out[6] = (unsigned char)header;
	put(out + 8, once_in(20) ? ct_bits(&world.random) : header + payload);
	return header + payload;
}

static void damage(unsigned char *bytes, size_t len)
{
	for (uint32_t i = below(4); i && len; i--)
		bytes[below((uint32_t)len)] = (unsigned char)below(256);
}

static size_t speech(unsigned char *out)
{
	unsigned char start[4] = { 0 };
	size_t len;

	switch (below(6)) {
	case 0:
		return 0;
	case 1:
		return noise(out, 400);
	case 2:
		len = request(out);
		memcpy(start, out + 32, len > 32 ? 4 : 0);
		damage(out, len);
		/* A port must not become that of the peer. */
		if (len > 32)
			memcpy(out + 32, start, 4);
		return once_in(2) ? below((uint32_t)len + 1) : len;
	case 3:
		len = request(out);
		return len + noise(out + len, 400);
	default:
		len = request(out);
		for (uint32_t i = 1 + below(3); i; i--) {
			size_t more = message(out + len);

			if (once_in(2))
				damage(out + len, more);
			len += more;
		}
		return once_in(8) ? below((uint32_t)len + 1) : len;
	}
}

/* CRC-32C, bit by bit. */
static uint32_t crc32c(const unsigned char *bytes, size_t len)
{
	uint32_t sum = ~0U;

	for (size_t i = 0; i < 8 * len; i++) {
		if (!(i % 8))
			sum ^= bytes[i / 8];
		sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78 : 0);
	}
	return ~sum;
}

/* docs/rxd-wire.md: a packet, right or nearly right. */
static size_t packet(unsigned char *out, const struct sockaddr_in *from)
{
	static const unsigned char types[] = {
		0, 1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 16,
	};
	unsigned char type = types[below(sizeof(types))];
	uint32_t number = once_in(2) ? below(4) : (uint32_t)ct_bits(&world.random);
	uint64_t sequence = once_in(2) ? below(4) : ct_bits(&world.random);
	size_t len = 16;

	out[0] = 2;
	out[1] = type;
	out[2] = (unsigned char)below(256);
	out[3] = (unsigned char)(once_in(2) ? below(256) : 0);
	memcpy(out + 4, &number, sizeof(number));
	put(out + 8, sequence);
	if (type == 9 && once_in(2)) {
		/* A request in order, in half of the cases with the extension. */
		memset(out + 16, 0, 112);
		put(out + 16, 1 + below(4));
		memcpy(out + 24, from, sizeof(*from));
		put(out + 88, 0x7278642b63726303);
		put(out + 96, (uint64_t)1024 << 32 | 1472);
		put(out + 104, ct_bits(&world.random));
		put(out + 112, once_in(2) ? 0 : ct_bits(&world.random));
		put(out + 120, (uint64_t)crc32c(out, 124) << 32);
		return once_in(2) ? 88 : 128;
	}
	for (uint32_t words = below(12); words; words--, len += 8)
		put(out + len, once_in(3) ? world.memory.addr :
			       once_in(3) ? ct_bits(&world.random) : below(100));
	return len + noise(out + len, 200);
}

/* Sends a few datagrams. */
static int visit_with_datagrams(void)
{
	struct sockaddr_in name;
	socklen_t name_len = sizeof(name);
	unsigned char bytes[LONGEST];
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	REQUIRE(fd >= 0);
	REQUIRE(!connect(fd, (struct sockaddr *)&world.name, sizeof(world.name)));
	REQUIRE(!getsockname(fd, (struct sockaddr *)&name, &name_len));
	for (uint32_t i = 1 + below(6); i; i--) {
		size_t len = once_in(4) ? noise(bytes, 400) : packet(bytes, &name);

		if (once_in(3))
			damage(bytes, len);
		(void)!send(fd, bytes, len, MSG_DONTWAIT);
	}
	return fd;
}

/* Connects and sends. */
static int visit(void)
{
	unsigned char bytes[4 * LONGEST];
	size_t len = speech(bytes), cut = below((uint32_t)len + 1);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	REQUIRE(fd >= 0);
	REQUIRE(!connect(fd, (struct sockaddr *)&world.name,
			 sizeof(world.name)));
	REQUIRE(!fcntl(fd, F_SETFL, O_NONBLOCK));
	/* It may have been shown the door already. */
	(void)!send(fd, bytes, cut, MSG_NOSIGNAL);
	(void)!send(fd, bytes + cut, len - cut, MSG_NOSIGNAL);
	return fd;
}

static void go_away(int fd)
{
	/* Immediately, or not. */
	struct linger reset = { .l_onoff = 1 };
	unsigned char bytes[4096];

	(void)!recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (!once_in(8))
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	close(fd);
}

/* Lets a stranger's request in, in place of an earlier guest. */
static void let_in(struct ct_event *event)
{
	struct fid_ep **ep = &world.accepted[below(ENDPOINTS)];
	struct ct_peer *guests = &world.guests;

	if (*ep)
		OK(fi_close(&(*ep)->fid));
	ct_open_ep(guests, event->info);
	*ep = guests->ep;
	guests->ep = NULL;
	/* The stranger may be gone. */
	fi_accept(*ep, NULL, 0);
}

static void answer(struct ct_event *event)
{
	if (event->failed || event->type != FI_CONNREQ)
		return;
	if (once_in(2))
		let_in(event);
	else
		OK(fi_reject(world.pep, event->info->handle, NULL, 0));
	fi_freeinfo(event->info);
}

static void look_after_guests(void)
{
	struct ct_peer *guests = &world.guests;

	ct_progress_events(guests);
	for (; guests->eq.count; guests->eq.count--)
		answer(&guests->eq.stash[guests->eq.count - 1]);
	while (ct_pull(&guests->tx) || ct_pull(&guests->rx))
		guests->tx.count = guests->rx.count = 0;
}

/* Drives everything; the peer's messages are read by the code that waits for
 * them. */
static void one_round(unsigned number)
{
	static unsigned char out[2][5000], in[2][5000];
	static struct fi_context2 tx[2], rx[2];
	struct ct_peer *sides[2] = { &world.pair.a, &world.pair.b };
	size_t len = 8 + below(4000);

	for (int i = 0; i < 2; i++) {
		struct ct_message m = {
			.tagged = true, .tag = 0x5000000000000000 | number,
			.buf = in[i], .len = len, .from = FI_ADDR_UNSPEC,
			.context = &rx[i],
		};

		POST(sides[i], ct_recv(sides[i], CT_RECV, &m));
		ct_fill(out[i], len, number + (unsigned)i);
		m.buf = out[i];
		m.context = &tx[i];
		POST(sides[i], ct_send(sides[i], CT_SEND, &m));
	}
	for (int i = 0; i < 2; i++) {
		ct_done(sides[i], &sides[i]->tx, &tx[i]);
		ct_done(sides[i], &sides[i]->rx, &rx[i]);
		REQUIRE(ct_holds(in[i], len, number + (unsigned)!i));
	}
}

static void open_world(uint64_t seed)
{
	struct ct_spec spec = { .caps = FI_TAGGED | FI_MSG | FI_RMA };
	struct ct_peer *b = &world.pair.b;

	printf("# CT_SEED=%llu\n", (unsigned long long)seed);
	memset(&world, 0, sizeof(world));
	world.random.state = seed;
	memset(world.staying, -1, sizeof(world.staying));
	ct_open_pair(&world.pair, &spec);
	if (ct_opt.type == FI_EP_RDM) {
		ct_memory_open(b, &world.memory, REGION,
			       FI_REMOTE_READ | FI_REMOTE_WRITE);
		ct_name(&b->ep->fid, &world.name, sizeof(world.name));
	} else {
		ct_open_domain(&world.guests, &spec, fi_dupinfo(b->info),
			       b->fabric, b->domain);
		ct_memory_open(&world.guests, &world.memory, REGION,
			       FI_REMOTE_READ | FI_REMOTE_WRITE);
		world.pep = ct_listen(&world.guests);
		ct_name(&world.pep->fid, &world.name, sizeof(world.name));
	}
	if (world.name.sin_family != AF_INET)
		SKIP("not an IPv4 address");
	world.datagrams = strstr(b->info->fabric_attr->prov_name, "ofi_rxd");
	ct_fill(world.memory.data, REGION, 7);
	one_round(0);
}

static void close_world(void)
{
	/* None of these strangers can know the number that it was given. */
	if (world.datagrams)
		REQUIRE(ct_holds(world.memory.data, REGION, 7));
	ct_memory_close(&world.memory);
	if (world.pep) {
		for (int i = 0; i < ENDPOINTS; i++)
			if (world.accepted[i])
				OK(fi_close(&world.accepted[i]->fid));
		OK(fi_close(&world.pep->fid));
		ct_close_peer(&world.guests);
	}
	ct_close_pair(&world.pair);
}

static void strangers(void)
{
	const char *seed = getenv("CT_SEED"), *runs = getenv("CT_RUNS");
	int count = runs ? atoi(runs) : ct_times(STRANGERS);

	open_world(seed ? strtoull(seed, NULL, 0) : 1);
	for (int i = 1; i <= count; i++) {
		int *place = &world.staying[below(STAYING)];

		if (*place >= 0)
			go_away(*place);
		*place = world.datagrams ? visit_with_datagrams() : visit();
		if (world.pep)
			look_after_guests();
		ct_progress(&world.pair.b);
		if (i % 10 == 0)
			one_round((unsigned)i);
	}
	for (int i = 0; i < STAYING; i++)
		if (world.staying[i] >= 0)
			close(world.staying[i]);
	one_round((unsigned)count + 1);
	close_world();
}

static const struct ct_test tests[] = {
	{ "come-and-go", strangers, CT_BOTH },
};

CT_MAIN(tests)
