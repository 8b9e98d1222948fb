/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Threads that are cancelled (pthread_cancel(3)) while they are in a blocking
 * call: they end, their cleanup handlers run, and the objects that they slept
 * on can still be used. Threads in other calls end afterwards.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blocking.h"
#include "check.h"
#include "everything.h"
#include "process.h"
#include "transfer.h"
#include "wait.h"

struct sleeper {
	enum ct_blocking call;
	struct ct_pair *pair;
	struct fid_wait *set;
	struct fid_poll *poll;		/* polled forever, in place of the call */
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
	void *contexts[2];

	pthread_cleanup_push(clean, me);
	__atomic_store_n(&me->came, 1, __ATOMIC_RELEASE);
	while (me->poll)
		fi_poll(me->poll, contexts, 2);
	me->ret = ct_block(&me->pair->b, me->call, me->set);
	pthread_cleanup_pop(0);
	return NULL;
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

static void open_all(struct ct_pair *pair, struct sleeper *me)
{
	struct ct_spec spec = { CT_BLOCKING_SPEC };

	ct_open_pair(pair, &spec);
	ct_warm_up(pair);
	me->pair = pair;
}

static void cancelled(struct sleeper *me)
{
	int before;

	/* Meanwhile the two sides may move to memory that they share. */
	cancel_often(me);
	before = ct_descriptors();
	cancel_often(me);
	CHECK(ct_descriptors() == before, "descriptors");
}

static void cancelled_in(enum ct_blocking call)
{
	struct sleeper me = { .call = call };
	struct ct_pair pair;

	open_all(&pair, &me);
	me.set = ct_blocking_set(&pair.b, call);
	cancelled(&me);
	if (me.set)
		OK(fi_close(&me.set->fid));
	ct_close_pair(&pair);
}

static void counter(void) { cancelled_in(CT_BLOCK_CNTR); }
static void events(void) { cancelled_in(CT_BLOCK_EQ); }
static void wait_set(void) { cancelled_in(CT_BLOCK_SET); }

static void poll_set(void)
{
	struct fi_poll_attr attr = { 0 };
	struct sleeper me = { 0 };
	struct ct_pair pair;

	open_all(&pair, &me);
	OK(fi_poll_open(pair.b.domain, &attr, &me.poll));
	OK(fi_poll_add(me.poll, &pair.b.rx.fid->fid, 0));
	cancelled(&me);
	OK(fi_poll_del(me.poll, &pair.b.rx.fid->fid, 0));
	OK(fi_close(&me.poll->fid));
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
			CHECK(ct_descriptors() == before, "descriptors");
		before = ct_descriptors();
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
	struct sleeper me = { .call = CT_BLOCK_CQ }, other = { .call = CT_BLOCK_CQ };
	struct ct_pair pair;
	struct fid *fid;
	struct pollfd fd = { .events = POLLIN };
	pthread_t thread, gone;
	int times = ct_times(40);

	open_all(&pair, &me);
	other.pair = &pair;
	cancelled(&me);
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
