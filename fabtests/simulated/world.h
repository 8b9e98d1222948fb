/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A network in one process: the internet sockets, epoll(7), timers and the monotonic clock of a
 * process that has simulated.so preloaded. What is sent takes the time and the pieces that a seed
 * gives it, and time passes when nothing else happens. sockets.c has streams and datagrams,
 * waiting.c time and what waits for them, calls.c the functions of the C library in their place.
 *
 * One lock protects all of it; functions without a note are called with it. Times are in
 * nanoseconds.
 */
#ifndef SIMULATED_WORLD_H
#define SIMULATED_WORLD_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define MICRO UINT64_C(1000)
#define MILLI (1000 * MICRO)
#define SECOND (1000 * MILLI)
#define NEVER UINT64_MAX

/* Descriptors that may be simulated. */
enum { DESCRIPTORS = 1 << 17 };

enum kind { NOTHING, STREAM, DATAGRAMS, POLLER, TIMER };
enum stage { IDLE, LISTENING, CONNECTING, CONNECTED, FAILED };
enum what { ARRIVAL, ROOM, OUTCOME, ALARM };

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* Bytes that were sent in one call, or a datagram. */
struct chunk {
	struct chunk *next;
	uint64_t due;			/* when it arrives */
	size_t len, taken;
	union address from;		/* of a datagram */
	unsigned char bytes[];
};

/* One direction of a connection, or what was sent to a datagram socket. */
struct flow {
	struct chunk *first, **last;
	uint64_t latest;		/* arrival of the last chunk */
	uint64_t fin, reset;		/* when the end arrives, or NEVER */
	size_t held, room;		/* bytes on their way and arrived, and the limit of these */
	bool wants_room;		/* the writer found none */
	struct object *reader, *writer;	/* NULL when closed */
};

struct object {
	enum kind kind;
	int fd;				/* -1 before a connection is accepted, and when closed */
	bool is_closed;
	/* Sockets. */
	int family;
	enum stage stage;
	int error;			/* SO_ERROR */
	bool reuses, reads_ended, writes_ended, has_failed;
	union address name, peer;
	struct flow *in, *out;
	struct object *next;		/* of the sockets at a port, or of a listener's requests */
	struct object *requests;
	int backlog, waiting;
	/* Timers. */
	uint64_t deadline;
	/* Pollers: watches with something to report. */
	struct watch *ready, **ready_last;
	/* The watches of an object by pollers. */
	struct watch *watches;
};

/* What a poller knows of an object. */
struct watch {
	struct watch *next;		/* of the same object */
	struct watch *next_ready;
	struct object *poller, *object;
	uint32_t events;
	uint64_t data;
	bool is_queued;
};

/* Draws of the seed for the whole process (draw_profile). */
struct profile {
	uint64_t longest_delay;
	size_t least_room, most_room;
	unsigned in_parts;		/* per thousand: reads and writes that move a part */
	unsigned refused;		/* per thousand: connections */
	unsigned broken;		/* per million: calls that reset a connection */
	unsigned scarce;		/* per thousand: sockets that are not to be had */
	unsigned lost, doubled;		/* per thousand: datagrams */
};

extern struct profile profile;

/* waiting.c */
void enter(void);			/* takes the lock */
void leave(void);			/* keeps errno */
uint64_t now(void);
void pass(uint64_t time);		/* lets time pass, with all that is due */
void at(uint64_t when, enum what what, struct object *object);
void happened(struct object *object);	/* there is something to report to its pollers */
void progressed(void);			/* the calls are not in vain */
struct object *open_poller(int fd);
struct object *open_timer(int fd);
uint32_t mask_of_poller(const struct object *poller);
void forget_watches(struct object *object);
void forget_watch_of(struct object *object, const struct object *poller);

/* sockets.c */
void draw_profile(void);
/* Connections are no longer reset or refused, and descriptors to be had; called by programs, without the lock. */
void simulated_breaks_no_more(void);
uint64_t draw(uint64_t below);
bool chance(unsigned of, unsigned in);
struct object *object_of(int fd);
struct object *new_object(enum kind kind, int fd);
void adopt(struct object *object, int fd);
void close_object(struct object *object);
uint32_t mask_of(const struct object *object);
void due(enum what what, struct object *object);
size_t arrived(const struct object *socket);
/* The same as the system calls; -errno on failure. */
int socket_open(int fd, int family, int type);
int socket_bind(struct object *socket, const union address *addr);
int socket_listen(struct object *socket, int backlog);
int socket_connect(struct object *socket, const union address *addr);
struct object *socket_accept(struct object *listener, int *error);
int socket_shutdown(struct object *socket, int how);
ssize_t socket_send(struct object *socket, const struct iovec *iov, size_t count,
		    const union address *to);
ssize_t socket_receive(struct object *socket, const struct iovec *iov, size_t count, bool peeks,
		       union address *from, bool *is_truncated);

#endif
