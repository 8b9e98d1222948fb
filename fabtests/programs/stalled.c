/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * An endpoint closes while its peer has stopped reading, with much data queued
 * for it. Nothing else waits for that: another endpoint of the domain
 * continues with its own peer.
 *
 * No time is measured. The library's clock is stopped during the close, so
 * that everything that waits for the peer there does so until the test is done
 * with it. Progress in the meantime is measured against a reference: round
 * trips in another domain, in a thread of its own, which no lock of the first
 * one can delay.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "connect.h"
#include "survivor.h"
#include "wait.h"

#define PIECE 4096
#define PIECES 8192		/* more than sockets hold */
#define ROUNDS 300
/*
 * Round trips of the watch for one of the others: some take less than a
 * microsecond, and a process may wait for a processor for many milliseconds.
 */
#define DEADLINE 1000000

static const clockid_t clocks[] = {
	CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW,
	CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME,
};

#define CLOCKS (sizeof(clocks) / sizeof(clocks[0]))

static struct timespec stopped_at[CLOCKS];
static atomic_bool stopped;

/* Precedes the C library's in the order of symbol look-up. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
	for (size_t i = 0; atomic_load(&stopped) && i < CLOCKS; i++)
		if (clocks[i] == clock) {
			*now = stopped_at[i];
			return 0;
		}
	return (int)syscall(SYS_clock_gettime, clock, now);
}

static void stop_clock(void)
{
	for (size_t i = 0; i < CLOCKS; i++)
		clock_gettime(clocks[i], &stopped_at[i]);
	atomic_store(&stopped, true);
}

static void start_clock(void)
{
	atomic_store(&stopped, false);
}

static const struct ct_spec spec = {
	.caps = FI_MSG, .threading = FI_THREAD_SAFE,
};

static void await(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	while ((ret = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		sched_yield();
	REQUIRE(ret == 1);
}

static void expect_word(struct ct_peer *peer, char *word)
{
	static struct fi_context2 context;

	OK(fi_recv(peer->ep, word, 1, NULL, FI_ADDR_UNSPEC, &context));
}

static void send_word(struct ct_peer *peer, char *word)
{
	static struct fi_context2 context;
	ssize_t ret;

	while ((ret = fi_send(peer->ep, word, 1, NULL, peer->to, &context)) ==
	       -FI_EAGAIN) {
		fi_cq_read(peer->tx.fid, NULL, 0);
		sched_yield();
	}
	OK(ret);
	await(peer->tx.fid);
}

static void round_trip(struct ct_peer *peer, char word)
{
	char back = 0;

	expect_word(peer, &back);
	send_word(peer, &word);
	await(peer->rx.fid);
	REQUIRE(back == word);
}

static void open_child(struct ct_peer *peer, int fd)
{
	struct ct_card own = { 0 }, other;

	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	if (ct_opt.type == FI_EP_RDM)
		ct_open_ep(peer, peer->info);
	ct_meet(peer, &own, &other, fd, NULL);
}

/* Answers each word until told to leave. */
static void echo(int fd)
{
	struct ct_peer peer;
	char word = 0;

	open_child(&peer, fd);
	while (word != 'q') {
		expect_word(&peer, &word);
		await(peer.rx.fid);
		send_word(&peer, &word);
	}
	ct_hear(fd, &word, 1);
	ct_close_peer(&peer);
}

/* Answers one word, and then does nothing more. */
static void deaf(int fd)
{
	struct ct_peer peer;
	char word;

	open_child(&peer, fd);
	expect_word(&peer, &word);
	await(peer.rx.fid);
	send_word(&peer, &word);
	ct_hear(fd, &word, 1);
}

/* An endpoint with queues of its own, in a domain of its own or another's, and
 * its peer in another process. */
static void open_own(struct ct_peer *peer, const struct ct_peer *shared,
		     const struct ct_child *child)
{
	struct ct_card own = { 0 }, other;
	struct fid_pep *pep = NULL;

	ct_begin(child);
	ct_open_domain(peer, &spec, ct_getinfo(&spec),
		       shared ? shared->fabric : NULL,
		       shared ? shared->domain : NULL);
	if (ct_opt.type == FI_EP_RDM)
		ct_open_ep(peer, peer->info);
	else
		pep = ct_listen(peer);
	ct_meet(peer, &own, &other, child->fd, pep);
	if (pep)
		OK(fi_close(&pep->fid));
	round_trip(peer, 'a');
}

/* Stops the peer, and sends to it until no more is accepted, time and again:
 * there is no room behind what is queued. (Completions do not tell: operations
 * may be complete when the library has copied their bytes.) */
