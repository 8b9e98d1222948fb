/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Streams and datagrams: see world.h.
 *
 * A stream keeps what tcp(7) promises, and nothing beyond: bytes arrive in order, whenever they
 * want, in any pieces; connections are refused, wait for a listener with a full backlog, and are
 * reset. A datagram arrives as a whole, or is lost, or comes twice, if the profile says so.
 *
 * The environment says what the network is like: SIM_SEED (1), and where the seed is not to
 * draw, SIM_DELAY (the longest, in microseconds), SIM_ROOM (bytes of a direction), SIM_PARTS,
 * SIM_REFUSED, SIM_SCARCE, SIM_LOST, SIM_DOUBLED (per thousand) and SIM_BROKEN (per million). The
 * last five are zero unless they are given: what is lost then is no fault.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "world.h"

enum {
	FIRST_PORT = 20000,	/* that is given to sockets without one */
	SEGMENT = 1448,		/* bytes of a packet of a usual network */
};

struct profile profile;
static struct object *objects[DESCRIPTORS];
static struct object *at_port[2][65536];	/* those bound to it: streams, datagrams */
static uint16_t next_port;
static uint64_t state;

/* SplitMix64. */
static uint64_t number(void)
{
	uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t draw(uint64_t below)
{
	return below ? number() % below : 0;
}

bool chance(unsigned of, unsigned in)
{
	return of && draw(in) < of;
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value && *value ? strtoull(value, NULL, 0) : otherwise;
}

void simulated_breaks_no_more(void)
{
	enter();
	profile.broken = profile.refused = profile.scarce = 0;
	leave();
}

void draw_profile(void)
{
	static const uint64_t delays[] = { 0, 5 * MICRO, 100 * MICRO, 2 * MILLI, 40 * MILLI };
	static const size_t rooms[] = { 600, 4 << 10, 64 << 10, 1 << 20 };
	size_t room;

	state = setting("SIM_SEED", 1) * UINT64_C(0x2545f4914f6cdd1d);
	next_port = FIRST_PORT + (uint16_t)draw(10000);
	profile.longest_delay = setting("SIM_DELAY", delays[draw(5)] / MICRO) * MICRO;
	room = rooms[draw(4)];
	/* At least 50 bytes in a microsecond, on the average way: long messages arrive in time. */
	if (room < profile.longest_delay / MICRO * 50)
		room = profile.longest_delay / MICRO * 50;
	profile.least_room = profile.most_room = setting("SIM_ROOM", room);
	profile.most_room *= 1 + draw(3);
	profile.in_parts = (unsigned)setting("SIM_PARTS", draw(3) * draw(400));
	profile.refused = (unsigned)setting("SIM_REFUSED", 0);
	profile.broken = (unsigned)setting("SIM_BROKEN", 0);
	profile.scarce = (unsigned)setting("SIM_SCARCE", 0);
	profile.lost = (unsigned)setting("SIM_LOST", 0);
	profile.doubled = (unsigned)setting("SIM_DOUBLED", 0);
	if (setting("SIM_SAY", 0))
		fprintf(stderr, "simulated: delays up to %llu us, room for %zu to %zu bytes, %u parts in 1000\n",
			(unsigned long long)(profile.longest_delay / MICRO), profile.least_room,
			profile.most_room, profile.in_parts);
}

/* What happens to connections, if SIM_SAY is above 1. */
static void say(const char *what, const struct object *socket)
{
	static int says = -1;

	if (says < 0)
		says = setting("SIM_SAY", 0) > 1;
	if (says)
		fprintf(stderr, "simulated: %.6f s: %d, port %d to %d: %s\n",
			(double)(now() % (1000000 * SECOND)) / SECOND, socket->fd,
			ntohs(socket->name.v4.sin_port), ntohs(socket->peer.v4.sin_port), what);
}

static uint64_t delay(void)
{
	/* Mostly short ones, some of the longest. */
	uint64_t bound = profile.longest_delay >> draw(6);

	return draw(bound + 1);
}

/* Objects. */

struct object *object_of(int fd)
{
	return fd >= 0 && fd < DESCRIPTORS ? objects[fd] : NULL;
}

struct object *new_object(enum kind kind, int fd)
{
	struct object *object = calloc(1, sizeof(*object));

	if (!object || fd >= DESCRIPTORS)
		abort();
	object->kind = kind;
	object->fd = fd;
	if (fd >= 0)
		objects[fd] = object;
	return object;
}

/* Gives a descriptor to an accepted connection. */
void adopt(struct object *object, int fd)
{
	object->fd = fd;
	objects[fd] = object;
}

static struct flow *new_flow(struct object *writer, struct object *reader)
{
	struct flow *flow = calloc(1, sizeof(*flow));

	if (!flow)
		abort();
	flow->last = &flow->first;
	flow->fin = flow->reset = NEVER;
	flow->room = profile.least_room + draw(profile.most_room - profile.least_room + 1);
	flow->writer = writer;
	flow->reader = reader;
	return flow;
}

static void drop_chunks(struct flow *flow)
{
	while (flow->first) {
		struct chunk *chunk = flow->first;

		flow->first = chunk->next;
		free(chunk);
	}
	flow->last = &flow->first;
	flow->held = 0;
}

/* Both sides are gone. */
static void free_flow_if_unused(struct flow *flow)
{
	if (flow->reader || flow->writer)
		return;
	drop_chunks(flow);
	free(flow);
}

/* Addresses. */

static uint16_t port_of(const union address *addr)
{
	return ntohs(addr->any.sa_family == AF_INET6 ? addr->v6.sin6_port : addr->v4.sin_port);
}

static void set_port(union address *addr, uint16_t port)
{
	if (addr->any.sa_family == AF_INET6)
		addr->v6.sin6_port = htons(port);
	else
		addr->v4.sin_port = htons(port);
}

static bool is_any(const union address *addr)
{
	return addr->any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&addr->v6.sin6_addr)
					      : addr->v4.sin_addr.s_addr == htonl(INADDR_ANY);
}

