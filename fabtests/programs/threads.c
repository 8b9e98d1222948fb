/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Threads that share endpoints, queues and domains: FI_THREAD_SAFE, and threads
 * that break the promise of FI_THREAD_DOMAIN, which costs nothing but time. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define THREADS 4
#define SIZE 512
#define SLOTS 64		/* buffers of one thread, used in turn */

/*
 * Threads must not leave through the test's own exit, so they count failures
 * and the test checks the count.
 */
struct shared {
	struct ct_pair pair;
	atomic_int errors;
	atomic_int completed;
	int per_thread;
	bool tagged;
};

struct worker {
	struct shared *shared;
	struct fi_context2 contexts[SLOTS];
	unsigned char *buffer;
	pthread_t thread;
	int id;
};

static void open_shared(struct shared *shared, bool tagged,
			enum fi_progress progress, enum fi_threading threading)
{
	struct ct_spec spec = {
		.caps = tagged ? FI_TAGGED : FI_MSG,
		.threading = threading, .progress = progress,
	};

	memset(shared, 0, sizeof(*shared));
	shared->tagged = tagged;
	shared->per_thread = ct_times(2000);
	ct_open_pair(&shared->pair, &spec);
	ct_warm_up(&shared->pair);
	if (ct_mr_mode(&shared->pair.a) & FI_MR_LOCAL)
		SKIP("local buffers have to be registered");
}

static bool post(struct worker *worker, struct ct_peer *peer, bool receive,
		 int i)
{
	struct ct_message m = {
		.tagged = worker->shared->tagged, .tag = (uint64_t)worker->id,
		.buf = worker->buffer + i % SLOTS * SIZE, .len = SIZE,
		.from = FI_ADDR_UNSPEC,
		.context = &worker->contexts[i % SLOTS],
	};
	double until = ct_now() + 5 * ct_patience();
	ssize_t ret;

	if (!receive)
		memcpy(m.buf, &i, sizeof(i));
	while ((ret = receive ? ct_recv(peer, CT_RECV, &m)
			      : ct_send(peer, CT_SEND, &m)) == -FI_EAGAIN) {
		if (ct_now() > until)
			return false;
		ct_nudge(peer);
		sched_yield();
	}
	return !ret;
}

/* Reads any completion of the queue, perhaps another thread's: as many
 * messages as there are threads are in flight, far fewer than buffers. */
static bool take(struct shared *shared, struct ct_peer *peer,
		 struct ct_cq *cq, int total)
{
	struct fi_cq_tagged_entry entry;
	double until = ct_now() + 5 * ct_patience();

	(void)peer;
	while (atomic_load(&shared->completed) < total) {
		ssize_t ret = fi_cq_read(cq->fid, &entry, 1);

		if (ret == 1) {
			atomic_fetch_add(&shared->completed, 1);
			return true;
		}
		if (ret != -FI_EAGAIN || ct_now() > until)
			return false;
		sched_yield();
	}
	return true;
}

static void *sender(void *arg)
{
	struct worker *worker = arg;
	struct shared *shared = worker->shared;
	int total = THREADS * shared->per_thread;

	for (int i = 0; i < shared->per_thread; i++) {
		if (!post(worker, &shared->pair.a, false, i) ||
		    !take(shared, &shared->pair.a, &shared->pair.a.tx, total))
			atomic_fetch_add(&shared->errors, 1);
	}
	return NULL;
}

static void start(struct worker *workers, struct shared *shared,
		  void *(*main)(void *))
{
	for (int i = 0; i < THREADS; i++) {
		memset(&workers[i], 0, sizeof(workers[i]));
		workers[i].shared = shared;
		workers[i].id = i;
		workers[i].buffer = malloc(SLOTS * SIZE);
		REQUIRE(workers[i].buffer);
		for (int j = 0; j < SLOTS; j++)
			ct_fill(workers[i].buffer + j * SIZE, SIZE,
				(unsigned)i);
		REQUIRE(!pthread_create(&workers[i].thread, NULL, main,
					&workers[i]));
	}
}

static void finish(struct worker *workers)
{
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		free(workers[i].buffer);
	}
}

/* Several threads send through one endpoint; this one receives. */
static void many_senders(bool tagged, enum fi_progress progress,
			 enum fi_threading threading)
{
	static struct worker workers[THREADS];
	static struct fi_context2 context;
	static struct shared shared;
	unsigned char in[SIZE];
	struct ct_peer *b = &shared.pair.b;
	int seen[THREADS] = { 0 };

