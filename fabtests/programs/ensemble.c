/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Collective operations (fi_collective(3)) of groups whose members are in
 * several processes, some of which are slow or are killed: each result is
 * right, or every member that is left gets an error.
 *
 * CT_SEED=<number> selects other groups and operations.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/fi_collective.h>

#include "check.h"
#include "child.h"
#include "collective.h"
#include "peer.h"
#include "random.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

/* HOPE: how many times the usual time all processes together get for what they
 * wait for. */
enum { MOST = 64, MOST_PROCESSES = 6, AT_ONCE = 3, LONGEST = 4000, NONE = -1, HOPE = 8 };

/* What all processes draw from the same seed. */
static struct {
	uint64_t seed;
	int processes, members;
	int operations;
	int victim;			/* the process that is killed, or NONE */
	int last;			/* the operation at which it is */
} plan;
static int own_process;

/* Members are distributed over the processes in turn. */
static int process_of(int member)
{
	return member % plan.processes;
}

struct member {
	struct ct_peer peer;
	int rank;
	fi_addr_t world[MOST];		/* how it calls each rank */
	struct fid_av_set *set;
	struct fid_mc *mc;
	bool joined, broken;
};

static struct member members[MOST];
static int own_members;

static const struct ct_spec spec = {
	.caps = FI_TAGGED | FI_COLLECTIVE, .eq = true, .one_cq = true,
};

struct operation {
	struct ct_collective what;
	void *input[MOST], *output[MOST];
	bool posted[MOST], done[MOST];
};

static struct operation window[AT_ONCE];

static void draw_plan(bool kills)
{
	static int runs;
	const char *seed = getenv("CT_SEED");
	struct ct_random chance;

	plan.seed = seed ? strtoull(seed, NULL, 0) : (uint64_t)(ct_now() * 1e6);
	plan.seed += (uint64_t)runs++;
	fprintf(stderr, "CT_SEED=%llu\n", (unsigned long long)plan.seed);
	chance.state = plan.seed;
	plan.processes = 2 + (int)ct_below(&chance, MOST_PROCESSES - 1);
	plan.members = plan.processes +
		(int)ct_below(&chance, (uint64_t)(MOST - plan.processes + 1));
	plan.operations = ct_times(24);
	plan.victim = kills ? (int)ct_below(&chance, (uint64_t)plan.processes) : NONE;
	plan.last = (int)ct_below(&chance, (uint64_t)plan.operations);
}

static void drive_all(void)
{
	for (int i = 0; i < own_members; i++)
		ct_progress_busily(&members[i].peer);
	sched_yield();
}

/* A member that does not look at its queues for a while. */
static void dawdle(struct ct_random *chance)
{
	if (ct_once_in(chance, 20))
		usleep((useconds_t)ct_below(chance, 20000));
}

static void open_members(int fd)
{
	static struct ct_card cards[MOST];
	struct ct_card own;

	for (int rank = own_process; rank < plan.members; rank += plan.processes) {
		struct member *member = &members[own_members++];

		member->rank = rank;
		ct_open_domain(&member->peer, &spec, ct_getinfo(&spec), NULL, NULL);
		ct_open_ep(&member->peer, member->peer.info);
		memset(&own, 0, sizeof(own));
		ct_name(&member->peer.ep->fid, own.name, sizeof(own.name));
		ct_tell(fd, &own, sizeof(own));
	}
	ct_hear(fd, cards, sizeof(cards[0]) * (size_t)plan.members);
	for (int i = 0; i < own_members; i++) {
		struct member *member = &members[i];
		struct fi_av_set_attr attr = {
			.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL,
		};

		OK(fi_av_set(member->peer.av, &attr, &member->set, NULL));
		for (int rank = 0; rank < plan.members; rank++) {
			member->world[rank] = ct_insert(&member->peer, cards[rank].name);
			OK(fi_av_set_insert(member->set, member->world[rank]));
		}
	}
}

static void join(void)
{
	double until = ct_now() + HOPE * ct_patience();
	int left = own_members;

	for (int i = 0; i < own_members; i++)
		OK(fi_join_collective(members[i].peer.ep, FI_ADDR_NOTAVAIL, members[i].set,
				      0, &members[i].mc, &members[i]));
	while (left) {
		REQUIRE(ct_now() < until);
		drive_all();
		for (int i = 0; i < own_members; i++) {
			struct member *member = &members[i];
			struct fi_eq_err_entry failure = { 0 };
			struct fi_eq_entry entry;
			uint32_t event;
			ssize_t ret;

			if (member->joined)
				continue;
			ret = fi_eq_read(member->peer.eq.fid, &event, &entry, sizeof(entry), 0);
			if (ret == -FI_EAVAIL) {
				/* The victim has joined, and is gone already. */
				REQUIRE(plan.victim != NONE);
				ret = fi_eq_readerr(member->peer.eq.fid, &failure, 0);
				REQUIRE(ret == sizeof(failure) && failure.err > 0 &&
					failure.fid == &member->mc->fid);
				member->broken = true;
			} else if (ret != sizeof(entry)) {
				continue;
			} else {
				REQUIRE(event == FI_JOIN_COMPLETE &&
					entry.fid == &member->mc->fid);
			}
			member->joined = true;
			left--;
		}
	}
}

static void post(struct operation *it, int i)
{
	struct member *member = &members[i];
	ssize_t ret;

	ct_collective_prepare(&it->what, member->rank, plan.members, &it->input[i],
			      &it->output[i]);
	it->posted[i] = true;
	ret = ct_collective_post(&it->what, member->rank, plan.members, member->peer.ep,
				 fi_mc_addr(member->mc), member->world[it->what.root],
				 it->input[i], it->output[i], &it->done[i]);
	if (!ret)
		return;
	/* The group is broken already. */
	REQUIRE(plan.victim != NONE && ret != -FI_EAGAIN);
	member->broken = true;
}