static bool stall(struct ct_peer *peer, const struct ct_child *child)
{
	static struct fi_context2 contexts[PIECES];
	static char data[PIECE];
	struct fi_cq_tagged_entry entry;
	long posted = 0;
	int status;

	REQUIRE(!kill(child->pid, SIGSTOP));
	REQUIRE(waitpid(child->pid, &status, WUNTRACED) == child->pid);
	REQUIRE(WIFSTOPPED(status));
	for (int tries = 0; posted < PIECES && tries < 1000; tries++) {
		ssize_t ret = fi_send(peer->ep, data, PIECE, NULL, peer->to,
				      &contexts[posted]);

		if (!ret) {
			posted++;
			tries = 0;
		} else {
			REQUIRE(ret == -FI_EAGAIN);
		}
		while (fi_cq_read(peer->tx.fid, &entry, 1) == 1)
			;
	}
	return posted < PIECES;
}

static struct {
	struct ct_peer peer;
	pthread_t thread;
	atomic_long trips, seen;	/* in all; when the others last moved */
	atomic_bool late, over;
} watch;

static void *watch_main(void *arg)
{
	(void)arg;
	while (!atomic_load(&watch.over)) {
		round_trip(&watch.peer, 'w');
		if (atomic_fetch_add(&watch.trips, 1) -
		    atomic_load(&watch.seen) > DEADLINE) {
			atomic_store(&watch.late, true);
			/* So that the test can finish. */
			start_clock();
			return NULL;
		}
	}
	return NULL;
}

static void moved(void)
{
	atomic_store(&watch.seen, atomic_load(&watch.trips));
}

static void start_watch(const struct ct_child *child)
{
	open_own(&watch.peer, NULL, child);
	REQUIRE(!pthread_create(&watch.thread, NULL, watch_main, NULL));
}

struct closing {
	struct ct_peer *peer;
	bool shuts_down;
	atomic_int thread;
	atomic_bool done;
	int ret;
};

static void *closing_main(void *arg)
{
	struct closing *closing = arg;
	struct fid_ep *ep = closing->peer->ep;

	atomic_store(&closing->thread, (int)syscall(SYS_gettid));
	closing->ret = closing->shuts_down ? fi_shutdown(ep, 0)
					   : fi_close(&ep->fid);
	atomic_store(&closing->done, true);
	return NULL;
}

/* Whether the call has returned, or its thread sleeps in there: of itself, it
 * does not sleep. */
static bool under_way(struct closing *closing)
{
	int thread = atomic_load(&closing->thread);
	char path[64], state = 0;
	FILE *file;

	if (!thread)
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "r");
	if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (file)
		fclose(file);
	return atomic_load(&closing->done) || state == 'S';
}

static void go_on(struct ct_peer *peer)
{
	round_trip(peer, 'b');
	moved();
}

static void run(bool shuts_down)
{
	struct ct_child deaf_child = ct_spawn(deaf);
	struct ct_child busy_child = ct_spawn(echo);
	struct ct_child watch_child = ct_spawn(echo);
	struct closing closing = { .shuts_down = shuts_down };
	struct ct_peer stalled, busy;
	pthread_t thread;

	open_own(&stalled, NULL, &deaf_child);
	open_own(&busy, &stalled, &busy_child);
	closing.peer = &stalled;
	start_watch(&watch_child);
	REQUIRE(stall(&stalled, &deaf_child));

	stop_clock();
	moved();
	REQUIRE(!pthread_create(&thread, NULL, closing_main, &closing));
	while (!under_way(&closing) && !atomic_load(&watch.late))
		go_on(&busy);
	for (int i = 0; i < ROUNDS && !atomic_load(&watch.late); i++)
		go_on(&busy);
	start_clock();

	ct_kill(&deaf_child);
	pthread_join(thread, NULL);
	atomic_store(&watch.over, true);
	pthread_join(watch.thread, NULL);
	if (atomic_load(&watch.late)) {
		ct_kill(&busy_child);
		ct_kill(&watch_child);
		ct_fail(__FILE__, __LINE__,
			"nobody moved in %d round trips of another domain",
			DEADLINE);
	}
	EXPECT(closing.ret, 0);

	round_trip(&busy, 'q');
	ct_tell(busy_child.fd, "x", 1);
	round_trip(&watch.peer, 'q');
	ct_tell(watch_child.fd, "x", 1);
	ct_join(&busy_child);
	ct_join(&watch_child);
	if (!shuts_down)
		stalled.ep = NULL;
	ct_close_peer(&busy);
	ct_close_peer(&stalled);
	ct_close_peer(&watch.peer);
}

static void close_in_thread(void)
{
	run(false);
}

static void shutdown_in_thread(void)
{
	run(true);
}

static const struct ct_test tests[] = {
	{ "close", close_in_thread, CT_BOTH | CT_SLOW },
	{ "shutdown", shutdown_in_thread, CT_MSG | CT_SLOW },
};

CT_MAIN(tests)
