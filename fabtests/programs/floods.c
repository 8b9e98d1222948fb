/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The share of a stranger: two peers communicate while a stranger, whose
 * address is in no vector, floods one of them: over plain sockets with tcp,
 * otherwise with endpoints of its own. The two must not be affected except for
 * some of their time, and the memory that the stranger costs has a bound
 * (fi_tcp(7), fi_rxm(7), fi_shm(7)). Prints the latency of the pair without
 * and during each flood, and with what it has left; the test checks what they
 * receive, and the memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "pattern.h"
#include "process.h"
#include "stranger.h"
#include "transfer.h"
#include "wait.h"

/* The bound of what strangers may leave in a process: fi_tcp(7). */
#define SHARE (128L << 20)

enum {
	MESSAGES = 1000000,	/* in the flood of empty ones */
	IDLE = 4000,		/* connections that leave a message and stay */
	HUGE_ONES = 4000,	/* connections with the header of a long message */
	STORM = 4000,		/* connections that are opened and closed */
	PEERS = 200,		/* endpoints that do the same in place of connections */
	HUGE_PEERS = 4,		/* that announce as many long messages as they may */
	ROUNDS = 2000,
	LEN = 64,
	REQUEST = 40,
	HEADER = 24,
};

/* The information for the stranger. */
static union {
	struct sockaddr_in in;
	unsigned char bytes[256];
} name;
static struct ct_pair pair;

/* docs/tcp-wire.md: the request of an RDM endpoint that listens at this port. */
static void put_request(unsigned char *out, unsigned port)
{
	uint64_t mark = 1;

	memset(out, 0, REQUEST);
	out[0] = 3;
	out[3] = 8;
	memcpy(out + 24, &mark, sizeof(mark));
	out[32] = 1;
	out[34] = (unsigned char)(port >> 8);
	out[35] = (unsigned char)port;
	out[39] = 1;
}

/* The header of a tagged message. */
static void put_header(unsigned char *out, uint64_t tag, uint64_t len)
{
	uint64_t size = HEADER + len;

	memset(out, 0, HEADER);
	out[0] = 3;
	out[1] = 1;
	out[6] = HEADER;
	memcpy(out + 8, &size, sizeof(size));
	memcpy(out + 16, &tag, sizeof(tag));
}

/* Opens a connection with a request; returns -1 if there is no descriptor. */
static int come(unsigned port)
{
	unsigned char request[REQUEST];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	REQUIRE(!connect(fd, (struct sockaddr *)&name.in, sizeof(name.in)));
	put_request(request, port);
	/* It may have been shown the door already. */
	(void)!send(fd, request, sizeof(request), MSG_NOSIGNAL);
	REQUIRE(!fcntl(fd, F_SETFL, O_NONBLOCK));
	return fd;
}

/* Sends as much as the other side accepts, until it accepts nothing for a
 * while. */
static size_t push(int fd, const unsigned char *bytes, size_t len)
{
	size_t done = 0;

	while (done < len) {
		struct pollfd room = { .fd = fd, .events = POLLOUT };
		ssize_t n = send(fd, bytes + done, len - done, MSG_NOSIGNAL);

		if (n > 0)
			done += (size_t)n;
		else if (errno != EAGAIN || poll(&room, 1, 500) <= 0)
			break;
	}
	return done;
}

static unsigned flood_of_messages(unsigned count)
{
	static unsigned char batch[1000 * HEADER];
	unsigned sent = 0;
	int fd = come(1);

	REQUIRE(fd >= 0);
	for (size_t i = 0; i < sizeof(batch); i += HEADER)
		put_header(batch + i, 0xbad, 0);
	while (sent < count) {
		size_t n = push(fd, batch, sizeof(batch));

		sent += (unsigned)(n / HEADER);
		if (n < sizeof(batch))
			break;
	}
	return sent;
}

