/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Connections of MSG endpoints: data both ways, addresses, orders of calls; in further
 * files, how requests are refused and how connections end. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "cm/bench.h"
#include "connect.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

/* Connection data of each length up to the limit, in both directions. */
static void data_both_ways(void)
{
	unsigned char to[CT_CM_DATA], back[CT_CM_DATA];
	struct ct_event request, connected;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	size_t limit;

	setup(&bench);
	ct_open_ep(b, b->info);
	limit = data_limit(&b->ep->fid);
	CHECK(data_limit(&bench.pair.pep->fid) > 0, "limit-of-listener");
	for (int round = 0; round < 3; round++) {
		size_t len = round == 0 ? 1 : round == 1 ? limit / 2 : limit;

		ct_fill(to, len, (unsigned)round);
		ct_fill(back, len, (unsigned)round + 100);
		OK(fi_connect(b->ep, bench.name, to, len));
		ct_wait_request(a, &request);
		REQUIRE(request.fid == &bench.pair.pep->fid);
		REQUIRE(request.data_len >= len);
		REQUIRE(ct_holds(request.data, len, (unsigned)round));
		ct_accept(a, &request, back, len);
		connected = ct_event_of(b, FI_CONNECTED);
		REQUIRE(connected.fid == &b->ep->fid);
		REQUIRE(connected.data_len >= len);
		REQUIRE(ct_holds(connected.data, len, (unsigned)round + 100));
		ct_wait_connected(a);
		exchange(&bench.pair);
		CHECK(true, "%zu-bytes", len);
		OK(fi_close(&a->ep->fid));
		a->ep = NULL;
		ct_event_of(b, FI_SHUTDOWN);
		OK(fi_close(&b->ep->fid));
		ct_open_ep(b, b->info);
	}
	ct_close_pair(&bench.pair);
}

/* Neither side sends data: none arrive. */
static void no_data(void)
{
	struct ct_event request, connected;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;

	setup(&bench);
	ct_open_ep(b, b->info);
	OK(fi_connect(b->ep, bench.name, NULL, 0));
	ct_wait_request(a, &request);
	CHECK(request.data_len == 0, "request");
	ct_accept(a, &request, NULL, 0);
	connected = ct_event_of(b, FI_CONNECTED);
	CHECK(connected.data_len == 0, "connected");
	ct_wait_connected(a);
	ct_close_pair(&bench.pair);
}

