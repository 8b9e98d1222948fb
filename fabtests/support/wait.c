/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "wait.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long a queue is watched before it counts as quiet. */
#define QUIET 0.05

static struct ct_completion from_entry(const void *entry,
				       enum fi_cq_format format)
{
	const struct fi_cq_tagged_entry *full = entry;
	struct ct_completion out = { .context = full->op_context };

	/* Each format begins with the one before it. */
	switch (format) {
	case FI_CQ_FORMAT_TAGGED:
		out.tag = full->tag;
		/* fall through */
	case FI_CQ_FORMAT_DATA:
		out.buf = full->buf;
		out.data = full->data;
		/* fall through */
	case FI_CQ_FORMAT_MSG:
		out.flags = full->flags;
		out.len = full->len;
		/* fall through */
	default:
		return out;
	}
}

static void keep(struct ct_cq *cq, struct ct_completion entry)
{
	if (cq->first + cq->count == cq->capacity) {
		memmove(cq->stash, cq->stash + cq->first,
			cq->count * sizeof(*cq->stash));
		cq->first = 0;
		if (cq->count == cq->capacity) {
			size_t grown = cq->capacity ? 2 * cq->capacity : 64;
			void *more = realloc(cq->stash,
					     grown * sizeof(*cq->stash));

			REQUIRE(more);
			cq->stash = more;
			cq->capacity = grown;
		}
	}
	cq->stash[cq->first + cq->count++] = entry;
}

static bool pull_error(struct ct_cq *cq)
{
	struct fi_cq_err_entry err = { 0 };
	ssize_t ret = fi_cq_readerr(cq->fid, &err, 0);

	if (ret == -FI_EAGAIN)
		return false;
	EXPECT(ret, 1);
	REQUIRE(err.err > 0);
	keep(cq, (struct ct_completion) {
		.context = err.op_context, .flags = err.flags, .len = err.len,
		.buf = err.buf, .data = err.data, .tag = err.tag,
		.src = FI_ADDR_NOTAVAIL, .err = err.err,
		.prov_errno = err.prov_errno, .olen = err.olen,
	});
	return true;
}

bool ct_pull(struct ct_cq *cq)
{
	struct fi_cq_tagged_entry entry = { 0 };
	fi_addr_t src = FI_ADDR_NOTAVAIL;
	struct ct_completion done;
	ssize_t ret;

	ret = fi_cq_readfrom(cq->fid, &entry, 1, &src);
	if (ret == -FI_EAGAIN)
		return false;
	if (ret == -FI_EAVAIL)
		return pull_error(cq);
	EXPECT(ret, 1);
	done = from_entry(&entry, cq->format);
	done.src = src;
	keep(cq, done);
	return true;
}

static void drive(struct ct_peer *peer)
{
	if (peer->tx.fid)
		while (ct_pull(&peer->tx))
			;
	if (peer->rx.fid && !peer->spec.one_cq)
		while (ct_pull(&peer->rx))
			;
	for (int i = 0; i < CT_CNTR_MAX; i++)
		if (peer->cntr[i])
			fi_cntr_read(peer->cntr[i]);
}

static void read_failure(struct ct_eq *eq, struct ct_event *event)
{
	ssize_t ret;

	event->err.err_data = event->data;
	event->err.err_data_size = sizeof(event->data);
	ret = fi_eq_readerr(eq->fid, &event->err, 0);
	if (ret == -FI_EAGAIN)
		return;
	EXPECT(ret, sizeof(event->err));
	event->failed = true;
	event->data_len = event->err.err_data_size;
	REQUIRE(event->data_len <= sizeof(event->data));
	eq->count++;
}

static void pull_event(struct ct_eq *eq)
{
	union {
		struct fi_eq_cm_entry cm;
		unsigned char raw[sizeof(struct fi_eq_cm_entry) + CT_CM_DATA];
	} entry;
	struct ct_event *event;
	uint32_t type = 0;
	ssize_t ret;

	if (eq->count == sizeof(eq->stash) / sizeof(eq->stash[0]))
		return;
	event = &eq->stash[eq->count];
	memset(event, 0, sizeof(*event));
	ret = fi_eq_read(eq->fid, &type, &entry, sizeof(entry), 0);
	if (ret == -FI_EAGAIN)
		return;
	if (ret == -FI_EAVAIL) {
		read_failure(eq, event);
		return;
	}
	REQUIRE(ret >= (ssize_t)sizeof(entry.cm));
	event->type = type;
	event->fid = entry.cm.fid;
	event->info = entry.cm.info;
	event->data_len = (size_t)ret - sizeof(entry.cm);
	memcpy(event->data, entry.raw + sizeof(entry.cm), event->data_len);
	eq->count++;
}

static void drive_events(struct ct_peer *peer)
{
	if (peer->eq.fid)
		pull_event(&peer->eq);
}

void ct_progress_busily(struct ct_peer *peer)
{
	drive(peer);
	if (peer->partner)
		drive(peer->partner);
}

void ct_progress(struct ct_peer *peer)
{
	ct_progress_busily(peer);
	sched_yield();
}