/* Connections that send so much of a message of this length, and stay. */
static unsigned stay(unsigned count, uint64_t len, size_t sent)
{
	unsigned char bytes[HEADER + LEN] = { 0 };
	unsigned come_in = 0;

	for (unsigned i = 0; i < count; i++) {
		int fd = come(1 + i);

		if (fd < 0)
			break;
		put_header(bytes, 0xbad, len);
		come_in += push(fd, bytes, HEADER + sent) == HEADER + sent;
	}
	return come_in;
}

static unsigned storm(unsigned count)
{
	struct linger reset = { .l_onoff = 1 };

	for (unsigned i = 0; i < count; i++) {
		int fd = come(1 + i % 60000);

		REQUIRE(fd >= 0);
		if (i % 2)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset,
				   sizeof(reset));
		close(fd);
	}
	return count;
}

/* An endpoint that sends to the target. */
static void come_as_peer(struct ct_peer *peer)
{
	struct ct_spec spec = { .caps = FI_TAGGED };

	ct_open_single(peer, &spec);
	peer->to = ct_insert(peer, name.bytes);
}

/* Posts a message until it is accepted; returns false if that takes long. */
static bool send_as_peer(struct ct_peer *peer, void *buf, size_t len, bool inject)
{
	double until = ct_now() + 0.5;
	static struct fi_context2 context;
	ssize_t ret;

	for (;;) {
		ret = inject ? fi_tinject(peer->ep, buf, len, peer->to, 0xbad) :
			fi_tsend(peer->ep, buf, len, NULL, peer->to, 0xbad, &context);
		if (ret != -FI_EAGAIN || ct_now() > until)
			break;
		ct_progress(peer);
	}
	REQUIRE(!ret || ret == -FI_EAGAIN);
	return !ret;
}

/* Drives a peer until its messages are sent. */
static void settle(struct ct_peer *peer)
{
	for (double until = ct_now() + 0.02; ct_now() < until;)
		ct_progress(peer);
}

static unsigned messages_of_peer(void)
{
	unsigned count = (unsigned)ct_times(MESSAGES), sent = 0;
	static struct ct_peer peer;

	come_as_peer(&peer);
	while (sent < count && send_as_peer(&peer, NULL, 0, true))
		sent++;
	settle(&peer);
	return sent;
}

static unsigned idle_peers(void)
{
	unsigned count = (unsigned)ct_times(PEERS);
	struct ct_peer *peers = calloc(count, sizeof(*peers));
	unsigned char bytes[LEN] = { 0 };

	REQUIRE(peers);
	for (unsigned i = 0; i < count; i++) {
		come_as_peer(&peers[i]);
		send_as_peer(&peers[i], bytes, sizeof(bytes), true);
		settle(&peers[i]);
	}
	return count;
}

/* Memory of that length is announced, and never looked at. */
static unsigned huge_of_peers(void)
{
	static struct ct_peer peers[HUGE_PEERS];
	static unsigned char bytes[1];
	unsigned sent = 0;

	for (int i = 0; i < HUGE_PEERS; i++) {
		size_t len = (size_t)1 << 40;

		come_as_peer(&peers[i]);
		if (len > peers[i].info->ep_attr->max_msg_size)
			len = peers[i].info->ep_attr->max_msg_size;
		while (sent < (unsigned)ct_times(HUGE_ONES) &&
		       send_as_peer(&peers[i], bytes, len, false))
			sent++;
		settle(&peers[i]);
	}
	return sent;
}

static unsigned storm_of_peers(void)
{
	unsigned count = (unsigned)ct_times(PEERS);

	for (unsigned i = 0; i < count; i++) {
		struct ct_peer peer;

		come_as_peer(&peer);
		send_as_peer(&peer, NULL, 0, true);
		settle(&peer);
		ct_close_peer(&peer);
	}
	return count;
}

static unsigned (*flood)(void);

static unsigned messages(void)
{
	return flood_of_messages((unsigned)ct_times(MESSAGES));
}

static unsigned idle(void)
{
	return stay((unsigned)ct_times(IDLE), LEN, LEN);
}

static unsigned huge(void)
{
	return stay((unsigned)ct_times(HUGE_ONES), (uint64_t)1 << 40, LEN);
}

static unsigned storms(void)
{
	return storm((unsigned)ct_times(STORM));
}