	open_shared(&shared, tagged, progress, threading);
	b->partner = NULL;
	start(workers, &shared, sender);
	for (int i = 0; i < THREADS * shared.per_thread; i++) {
		struct ct_message m = {
			.tagged = tagged, .ignore = UINT64_MAX, .buf = in,
			.len = SIZE, .from = FI_ADDR_UNSPEC,
			.context = &context,
		};
		unsigned char want[SIZE];
		int who = -1, number;

		POST(b, ct_recv(b, CT_RECV, &m));
		REQUIRE(ct_done(b, &b->rx, &context).len == SIZE);
		/* Whole messages, each thread's own in its order. */
		memcpy(&number, in, sizeof(number));
		for (int j = 0; j < THREADS && who < 0; j++) {
			ct_fill(want, SIZE, (unsigned)j);
			if (!memcmp(in + sizeof(number), want + sizeof(number),
				    SIZE - sizeof(number)))
				who = j;
		}
		REQUIRE(who >= 0);
		REQUIRE(number == seen[who]);
		seen[who]++;
	}
	finish(workers);
	REQUIRE(!atomic_load(&shared.errors));
	b->partner = &shared.pair.a;
	ct_close_pair(&shared.pair);
}

static void senders(void)
{
	many_senders(false, FI_PROGRESS_MANUAL, FI_THREAD_SAFE);
}

static void senders_tagged(void)
{
	many_senders(true, FI_PROGRESS_MANUAL, FI_THREAD_SAFE);
}

static void senders_auto(void)
{
	many_senders(false, FI_PROGRESS_AUTO, FI_THREAD_SAFE);
}

static void senders_promised(void)
{
	many_senders(true, FI_PROGRESS_MANUAL, FI_THREAD_DOMAIN);
}

static void *receiver(void *arg)
{
	struct worker *worker = arg;
	struct shared *shared = worker->shared;
	int total = THREADS * shared->per_thread;

	for (int i = 0; i < shared->per_thread; i++) {
		if (!post(worker, &shared->pair.b, true, i) ||
		    !take(shared, &shared->pair.b, &shared->pair.b.rx, total))
			atomic_fetch_add(&shared->errors, 1);
	}
	return NULL;
}

/* Several threads post receives and take completions at one endpoint. */
static void many_receivers(enum fi_threading threading)
{
	static struct worker workers[THREADS];
	static struct fi_context2 context;
	static struct shared shared;
	struct ct_peer *a = &shared.pair.a;
	unsigned char out[SIZE] = { 0 };

	open_shared(&shared, false, FI_PROGRESS_MANUAL, threading);
	a->partner = NULL;
	start(workers, &shared, receiver);
	for (int i = 0; i < THREADS * shared.per_thread; i++) {
		POST(a, fi_send(a->ep, out, SIZE, NULL, a->to, &context));
		ct_done(a, &a->tx, &context);
	}
	finish(workers);
	REQUIRE(!atomic_load(&shared.errors));
	REQUIRE(atomic_load(&shared.completed) ==
		THREADS * shared.per_thread);
	a->partner = &shared.pair.b;
	ct_close_pair(&shared.pair);
}

static void receivers(void)
{
	many_receivers(FI_THREAD_SAFE);
}

static void receivers_promised(void)
{
	many_receivers(FI_THREAD_DOMAIN);
}

/* A domain, endpoint and queues of its own per thread, all in one process. */
static void *whole_stack(void *arg)
{
	struct worker *worker = arg;
	struct shared *shared = worker->shared;

	for (int i = 0; i < ct_times(40); i++) {
		struct fi_info *hints = fi_allocinfo(), *info = NULL;
		struct fid_fabric *fabric = NULL;
		struct fid_domain *domain = NULL;
		int ret;

		if (ct_opt.provider)
			hints->fabric_attr->prov_name = strdup(ct_opt.provider);
		hints->ep_attr->type = ct_opt.type;
		hints->caps = FI_MSG;
		ret = fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &info);
		if (!ret)
			ret = fi_fabric(info->fabric_attr, &fabric, NULL);
		if (!ret)
			ret = fi_domain(fabric, info, &domain, NULL);
		if (domain && fi_close(&domain->fid))
			ret = -1;
		if (fabric && fi_close(&fabric->fid))
			ret = -1;
		if (ret)
			atomic_fetch_add(&shared->errors, 1);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
	return NULL;
}

static void open_and_close(void)
{
	static struct worker workers[THREADS];
	static struct shared shared;

	start(workers, &shared, whole_stack);
	finish(workers);
	REQUIRE(!atomic_load(&shared.errors));
}

/* One domain: threads register, look up and release regions. */
static void *register_regions(void *arg)
{
	struct worker *worker = arg;
	struct shared *shared = worker->shared;
	struct ct_peer *a = &shared->pair.a;

	for (int i = 0; i < shared->per_thread; i++) {
		uint64_t key = (uint64_t)worker->id << 32 | (uint64_t)i;
		struct fid_mr *mr;

		if (fi_mr_reg(a->domain, worker->buffer, SIZE, FI_REMOTE_READ,
			      0, key, 0, &mr, NULL) ||
		    fi_mr_key(mr) == FI_KEY_NOTAVAIL || fi_close(&mr->fid))
			atomic_fetch_add(&shared->errors, 1);
	}
	return NULL;
}

