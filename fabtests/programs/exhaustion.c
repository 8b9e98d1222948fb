/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A resource is exhausted: descriptors, ports, space for connections, the
 * network itself. Each time there is a matching error, and communication
 * continues when the cause is removed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "connect.h"
#include "network.h"
#include "stranger.h"
#include "transfer.h"
#include "wait.h"

static bool rdm(void)
{
	return ct_opt.type == FI_EP_RDM;
}

static void patience_of(const char *milliseconds)
{
	REQUIRE(!setenv("FI_TCP_CONNECT_TIMEOUT", milliseconds, 1));
	REQUIRE(!setenv("FI_SHM_CONNECT_TIMEOUT", milliseconds, 1));
	REQUIRE(!setenv("FI_OFI_RXM_CONNECT_TIMEOUT", milliseconds, 1));
}

/* Prevents this process from opening descriptors, or permits it again. */
static void no_more_descriptors(bool none)
{
	static struct rlimit before;
	struct rlimit now;
	int fd;

	if (!none) {
		REQUIRE(!setrlimit(RLIMIT_NOFILE, &before));
		return;
	}
	REQUIRE(!getrlimit(RLIMIT_NOFILE, &before));
	/* The lowest free one is the first that is refused. */
	fd = open("/dev/null", O_RDONLY);
	REQUIRE(fd >= 0);
	close(fd);
	now = before;
	now.rlim_cur = (rlim_t)fd;
	REQUIRE(!setrlimit(RLIMIT_NOFILE, &now));
}

static struct fi_context2 tx_context, rx_context;

static void send_one(struct ct_peer *peer)
{
	POST(peer, fi_send(peer->ep, NULL, 0, NULL, peer->to, &tx_context));
}

static void receive_one(struct ct_peer *peer)
{
	POST(peer, fi_recv(peer->ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
			   &rx_context));
}

/* How b fails to reach a; a MSG endpoint is closed. */
static int fails(struct ct_pair *pair, const unsigned char *name)
{
	struct ct_peer *b = &pair->b;
	struct ct_completion done;
	struct ct_event event;
	int ret;

	if (rdm()) {
		send_one(b);
		done = ct_error(b, &b->tx);
		REQUIRE(done.context == &tx_context);
		return done.err;
	}
	if (!b->ep)
		ct_open_ep(b, b->info);
	ret = -fi_connect(b->ep, name, NULL, 0);
	if (!ret) {
		event = ct_any_event(b);
		REQUIRE(event.failed && event.err.fid == &b->ep->fid);
		ret = event.err.err;
	}
	OK(fi_close(&b->ep->fid));
	b->ep = NULL;
	return ret;
}

static void connect_without_descriptors(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	unsigned char name[CT_NAME];
	struct ct_pair pair;

	patience_of("1000");
	ct_open_strangers(&pair, &spec, name);
	no_more_descriptors(true);
	CHECK(fails(&pair, name) == FI_EMFILE, "errno");
	no_more_descriptors(false);
	ct_get_through(&pair, name);
	ct_close_pair(&pair);
}

/* Operations posted in the meantime complete by themselves. */
static void send_without_descriptors(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	unsigned char name[CT_NAME];
	struct ct_pair pair;

	ct_open_strangers(&pair, &spec, name);
	no_more_descriptors(true);
	receive_one(&pair.a);
	send_one(&pair.b);
	REQUIRE(ct_stays_empty(&pair.b, &pair.b.tx));
	no_more_descriptors(false);
	ct_done(&pair.b, &pair.b.tx, &tx_context);
	ct_done(&pair.a, &pair.a.rx, &rx_context);
	ct_close_pair(&pair);
}

/* A peer connects that cannot be accepted; the listener pauses instead of
 * retrying all the time, and tries again. */
static void accept_without_descriptors(void)
{
	struct ct_spec spec = { .caps = FI_MSG, .wait = FI_WAIT_FD };
	double until;
	unsigned char name[CT_NAME];
	struct ct_pair pair;
	struct pollfd poller = { .events = POLLIN };
	int stranger, wakes = 0;
	struct fid *queue;

	ct_open_strangers(&pair, &spec, name);
	queue = rdm() ? &pair.a.rx.fid->fid : &pair.a.eq.fid->fid;
	OK(fi_control(queue, FI_GETWAIT, &poller.fd));
	stranger = ct_connect_plainly(name);
	no_more_descriptors(true);
	until = ct_now() + 0.3;
	while (ct_now() < until) {
		if (rdm())
			ct_pull(&pair.a.rx);
		else
			ct_progress_events(&pair.a);
		if (fi_trywait(pair.a.fabric, &queue, 1))
			continue;
		wakes++;
		poll(&poller, 1, 300);
	}
	CHECK(wakes > 0 && wakes < 100, "rests");
	no_more_descriptors(false);
	ct_get_through(&pair, name);
	close(stranger);
	ct_close_pair(&pair);
}

