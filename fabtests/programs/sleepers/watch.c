/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "random.h"
#include "watch.h"

enum { TICK = 20, LIMIT = 60 * 1000 };	/* milliseconds */

struct note {
	atomic_ulong steps;
	_Atomic(const char *) part, doing;
	atomic_int season, round;
};

static struct note (*notes)[THREADS];
static _Thread_local struct note *own;

void watch_open(void)
{
	size_t size = sizeof(struct note[MOST][THREADS]);

	notes = mmap(NULL, size, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(notes != MAP_FAILED);
}

void watch_self(int member, int thread)
{
	own = &notes[member][thread];
}

void watch_part(const char *part, int season, int round)
{
	atomic_store(&own->season, season);
	atomic_store(&own->round, round);
	atomic_store(&own->part, part);
	watch_doing("awake");
	watch_step();
}

void watch_doing(const char *doing)
{
	atomic_store(&own->doing, doing);
}

void watch_step(void)
{
	atomic_fetch_add(&own->steps, 1);
}

static unsigned long steps(void)
{
	unsigned long sum = 0;

	for (int i = 0; i < MOST; i++)
		for (int j = 0; j < THREADS; j++)
			sum += atomic_load(&notes[i][j].steps);
	return sum;
}

static size_t describe(char *text, size_t size, int member, pid_t pid,
		       int thread)
{
	struct note *note = &notes[member][thread];
	const char *part = atomic_load(&note->part);
	int len = 0;

	if (part)
		len = snprintf(text, size, "; %d/%d (%d) %s in %d/%d, %s",
			       member, thread, pid, part,
			       atomic_load(&note->season),
			       atomic_load(&note->round),
			       atomic_load(&note->doing));
	return len > 0 && (size_t)len < size ? (size_t)len : 0;
}

/* Prints for each process/thread its action, season and round. */
static void __attribute__((noreturn)) tell(const struct ct_child *children,
					   int count)
{
	char text[480] = "";
	size_t len = 0;

	for (int i = 0; i < count; i++)
		for (int j = 0; j < THREADS; j++)
			len += describe(text + len, sizeof(text) - len, i,
					children[i].pid, j);
	ct_fail(__FILE__, __LINE__, "nobody gets on%s", text);
}

static void stop_one(const struct ct_child *children, int count,
		     struct ct_random *chance)
{
	pid_t pid = children[ct_below(chance, (uint64_t)count)].pid;

	/* 0: not there now. */
	if (pid <= 0 || kill(pid, SIGSTOP))
		return;
	usleep((useconds_t)ct_below(chance, 5000));
	kill(pid, SIGCONT);
}

void watch_until_heard(const struct ct_child *children, int count, int which,
		       struct ct_random *stops)
{
	struct pollfd pfd[] = {
		{ .fd = children[which].fd, .events = POLLIN },
		{ .fd = children[0].fd },
	};
	const char *text = getenv("CT_TIMEOUT_SCALE");
	double limit = LIMIT / TICK * (text ? atof(text) : 1.0);
	unsigned long before = steps();
	double looked = 0;

	for (;;) {
		unsigned long now;

		poll(pfd, 2, TICK);
		if (pfd[0].revents)
			return;
		/* The first one stays to the end. */
		REQUIRE(!pfd[1].revents);
		now = steps();

		if (now == before && ++looked > limit)
			tell(children, count);
		if (now != before)
			looked = 0;
		before = now;
		if (stops)
			stop_one(children, count, stops);
	}
}