static void reap(void)
{
	drive_all();
	for (int i = 0; i < own_members; i++) {
		struct member *member = &members[i];

		while (member->peer.tx.count) {
			struct ct_completion end = ct_next(&member->peer, &member->peer.tx);

			if (end.err) {
				REQUIRE(plan.victim != NONE);
				member->broken = true;
			} else {
				bool *done = end.context;

				REQUIRE(!*done);
				*done = true;
			}
		}
	}
}

static bool is_settled(const struct operation *it, int i)
{
	return it->done[i] || members[i].broken;
}

static bool are_all_broken(void)
{
	for (int i = 0; i < own_members; i++)
		if (!members[i].broken)
			return false;
	return true;
}

/* Some operations at the same time, begun by the members in any order. */
static void run_window(int first, int count, struct ct_random *shared,
		       struct ct_random *own, int fd)
{
	int posted[MOST] = { 0 }, left = count * own_members;
	double until = ct_now() + HOPE * ct_patience();

	memset(window, 0, sizeof(window));
	for (int i = 0; i < count; i++)
		window[i].what = ct_draw_collective(shared, members[0].peer.domain,
						    first + i, plan.members, LONGEST);
	while (left) {
		int i = (int)ct_below(own, (uint64_t)own_members);

		if (posted[i] < count) {
			/* Killed between operations of its members. */
			if (own_process == plan.victim && first + posted[i] >= plan.last &&
			    ct_once_in(own, 2)) {
				ct_tell(fd, "k", 1);
				pause();
			}
			if (!members[i].broken)
				post(&window[posted[i]], i);
			posted[i]++;
			left--;
		}
		dawdle(own);
		if (ct_once_in(own, 2))
			reap();
	}
	for (int at = 0; at < count; at++)
		for (int i = 0; i < own_members; i++) {
			struct operation *it = &window[at];

			while (!is_settled(it, i)) {
				if (ct_now() > until)
					ct_fail(__FILE__, __LINE__, "kind %d of %d members "
						"in %d processes hangs", it->what.kind,
						plan.members, plan.processes);
				reap();
			}
			if (it->done[i])
				ct_collective_verify(&it->what, members[i].rank,
						     plan.members, it->output[i]);
		}
	for (int at = 0; at < count; at++)
		for (int i = 0; i < own_members; i++)
			if (window[at].posted[i]) {
				free(window[at].input[i]);
				free(window[at].output[i]);
			}
}

static void run_process(int fd)
{
	struct ct_random shared = { plan.seed ^ 1 };
	struct ct_random own = { plan.seed + 77 * (uint64_t)(own_process + 1) };
	/* Who is slow is waited for. */
	const char *patience = plan.victim == NONE ? "600000" : "15000";
	char word;

	REQUIRE(!setenv("FI_TCP_CONNECT_TIMEOUT", patience, 1));
	REQUIRE(!setenv("FI_SHM_CONNECT_TIMEOUT", patience, 1));
	REQUIRE(!setenv("FI_OFI_RXM_CONNECT_TIMEOUT", patience, 1));
	open_members(fd);
	join();
	/* Without the victim, the operations go on until all members have an error. */
	for (int first = 0; plan.victim == NONE ? first < plan.operations : !are_all_broken();
	     first += AT_ONCE)
		run_window(first, AT_ONCE, &shared, &own, fd);
	if (own_process == plan.victim) {
		/* The processes were so slow that members have given others up before. */
		ct_tell(fd, "k", 1);
		pause();
	}
	if (plan.victim == NONE) {
		/* Nobody leaves before the last has what it needs of the others. */
		ct_tell(fd, "d", 1);
		ct_hear(fd, &word, 1);
	}
	for (int i = 0; i < own_members; i++) {
		OK(fi_close(&members[i].mc->fid));
		OK(fi_close(&members[i].set->fid));
		ct_close_peer(&members[i].peer);
	}
	ct_tell(fd, "e", 1);
}

static void run(bool kills)
{
	static struct ct_card cards[MOST];
	struct ct_child children[MOST_PROCESSES];
	char word;

	draw_plan(kills);
	for (own_process = 0; own_process < plan.processes; own_process++)
		children[own_process] = ct_spawn(run_process);
	for (int i = 0; i < plan.processes; i++)
		ct_begin(&children[i]);
	for (int rank = 0; rank < plan.members; rank++)
		ct_hear(children[process_of(rank)].fd, &cards[rank], sizeof(cards[0]));
	for (int i = 0; i < plan.processes; i++)
		ct_tell(children[i].fd, cards, sizeof(cards[0]) * (size_t)plan.members);
	if (kills) {
		ct_hear(children[plan.victim].fd, &word, 1);
		REQUIRE(word == 'k');
		ct_kill(&children[plan.victim]);
	} else {
		for (int i = 0; i < plan.processes; i++)
			ct_hear(children[i].fd, &word, 1);
		for (int i = 0; i < plan.processes; i++)
			ct_tell(children[i].fd, "c", 1);
	}
	for (int i = 0; i < plan.processes; i++)
		if (i != plan.victim) {
			ct_hear(children[i].fd, &word, 1);
			CHECK(word == 'e', "process %d of %d, %d members", i, plan.processes,
			      plan.members);
			ct_join(&children[i]);
		}
}

static void slow(void)
{
	run(false);
}

static void killed(void)
{
	run(true);
}

static const struct ct_test tests[] = {
	{ "slow", slow, CT_RDM | CT_SLOW },
	{ "killed", killed, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