/* Opening fails for want of a descriptor, wherever it needs one. */
static void open_without_descriptors(void)
{
	struct ct_spec spec = { .caps = FI_MSG, .wait = FI_WAIT_FD };
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_FD };
	struct fid_pep *pep;
	struct fid_cq *cq;
	struct fid_ep *ep;
	unsigned char name[CT_NAME];
	struct ct_pair pair;

	ct_open_strangers(&pair, &spec, name);
	for (int round = 0; round < 2; round++) {
		int want = round ? 0 : -FI_EMFILE;

		no_more_descriptors(!round);
		EXPECT(fi_cq_open(pair.a.domain, &attr, &cq, NULL), want);
		if (rdm())
			EXPECT(fi_endpoint(pair.a.domain, pair.a.info, &ep,
					   NULL), want);
		else
			EXPECT(fi_passive_ep(pair.a.fabric, pair.a.info, &pep,
					     NULL), want);
	}
	OK(fi_close(rdm() ? &ep->fid : &pep->fid));
	OK(fi_close(&cq->fid));
	ct_get_through(&pair, name);
	ct_close_pair(&pair);
}

static int bound(uint16_t port, struct sockaddr_in *name)
{
	socklen_t len = sizeof(*name);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*name = (struct sockaddr_in) {
		.sin_family = AF_INET, .sin_port = htons(port),
	};
	REQUIRE(fd >= 0);
	REQUIRE(inet_pton(AF_INET, ct_opt.source, &name->sin_addr) == 1);
	if (bind(fd, (struct sockaddr *)name, len)) {
		close(fd);
		return -1;
	}
	REQUIRE(!getsockname(fd, (struct sockaddr *)name, &len));
	return fd;
}

/* Two neighbouring ports that this process has now. */
static uint16_t take_ports(int fds[2])
{
	for (int i = 0; i < 1000; i++) {
		struct sockaddr_in name;
		uint16_t port;

		fds[0] = bound(0, &name);
		REQUIRE(fds[0] >= 0);
		port = ntohs(name.sin_port);
		fds[1] = port < 65535 ? bound((uint16_t)(port + 1), &name) : -1;
		if (fds[1] >= 0)
			return port;
		close(fds[0]);
	}
	SKIP("no two ports in a row");
}

static void ports_in_use(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct sockaddr_in name;
	struct ct_peer peer;
	struct fid_pep *pep;
	struct fid_ep *ep;
	char text[16];
	uint16_t port;
	int fds[2];

	port = take_ports(fds);
	snprintf(text, sizeof(text), "%u", port);
	REQUIRE(!setenv("FI_TCP_PORT_LOW_RANGE", text, 1));
	snprintf(text, sizeof(text), "%u", port + 1);
	REQUIRE(!setenv("FI_TCP_PORT_HIGH_RANGE", text, 1));
	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	for (int round = 0; round < 2; round++) {
		int want = round ? 0 : -FI_EADDRNOTAVAIL;

		if (rdm())
			EXPECT(fi_endpoint(peer.domain, peer.info, &ep, NULL),
			       want);
		else
			EXPECT(fi_passive_ep(peer.fabric, peer.info, &pep,
					     NULL), want);
		if (!round)
			close(fds[1]);
	}
	ct_name(rdm() ? &ep->fid : &pep->fid, &name, sizeof(name));
	CHECK(ntohs(name.sin_port) == port + 1, "the-free-one");
	OK(fi_close(rdm() ? &ep->fid : &pep->fid));
	close(fds[0]);
	ct_close_peer(&peer);
}

/* Fills the kernel's queue of connections of a listener that accepts none. */
static int fill(const void *name, int *fds, int most)
{
	for (int i = 0; i < most; i++) {
		struct pollfd poller = { .events = POLLOUT };

		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC |
				SOCK_NONBLOCK, 0);
		REQUIRE(fds[i] >= 0);
		connect(fds[i], name, sizeof(struct sockaddr_in));
		poller.fd = fds[i];
		if (poll(&poller, 1, 200) == 0)
			return i + 1;
	}
	SKIP("the system takes any number of connections");
}

