/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Stations and workers: opening, closing, reading queues. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soak.h"

/* A provider has to have the first ones; the others are tried one after the other. */
static const uint64_t wanted[] = {
	FI_TAGGED, FI_RMA, FI_ATOMIC, FI_MULTI_RECV, FI_TRIGGER,
};

static struct fi_info *offered(const struct ct_spec *spec)
{
	struct fi_info *hints = ct_hints(spec), *info = NULL;
	int ret = fi_getinfo(CT_API_VERSION, ct_opt.source, NULL,
			     ct_opt.source ? FI_SOURCE : 0, hints, &info);

	fi_freeinfo(hints);
	return ret ? NULL : info;
}

static void minimum(struct fid_ep *ep)
{
	size_t min = UNTAGGED;

	fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof(min));
}

void soak_station_open(struct soak_station *station, int number)
{
	struct ct_spec spec = {
		.caps = FI_MSG, .wait = FI_WAIT_UNSPEC, .one_cq = true,
		.counters = FI_SEND, .threading = board->mode.threads > 1 ? FI_THREAD_SAFE :
							FI_THREAD_UNSPEC,
		.prepare = minimum,
	};
	struct fi_info *info;
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };

	memset(station, 0, sizeof(*station));
	station->number = number;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		struct ct_spec more = spec;

		more.caps |= wanted[i];
		info = offered(&more);
		if (info)
			spec = more;
		fi_freeinfo(info);
	}
	if (board->mode.lossy)
		spec.caps &= ~(uint64_t)FI_MULTI_RECV;
	info = offered(&spec);
	NEED(info, "fi_getinfo has nothing");
	station->caps = spec.caps;
	ct_open_domain(&station->peer, &spec, info, NULL, NULL);
	ct_open_ep(&station->peer, info);
	memset(board->stations[number].name, 0, 256);
	ct_name(&station->peer.ep->fid, board->stations[number].name, 256);
	if (spec.caps & FI_TRIGGER &&
	    fi_cntr_open(station->peer.domain, &attr, &station->trigger, NULL))
		station->trigger = NULL;
	soak_memory_prepare(station);
	atomic_fetch_add(&board->stations[number].opened, 1);
}

/* FNV-1a. */
static unsigned hash(const unsigned char *name)
{
	uint64_t value = 0xcbf29ce484222325;

	for (int i = 0; i < 256; i++)
		value = (value ^ name[i]) * 0x100000001b3;
	return (unsigned)(value ^ value >> 32) % NAMES;
}

void soak_leaves(const unsigned char *name)
{
	atomic_store(&board->left[hash(name)], atomic_load(&board->epoch) + 1);
}

bool soak_left_lately(const unsigned char *name)
{
	unsigned left = atomic_load(&board->left[hash(name)]);

	return left && atomic_load(&board->epoch) - (left - 1) <= 1;
}

void soak_station_close(struct soak_station *station)
{
	soak_leaves(board->stations[station->number].name);
	if (station->memory.mr)
		OK(fi_close(&station->memory.mr->fid));
	station->memory.mr = NULL;
	OK(fi_close(&station->peer.ep->fid));
	station->peer.ep = NULL;
	if (station->trigger)
		OK(fi_close(&station->trigger->fid));
	ct_close_peer(&station->peer);
	free(station->memory.data);
}

void soak_station_restart(struct soak_station *station)
{
	int number = station->number, tries = 40;

	do {
		/* Where ports are scarce, others become free with time. */
		if (tries < 32)
			usleep(50000);
		soak_station_close(station);
		soak_station_open(station, number);
	} while (soak_left_lately(board->stations[number].name) && --tries);
	NEED(tries, "station %d gets no address but those of endpoints that have just left", number);
}

/* Inserts the addresses of stations that have been opened anew, in the place of earlier ones. */
void soak_introduce(struct soak_station *station)
{
	for (int i = 0; i < board->mode.stations; i++) {
		unsigned opened = atomic_load(&board->stations[i].opened);

		if (station->known[i] == opened)
			continue;
		if (station->known[i])
			OK(fi_av_remove(station->peer.av, &station->to[i], 1, 0));
		station->to[i] = ct_insert(&station->peer, board->stations[i].name);
		station->known[i] = opened;
	}
}

