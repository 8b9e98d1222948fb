/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connect.h"
#include "wait.h"

#define NAME_SIZE 256

static struct sockaddr_in talk_address(void)
{
	const char *port = getenv("WIRE_PORT"), *host = getenv("WIRE_HOST");
	struct sockaddr_in address = { .sin_family = AF_INET };

	REQUIRE(port);
	REQUIRE(inet_pton(AF_INET, host ? host : "127.0.0.1", &address.sin_addr) == 1);
	address.sin_port = htons((uint16_t) atoi(port));
	return address;
}

/* The server listens only while it waits, so that a client which is a test
 * ahead is refused and tries again. */
static int listen_for_talk(void)
{
	struct sockaddr_in address = talk_address();
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, talk;
	struct pollfd ready = { .fd = listener, .events = POLLIN };

	REQUIRE(listener >= 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	REQUIRE(!bind(listener, (struct sockaddr *) &address, sizeof(address)));
	REQUIRE(!listen(listener, 1));
	REQUIRE(poll(&ready, 1, (int) (ct_patience() * 2000)) == 1);
	talk = accept(listener, NULL, NULL);
	REQUIRE(talk >= 0);
	close(listener);
	return talk;
}

static int call_for_talk(void)
{
	struct sockaddr_in address = talk_address();
	double until = ct_now() + 2 * ct_patience();

	for (;;) {
		int talk = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		REQUIRE(talk >= 0);
		if (!connect(talk, (struct sockaddr *) &address, sizeof(address)))
			return talk;
		close(talk);
		REQUIRE(ct_now() < until);
		usleep(2000);
	}
}

static void drive(struct side *side)
{
	if (side->peer.domain) {
		ct_progress(&side->peer);
		ct_progress_events(&side->peer);
	}
}

/* False if the other process has hung up. */
static bool take(struct side *side, void *bytes, size_t size)
{
	double until = ct_now() + 3 * ct_patience();
	char *at = bytes;

	while (size) {
		ssize_t got = recv(side->talk, at, size, MSG_DONTWAIT);

		if (got > 0) {
			at += got;
			size -= (size_t) got;
		} else if (got == 0 || errno != EAGAIN) {
			return false;
		} else {
			drive(side);
			REQUIRE(ct_now() < until);
		}
	}
	return true;
}

static void give(struct side *side, const void *bytes, size_t size)
{
	REQUIRE(send(side->talk, bytes, size, MSG_NOSIGNAL) == (ssize_t) size);
}

void side_swap(struct side *side, const void *mine, void *theirs, size_t size)
{
	give(side, mine, size);
	if (!take(side, theirs, size))
		ct_fail(__FILE__, __LINE__, "the other process has gone");
}

void side_sync(struct side *side)
{
	char here = '.', there;

	side_swap(side, &here, &there, 1);
}

void side_linger(struct side *side, double seconds)
{
	double until = ct_now() + seconds;

	while (ct_now() < until)
		drive(side);
}

void side_meet(struct side *side, const char *test)
{
	const char *role = getenv("WIRE_ROLE");
	char mine[64] = { 0 }, theirs[64] = { 0 };
	int on = 1;

	REQUIRE(role);
	memset(side, 0, sizeof(*side));
	side->server = !strcmp(role, "server");
	side->talk = side->server ? listen_for_talk() : call_for_talk();
	setsockopt(side->talk, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	strncpy(mine, test, sizeof(mine) - 1);
	side_swap(side, mine, theirs, sizeof(mine));
	REQUIRE(!strcmp(mine, theirs));
}

/* The info to open with, if both sides have one. */
static struct fi_info *agree_on_info(struct side *side, const struct ct_spec *spec)
{
	struct fi_info *hints = ct_hints(spec), *info = NULL;
	int ret = fi_getinfo(CT_API_VERSION, ct_opt.source, NULL,
			     ct_opt.source ? FI_SOURCE : 0, hints, &info), other;

	fi_freeinfo(hints);
	side_swap(side, &ret, &other, sizeof(ret));
	if (ret == -FI_ENODATA || other == -FI_ENODATA)
		SKIP("not advertised by %s", ret ? "this side" : "the other side");
	OK(ret);
	OK(other);
	return info;
}

static void connect_sides(struct side *side)
{
	unsigned char mine[NAME_SIZE] = { 0 }, theirs[NAME_SIZE];
	struct ct_peer *peer = &side->peer;

	if (side->server) {
		struct fid_pep *pep = ct_listen(peer);
		struct ct_event request;

		ct_name(&pep->fid, mine, sizeof(mine));
		side_swap(side, mine, theirs, sizeof(mine));
		ct_wait_request(peer, &request);
		ct_accept(peer, &request, NULL, 0);
		ct_wait_connected(peer);
		OK(fi_close(&pep->fid));
	} else {
		side_swap(side, mine, theirs, sizeof(mine));
		ct_open_ep(peer, peer->info);
		OK(fi_connect(peer->ep, theirs, NULL, 0));
		ct_wait_connected(peer);
	}
}

static void introduce_sides(struct side *side)
{
	unsigned char mine[NAME_SIZE] = { 0 }, theirs[NAME_SIZE];
	struct ct_peer *peer = &side->peer;

	ct_open_ep(peer, peer->info);
	ct_name(&peer->ep->fid, mine, sizeof(mine));
	side_swap(side, mine, theirs, sizeof(mine));
	peer->to = ct_insert(peer, theirs);
}

static void join(struct side *side)
{
	if (ct_opt.type == FI_EP_MSG)
		connect_sides(side);
	else
		introduce_sides(side);
	side_sync(side);
}

void side_open(struct side *side, const char *test, const struct ct_spec *spec)
{
	side_meet(side, test);
	ct_open_domain(&side->peer, spec, agree_on_info(side, spec), NULL, NULL);
	join(side);
}

/* The provider that was asked for, not one that is layered over it, whose endpoints
 * would communicate only with the same kind. */
static struct fi_info *plain_info(const struct ct_spec *spec)
{
	struct fi_info *hints = ct_hints(spec), *info = NULL;
	int ret = fi_getinfo(CT_API_VERSION, ct_opt.source, NULL,
			     ct_opt.source ? FI_SOURCE : 0, hints, &info);

	fi_freeinfo(hints);
	if (ret == -FI_ENODATA)
		return NULL;
	OK(ret);
	if (strchr(info->fabric_attr->prov_name, ';') && !strchr(ct_opt.provider, ';')) {
		fi_freeinfo(info);
		return NULL;
	}
	return info;
}

bool side_open_as_able(struct side *side, const char *test, const struct ct_spec *wanted,
		       const struct ct_spec *otherwise)
{
	bool able = side_prepare_as_able(side, test, wanted, otherwise);

	join(side);
	return able;
}

bool side_prepare_as_able(struct side *side, const char *test, const struct ct_spec *wanted,
			  const struct ct_spec *otherwise)
{
	struct fi_info *info;
	bool able;

	side_meet(side, test);
	info = plain_info(wanted);
	able = info;
	if (!able)
		info = plain_info(otherwise);
	REQUIRE(info);
	ct_open_domain(&side->peer, able ? wanted : otherwise, info, NULL, NULL);
	return able;
}

void side_close(struct side *side)
{
	side_sync(side);
	if (side->peer.domain)
		ct_close_peer(&side->peer);
	close(side->talk);
}
