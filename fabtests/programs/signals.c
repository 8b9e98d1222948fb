/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Signals: handlers that run while a thread is in a blocking call, installed
 * with and without SA_RESTART, and those that are blocked in all threads of the
 * program and may not be taken by threads of the library.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "blocking.h"
#include "check.h"
#include "transfer.h"
#include "wait.h"

static volatile sig_atomic_t handled;

static void handler(int number)
{
	(void)number;
	handled++;
}

static void install(int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	sigemptyset(&action.sa_mask);
	REQUIRE(!sigaction(SIGUSR1, &action, NULL));
	REQUIRE(!sigaction(SIGALRM, &action, NULL));
}

struct sleeper {
	enum ct_blocking call;
	struct ct_pair *pair;
	struct fid_wait *set;
	int came, returned;
	long ret;
};

static void *sleep_there(void *arg)
{
	struct sleeper *me = arg;

	__atomic_store_n(&me->came, 1, __ATOMIC_RELEASE);
	me->ret = ct_block(&me->pair->b, me->call, me->set);
	__atomic_store_n(&me->returned, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* A signal that comes before the thread sleeps has no effect: they are repeated
 * until the call returns. */
static void interrupted_in(enum ct_blocking call)
{
	static const int flags[] = { 0, SA_RESTART };
	struct ct_spec spec = { CT_BLOCKING_SPEC };
	struct sleeper me = { .call = call };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	me.pair = &pair;
	me.set = ct_blocking_set(&pair.b, call);
	for (int i = 0; i < 2; i++) {
		double end = ct_now() + ct_patience();
		pthread_t thread;

		install(flags[i]);
		me.came = me.returned = 0;
		REQUIRE(!pthread_create(&thread, NULL, sleep_there, &me));
		while (!__atomic_load_n(&me.came, __ATOMIC_ACQUIRE))
			usleep(20);
		while (!__atomic_load_n(&me.returned, __ATOMIC_ACQUIRE)) {
			if (ct_now() > end)
				ct_fail(__FILE__, __LINE__,
					"%d signals, and it sleeps", handled);
			usleep(1000);
			pthread_kill(thread, SIGUSR1);
		}
		REQUIRE(!pthread_join(thread, NULL));
		CHECK(me.ret == -FI_EINTR, "%s", i ? "restart" : "plain");
	}
	if (me.set)
		OK(fi_close(&me.set->fid));
	ct_close_pair(&pair);
}

static void completions(void) { interrupted_in(CT_BLOCK_CQ); }
static void completions_from(void) { interrupted_in(CT_BLOCK_CQ_FROM); }
static void events(void) { interrupted_in(CT_BLOCK_EQ); }
static void counter(void) { interrupted_in(CT_BLOCK_CNTR); }
static void wait_set(void) { interrupted_in(CT_BLOCK_SET); }

/* A timer interrupts whatever the thread does; no message is lost or repeated,
 * and a call that was interrupted is repeated. */
static void under_fire(void)
{
	struct ct_spec spec = { .wait = FI_WAIT_FD };
	struct itimerval fast = { { 0, 1000 }, { 0, 1000 } }, none = { 0 };
	struct fi_context2 rx_context, tx_context;
	unsigned in, count = (unsigned)ct_times(500), interrupted = 0;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	install(SA_RESTART);
	REQUIRE(!setitimer(ITIMER_REAL, &fast, NULL));
	for (unsigned i = 0; i < count; i++) {
		struct fi_cq_tagged_entry entry;
		ssize_t got;

		in = ~i;
		POST(&pair.b, fi_recv(pair.b.ep, &in, sizeof(in), NULL,
				      FI_ADDR_UNSPEC, &rx_context));
		POST(&pair.a, fi_send(pair.a.ep, &i, sizeof(i), NULL,
				      pair.a.to, &tx_context));
		/* The sender may have to make progress, too. */
		do {
			got = fi_cq_sread(pair.b.rx.fid, &entry, 1, NULL, 1);
			interrupted += got == -FI_EINTR;
			REQUIRE(got == 1 || got == -FI_EINTR || got == -FI_EAGAIN);
			if (got != 1)
				ct_nudge(&pair.a);
		} while (got != 1);
		REQUIRE(entry.op_context == &rx_context && in == i);
		ct_done(&pair.a, &pair.a.tx, &tx_context);
	}
	REQUIRE(!setitimer(ITIMER_REAL, &none, NULL));
	CHECK(ct_stays_empty(&pair.b, &pair.b.rx), "nothing-more");
	ct_close_pair(&pair);
}

/* The program has blocked a signal in its only thread, to take it with
 * sigwait(3), after the library has started threads of its own. */
static void threads_of_the_library(void)
{
	struct ct_spec spec = {
		.wait = FI_WAIT_FD, .progress = FI_PROGRESS_AUTO, .eq = true,
	};
	struct timespec limit = { .tv_sec = (time_t)ct_patience() };
	struct ct_pair pair;
	sigset_t set;
	int taken;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	install(0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	REQUIRE(!pthread_sigmask(SIG_BLOCK, &set, NULL));
	handled = 0;
	for (int i = 0; i < 100; i++) {
		REQUIRE(!kill(getpid(), SIGUSR1));
		/* A process that is stopped and continued has been
		 * interrupted. */
		do
			taken = sigtimedwait(&set, NULL, &limit);
		while (taken < 0 && errno == EINTR);
		if (taken != SIGUSR1 || handled)
			ct_fail(__FILE__, __LINE__,
				"a thread of the library ran the handler");
	}
	ct_close_pair(&pair);
}

static const struct ct_test tests[] = {
	{ "completions", completions, CT_BOTH },
	{ "completions-from", completions_from, CT_BOTH },
	{ "events", events, CT_BOTH },
	{ "counter", counter, CT_BOTH },
	{ "wait-set", wait_set, CT_BOTH },
	{ "under-fire", under_fire, CT_BOTH | CT_SLOW },
	{ "threads-of-the-library", threads_of_the_library, CT_BOTH },
};

CT_MAIN(tests)