void ct_progress_events(struct ct_peer *peer)
{
	drive_events(peer);
	if (peer->partner)
		drive_events(peer->partner);
}

void ct_nudge(struct ct_peer *peer)
{
	if (peer->tx.fid)
		fi_cq_read(peer->tx.fid, NULL, 0);
	if (peer->rx.fid)
		fi_cq_read(peer->rx.fid, NULL, 0);
}

/* With one queue for both directions, its stash is the transmit side's. */
static struct ct_cq *stash_of(struct ct_peer *peer, struct ct_cq *cq)
{
	return cq == &peer->rx && peer->spec.one_cq ? &peer->tx : cq;
}

struct ct_completion (ct_next)(struct ct_peer *peer, struct ct_cq *cq)
{
	double until = ct_now() + ct_patience();

	cq = stash_of(peer, cq);
	while (!cq->count) {
		ct_progress(peer);
		if (!cq->count && ct_now() > until)
			ct_fail(__FILE__, __LINE__, "no completion on the %s queue",
				cq == &peer->tx ? "transmit" : "receive");
	}
	cq->count--;
	return cq->stash[cq->first++];
}

struct ct_completion (ct_done)(struct ct_peer *peer, struct ct_cq *cq,
			     void *context)
{
	struct ct_completion done = (ct_next)(peer, cq);

	if (done.err)
		ct_fail(__FILE__, __LINE__, "completion with error %d (%s)",
			done.err, fi_strerror(done.err));
	if (done.context != context)
		ct_fail(__FILE__, __LINE__,
			"completion of context %p, expected %p", done.context,
			context);
	return done;
}

struct ct_completion (ct_done_large)(struct ct_peer *peer, struct ct_cq *cq,
				     void *context)
{
	double until = ct_now() + 10 * ct_patience();

	while (!stash_of(peer, cq)->count && ct_now() < until)
		ct_progress(peer);
	return (ct_done)(peer, cq, context);
}

struct ct_completion (ct_error)(struct ct_peer *peer, struct ct_cq *cq)
{
	struct ct_completion done = (ct_next)(peer, cq);

	if (!done.err)
		ct_fail(__FILE__, __LINE__,
			"a completion without error, expected one with");
	return done;
}

bool ct_stays_empty(struct ct_peer *peer, struct ct_cq *cq)
{
	double until = ct_now() + QUIET;

	cq = stash_of(peer, cq);
	do {
		ct_progress(peer);
		if (cq->count)
			return false;
	} while (ct_now() < until);
	return true;
}

void (ct_count)(struct ct_peer *peer, enum ct_counter which, uint64_t value)
{
	double until = ct_now() + ct_patience();

	REQUIRE(peer->cntr[which]);
	while (fi_cntr_read(peer->cntr[which]) < value) {
		ct_progress(peer);
		if (ct_now() > until)
			ct_fail(__FILE__, __LINE__, "counter %d is at %lu, expected %lu",
				which,
				(unsigned long)fi_cntr_read(peer->cntr[which]),
				(unsigned long)value);
	}
	EXPECT(fi_cntr_read(peer->cntr[which]), value);
}

static bool event_soon(struct ct_peer *peer, double patience)
{
	double until = ct_now() + patience;

	while (!peer->eq.count) {
		drive_events(peer);
		if (peer->partner)
			drive_events(peer->partner);
		ct_progress(peer);
		if (!peer->eq.count && ct_now() > until)
			return false;
	}
	return true;
}

struct ct_event (ct_any_event)(struct ct_peer *peer)
{
	struct ct_event event;

	if (!event_soon(peer, ct_patience()))
		ct_fail(__FILE__, __LINE__, "no event");
	event = peer->eq.stash[0];
	memmove(peer->eq.stash, peer->eq.stash + 1,
		--peer->eq.count * sizeof(event));
	return event;
}

struct ct_event (ct_event_of)(struct ct_peer *peer, uint32_t type)
{
	struct ct_event event = (ct_any_event)(peer);

	if (event.failed)
		ct_fail(__FILE__, __LINE__, "error event %d (%s), expected event %u",
			event.err.err, fi_strerror(event.err.err), type);
	if (event.type != type)
		ct_fail(__FILE__, __LINE__, "event %u, expected %u", event.type,
			type);
	return event;
}

bool ct_no_event(struct ct_peer *peer)
{
	return !event_soon(peer, QUIET);
}

struct ct_driver {
	struct ct_peer *peer;
	atomic_bool stop;
	pthread_t thread;
};

static void *driver_main(void *arg)
{
	struct ct_driver *driver = arg;

	while (!atomic_load(&driver->stop)) {
		ct_nudge(driver->peer);
		usleep(200);
	}
	return NULL;
}

struct ct_driver *ct_driver_start(struct ct_peer *peer)
{
	struct ct_driver *driver = calloc(1, sizeof(*driver));

	REQUIRE(driver);
	driver->peer = peer;
	REQUIRE(!pthread_create(&driver->thread, NULL, driver_main, driver));
	return driver;
}

void ct_driver_stop(struct ct_driver *driver)
{
	atomic_store(&driver->stop, true);
	pthread_join(driver->thread, NULL);
	free(driver);
}