static bool is_same_host(const union address *a, const union address *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return false;
	if (is_any(a) || is_any(b))
		return true;
	return a->any.sa_family == AF_INET6
		? !memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof(a->v6.sin6_addr))
		: a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
}

static struct object **port_list(const struct object *socket, uint16_t port)
{
	return &at_port[socket->kind == DATAGRAMS][port];
}

static void unbind(struct object *socket)
{
	uint16_t port = port_of(&socket->name);

	for (struct object **at = port_list(socket, port); *at; at = &(*at)->next)
		if (*at == socket) {
			*at = socket->next;
			break;
		}
	socket->next = NULL;
}

static bool is_taken(const struct object *socket, const union address *addr)
{
	for (struct object *other = *port_list(socket, port_of(addr)); other; other = other->next)
		if (is_same_host(&other->name, addr) &&
		    (other->stage == LISTENING || !other->reuses || !socket->reuses))
			return true;
	return false;
}

int socket_bind(struct object *socket, const union address *addr)
{
	union address name = *addr;

	if (addr->any.sa_family != socket->family)
		return -EAFNOSUPPORT;
	if (port_of(&socket->name))
		return -EINVAL;
	if (!port_of(&name)) {
		int tried = 0;

		do {
			if (++next_port < FIRST_PORT)
				next_port = FIRST_PORT;
			set_port(&name, next_port);
			if (++tried > 65536)
				return -EADDRINUSE;
		} while (*port_list(socket, next_port));
	} else if (is_taken(socket, &name)) {
		return -EADDRINUSE;
	}
	socket->name = name;
	socket->next = *port_list(socket, port_of(&name));
	*port_list(socket, port_of(&name)) = socket;
	return 0;
}

/* An address of the loopback network, to a socket that has none. */
static int bind_somewhere(struct object *socket)
{
	union address any = { .any.sa_family = (sa_family_t)socket->family };

	if (port_of(&socket->name))
		return 0;
	if (socket->family == AF_INET6)
		any.v6.sin6_addr = in6addr_loopback;
	else
		any.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return socket_bind(socket, &any);
}

/* Streams. */