static void many_registrations(enum fi_threading threading)
{
	static struct worker workers[THREADS];
	static struct shared shared;
	struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA, .threading = threading,
	};

	ct_open_pair(&shared.pair, &spec);
	shared.per_thread = ct_times(2000);
	start(workers, &shared, register_regions);
	finish(workers);
	REQUIRE(!atomic_load(&shared.errors));
	ct_close_pair(&shared.pair);
}

static void registrations(void)
{
	many_registrations(FI_THREAD_SAFE);
}

static void registrations_promised(void)
{
	many_registrations(FI_THREAD_DOMAIN);
}

/* Counters that are none of the endpoints' but the domain's, and the endpoint's
 * event queue: a thread may have them to itself while another has the endpoints
 * (FI_THREAD_COMPLETION). */
static void *others(void *arg)
{
	struct worker *worker = arg;
	struct shared *shared = worker->shared;
	struct ct_peer *a = &shared->pair.a;
	struct fi_eq_cm_entry event;
	uint32_t kind;

	while (!atomic_load(&shared->completed)) {
		struct fid_cntr *cntr;
		struct fid_mr *mr = NULL;

		if (fi_cntr_open(a->domain, NULL, &cntr, NULL)) {
			atomic_fetch_add(&shared->errors, 1);
			break;
		}
		if (a->info->caps & FI_RMA_EVENT &&
		    (fi_mr_reg(a->domain, worker->buffer, SIZE,
			       FI_REMOTE_WRITE, 0, 17, 0, &mr, NULL) ||
		     fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE)))
			atomic_fetch_add(&shared->errors, 1);
		for (int i = 0; i < 64; i++) {
			fi_cntr_read(cntr);
			if (a->eq.fid)
				fi_eq_read(a->eq.fid, &kind, &event,
					   sizeof(event), FI_PEEK);
		}
		if (mr && fi_close(&mr->fid))
			atomic_fetch_add(&shared->errors, 1);
		if (fi_close(&cntr->fid))
			atomic_fetch_add(&shared->errors, 1);
	}
	return NULL;
}

static void beside_others(uint64_t caps)
{
	static struct fi_context2 contexts[2];
	static struct worker worker;
	static struct shared shared;
	struct ct_spec spec = {
		.caps = caps, .one_domain = true, .eq = true,
		.threading = FI_THREAD_COMPLETION,
	};
	struct ct_peer *a = &shared.pair.a, *b = &shared.pair.b;
	unsigned char in[SIZE], out[SIZE] = { 0 };

	memset(&shared, 0, sizeof(shared));
	ct_open_pair(&shared.pair, &spec);
	if (ct_mr_mode(a) & FI_MR_LOCAL)
		SKIP("local buffers have to be registered");
	ct_warm_up(&shared.pair);
	worker.shared = &shared;
	worker.buffer = malloc(SIZE);
	REQUIRE(worker.buffer);
	REQUIRE(!pthread_create(&worker.thread, NULL, others, &worker));
	for (int i = 0; i < ct_times(50000); i++) {
		POST(b, fi_recv(b->ep, in, SIZE, NULL, FI_ADDR_UNSPEC,
				&contexts[0]));
		POST(a, fi_send(a->ep, out, SIZE, NULL, a->to, &contexts[1]));
		ct_done(b, &b->rx, &contexts[0]);
		ct_done(a, &a->tx, &contexts[1]);
	}
	atomic_store(&shared.completed, 1);
	pthread_join(worker.thread, NULL);
	free(worker.buffer);
	REQUIRE(!atomic_load(&shared.errors));
	ct_close_pair(&shared.pair);
}

static void completion_objects(void)
{
	beside_others(FI_MSG);
}

static void completion_objects_of_regions(void)
{
	beside_others(FI_MSG | FI_RMA | FI_RMA_EVENT);
}

static const struct ct_test tests[] = {
	{ "senders", senders, CT_BOTH | CT_SLOW },
	{ "senders-tagged", senders_tagged, CT_BOTH | CT_SLOW },
	{ "senders-auto", senders_auto, CT_BOTH | CT_SLOW },
	{ "receivers", receivers, CT_BOTH | CT_SLOW },
	{ "open-and-close", open_and_close, CT_BOTH | CT_SLOW },
	{ "registrations", registrations, CT_BOTH },
	{ "senders-promised", senders_promised, CT_BOTH | CT_SLOW },
	{ "receivers-promised", receivers_promised, CT_BOTH | CT_SLOW },
	{ "registrations-promised", registrations_promised, CT_BOTH },
	{ "completion-objects", completion_objects, CT_BOTH | CT_SLOW },
	{ "completion-objects-of-regions", completion_objects_of_regions,
	  CT_BOTH | CT_SLOW },
};

CT_MAIN(tests)