static bool same_address(const void *a, size_t a_len, const void *b,
			 size_t b_len)
{
	const struct sockaddr *sa = a, *sb = b;

	if (a_len != b_len)
		return false;
	if (a_len < sizeof(*sa) || sa->sa_family != AF_INET)
		return !memcmp(a, b, a_len);
	return sb->sa_family == AF_INET &&
	       ((const struct sockaddr_in *)a)->sin_port ==
	       ((const struct sockaddr_in *)b)->sin_port &&
	       ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
	       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

/* Each side's peer name is the other side's own name. */
static void names(void)
{
	unsigned char name[CT_NAME], peer[256];
	size_t len, peer_len;
	struct bench bench;

	setup(&bench);
	connect_pair(&bench);
	len = ct_name(&bench.pair.b.ep->fid, name, sizeof(name));
	peer_len = sizeof(peer);
	OK(fi_getpeer(bench.pair.a.ep, peer, &peer_len));
	CHECK(same_address(name, len, peer, peer_len), "acceptor");
	peer_len = sizeof(peer);
	OK(fi_getpeer(bench.pair.b.ep, peer, &peer_len));
	CHECK(same_address(bench.name, bench.name_len, peer, peer_len),
	      "connector");

	/* A buffer that is too small is filled. */
	memset(name, 0xee, sizeof(name));
	peer_len = len - 1;
	EXPECT(fi_getname(&bench.pair.b.ep->fid, name, &peer_len),
	       -FI_ETOOSMALL);
	CHECK(peer_len == len, "needed-size");
	CHECK(ct_is_all(name + len - 1, 8, 0xee), "not-beyond");
	peer_len = 0;
	EXPECT(fi_getname(&bench.pair.b.ep->fid, NULL, &peer_len),
	       -FI_ETOOSMALL);
	CHECK(peer_len == len, "size-only");
	ct_close_pair(&bench.pair);
}

/* Many requests at the same time: each is accepted on its own. */
static void many(void)
{
	enum { COUNT = 20 };
	static struct ct_peer clients[COUNT];
	static struct fid_ep *accepted[COUNT];
	struct bench bench;
	struct ct_peer *a = &bench.pair.a;
	struct ct_event event;
	int requests = 0, up = 0;

	setup(&bench);
	for (int i = 0; i < COUNT; i++) {
		uint8_t id = (uint8_t)i;

		ct_open_domain(&clients[i], &a->spec, fi_dupinfo(a->info),
			       a->fabric, NULL);
		ct_open_ep(&clients[i], clients[i].info);
		OK(fi_connect(clients[i].ep, bench.name, &id, 1));
	}
	while (requests < COUNT || up < COUNT) {
		a->partner = &clients[(requests + up) % COUNT];
		for (int i = 0; i < COUNT; i++) {
			uint32_t type;
			unsigned char raw[600];
			ssize_t ret = fi_eq_read(clients[i].eq.fid, &type, raw,
						 sizeof(raw), 0);

			if (ret == -FI_EAGAIN)
				continue;
			REQUIRE(ret > 0 && type == FI_CONNECTED);
			up++;
		}
		if (requests + up >= 2 * COUNT)
			break;
		a->partner = NULL;
		if (ct_no_event(a))
			continue;
		event = ct_any_event(a);
		REQUIRE(!event.failed);
		if (event.type == FI_CONNECTED)
			continue;
		REQUIRE(event.type == FI_CONNREQ);
		REQUIRE(event.data_len >= 1 && event.data[0] < COUNT);
		a->ep = NULL;
		ct_open_ep(a, event.info);
		REQUIRE(!accepted[event.data[0]]);
		accepted[event.data[0]] = a->ep;
		OK(fi_accept(a->ep, NULL, 0));
		fi_freeinfo(event.info);
		requests++;
	}
	/* Every client talks to the endpoint that took its request. */
	for (int i = 0; i < COUNT; i++) {
		char got = 0;
		char sent = (char)i;

		clients[i].partner = a;
		a->partner = &clients[i];
		a->ep = accepted[i];
		POST(a, fi_recv(a->ep, &got, 1, NULL, 0, &rx_context));
		POST(&clients[i], fi_inject(clients[i].ep, &sent, 1, 0));
		ct_done(a, &a->rx, &rx_context);
		REQUIRE(got == sent);
	}
	for (int i = 0; i < COUNT; i++) {
		OK(fi_close(&accepted[i]->fid));
		ct_close_peer(&clients[i]);
	}
	a->ep = NULL;
	ct_close_pair(&bench.pair);
}

/* Unanswered requests do not prevent closing. */
static void unanswered(void)
{
	struct ct_event request;
	struct bench bench;

	setup(&bench);
	ct_open_ep(&bench.pair.b, bench.pair.b.info);
	OK(fi_connect(bench.pair.b.ep, bench.name, NULL, 0));
	ct_wait_request(&bench.pair.a, &request);
	fi_freeinfo(request.info);
	ct_close_pair(&bench.pair);
}

/* Closing the endpoint that was opened for a request answers it: the peer gets
 * an event, and however often that happens other peers can connect. */
static void closed_unanswered(void)
{
	struct ct_event request, refused;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;

	setup(&bench);
	for (int i = 0; i < ct_times(300); i++) {
		ct_open_ep(b, b->info);
		OK(fi_connect(b->ep, bench.name, NULL, 0));
		ct_wait_request(a, &request);
		ct_open_ep(a, request.info);
		OK(fi_close(&a->ep->fid));
		a->ep = NULL;
		refused = ct_any_event(b);
		REQUIRE(refused.failed && refused.err.fid == &b->ep->fid);
		if (!i)
			CHECK(fi_reject(bench.pair.pep, request.info->handle,
					NULL, 0) == 0,
			      "reject");
		fi_freeinfo(request.info);
		OK(fi_close(&b->ep->fid));
		b->ep = NULL;
	}
	connect_pair(&bench);
	exchange(&bench.pair);
	ct_close_pair(&bench.pair);
}

/* Invalid requests end their connection and have no other effect. */
static void stranger(void)
{
	static const char noise[] = "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n"
				    "and some more bytes to fill a header";
	struct bench bench;
	int fds[3];

	setup(&bench);
	if (((struct sockaddr *)bench.name)->sa_family != AF_INET)
		SKIP("not an IPv4 address");
	for (int i = 0; i < 3; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		REQUIRE(fds[i] >= 0);
		REQUIRE(!connect(fds[i], (struct sockaddr *)bench.name,
				 sizeof(struct sockaddr_in)));
	}
	/* One that talks nonsense, one that is gone, one that is silent. */
	REQUIRE(write(fds[0], noise, sizeof(noise)) > 0);
	close(fds[1]);
	REQUIRE(ct_no_event(&bench.pair.a));
	connect_pair(&bench);
	exchange(&bench.pair);
	close(fds[0]);
	close(fds[2]);
	REQUIRE(ct_no_event(&bench.pair.a));
	ct_close_pair(&bench.pair);
}

/* No queue, no listening. */
static void listen_without_eq(void)
{
	struct bench bench;
	struct fid_pep *pep;

	setup(&bench);
	OK(fi_passive_ep(bench.pair.a.fabric, bench.pair.a.info, &pep, NULL));
	CHECK(fi_listen(pep) < 0, "refused");
	OK(fi_close(&pep->fid));
	ct_close_pair(&bench.pair);
}

static void listener(void)
{
	struct bench bench;
	struct ct_peer *a = &bench.pair.a;
	struct fid_pep *pep;
	unsigned char name[CT_NAME];
	size_t len;
	int backlog = 10, ret;

	setup(&bench);
	OK(fi_passive_ep(a->fabric, a->info, &pep, NULL));
	OK(fi_pep_bind(pep, &a->eq.fid->fid, 0));
	ret = fi_control(&pep->fid, FI_BACKLOG, &backlog);
	CHECK(ret == 0 || ret == -FI_ENOSYS || ret == -FI_EOPNOTSUPP,
	      "backlog");
	OK(fi_listen(pep));
	len = ct_name(&pep->fid, name, sizeof(name));
	CHECK(!same_address(name, len, bench.name, bench.name_len),
	      "own-address");
	OK(fi_close(&pep->fid));
	ct_close_pair(&bench.pair);
}

/* While something reports to a queue, the queue cannot go. */
static void queue_busy(void)
{
	struct bench bench;

	setup(&bench);
	EXPECT(fi_close(&bench.pair.a.eq.fid->fid), -FI_EBUSY);
	ct_close_pair(&bench.pair);
}

/* An active endpoint may take over the address of a passive one. */
static void reserved_address(void)
{
	unsigned char reserved[256], name[256];
	struct bench bench;
	struct ct_peer *b = &bench.pair.b;
	struct fid_pep *pep;
	struct fi_info *info;
	size_t len;
	int ret;

	setup(&bench);
	OK(fi_passive_ep(b->fabric, b->info, &pep, NULL));
	ret = fi_setname(&pep->fid, b->info->src_addr, b->info->src_addrlen);
	CHECK(ret == 0, "setname");
	len = sizeof(reserved);
	OK(fi_getname(&pep->fid, reserved, &len));
	info = fi_dupinfo(b->info);
	info->handle = &pep->fid;
	ct_open_ep(b, info);
	OK(fi_close(&pep->fid));
	ct_connect(b, &bench.pair.a, bench.name);
	exchange(&bench.pair);
	REQUIRE(ct_name(&b->ep->fid, name, sizeof(name)) == len);
	CHECK(same_address(name, len, reserved, len), "kept");
	info->handle = NULL;
	fi_freeinfo(info);
	ct_close_pair(&bench.pair);
}

/* Receives may be posted before there is a connection. */
static void receive_before_connect(void)
{
	struct ct_event request;
	struct bench bench;
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	char out = 'x', in = 0;

	setup(&bench);
	ct_open_ep(b, b->info);
	OK(fi_recv(b->ep, &in, 1, NULL, 0, &rx_context));
	OK(fi_connect(b->ep, bench.name, NULL, 0));
	ct_wait_request(a, &request);
	ct_accept(a, &request, NULL, 0);
	ct_wait_connected(a);
	POST(a, fi_inject(a->ep, &out, 1, 0));
	ct_wait_connected(b);
	ct_done(b, &b->rx, &rx_context);
	REQUIRE(in == 'x');
	ct_close_pair(&bench.pair);
}

/* Before it is connected an endpoint does not send. */
static void send_before_connect(void)
{
	struct bench bench;
	struct ct_peer *b = &bench.pair.b;

	setup(&bench);
	ct_open_ep(b, b->info);
	CHECK(fi_send(b->ep, NULL, 0, NULL, 0, &tx_context) < 0, "refused");
	ct_close_pair(&bench.pair);
}

static void connect_twice(void)
{
	struct bench bench;

	setup(&bench);
	connect_pair(&bench);
	CHECK(fi_connect(bench.pair.b.ep, bench.name, NULL, 0) < 0, "refused");
	exchange(&bench.pair);
	ct_close_pair(&bench.pair);
}

static const struct ct_test tests[] = {
	{ "messages-before-ends", messages_before_ends, CT_MSG },
	{ "data-both-ways", data_both_ways, CT_MSG },
	{ "no-data", no_data, CT_MSG },
	{ "reject", reject, CT_MSG },
	{ "reject-with-endpoint", reject_with_endpoint, CT_MSG },
	{ "reject-after-endpoint", reject_after_endpoint, CT_MSG },
	{ "answered-request", answered_request, CT_MSG },
	{ "refused", refused, CT_MSG },
	{ "shutdown", shutdown_event, CT_MSG },
	{ "close", close_event, CT_MSG },
	{ "shutdown-delivers", shutdown_delivers, CT_MSG },
	{ "after-shutdown", after_shutdown, CT_MSG },
	{ "received-after-shutdown", received_after_shutdown, CT_MSG },
	{ "names", names, CT_MSG },
	{ "many", many, CT_MSG },
	{ "unanswered", unanswered, CT_MSG },
	{ "closed-unanswered", closed_unanswered, CT_MSG },
	{ "stranger", stranger, CT_MSG },
	{ "listener", listener, CT_MSG },
	{ "queue-busy", queue_busy, CT_MSG },
	{ "listen-without-eq", listen_without_eq, CT_MSG },
	{ "reserved-address", reserved_address, CT_MSG },
	{ "receive-before-connect", receive_before_connect, CT_MSG },
	{ "send-before-connect", send_before_connect, CT_MSG },
	{ "connect-twice", connect_twice, CT_MSG },
};

CT_MAIN(tests)
