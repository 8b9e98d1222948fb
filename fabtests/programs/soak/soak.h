/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * What the parts of the soak test share. A process has stations: endpoints with
 * all that belongs to them. Workers post operations at a station, each with
 * buffers of its own: one in the same thread, or several in a thread each.
 * Processes share a board.
 */
#ifndef SOAK_H
#define SOAK_H

#include <stdatomic.h>

#include <rdma/fi_trigger.h>

#include "memory.h"
#include "random.h"
#include "transfer.h"

enum {
	STATIONS = 3,			/* at most, of all processes */
	WORKERS = 8,			/* at most, of all processes */
	/* Each worker sends from its station and, in a lane of its own, from its guests. */
	LANES = 2 * WORKERS,
	NUMBERS = 1 << 15,		/* messages of a lane to a station in an epoch */
	WINDOW = 64,			/* messages of a lane that have not been received */
	HEADER = 16,
	UNTAGGED = 16 << 10,		/* bytes of the longest untagged message */
	LONG = 200 << 10,		/* and of a long one */
	LONGEST = 2200 << 10,		/* beyond what any provider sends without asking */
	SLOT = 64 << 10,		/* bytes of memory that a worker may write */
	GUEST_MESSAGES = 3,
	NAMES = 1 << 16,		/* many more than endpoints close in two epochs */
};

/* How the test is run. */
struct soak_mode {
	int processes, stations;	/* stations of all processes */
	int threads;			/* of each station */
	bool lossy;			/* messages may be lost, and no memory is accessed */
};

/* What processes tell one another. The arrays of messages begin anew in each
 * epoch, when nothing is under way. */
struct soak_board {
	struct soak_mode mode;
	uint64_t seed;
	double until;
	atomic_bool failed;
	char reason[480];
	atomic_uint arrived, round;	/* of the barrier */
	atomic_uint epoch;
	atomic_bool over, last;		/* this epoch; the test */
	struct {
		atomic_uint opened;	/* times */
		unsigned char name[256];
		uint64_t addr, key;
	} stations[STATIONS];
	/* A region that its owner may close at any time: open if odd. */
	struct {
		atomic_uint changes;
		_Atomic uint64_t addr, key;
	} doomed[WORKERS];
	/* An endpoint that is there for a while: open if odd. */
	struct {
		atomic_uint changes;
		unsigned char name[256];
		atomic_bool deserts;	/* is closed without waiting for anybody */
		atomic_uint greeted;	/* by how many workers */
		/* Workers, a bit for each: whose greeting was accepted, and has completed. */
		atomic_uint accepted, completed;
	} guests[WORKERS];
	/* When an endpoint with a name was last closed, by a hash of the name: the number of the
	 * epoch and one more. */
	atomic_uint left[NAMES];
	atomic_uint sent[LANES][STATIONS], received[LANES][STATIONS];
	_Atomic uint64_t seen[LANES][STATIONS][NUMBERS / 64];
	/* Taken back before it left, or sent by an endpoint that was closed then. */
	_Atomic uint64_t excused[LANES][STATIONS][NUMBERS / 64];
	_Atomic uint64_t maybe[LANES][STATIONS][NUMBERS / 64];
	struct { unsigned seed; size_t len; } written[WORKERS][STATIONS];
	_Atomic uint64_t added[STATIONS];
	/* Over the whole test. */
	_Atomic uint64_t messages, bytes, accesses, refused, cancelled, guests_closed, connections;
};

extern struct soak_board *board;

/* Ends the test; to be called by any thread of any process. */
void soak_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
#define NEED(cond, ...)							\
	do {								\
		if (!(cond))						\
			soak_fail(__FILE__, __LINE__, __VA_ARGS__);	\
	} while (0)

enum soak_kind { A_SEND, A_RECEIVE, A_MULTI, A_PEEK, AN_ACCESS, A_GUESTS_RECEIVE, A_GREETING };
enum soak_state { IDLE, POSTED, DONE };

/* An operation with its buffer. Whoever reads its completion handles it; then
 * its worker may use it again. */
struct soak_op {
	union {				/* first: completions lead back here */
		struct fi_context2 context;
		struct fi_triggered_context2 trigger;
	};
	struct soak_worker *worker;
	enum soak_kind kind;
	_Atomic int state;
	bool cancelling;
	unsigned char *buf;
	size_t room, len;
	/* Sends */
	int lane, to;
	unsigned number;
	fi_addr_t addr;			/* of the guest that is greeted */
	/* Receives */
	bool tagged, wild;
	/* Peeks: whether there was a message, and its tag */
	bool found, claiming;
	uint64_t tag;
	/* Accesses */
	enum soak_access { ACCESS_READ, ACCESS_WRITE, ACCESS_ADD, ACCESS_DOOMED } access;
};

