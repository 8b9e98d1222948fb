/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#define _GNU_SOURCE
#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { ROOM = 65536 };

/* One direction: bytes that were read and not yet written. */
struct pipe_state {
	int from, to;
	size_t first, count;
	bool ended;
	unsigned char bytes[ROOM];
};

struct ct_relay {
	struct sockaddr_storage target, name;
	int listener;
	int near, far;		/* -1 without a connection */
	bool broken;
	struct pipe_state out, back;
	unsigned long long passed;
};

static socklen_t name_len(const struct sockaddr *name)
{
	return name->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					   : sizeof(struct sockaddr_in);
}

static void set_port(struct sockaddr *name, in_port_t port)
{
	if (name->sa_family == AF_INET6)
		((struct sockaddr_in6 *)name)->sin6_port = port;
	else
		((struct sockaddr_in *)name)->sin_port = port;
}

struct ct_relay *ct_relay_open(const struct sockaddr *target)
{
	struct ct_relay *relay = calloc(1, sizeof(*relay));
	socklen_t len = name_len(target);

	REQUIRE(relay);
	relay->near = relay->far = -1;
	memcpy(&relay->target, target, len);
	memcpy(&relay->name, target, len);
	set_port((struct sockaddr *)&relay->name, 0);
	relay->listener = socket(target->sa_family,
				 SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	REQUIRE(relay->listener >= 0);
	REQUIRE(!bind(relay->listener, (struct sockaddr *)&relay->name, len));
	REQUIRE(!listen(relay->listener, 1));
	REQUIRE(!getsockname(relay->listener, (struct sockaddr *)&relay->name,
			     &len));
	return relay;
}

const struct sockaddr *ct_relay_name(const struct ct_relay *relay)
{
	return (const struct sockaddr *)&relay->name;
}

static void set_up(int fd)
{
	int on = 1;

	REQUIRE(!fcntl(fd, F_SETFL, O_NONBLOCK));
	REQUIRE(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
}

static void take_connection(struct ct_relay *relay)
{
	const struct sockaddr *target = (struct sockaddr *)&relay->target;

	if (relay->near >= 0 || relay->broken)
		return;
	relay->near = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC);
	if (relay->near < 0)
		return;
	relay->far = socket(target->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(relay->far >= 0);
	REQUIRE(!connect(relay->far, target, name_len(target)));
	set_up(relay->near);
	set_up(relay->far);
	relay->out.from = relay->back.to = relay->near;
	relay->out.to = relay->back.from = relay->far;
}

/* The number of bytes to move: none, a few, some, or all. */
static size_t portion(struct ct_random *random)
{
	if (!random)
		return ROOM;
	switch (ct_below(random, 4)) {
	case 0:
		return 0;
	case 1:
		return 1 + ct_below(random, 3);
	case 2:
		return 1 + ct_below(random, 200);
	default:
		return ROOM;
	}
}

static void move(struct ct_relay *relay, struct pipe_state *pipe,
		 struct ct_random *random)
{
	size_t in = portion(random), out = portion(random);
	size_t room = ROOM - pipe->first - pipe->count;
	ssize_t n;

	if (in > room)
		in = room;
	if (in && !pipe->ended) {
		n = recv(pipe->from, pipe->bytes + pipe->first + pipe->count,
			 in, MSG_DONTWAIT);
		if (n > 0)
			pipe->count += (size_t)n;
		else if (!n || (errno != EAGAIN && errno != EINTR))
			pipe->ended = true;
	}
	if (out > pipe->count)
		out = pipe->count;
	if (out) {
		n = send(pipe->to, pipe->bytes + pipe->first, out,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0) {
			pipe->first += (size_t)n;
			pipe->count -= (size_t)n;
			relay->passed += (unsigned long long)n;
		} else if (errno != EAGAIN && errno != EINTR) {
			pipe->count = 0;
		}
	}
	if (!pipe->count) {
		pipe->first = 0;
		if (pipe->ended)
			shutdown(pipe->to, SHUT_WR);
	}
}

void ct_relay_step(struct ct_relay *relay, struct ct_random *random)
{
	take_connection(relay);
	if (relay->near < 0)
		return;
	move(relay, &relay->out, random);
	move(relay, &relay->back, random);
}

void ct_relay_break(struct ct_relay *relay, bool reset)
{
	struct linger now = { .l_onoff = 1, .l_linger = 0 };
	int *ends[] = { &relay->near, &relay->far };

	relay->broken = true;
	for (int i = 0; i < 2; i++) {
		if (*ends[i] < 0)
			continue;
		if (reset)
			setsockopt(*ends[i], SOL_SOCKET, SO_LINGER, &now,
				   sizeof(now));
		close(*ends[i]);
		*ends[i] = -1;
	}
}

void ct_relay_mend(struct ct_relay *relay)
{
	relay->broken = false;
	relay->out.first = relay->out.count = 0;
	relay->back.first = relay->back.count = 0;
	relay->out.ended = relay->back.ended = false;
}

unsigned long long ct_relay_bytes(const struct ct_relay *relay)
{
	return relay->passed;
}

void ct_relay_close(struct ct_relay *relay)
{
	ct_relay_break(relay, false);
	close(relay->listener);
	free(relay);
}
