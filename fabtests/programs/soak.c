/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Endpoints of several processes that do anything in any order, for as long as one
 * wants. In epochs: when one ends, nothing is under way, each message that was
 * accepted has arrived once and unchanged or was reported, memory has what was
 * written and added, and the process uses no more than before.
 *
 * CT_LEAVE_OUT=<bits> leaves out kinds of steps, as `step` numbers them.
 * CT_SECONDS=<number> is how long, CT_SEED=<number> what is drawn (how threads
 * and processes are scheduled decides, too).
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "soak/soak.h"

#define EPOCH 0.25			/* seconds of operations */

struct soak_board *board;

void soak_fail(const char *file, int line, const char *fmt, ...)
{
	char text[sizeof(board->reason)];
	const char *slash = strrchr(file, '/');
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (!atomic_exchange(&board->failed, true))
		snprintf(board->reason, sizeof(board->reason), "%s:%d: %.400s",
			 slash ? slash + 1 : file, line, text);
	_exit(1);
}

/* Kinds of steps, a bit for each, that CT_LEAVE_OUT names. */
static unsigned long left_out;

static bool has_guests(void)
{
	return board->mode.threads == 1 && !board->mode.lossy;
}

/* Takes whatever comes. Receives of a particular message do not stay: as many as are posted at
 * most may be of messages that never come, and nothing else would be received. */
static void receive_all(struct soak_worker *worker)
{
	soak_receive(worker, true);
	soak_cancel_receives(worker, false);
	soak_peeked(worker);
}

/* Waits for all workers, and goes on receiving. */
static void meet(struct soak_worker *worker, bool receiving)
{
	unsigned round = atomic_load(&board->round);
	unsigned all = (unsigned)(board->mode.stations * board->mode.threads);
	double until = ct_now() + 3 * ct_patience();

	if (atomic_fetch_add(&board->arrived, 1) + 1 == all) {
		atomic_store(&board->arrived, 0);
		atomic_fetch_add(&board->round, 1);
	}
	while (atomic_load(&board->round) == round) {
		if (receiving) {
			receive_all(worker);
			if (has_guests())
				soak_greet(worker);
		}
		soak_progress(worker);
		NEED(ct_now() < until, "the workers do not meet");
	}
}

/* The same, without a look at any object of libfabric. */
static void meet_silently(void)
{
	unsigned round = atomic_load(&board->round);
	unsigned all = (unsigned)(board->mode.stations * board->mode.threads);
	double until = ct_now() + 3 * ct_patience();

	if (atomic_fetch_add(&board->arrived, 1) + 1 == all) {
		atomic_store(&board->arrived, 0);
		atomic_fetch_add(&board->round, 1);
	}
	while (atomic_load(&board->round) == round) {
		usleep(200);
		NEED(!atomic_load(&board->failed), "another process failed");
		NEED(ct_now() < until, "the workers do not meet");
	}
}

static void step(struct soak_worker *worker)
{
	struct ct_random *random = &worker->random;
	unsigned kind = (unsigned)ct_below(random, 24);

	if (left_out >> kind & 1)
		return;
	switch (kind) {
	case 0: case 1: case 2: case 3: case 4: case 5:
		soak_send(worker);
		break;
	case 6: case 7: case 8: case 9: case 10: case 11:
		soak_receive(worker, false);
		break;
	case 12: case 13: case 14:
		soak_access(worker);
		break;
	case 15:
		soak_cancel(worker);
		break;
	case 16:
		soak_peek(worker);
		break;
	case 17:
		if (ct_once_in(random, 8))
			soak_doom(worker);
		break;
	case 18:
		soak_release_triggered(worker);
		break;
	case 19:
		if (ct_once_in(random, 16))
			soak_read(worker, worker->peer.tx.fid, 1);
		break;
	case 20:
		if (has_guests()) {
			soak_guest_step(worker, true);
			soak_greet(worker);
		}
		break;
	default:
		soak_progress(worker);
	}
	soak_peeked(worker);
}