int socket_open(int fd, int family, int type)
{
	struct object *socket = new_object(type == SOCK_STREAM ? STREAM : DATAGRAMS, fd);

	socket->family = family;
	socket->name.any.sa_family = (sa_family_t)family;
	if (socket->kind == DATAGRAMS) {
		socket->in = new_flow(NULL, socket);
		socket->in->room = 4 << 20;
	}
	return 0;
}

int socket_listen(struct object *socket, int backlog)
{
	if (socket->kind != STREAM || (socket->stage != IDLE && socket->stage != LISTENING))
		return -EINVAL;
	bind_somewhere(socket);
	socket->stage = LISTENING;
	socket->backlog = backlog;
	return 0;
}

int socket_connect(struct object *socket, const union address *addr)
{
	int error;

	if (socket->kind == DATAGRAMS) {
		socket->peer = *addr;
		return bind_somewhere(socket);
	}
	if (socket->stage == CONNECTING)
		return -EALREADY;
	if (socket->stage != IDLE)
		return -EISCONN;
	if (addr->any.sa_family != socket->family)
		return -EAFNOSUPPORT;
	error = bind_somewhere(socket);
	if (error)
		return error;
	socket->stage = CONNECTING;
	socket->peer = *addr;
	say("connects", socket);
	progressed();
	at(now() + delay(), OUTCOME, socket);
	return -EINPROGRESS;
}