struct soak_ops {
	struct soak_op *ops;
	int count;
};

struct soak_station {
	struct ct_peer peer;
	int number;
	uint64_t caps;			/* that the provider has of those that are tried */
	struct ct_memory memory;	/* cells, readable bytes, and a slot of each worker */
	fi_addr_t to[STATIONS];
	unsigned known[STATIONS];	/* how often that had been opened */
	struct fid_cntr *trigger;
};

/* An endpoint of a worker that comes and goes, in its station's domain. */
struct soak_guest {
	double next;			/* not before this time */
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct ct_peer peer;		/* the station's, with this endpoint */
	double until;
	bool deserts;
	int sends;			/* left */
};

struct soak_worker {
	struct soak_station *station;
	struct ct_peer peer;		/* the station's; `to` is this worker's */
	int number, index;		/* of all; at its station */
	struct ct_random random;
	struct soak_ops sends, receives, multis, accesses, greetings, visits;
	struct soak_op *peek;
	unsigned char *doomed_bytes;
	struct ct_memory doomed;
	unsigned pending;		/* triggered operations */
	struct soak_guest guest;
	unsigned met[WORKERS];		/* guests of others, by their number of changes */
};

/* station.c */
void soak_station_open(struct soak_station *station, int number);
void soak_station_close(struct soak_station *station);
/* Closes the station and opens it anew. */
void soak_station_restart(struct soak_station *station);
void soak_introduce(struct soak_station *station);
/* Notes that the endpoint with this name is going to be closed. */
void soak_leaves(const unsigned char *name);
/* Whether one with this name was closed in this epoch or the one before it. What others send to
 * a new one at its address may leave on a connection to the earlier one whose end they have not
 * noticed yet: it completes and is lost, as the first bytes after any peer's end are with TCP.
 * And what was sent to the earlier one may come to the new one. That is accepted, and so the
 * test uses no endpoint at such an address. When an epoch has ended, nothing is under way, and
 * all have made progress since. */
bool soak_left_lately(const unsigned char *name);
void soak_worker_open(struct soak_worker *worker, struct soak_station *station, int number);
void soak_worker_follow(struct soak_worker *worker);
void soak_progress(struct soak_worker *worker);
void soak_ops_open(struct soak_ops *ops, struct soak_worker *worker, enum soak_kind kind,
		   int count, size_t room);
struct soak_op *soak_idle(struct soak_ops *ops);
bool soak_all_idle(struct soak_worker *worker);
bool soak_receives_open(struct soak_worker *worker);
/* Fails with what does not end. */
void soak_report_open(struct soak_worker *worker) __attribute__((noreturn));
/* Reads a queue once; false if nothing was there. */
bool soak_read(struct soak_worker *worker, struct fid_cq *cq, int timeout);

/* messages.c */
void soak_send(struct soak_worker *worker);
void soak_send_from(struct soak_worker *worker, struct ct_peer *peer, int lane, bool maybe);
void soak_receive(struct soak_worker *worker, bool wild);
void soak_peek(struct soak_worker *worker);
void soak_looked(struct soak_op *op, const struct ct_completion *done);
void soak_peeked(struct soak_worker *worker);
void soak_cancel(struct soak_worker *worker);
void soak_cancel_receives(struct soak_worker *worker, bool all);
void soak_release_triggered(struct soak_worker *worker);
void soak_has_come(struct soak_op *op, const struct ct_completion *done);
void soak_was_sent(struct soak_op *op, const struct ct_completion *done);
/* Whether all messages to this station are accounted for; a description of one that is not. */
bool soak_settled(struct soak_worker *worker, char *missing, size_t size);

/* access.c */
void soak_access(struct soak_worker *worker);
void soak_accessed(struct soak_op *op, const struct ct_completion *done);
void soak_doom(struct soak_worker *worker);
void soak_doom_end(struct soak_worker *worker);
bool soak_memory_settled(struct soak_station *station, char *missing, size_t size);
void soak_memory_prepare(struct soak_station *station);

/* guests.c */
void soak_guest_step(struct soak_worker *worker, bool more);
void soak_greet(struct soak_worker *worker);
void soak_greeted(struct soak_op *op, const struct ct_completion *done);
void soak_visited(struct soak_op *op, const struct ct_completion *done);

/* connections.c */
struct soak_usage;
void soak_connections_open(void);
void soak_connections(struct soak_usage *usage);
void soak_connections_close(void);

/* usage.c */
struct soak_usage *soak_usage_open(void);
/* Notes what the process uses, between epochs. */
void soak_usage_note(struct soak_usage *usage);
void soak_usage_judge(struct soak_usage *usage);
/* Whether so many epochs are enough to judge growth. */
bool soak_usage_suffices(size_t epochs);

#endif