/* The stranger, in a process of its own. */
static void stranger(int fd)
{
	unsigned count;

	ct_hear(fd, &name, sizeof(name));
	count = flood();
	ct_tell(fd, &count, sizeof(count));
	/* The objects stay open until it is told to leave. */
	ct_hear(fd, &count, sizeof(count));
}

static void pass(struct ct_peer *from, struct ct_peer *to, uint64_t tag)
{
	static unsigned char out[LEN], in[LEN];
	static struct fi_context2 tx, rx;
	struct ct_message m = {
		.tagged = true, .tag = tag, .buf = in, .len = LEN,
		.from = FI_ADDR_UNSPEC, .context = &rx,
	};

	POST(to, ct_recv(to, CT_RECV, &m));
	ct_fill(out, LEN, (unsigned)tag);
	m.buf = out;
	m.context = &tx;
	POST(from, ct_send(from, CT_SEND, &m));
	ct_done(to, &to->rx, &rx);
	ct_done(from, &from->tx, &tx);
	REQUIRE(ct_holds(in, LEN, (unsigned)tag));
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static bool is_done(const struct ct_child *child)
{
	struct pollfd said = { .fd = child->fd, .events = POLLIN };

	return poll(&said, 1, 0) > 0;
}

/* Returns the median of round trips, in microseconds: of some, and of more
 * until the child has reported that it is done. */
static double latency(const struct ct_child *child)
{
	static double times[ROUNDS];
	size_t count = (size_t)ct_times(ROUNDS);
	static uint64_t tag;

	for (size_t i = 0; i < count || (child && !is_done(child)); i++) {
		double before = ct_now();

		tag++;
		pass(&pair.a, &pair.b, tag);
		pass(&pair.b, &pair.a, tag);
		times[i % count] = (ct_now() - before) * 1e6;
	}
	qsort(times, count, sizeof(times[0]), compare);
	return times[count / 2];
}

static void beside(unsigned (*plain)(void), unsigned (*as_peer)(void))
{
	struct ct_spec spec = { .caps = FI_TAGGED };
	double without, during, left;
	struct ct_child child;
	long before, after;
	unsigned count = 0;

	bool is_tcp = !ct_opt.provider || !strcmp(ct_opt.provider, "tcp");

	ct_allow_descriptors(10000);
	flood = is_tcp ? plain : as_peer;
	child = ct_spawn(stranger);
	ct_open_pair(&pair, &spec);
	ct_name(&pair.b.ep->fid, &name, sizeof(name));
	if (is_tcp && name.in.sin_family != AF_INET) {
		ct_kill(&child);
		SKIP("not an IPv4 address");
	}
	latency(NULL);
	without = latency(NULL);
	before = ct_resident();
	ct_begin(&child);
	ct_tell(child.fd, &name, sizeof(name));
	during = latency(&child);
	ct_hear(child.fd, &count, sizeof(count));
	left = latency(NULL);
	after = ct_resident();
	printf("# %u of the stranger's; pair: %.1f us without, %.1f beside, "
	       "%.1f with what is left; %.1f MiB more\n", count, without, during,
	       left, ((double)after - (double)before) / (1 << 20));
	REQUIRE(count > 0);
	CHECK(after <= before + SHARE, "memory");
	ct_tell(child.fd, &count, sizeof(count));
	ct_join(&child);
	latency(NULL);
	ct_close_pair(&pair);
}

static void of_messages(void)
{
	beside(messages, messages_of_peer);
}

static void of_idle_connections(void)
{
	beside(idle, idle_peers);
}

static void of_huge_messages(void)
{
	beside(huge, huge_of_peers);
}

static void of_connections(void)
{
	beside(storms, storm_of_peers);
}

static const struct ct_test tests[] = {
	{ "messages", of_messages, CT_RDM | CT_SLOW },
	{ "idle-connections", of_idle_connections, CT_RDM | CT_SLOW },
	{ "huge-messages", of_huge_messages, CT_RDM | CT_SLOW },
	{ "connections", of_connections, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
