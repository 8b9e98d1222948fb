/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * What every thread of every process is doing, in memory that they share with
 * the process that started them. When none of them gets on any more, that one
 * says where each is. It counts the times that it looked, so that a machine
 * that stands still for a while is no hang.
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

/* The part of the script that this thread comes to: text that stays. NULL if
 * it has done its part. */
void watch_part(const char *part, int season, int round);

/* What it does in that part: text that stays. Who wakes for nothing and sleeps
 * again does not get on. */
void watch_doing(const char *doing);

/* Something came: nobody hangs. */
void watch_step(void);

/* Waits until a child has something to say or is gone; the test fails if
 * nobody gets on. Meanwhile one process or another is stopped for a moment, if
 * it is to be. */
void watch_until_heard(const struct ct_child *children, int count, int which,
		       struct ct_random *stops);

#endif