static void fail(struct object *socket, int error)
{
	if (socket->has_failed)
		return;
	socket->has_failed = true;
	socket->stage = FAILED;
	socket->error = error;
	say(strerror(error), socket);
	happened(socket);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The other side learns that the connection is reset, behind all that was sent. */
static void reset(struct flow *out)
{
	if (!out->reader || out->reset != NEVER)
		return;
	out->reset = later(now() + delay(), out->latest);
	at(out->reset, ARRIVAL, out->reader);
}

static void finish(struct object *socket)
{
	struct flow *out = socket->out;

	if (!out->reader || out->fin != NEVER)
		return;
	out->fin = out->latest = later(now() + delay(), out->latest);
	at(out->fin, ARRIVAL, out->reader);
}

static struct object *listener_at(const union address *addr)
{
	for (struct object *other = at_port[0][port_of(addr)]; other; other = other->next)
		if (other->stage == LISTENING && is_same_host(&other->name, addr))
			return other;
	return NULL;
}

/* A request for a connection reaches its destination. */
static void decide(struct object *socket)
{
	struct object *listener = listener_at(&socket->peer), *far, **last;

	if (socket->is_closed || socket->stage != CONNECTING)
		return;
	if (!listener || chance(profile.refused, 1000)) {
		fail(socket, ECONNREFUSED);
		return;
	}
	if (listener->waiting > listener->backlog) {
		/* As the kernel: the request is repeated. */
		say("waits for a listener", socket);
		at(now() + SECOND, OUTCOME, socket);
		return;
	}
	far = new_object(STREAM, -1);
	far->family = socket->family;
	far->stage = CONNECTED;
	far->name = socket->peer;
	far->peer = socket->name;
	socket->out = far->in = new_flow(socket, far);
	socket->in = far->out = new_flow(far, socket);
	socket->stage = CONNECTED;
	for (last = &listener->requests; *last; last = &(*last)->next)
		;
	*last = far;
	listener->waiting++;
	say("is connected", socket);
	happened(socket);
	happened(listener);
}

struct object *socket_accept(struct object *listener, int *error)
{
	struct object *far = listener->requests;

	*error = 0;
	if (listener->stage != LISTENING)
		*error = EINVAL;
	else if (!far)
		*error = EAGAIN;
	if (*error)
		return NULL;
	listener->requests = far->next;
	listener->waiting--;
	far->next = NULL;
	say("is accepted", far);
	progressed();
	return far;
}

size_t arrived(const struct object *socket)
{
	size_t bytes = 0;

	if (!socket->in)
		return 0;
	for (struct chunk *chunk = socket->in->first; chunk && chunk->due <= now(); chunk = chunk->next) {
		bytes += chunk->len - chunk->taken;
		if (socket->kind == DATAGRAMS)
			break;
	}
	return bytes;
}

static bool has_arrived(const struct object *socket)
{
	return socket->in && socket->in->first && socket->in->first->due <= now();
}

static bool has_ended(const struct object *socket)
{
	return socket->in && socket->in->fin <= now();
}

static bool has_room(const struct flow *out)
{
	/* As the kernel: a third. */
	return out->held <= out->room - out->room / 3;
}

uint32_t mask_of(const struct object *object)
{
	uint32_t mask = 0;

	switch (object->kind) {
	case POLLER:
		return mask_of_poller(object);
	case TIMER:
		return object->deadline <= now() ? EPOLLIN : 0;
	case DATAGRAMS:
		return EPOLLOUT | (has_arrived(object) ? EPOLLIN : 0);
	default:
		break;
	}
	switch (object->stage) {
	case LISTENING:
		return object->requests ? EPOLLIN : 0;
	case CONNECTING:
		return 0;
	case IDLE:
		return EPOLLOUT | EPOLLHUP;
	case FAILED:
		/* What has arrived can still be read. */
		return EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | (object->error ? EPOLLERR : 0);
	case CONNECTED:
		break;
	}
	if (has_arrived(object) || has_ended(object) || object->reads_ended)
		mask |= EPOLLIN;
	if (has_ended(object) || object->reads_ended)
		mask |= EPOLLRDHUP;
	if (object->writes_ended && (has_ended(object) || object->reads_ended))
		mask |= EPOLLHUP;
	if (object->writes_ended || has_room(object->out))
		mask |= EPOLLOUT;
	return mask;
}

void due(enum what what, struct object *object)
{
	if (object->is_closed)
		return;
	switch (what) {
	case OUTCOME:
		decide(object);
		break;
	case ARRIVAL:
		if (object->in && object->in->reset <= now())
			fail(object, ECONNRESET);
		else
			happened(object);
		break;
	case ROOM:
		if (object->out && object->out->wants_room && has_room(object->out)) {
			object->out->wants_room = false;
			happened(object);
		}
		break;
	case ALARM:
		if (object->deadline <= now())
			happened(object);
		break;
	}
}

int socket_shutdown(struct object *socket, int how)
{
	if (socket->stage != CONNECTED)
		return -ENOTCONN;
	if (how != SHUT_WR)
		socket->reads_ended = true;
	if (how != SHUT_RD && !socket->writes_ended) {
		socket->writes_ended = true;
		finish(socket);
	}
	happened(socket);
	return 0;
}

static void close_stream(struct object *socket)
{
	/* Bytes that nobody reads any more reset the connection, as tcp(7) does; those that are
	 * on their way do so behind the end. */
	bool is_unread = has_arrived(socket), are_under_way = socket->in && socket->in->first;

	while (socket->requests) {
		struct object *far = socket->requests;

		socket->requests = far->next;
		far->next = NULL;
		close_object(far);
	}
	if (socket->out) {
		if (is_unread)
			reset(socket->out);
		else
			finish(socket);
		if (are_under_way)
			reset(socket->out);
		socket->out->writer = NULL;
		free_flow_if_unused(socket->out);
	}
}

void close_object(struct object *object)
{
	if (object->kind == STREAM)
		say("is closed", object);
	if (object->fd >= 0)
		objects[object->fd] = NULL;
	object->is_closed = true;
	forget_watches(object);
	switch (object->kind) {
	case STREAM:
		close_stream(object);
		unbind(object);
		break;
	case DATAGRAMS:
		unbind(object);
		break;
	case POLLER:
		for (int fd = 0; fd < DESCRIPTORS; fd++)
			if (objects[fd])
				forget_watch_of(objects[fd], object);
		break;
	default:
		break;
	}
	if (object->in) {
		object->in->reader = NULL;
		drop_chunks(object->in);
		free_flow_if_unused(object->in);
	}
	object->in = object->out = NULL;
	/* The object itself stays: events may still name it. */
}

/* Data. */

static size_t length(const struct iovec *iov, size_t count)
{
	size_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

/* Copies `len` bytes between the pieces, from an offset in them on, and memory. */
static void copy(const struct iovec *iov, size_t offset, unsigned char *bytes, size_t len, bool out)
{
	for (; len; iov++) {
		size_t part = iov->iov_len;

		if (offset >= part) {
			offset -= part;
			continue;
		}
		part -= offset;
		part = part < len ? part : len;
		if (out)
			memcpy(bytes, (unsigned char *)iov->iov_base + offset, part);
		else
			memcpy((unsigned char *)iov->iov_base + offset, bytes, part);
		bytes += part;
		len -= part;
		offset = 0;
	}
}

static struct chunk *new_chunk(const struct iovec *iov, size_t len)
{
	struct chunk *chunk = malloc(sizeof(*chunk) + len);

	if (!chunk)
		abort();
	*chunk = (struct chunk) { .len = len };
	copy(iov, 0, chunk->bytes, len, true);
	return chunk;
}

static void append(struct flow *flow, struct chunk *chunk)
{
	*flow->last = chunk;
	flow->last = &chunk->next;
	flow->held += chunk->len;
	at(chunk->due, ARRIVAL, flow->reader);
}

static ssize_t send_datagram(struct object *socket, const struct iovec *iov, size_t count,
			     const union address *to)
{
	const union address *dest = to ? to : &socket->peer;
	size_t len = length(iov, count);

	if (len > 65507)
		return -EMSGSIZE;
	bind_somewhere(socket);
	for (int copies = chance(profile.doubled, 1000) ? 2 : 1; copies; copies--) {
		struct object *far = at_port[1][port_of(dest)];
		struct chunk *chunk, **before;

		while (far && !is_same_host(&far->name, dest))
			far = far->next;
		if (!far || far->in->held + len > far->in->room || chance(profile.lost, 1000))
			continue;
		chunk = new_chunk(iov, len);
		chunk->due = now() + delay();
		chunk->from = socket->name;
		if (is_any(&chunk->from)) {
			chunk->from = far->name;
			set_port(&chunk->from, port_of(&socket->name));
		}
		/* In the order of arrival; without losses in that of sending. */
		if (!profile.lost && chunk->due < far->in->latest)
			chunk->due = far->in->latest;
		if (chunk->due >= far->in->latest) {
			far->in->latest = chunk->due;
			append(far->in, chunk);
			continue;
		}
		for (before = &far->in->first; *before && (*before)->due <= chunk->due;)
			before = &(*before)->next;
		chunk->next = *before;
		*before = chunk;
		if (!chunk->next)
			far->in->last = &chunk->next;
		far->in->held += len;
		at(chunk->due, ARRIVAL, far);
	}
	return (ssize_t)len;
}

/* Some of the bytes that are under way will not arrive. */
static void cut(struct flow *out)
{
	size_t left = draw(out->held + 1);
	struct chunk **at = &out->first;

	for (; *at; at = &(*at)->next) {
		struct chunk *chunk = *at;

		/* What has arrived can be read. */
		if (chunk->due > now() && chunk->len - chunk->taken > left)
			break;
		left -= chunk->len - chunk->taken < left ? chunk->len - chunk->taken : left;
	}
	if (*at) {
		out->held -= (*at)->len - (*at)->taken - left;
		(*at)->len = (*at)->taken + left;
		if (left) {
			out->latest = (*at)->due;
			at = &(*at)->next;
		}
	}
	while (*at) {
		struct chunk *chunk = *at;

		*at = chunk->next;
		out->held -= chunk->len - chunk->taken;
		free(chunk);
	}
	out->last = at;
}

ssize_t socket_send(struct object *socket, const struct iovec *iov, size_t count,
		    const union address *to)
{
	size_t len = length(iov, count), room;
	struct chunk *chunk;

	progressed();
	if (socket->kind == DATAGRAMS)
		return send_datagram(socket, iov, count, to);
	if (socket->error) {
		int error = socket->error;

		socket->error = 0;
		return -error;
	}
	if (socket->stage == FAILED || socket->writes_ended)
		return -EPIPE;
	if (socket->stage != CONNECTED)
		return socket->stage == CONNECTING ? -EAGAIN : -EPIPE;
	if (chance(profile.broken, 1000000)) {
		cut(socket->out);
		reset(socket->out);
		fail(socket, ECONNRESET);
		return -ECONNRESET;
	}
	if (!socket->out->reader) {
		/* Nobody reads; the answer is a reset. */
		if (socket->in->reset == NEVER) {
			socket->in->reset = later(now() + 2 * delay(), socket->in->latest);
			at(socket->in->reset, ARRIVAL, socket);
		}
		return (ssize_t)len;
	}
	room = socket->out->room > socket->out->held ? socket->out->room - socket->out->held : 0;
	if (len > room) {
		socket->out->wants_room = true;
		len = room;
		if (!len)
			return -EAGAIN;
	} else if (len > SEGMENT && socket->out->held && chance(profile.in_parts, 1000)) {
		/* As if it were full now, and had room again a moment later. An empty buffer takes
		 * what fits, and the kernel cuts no shorter pieces while there is room. */
		socket->out->wants_room = true;
		at(now() + 1 + delay(), ROOM, socket);
		len = 1 + draw(len);
	}
	if (!len)
		return 0;
	chunk = new_chunk(iov, len);
	chunk->due = now() + delay();
	if (chunk->due < socket->out->latest)
		chunk->due = socket->out->latest;
	socket->out->latest = chunk->due;
	append(socket->out, chunk);
	return (ssize_t)len;
}

static ssize_t receive_datagram(struct object *socket, const struct iovec *iov, size_t count,
				bool peeks, union address *from, bool *is_truncated)
{
	struct chunk *chunk = socket->in->first;
	size_t len;

	if (!has_arrived(socket))
		return -EAGAIN;
	len = length(iov, count);
	*is_truncated = len < chunk->len;
	len = *is_truncated ? len : chunk->len;
	copy(iov, 0, chunk->bytes, len, false);
	if (from)
		*from = chunk->from;
	if (!peeks) {
		socket->in->first = chunk->next;
		if (!socket->in->first)
			socket->in->last = &socket->in->first;
		socket->in->held -= chunk->len;
		free(chunk);
	}
	return (ssize_t)len;
}

ssize_t socket_receive(struct object *socket, const struct iovec *iov, size_t count, bool peeks,
		       union address *from, bool *is_truncated)
{
	struct flow *in = socket->in;
	size_t wanted = length(iov, count), done = 0;
	struct chunk *chunk;

	*is_truncated = false;
	if (socket->kind == DATAGRAMS) {
		ssize_t got = receive_datagram(socket, iov, count, peeks, from, is_truncated);

		if (got >= 0)
			progressed();
		return got;
	}
	if (socket->reads_ended)
		return 0;
	if (!has_arrived(socket)) {
		int error = socket->error;

		if (has_ended(socket))
			return 0;
		socket->error = 0;
		if (error || socket->stage == FAILED)
			return -error;
		return socket->stage == CONNECTED ? -EAGAIN : -ENOTCONN;
	}
	if (!wanted)
		return 0;
	if (wanted > 1 && chance(profile.in_parts, 1000)) {
		/* The rest arrives a moment later. */
		size_t part = 1 + draw(wanted - 1);

		if (part < arrived(socket)) {
			at(now() + 1, ARRIVAL, socket);
			wanted = part;
		}
	}
	chunk = in->first;
	while (done < wanted && chunk && chunk->due <= now()) {
		size_t part = chunk->len - chunk->taken;

		part = part < wanted - done ? part : wanted - done;
		copy(iov, done, chunk->bytes + chunk->taken, part, false);
		done += part;
		if (peeks) {
			chunk = chunk->next;
			continue;
		}
		chunk->taken += part;
		in->held -= part;
		if (chunk->taken < chunk->len)
			break;
		in->first = chunk->next;
		if (!in->first)
			in->last = &in->first;
		free(chunk);
		chunk = in->first;
	}
	if (!peeks && in->wants_room && in->writer)
		at(now() + delay(), ROOM, in->writer);
	progressed();
	return (ssize_t)done;
}