/* Everything this worker has posted ends, or it is a failure. */
static void settle(struct soak_worker *worker)
{
	double until = ct_now() + ct_patience();

	soak_doom_end(worker);
	while (!soak_all_idle(worker) || worker->guest.ep || worker->pending) {
		soak_release_triggered(worker);
		receive_all(worker);
		if (has_guests()) {
			soak_guest_step(worker, false);
			soak_greet(worker);
		}
		soak_progress(worker);
		if (ct_now() > until)
			soak_report_open(worker);
	}
}

static void verify(struct soak_worker *worker)
{
	double until = ct_now() + ct_patience();
	char missing[256] = "";

	while (!soak_all_idle(worker) || !soak_settled(worker, missing, sizeof(missing)) ||
	       !soak_memory_settled(worker->station, missing, sizeof(missing))) {
		receive_all(worker);
		soak_progress(worker);
		if (ct_now() > until && !*missing)
			soak_report_open(worker);
		NEED(ct_now() < until, "%s", missing);
	}
	/* None of the receives has a message now. */
	meet(worker, false);
	while (soak_receives_open(worker)) {
		soak_cancel_receives(worker, true);
		soak_progress(worker);
		NEED(ct_now() < until + ct_patience(), "receives cannot be cancelled");
	}
}

static void forget(int station)
{
	for (int lane = 0; lane < LANES; lane++) {
		atomic_store(&board->sent[lane][station], 0);
		atomic_store(&board->received[lane][station], 0);
		memset(board->seen[lane][station], 0, sizeof(board->seen[lane][station]));
		memset(board->excused[lane][station], 0, sizeof(board->excused[lane][station]));
		memset(board->maybe[lane][station], 0, sizeof(board->maybe[lane][station]));
	}
}

static void epoch(struct soak_worker *worker, struct soak_usage *usage)
{
	bool first = !worker->number, leads = !worker->index;
	double until = ct_now() + EPOCH;
	int restarted = (int)(atomic_load(&board->epoch) % 8);

	while (!atomic_load(&board->over)) {
		step(worker);
		if (first && ct_now() > until) {
			if (ct_now() > board->until)
				atomic_store(&board->last, true);
			atomic_store(&board->over, true);
		}
	}
	settle(worker);
	meet(worker, true);
	verify(worker);
	meet(worker, false);
	/* Nothing is under way, and no other thread reads the station's queue any more. */
	meet_silently();
	if (usage)
		soak_usage_note(usage);
	if (leads) {
		forget(worker->station->number);
		if (worker->station->number == restarted)
			soak_station_restart(worker->station);
	}
	meet_silently();
	if (leads)
		soak_introduce(worker->station);
	if (first) {
		atomic_fetch_add(&board->epoch, 1);
		atomic_store(&board->over, false);
	}
	meet_silently();
	soak_worker_follow(worker);
}

struct process {
	struct soak_station stations[STATIONS];
	struct soak_worker workers[WORKERS];
	struct soak_usage *usage;
};

static struct process here;

static void *work(void *argument)
{
	struct soak_worker *worker = argument;
	bool notes = worker == &here.workers[0];

	meet_silently();
	if (!worker->index)
		soak_introduce(worker->station);
	meet_silently();
	while (!atomic_load(&board->last))
		epoch(worker, notes ? here.usage : NULL);
	return NULL;
}

static void run_process(int number)
{
	struct soak_mode *mode = &board->mode;
	pthread_t threads[WORKERS];
	int count = 0;

	here.usage = soak_usage_open();
	for (int i = number; i < mode->stations; i += mode->processes) {
		soak_station_open(&here.stations[i], i);
		for (int j = 0; j < mode->threads; j++)
			soak_worker_open(&here.workers[count++], &here.stations[i],
					 i * mode->threads + j);
	}
	for (int i = 1; i < count; i++)
		NEED(!pthread_create(&threads[i], NULL, work, &here.workers[i]), "no thread");
	work(&here.workers[0]);
	for (int i = 1; i < count; i++)
		pthread_join(threads[i], NULL);
	for (int i = number; i < mode->stations; i += mode->processes)
		soak_station_close(&here.stations[i]);
	soak_usage_judge(here.usage);
}

