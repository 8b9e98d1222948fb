/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* See turns.h: fabtests/simulated/steps.c has the functions, and lets one thread run at a time. */
#include <dlfcn.h>

#include "check.h"
#include "turns.h"

static void (*yield)(void);
static bool takes_turns, rests, works;
static void (*job)(void);

static void work_if_wanted(void)
{
	works = !rests;
	if (works)
		job();
	works = false;
}

void begin_turns(void (*work)(void))
{
	bool (*weave)(void (*)(void)) = (bool (*)(void (*)(void)))dlsym(RTLD_DEFAULT, "simulated_weave");

	yield = (void (*)(void))dlsym(RTLD_DEFAULT, "simulated_yield");
	job = work;
	takes_turns = weave && yield && weave(work_if_wanted);
}

void end_turns(void)
{
	void (*unweave)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "simulated_unweave");

	if (takes_turns)
		unweave();
	takes_turns = false;
}

void enter(struct member *member)
{
	while (member->is_busy) {
		REQUIRE(takes_turns);
		yield();
	}
	member->is_busy = true;
}

void leave(struct member *member)
{
	member->is_busy = false;
}

void others_rest(void)
{
	rests = true;
	while (works)
		yield();
}

void others_go_on(void)
{
	rests = false;
}