void soak_ops_open(struct soak_ops *ops, struct soak_worker *worker, enum soak_kind kind,
		   int count, size_t room)
{
	unsigned char *bytes = mmap(NULL, room * (size_t)count, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	NEED(bytes != MAP_FAILED, "no memory");
	ops->count = count;
	ops->ops = calloc((size_t)count, sizeof(*ops->ops));
	NEED(ops->ops, "no memory");
	for (int i = 0; i < count; i++) {
		ops->ops[i].worker = worker;
		ops->ops[i].kind = kind;
		ops->ops[i].buf = bytes + room * (size_t)i;
		ops->ops[i].room = room;
	}
}

struct soak_op *soak_idle(struct soak_ops *ops)
{
	for (int i = 0; i < ops->count; i++)
		if (atomic_load(&ops->ops[i].state) == IDLE)
			return &ops->ops[i];
	return NULL;
}

void soak_worker_follow(struct soak_worker *worker)
{
	worker->peer = worker->station->peer;
	worker->peer.partner = NULL;
}

void soak_worker_open(struct soak_worker *worker, struct soak_station *station, int number)
{
	struct soak_ops large;

	worker->station = station;
	worker->number = number;
	worker->index = number % board->mode.threads;
	worker->random.state = board->seed * 1000 + (uint64_t)number;
	soak_ops_open(&worker->sends, worker, A_SEND, 24, UNTAGGED);
	/* The last ones have room for long messages. */
	for (int i = 0; i < 4; i++) {
		soak_ops_open(&large, worker, A_SEND, 1, i ? LONG : LONGEST);
		worker->sends.ops[worker->sends.count - 1 - i].buf = large.ops->buf;
		worker->sends.ops[worker->sends.count - 1 - i].room = large.ops->room;
	}
	soak_ops_open(&worker->receives, worker, A_RECEIVE, 16, LONGEST);
	if (board->mode.threads == 1)
		soak_ops_open(&worker->multis, worker, A_MULTI, 2, 8 * UNTAGGED);
	soak_ops_open(&worker->accesses, worker, AN_ACCESS, 8, SLOT);
	soak_ops_open(&worker->greetings, worker, A_GREETING, 4, 4096);
	soak_ops_open(&worker->visits, worker, A_GUESTS_RECEIVE, 4, 4096);
	soak_ops_open(&large, worker, A_PEEK, 1, LONGEST);
	worker->peek = large.ops;
	worker->doomed_bytes = calloc(1, SLOT);
	soak_worker_follow(worker);
}

static bool all_idle(const struct soak_ops *ops)
{
	for (int i = 0; i < ops->count; i++)
		if (atomic_load(&ops->ops[i].state) != IDLE)
			return false;
	return true;
}

/* All that end by themselves. */
bool soak_all_idle(struct soak_worker *worker)
{
	return all_idle(&worker->sends) && all_idle(&worker->accesses) &&
	       all_idle(&worker->greetings) && atomic_load(&worker->peek->state) == IDLE;
}

bool soak_receives_open(struct soak_worker *worker)
{
	return !all_idle(&worker->receives) || !all_idle(&worker->multis);
}

void soak_report_open(struct soak_worker *worker)
{
	struct soak_ops *kinds[] = { &worker->sends, &worker->accesses, &worker->greetings };

	for (int k = 0; k < 3; k++)
		for (int i = 0; i < kinds[k]->count; i++) {
			struct soak_op *op = &kinds[k]->ops[i];

			NEED(atomic_load(&op->state) == IDLE,
			     "worker %d: operation of kind %d.%d (%zu bytes, number %u, lane %d, "
			     "to %d%s) does not end", worker->number, op->kind, op->access,
			     op->len, op->number, op->lane, op->to,
			     op->cancelling ? ", cancelled" : "");
		}
	soak_fail(__FILE__, __LINE__, "worker %d does not end: peek %d%s, guest %d, %u triggered",
		  worker->number, atomic_load(&worker->peek->state),
		  worker->peek->claiming ? " (claim)" : "", worker->guest.ep != NULL,
		  worker->pending);
}

static void completed(const struct ct_completion *done)
{
	struct soak_op *op = done->context;

	NEED(op, "a completion without context: flags %llx, error %d (%s)",
	     (unsigned long long)done->flags, done->err, fi_strerror(done->err));
	NEED(atomic_load(&op->state) == POSTED,
	     "a completion of an operation (kind %d) that was complete: flags %llx, error %d",
	     op->kind, (unsigned long long)done->flags, done->err);
	switch (op->kind) {
	case A_SEND:
		soak_was_sent(op, done);
		break;
	case A_RECEIVE:
	case A_MULTI:
		soak_has_come(op, done);
		break;
	case A_PEEK:
		soak_looked(op, done);
		break;
	case AN_ACCESS:
		soak_accessed(op, done);
		break;
	case A_GUESTS_RECEIVE:
		soak_visited(op, done);
		break;
	case A_GREETING:
		soak_greeted(op, done);
		break;
	}
}

bool soak_read(struct soak_worker *worker, struct fid_cq *cq, int timeout)
{
	struct fi_cq_tagged_entry entries[8];
	size_t most = 1 + ct_below(&worker->random, 8);
	ssize_t ret = timeout ? fi_cq_sread(cq, entries, most, NULL, timeout)
			      : fi_cq_read(cq, entries, most);

	if (ret == -FI_EAVAIL) {
		struct fi_cq_err_entry entry = { 0 };

		ret = fi_cq_readerr(cq, &entry, 0);
		if (ret == -FI_EAGAIN)
			return false;	/* another thread has read it */
		NEED(ret == 1, "fi_cq_readerr: %zd", ret);
		NEED(entry.err, "an error without a number");
		completed(&(struct ct_completion) {
			.context = entry.op_context, .flags = entry.flags,
			.len = entry.len, .buf = entry.buf, .data = entry.data,
			.tag = entry.tag, .err = entry.err,
			.prov_errno = entry.prov_errno, .olen = entry.olen,
		});
		return true;
	}
	if (ret == -FI_EAGAIN || ret == -FI_EINTR)
		return false;
	NEED(ret > 0 && ret <= (ssize_t)most, "fi_cq_read: %zd", ret);
	for (ssize_t i = 0; i < ret; i++)
		completed(&(struct ct_completion) {
			.context = entries[i].op_context, .flags = entries[i].flags,
			.len = entries[i].len, .buf = entries[i].buf,
			.data = entries[i].data, .tag = entries[i].tag,
		});
	return true;
}

void soak_progress(struct soak_worker *worker)
{
	bool any = false;

	NEED(!atomic_load(&board->failed), "another process failed");
	for (int i = 0; i < 4 && soak_read(worker, worker->peer.tx.fid, 0); i++)
		any = true;
	if (worker->guest.cq)
		soak_read(worker, worker->guest.cq, 0);
	if (!any)
		sched_yield();
}