static void run_connections(void)
{
	struct soak_usage *usage = soak_usage_open();

	soak_connections_open();
	while (ct_now() < board->until) {
		soak_connections(usage);
		atomic_fetch_add(&board->epoch, 1);
	}
	soak_connections_close();
	soak_usage_judge(usage);
}

static void run(struct soak_mode mode)
{
	const char *seconds = getenv("CT_SECONDS"), *seed = getenv("CT_SEED");
	pid_t children[STATIONS];
	int status, bad = 0;

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	REQUIRE(board != MAP_FAILED);
	board->mode = mode;
	left_out = getenv("CT_LEAVE_OUT") ? strtoul(getenv("CT_LEAVE_OUT"), NULL, 0) : 0;
	board->seed = seed ? strtoull(seed, NULL, 0) : (uint64_t)(ct_now() * 1e6);
	printf("# CT_SEED=%llu\n", (unsigned long long)board->seed);
	fflush(stdout);
	board->until = ct_now() + (seconds ? atof(seconds) : 5);
	for (int i = 0; i < mode.processes; i++) {
		children[i] = fork();
		REQUIRE(children[i] >= 0);
		if (!children[i]) {
			if (ct_opt.type == FI_EP_MSG)
				run_connections();
			else
				run_process(i);
			_exit(0);
		}
	}
	for (int i = 0; i < mode.processes; i++) {
		pid_t ended = wait(&status);

		if (WIFEXITED(status) && !WEXITSTATUS(status))
			continue;
		bad++;
		if (!atomic_exchange(&board->failed, true))
			snprintf(board->reason, sizeof(board->reason),
				 "process %d ended with status %#x", (int)ended, (unsigned)status);
	}
	printf("# %u epochs, %llu messages, %llu MiB, %llu accesses, %llu of them refused, %llu "
	       "sends cancelled, %llu guests, %llu connections\n", atomic_load(&board->epoch),
	       (unsigned long long)board->messages, (unsigned long long)board->bytes >> 20,
	       (unsigned long long)board->accesses, (unsigned long long)board->refused,
	       (unsigned long long)board->cancelled, (unsigned long long)board->guests_closed,
	       (unsigned long long)board->connections);
	if (!bad && !soak_usage_suffices(atomic_load(&board->epoch)))
		printf("# too few epochs to judge growth\n");
	fflush(stdout);
	if (bad)
		ct_fail(__FILE__, __LINE__, "%s (seed %llu, epoch %u)", board->reason,
			(unsigned long long)board->seed, atomic_load(&board->epoch));
}

static bool provider_is(const char *name)
{
	return ct_opt.provider && !strcmp(ct_opt.provider, name);
}

/* Each worker in a process of its own. */
static void mixed(void)
{
	run((struct soak_mode) {
		.processes = provider_is("loopback") ? 1 : 3, .stations = 3, .threads = 1,
		.lossy = provider_is("udp"),
	});
}

/* Four threads at each of two endpoints. */
static void threads(void)
{
	run((struct soak_mode) {
		.processes = provider_is("loopback") ? 1 : 2, .stations = 2, .threads = 4,
		.lossy = provider_is("udp"),
	});
}

/* Connections that are made, rejected, used and ended, in one process. */
static void connections(void)
{
	run((struct soak_mode) { .processes = 1, .stations = 1, .threads = 1 });
}

static const struct ct_test tests[] = {
	{ "connections", connections, CT_MSG | CT_LASTING },
	{ "mixed", mixed, CT_RDM | CT_LASTING },
	{ "threads", threads, CT_RDM | CT_LASTING },
};

CT_MAIN(tests)