static void full_backlog(void)
{
	enum { MOST = 64 };
	struct ct_spec spec = { .caps = FI_MSG };
	unsigned char name[CT_NAME], full_name[256];
	int fds[MOST], count, listener = -1, one = 1;
	struct sockaddr_in plain;
	struct ct_pair pair;
	struct fid_pep *full = NULL;
	struct ct_peer owner;
	fi_addr_t there;

	patience_of("1000");
	ct_open_strangers(&pair, &spec, name);
	if (rdm()) {
		/* An RDM endpoint's own backlog is too large to fill. */
		listener = bound(0, &plain);
		REQUIRE(listener >= 0 && !listen(listener, one));
		memcpy(full_name, &plain, sizeof(plain));
	} else {
		ct_open_domain(&owner, &spec, fi_dupinfo(pair.a.info),
			       pair.a.fabric, NULL);
		OK(fi_passive_ep(owner.fabric, owner.info, &full, NULL));
		OK(fi_pep_bind(full, &owner.eq.fid->fid, 0));
		OK(fi_control(&full->fid, FI_BACKLOG, &one));
		OK(fi_listen(full));
		ct_name(&full->fid, full_name, sizeof(full_name));
	}
	count = fill(full_name, fds, MOST);
	there = pair.b.to;
	if (rdm())
		pair.b.to = ct_insert(&pair.b, full_name);
	pair.b.partner = NULL;
	CHECK(fails(&pair, full_name) == FI_ETIMEDOUT, "errno");
	pair.b.partner = &pair.a;
	pair.b.to = there;
	for (int i = 0; i < count; i++)
		close(fds[i]);
	ct_get_through(&pair, name);
	if (full) {
		OK(fi_close(&full->fid));
		ct_close_peer(&owner);
	}
	close(listener);
	ct_close_pair(&pair);
}

static void interface_gone(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	unsigned char name[CT_NAME];
	struct ct_pair pair, old;
	struct fid_pep *pep;
	struct fid_ep *ep;
	int err;

	patience_of("1000");
	/* Shared memory is there without the interface. */
	setenv("FI_TCP_LOCAL", "off", 1);
	ct_own_network();
	ct_open_strangers(&pair, &spec, name);
	ct_open_pair(&old, &spec);
	ct_warm_up(&old);
	ct_set_network(false);
	err = fails(&pair, name);
	CHECK(err == FI_EADDRNOTAVAIL || err == FI_ENETUNREACH ||
	      err == FI_EHOSTUNREACH, "errno");
	for (int round = 0; round < 2; round++) {
		int want = round ? 0 : -FI_EADDRNOTAVAIL;

		if (rdm())
			EXPECT(fi_endpoint(pair.a.domain, pair.a.info, &ep,
					   NULL), want);
		else
			EXPECT(fi_passive_ep(pair.a.fabric, pair.a.info, &pep,
					     NULL), want);
		if (round)
			break;
		/* A connection does not end; its messages wait. */
		receive_one(&old.b);
		send_one(&old.a);
		ct_done(&old.a, &old.a.tx, &tx_context);
		REQUIRE(ct_stays_empty(&old.b, &old.b.rx));
		ct_set_network(true);
		ct_done(&old.b, &old.b.rx, &rx_context);
	}
	OK(fi_close(rdm() ? &ep->fid : &pep->fid));
	ct_get_through(&pair, name);
	ct_close_pair(&old);
	ct_close_pair(&pair);
}

/* Prevents this process from writing files, memory files included, beyond `size`. */
static struct rlimit files_up_to(rlim_t size)
{
	struct rlimit before, now;

	REQUIRE(!getrlimit(RLIMIT_FSIZE, &before));
	now = before;
	now.rlim_cur = size;
	REQUIRE(!setrlimit(RLIMIT_FSIZE, &now));
	return before;
}

/* Where memory files may not be as long as they have to be, two endpoints that can do
 * without them do so. With shm, they cannot reach each other, until they may. The process
 * is not ended by a signal. */
static void short_files(void)
{
	static const rlim_t limits[] = { 0, 100, 5000, 100000 };
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct rlimit before = files_up_to(limits[i]);
		struct ct_pair pair;

		ct_open_pair(&pair, &spec);
		if (!strcmp(pair.a.info->fabric_attr->prov_name, "shm")) {
			int err = fi_send(pair.b.ep, NULL, 0, NULL, pair.b.to,
					  &tx_context);

			REQUIRE(!err || err == -FI_EAGAIN);
			ct_stays_empty(&pair.b, &pair.b.rx);
			REQUIRE(!setrlimit(RLIMIT_FSIZE, &before));
			ct_close_pair(&pair);
			continue;
		}
		for (int turn = 0; turn < 20; turn++)
			ct_warm_up(&pair);
		ct_close_pair(&pair);
		REQUIRE(!setrlimit(RLIMIT_FSIZE, &before));
	}
}

static const struct ct_test tests[] = {
	{ "connect-without-descriptors", connect_without_descriptors, CT_BOTH },
	{ "send-without-descriptors", send_without_descriptors, CT_RDM },
	{ "accept-without-descriptors", accept_without_descriptors, CT_BOTH },
	{ "open-without-descriptors", open_without_descriptors, CT_BOTH },
	{ "ports-in-use", ports_in_use, CT_BOTH },
	{ "full-backlog", full_backlog, CT_BOTH },
	{ "interface-gone", interface_gone, CT_BOTH },
	{ "short-files", short_files, CT_BOTH },
};

CT_MAIN(tests)
