/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Steps: what happens between two accesses to memory that processes share, and at system calls. The library
 * that is built for simulation calls simulated_step() before each.
 *
 * Woven: two threads of the program take turns, so that one of them rests at any step of the other while that
 * one makes any number of calls. One runs at a time, and the seed draws how long each turn is: a failure is
 * repeated by its seed. A thread that waits in the kernel for what the other one holds gives it the turn.
 *
 * Ends: the process gets a signal at a step of its life.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "steps.h"

enum { NONE = -1, FIRST, SECOND };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_woven;
static int turn;
/* Waits in the kernel, or has ended. */
static bool is_away[2];
static bool is_to_end;
static void (*work)(void);
static pthread_t second;
static cpu_set_t everywhere;	/* where the first one ran before */
static uint64_t longest;		/* turn, in steps; 0 for a thread that is not woven */
static uint64_t left;		/* of this turn */
static uint64_t state;
static __thread int self = NONE;

/* The step at which the process gets a signal, counted down. */
static uint64_t ends_in;
static int ends_by;
static uint64_t taken, turns;

static uint64_t draw_step(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 16) % below;
}

void draw_steps(uint64_t seed)
{
	static const uint64_t lengths[] = { 100, 1000, 10000, 100000 };
	const char *given = getenv("SIM_WOVEN");

	state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	/* Half of the seeds leave the threads alone. */
	longest = draw_step(2) ? lengths[draw_step(4)] : 0;
	if (given)
		longest = strtoull(given, NULL, 0);
}

/* Most turns are short, and some are long. */
static void draw_turn(void)
{
	left = 1 + draw_step(1 + draw_step(longest));
	if (draw_step(2))
		left = 1 + left / 100;
}

bool is_driver(void)
{
	return self != NONE;
}

/* With the lock: the caller's turn ends, unless the other one cannot take it. */
static void pass_turn(void)
{
	if (is_away[1 - self])
		return;
	turn = 1 - self;
	turns++;
	draw_turn();
	pthread_cond_broadcast(&changed);
	while (turn != self)
		pthread_cond_wait(&changed, &lock);
}

void simulated_yield(void)
{
	if (!is_woven || self == NONE)
		return;
	pthread_mutex_lock(&lock);
	pass_turn();
	pthread_mutex_unlock(&lock);
}

/* What is rare is as long as some of the others. */
void simulated_step(bool is_rare)
{
	uint64_t length = is_rare ? 20 : 1;

	if (ends_in && __atomic_fetch_sub(&ends_in, 1, __ATOMIC_RELAXED) == 1)
		kill(getpid(), ends_by);
	__atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
	if (!is_woven || self == NONE)
		return;
	if (left > length)
		left -= length;
	else
		simulated_yield();
}

void goes_away(void)
{
	if (!is_woven || self == NONE)
		return;
	pthread_mutex_lock(&lock);
	is_away[self] = true;
	turn = 1 - self;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void comes_back(void)
{
	if (!is_woven || self == NONE)
		return;
	pthread_mutex_lock(&lock);
	is_away[self] = false;
	/* Of two that are away, the first one back. */
	if (is_away[1 - self])
		turn = self;
	while (turn != self)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void *take_turns(void *unused)
{
	self = SECOND;
	pthread_mutex_lock(&lock);
	while (turn != self)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	while (!is_to_end) {
		work();
		simulated_yield();
	}
	pthread_mutex_lock(&lock);
	is_away[SECOND] = true;
	turn = FIRST;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	self = NONE;
	return unused;
}

/* A second thread does this again and again, whenever it has the turn. Returns whether the seed wants that. */
bool simulated_weave(void (*what)(void))
{
	cpu_set_t here;

	if (!longest)
		return false;
	/* On one processor, where a turn passes without waiting for another one. */
	pthread_getaffinity_np(pthread_self(), sizeof(everywhere), &everywhere);
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	pthread_setaffinity_np(pthread_self(), sizeof(here), &here);
	work = what;
	self = turn = FIRST;
	is_away[FIRST] = is_away[SECOND] = is_to_end = false;
	is_woven = true;
	draw_turn();
	if (pthread_create(&second, NULL, take_turns, NULL))
		abort();
	return true;
}

/* The second thread ends what it does, and is gone. */
void simulated_unweave(void)
{
	is_to_end = true;
	while (!is_away[SECOND])
		simulated_yield();
	is_woven = false;
	pthread_join(second, NULL);
	pthread_setaffinity_np(pthread_self(), sizeof(everywhere), &everywhere);
	if (getenv("SIM_SAY"))
		fprintf(stderr, "simulated: %llu turns, %llu steps\n", (unsigned long long)turns,
			(unsigned long long)taken);
}

/* Steps that the process has taken. */
uint64_t simulated_steps(void)
{
	return taken;
}

/* A signal to the process at the step after that many others; 0 for none. */
void simulated_ends(uint64_t steps, int number)
{
	ends_by = number;
	ends_in = steps;
}

__attribute__((constructor)) static void start(void)
{
	const char *seed = getenv("SIM_SEED");

	self = FIRST;
	draw_steps(seed ? strtoull(seed, NULL, 0) : 1);
}
