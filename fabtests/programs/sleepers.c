/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Processes that exchange all kinds of operations while they sleep in every
 * possible way: their peers have to wake them. A host stays while its guests
 * leave, or die, and return; it sleeps meanwhile, too.
 *
 * CT_RUNS=<number> repeats it that often, CT_SEED=<number> runs it once, with
 * the sequence of events of this number, CT_SEASONS=<number> with this many
 * seasons of guests.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "sleepers/member.h"
#include "sleepers/watch.h"

static struct {
	struct script *script;	/* shared, for the sake of the offer */
	int self;
	struct ct_child children[MOST];	/* pid 0: not there now */
	struct ct_random stops;
	bool has_stops;
} party;

static void run_member(int fd)
{
	if (party.self)
		guest_run(party.script, fd, party.self);
	else
		host_run(party.script, fd);
}

static void run_offer(int fd)
{
	(void)fd;
	offer_find(&party.script->offer);
}

static void hear_from(int member)
{
	watch_until_heard(party.children, party.script->members, member,
			  party.has_stops ? &party.stops : NULL);
}

static void begin(int member)
{
	party.self = member;
	party.children[member] = ct_spawn(run_member);
	ct_begin(&party.children[member]);
}

/* Until a member that ends has ended, well. */
static void end(int member)
{
	hear_from(member);
	ct_join(&party.children[member]);
	party.children[member].pid = 0;
}

static void run_season(int season, struct ct_card *host)
{
	struct call call = { .season = season };
	int count = party.script->members;

	party.has_stops = season % 4 == 3;
	if (!season)
		begin(0);
	if (script_host_is_new(season)) {
		if (season)
			ct_tell(party.children[0].fd, "l", 1);
		hear_from(0);
		ct_hear(party.children[0].fd, host, sizeof(*host));
	}
	call.host = *host;
	for (int i = 1; i < count; i++) {
		if (!party.children[i].pid)
			begin(i);
		ct_tell(party.children[i].fd, &call, sizeof(call));
	}
	for (int i = 1; i < count; i++) {
		char word;

		hear_from(i);
		ct_hear(party.children[i].fd, &word, 1);
		if (script_leaving(party.script, season, i) != CLOSES_AND_STAYS)
			end(i);
	}
}

static void run_one(int members, uint64_t seed)
{
	const char *seasons = getenv("CT_SEASONS");
	struct ct_card host;

	party.script->members = members;
	party.script->seed = seed;
	party.script->seasons = seasons ? atoi(seasons) : ct_times(12);
	party.stops.state = seed;
	for (int i = 0; i < party.script->seasons; i++)
		run_season(i, &host);
	ct_tell(party.children[0].fd, "l", 1);
	end(0);
}

static void find_offer(void)
{
	struct ct_child child = ct_spawn(run_offer);

	ct_begin(&child);
	ct_join(&child);
	if (!party.script->offer.is_something)
		SKIP("no tagged messages, or nothing to sleep at");
}

static void run(int members)
{
	const char *seed = getenv("CT_SEED"), *runs = getenv("CT_RUNS");
	int count = runs ? atoi(runs) : 1;

	party.script = mmap(NULL, sizeof(*party.script), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(party.script != MAP_FAILED);
	watch_open();
	find_offer();
	if (seed) {
		run_one(members, strtoull(seed, NULL, 0));
		return;
	}
	for (int i = 1; i <= count; i++) {
		run_one(members, (uint64_t)i);
		if (runs)
			CHECK(true, "run-%d", i);
	}
}

static void two(void) { run(2); }
static void four(void) { run(MOST); }

static const struct ct_test tests[] = {
	{ "two", two, CT_BOTH | CT_SLOW },
	{ "four", four, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
