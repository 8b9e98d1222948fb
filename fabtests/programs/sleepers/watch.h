/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The current action of every thread of every process, in memory shared with
 * the process that started them. When none of them makes progress, that
 * process prints where each is. It counts its checks, so that a machine that
 * is stopped for a while is not a hang.
 */
#ifndef SLEEPERS_WATCH_H
#define SLEEPERS_WATCH_H

#include "child.h"
#include "random.h"

enum { MOST = 4, THREADS = 2 };

/* Makes the memory; before the processes are forked. */
void watch_open(void);

/* From now on this thread is the given one of the given process. */
void watch_self(int member, int thread);

/* The part of the script that this thread begins: a string that stays valid.
 * NULL if it has finished. */
void watch_part(const char *part, int season, int round);

/* The action in that part: a string that stays valid. Waking without an event
 * and sleeping again is not progress. */
void watch_doing(const char *doing);

/* Something arrived: progress was made. */
void watch_step(void);

/* Waits until a child has sent something or is gone; the test fails if there
 * is no progress. Meanwhile one process or another is stopped for a moment, if
 * requested. */
void watch_until_heard(const struct ct_child *children, int count, int which,
		       struct ct_random *stops);

#endif
