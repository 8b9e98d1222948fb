/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Threads that are cancelled (pthread_cancel(3)) while they are in a blocking
 * call: they end, their cleanup handlers run, and the objects that they slept
 * on can still be used. Threads in other calls end afterwards.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "everything.h"
#include "transfer.h"
#include "wait.h"

enum call { CQ, EQ, CNTR, SET, POLL };

struct sleeper {
	enum call call;
	struct ct_pair *pair;
	struct fid_wait *set;
	struct fid_poll *poll;
	int cleaned, came;
	long ret;
};

static void clean(void *arg)
{
	((struct sleeper *)arg)->cleaned++;
}

static void *sleep_there(void *arg)
{
	struct sleeper *me = arg;
	struct ct_peer *b = &me->pair->b;
	struct fi_cq_tagged_entry entry;
	struct fi_eq_entry event;
	void *contexts[2];
	uint32_t type;

	pthread_cleanup_push(clean, me);
	__atomic_store_n(&me->came, 1, __ATOMIC_RELEASE);
	switch (me->call) {
	case CQ:
		me->ret = fi_cq_sread(b->rx.fid, &entry, 1, NULL, -1);
		break;
	case EQ:
		me->ret = fi_eq_sread(b->eq.fid, &type, &event, sizeof(event),
				      -1, 0);
		break;
	case CNTR:
		me->ret = fi_cntr_wait(b->cntr[CT_CNTR_RECV], 1u << 30, -1);
		break;
	case SET:
		me->ret = fi_wait(me->set, -1);
		break;
	case POLL:
		for (;;)
			fi_poll(me->poll, contexts, 2);
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	REQUIRE(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void begin(struct sleeper *me, pthread_t *thread)
{
	me->came = me->cleaned = 0;
	REQUIRE(!pthread_create(thread, NULL, sleep_there, me));
}

/* Some are cancelled before they sleep, most of them while they do. */
static void cancel_often(struct sleeper *me)
{
	int times = ct_times(60);

	for (int i = 0; i < times; i++) {
		pthread_t threads[3];
		struct sleeper each[3] = { *me, *me, *me };

		for (int j = 0; j < 3; j++)
			begin(&each[j], &threads[j]);
		for (int j = 0; j < 3; j++)
			while (!__atomic_load_n(&each[j].came, __ATOMIC_ACQUIRE))
				usleep(20);
		usleep(i % 4 * 50);
		for (int j = 0; j < 3; j++)
			REQUIRE(!pthread_cancel(threads[j]));
		for (int j = 0; j < 3; j++) {
			void *result;

			REQUIRE(!pthread_join(threads[j], &result));
			REQUIRE(result == PTHREAD_CANCELED);
			REQUIRE(each[j].cleaned == 1);
		}
	}
}

static void open_all(struct ct_pair *pair)
{
	struct ct_spec spec = {
		.wait = FI_WAIT_FD, .eq = true, .counters = FI_RECV,
	};

	ct_open_pair(pair, &spec);
	ct_warm_up(pair);
}

static void cancelled_in(enum call call)
{
	struct fi_poll_attr attr = { 0 };
	struct sleeper me = { .call = call };
	struct ct_pair pair;
	int before;

	open_all(&pair);
	me.pair = &pair;
	if (call == POLL) {
		OK(fi_poll_open(pair.b.domain, &attr, &me.poll));
		OK(fi_poll_add(me.poll, &pair.b.rx.fid->fid, 0));
	}
	before = descriptors();
	cancel_often(&me);
	CHECK(descriptors() == before, "descriptors");
	if (call == POLL) {
		OK(fi_poll_del(me.poll, &pair.b.rx.fid->fid, 0));
		OK(fi_close(&me.poll->fid));
	}
	ct_close_pair(&pair);
}

static void counter(void) { cancelled_in(CNTR); }
static void events(void) { cancelled_in(EQ); }
static void poll_set(void) { cancelled_in(POLL); }

static void wait_set(void)
{
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_FD };
	struct sleeper me = { .call = SET };
	struct ct_pair pair;

	open_all(&pair);
	me.pair = &pair;
	if (fi_wait_open(pair.b.fabric, &attr, &me.set) == -FI_ENOSYS)
		SKIP("no wait sets");
	cancel_often(&me);
	OK(fi_close(&me.set->fid));
	ct_close_pair(&pair);
}

static struct ct_spec whole;
static bool came_through;

static void *call_cancelled(void *arg)
{
	struct ct_everything how = { .prints = arg };

	REQUIRE(!pthread_cancel(pthread_self()));
	ct_everything(&whole, how);
	came_through = true;
	pthread_testcancel();
	return NULL;
}

static void cancelled_before(void *print)
{
	static const enum fi_threading levels[] = {
		FI_THREAD_SAFE, FI_THREAD_COMPLETION, FI_THREAD_DOMAIN,
	};
	int before = -1;

	for (int i = 0; i < 6; i++) {
		pthread_t thread;
		void *result;

		whole = ct_everything_spec(levels[i % 3], i / 3 ?
					   FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL);
		fi_freeinfo(ct_getinfo(&whole));
		came_through = false;
		REQUIRE(!pthread_create(&thread, NULL, call_cancelled, print));
		REQUIRE(!pthread_join(thread, &result));
		REQUIRE(came_through);
		REQUIRE(result == PTHREAD_CANCELED);
		if (i % 3)
			continue;
		/* The first one of a kind may leave state that the process
		 * keeps. */
		ct_everything(&whole, (struct ct_everything){ 0 });
		if (before >= 0)
			CHECK(descriptors() == before, "descriptors");
		before = descriptors();
	}
}

/* No other call is a cancellation point: the calls of a cancelled thread are
 * carried out, and then it ends. */
static void others(void) { cancelled_before(NULL); }

static void others_sockets(void)
{
	setenv("FI_TCP_LOCAL", "off", 1);
	cancelled_before(NULL);
}

static void others_logging(void)
{
	setenv("FI_LOG_LEVEL", "trace", 1);
	REQUIRE(freopen("/dev/null", "w", stderr));
	cancelled_before(&whole);
}

static struct fi_context2 rx_context, tx_context;

/* Another sleeping thread is woken, and the descriptor may be polled, after
 * many were cancelled, some of which had been signalled. */
static void completions(void)
{
	struct sleeper me = { .call = CQ }, other = { .call = CQ };
	struct ct_pair pair;
	struct fid *fid;
	struct pollfd fd = { .events = POLLIN };
	pthread_t thread, gone;
	int before, times = ct_times(40);

	open_all(&pair);
	me.pair = other.pair = &pair;
	before = descriptors();
	cancel_often(&me);
	CHECK(descriptors() == before, "descriptors");
	for (int i = 0; i < times; i++) {
		struct fi_cq_tagged_entry entry;
		void *result;
		int sent = 0;

		begin(&other, &thread);
		begin(&me, &gone);
		while (!__atomic_load_n(&me.came, __ATOMIC_ACQUIRE) ||
		       !__atomic_load_n(&other.came, __ATOMIC_ACQUIRE))
			usleep(20);
		/* Both are called, neither has anything to read. */
		if (i & 1)
			OK(fi_cq_signal(pair.b.rx.fid));
		REQUIRE(!pthread_cancel(gone));
		REQUIRE(!pthread_join(gone, &result));
		/* One that was called may have returned before. */
		REQUIRE(result == PTHREAD_CANCELED || me.ret == -FI_EAGAIN);
		if (!(i & 1)) {
			POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL,
					      FI_ADDR_UNSPEC, &rx_context));
			POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL,
					      pair.a.to, &tx_context));
		}
		while (pthread_tryjoin_np(thread, &result)) {
			/* The first signal may have come before its sleep, and
			 * been consumed by the cancelled thread.
			 */
			if (i & 1)
				OK(fi_cq_signal(pair.b.rx.fid));
			/* Only the other one reads the queue of receives. */
			else
				sent += fi_cq_read(pair.a.tx.fid, &entry, 1) == 1;
		}
		while (!(i & 1) && !sent)
			sent += fi_cq_read(pair.a.tx.fid, &entry, 1) == 1;
		EXPECT(other.ret, i & 1 ? -FI_EAGAIN : 1);
		/* A signal that was not consumed is for the next read. */
		if (i & 1)
			fi_cq_sread(pair.b.rx.fid, &entry, 1, NULL, 0);
	}
	OK(fi_control(&pair.b.rx.fid->fid, FI_GETWAIT, &fd.fd));
	fid = &pair.b.rx.fid->fid;
	POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
			      &rx_context));
	while (fi_trywait(pair.b.fabric, &fid, 1) == -FI_EAGAIN) {
		struct fi_cq_tagged_entry entry;

		EXPECT(fi_cq_read(pair.b.rx.fid, &entry, 1), -FI_EAGAIN);
	}
	POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
			      &tx_context));
	REQUIRE(poll(&fd, 1, (int)(ct_patience() * 1000)) == 1);
	ct_done(&pair.b, &pair.b.rx, &rx_context);
	ct_done(&pair.a, &pair.a.tx, &tx_context);
	ct_close_pair(&pair);
}

static const struct ct_test tests[] = {
	{ "completions", completions, CT_BOTH | CT_SLOW },
	{ "counter", counter, CT_BOTH | CT_SLOW },
	{ "events", events, CT_BOTH | CT_SLOW },
	{ "poll-set", poll_set, CT_BOTH | CT_SLOW },
	{ "others", others, CT_BOTH | CT_SLOW },
	{ "others-sockets", others_sockets, CT_BOTH | CT_SLOW },
	{ "others-logging", others_logging, CT_BOTH | CT_SLOW },
	{ "wait-set", wait_set, CT_BOTH | CT_SLOW },
};

CT_MAIN(tests)
