/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Collective operations (fi_collective(3)): random groups of the endpoints of
 * one process, random operations on them, several at a time, compared with
 * their definitions; sets of addresses (fi_av_set(3)); and a member that is
 * killed.
 *
 * CT_SEED=<number> selects other groups and operations.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_trigger.h>

#include "check.h"
#include "child.h"
#include "collective.h"
#include "peer.h"
#include "random.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

enum { MOST = 64, AT_ONCE = 3, LONGEST = 20000, OPERATIONS = 30 };

static struct ct_spec spec = {
	.caps = FI_TAGGED | FI_COLLECTIVE, .eq = true, .one_cq = true,
};

struct member {
	struct ct_peer peer;
	fi_addr_t world[MOST];		/* how it calls the others, and itself */
};

static struct member members[MOST];
static struct ct_random chance;

static uint64_t below(uint64_t limit)
{
	return ct_below(&chance, limit);
}

/* ---- groups ---------------------------------------------------------- */

struct group {
	int count;
	int of[MOST];			/* the member of each rank */
	struct fid_av_set *set[MOST];
	struct fid_mc *mc[MOST];
};

static struct fid_av_set *empty_set(struct ct_peer *peer)
{
	struct fi_av_set_attr attr = {
		.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL,
	};
	struct fid_av_set *set;

	OK(fi_av_set(peer->av, &attr, &set, NULL));
	return set;
}

static void drive_all(int count)
{
	for (int i = 0; i < count; i++)
		ct_progress_busily(&members[i].peer);
	sched_yield();
}

static void open_members(int count)
{
	char names[MOST][256];

	for (int i = 0; i < count; i++) {
		struct ct_peer *peer = &members[i].peer;

		ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
		ct_open_ep(peer, peer->info);
		memset(names[i], 0, sizeof(names[i]));
		ct_name(&peer->ep->fid, names[i], sizeof(names[i]));
	}
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++)
			members[i].world[j] = ct_insert(&members[i].peer,
							names[j]);
}

static void close_members(int count)
{
	for (int i = 0; i < count; i++)
		ct_close_peer(&members[i].peer);
}

/* Some of the members, in any order. */
static void draw_group(struct group *group, int count)
{
	int all[MOST];

	for (int i = 0; i < count; i++)
		all[i] = i;
	group->count = 1 + (int)below((uint64_t)count);
	for (int i = 0; i < group->count; i++) {
		int at = i + (int)below((uint64_t)(count - i));

		group->of[i] = all[at];
		all[at] = all[i];
	}
}

static void join_group(struct group *group, int count)
{
	for (int rank = 0; rank < group->count; rank++) {
		struct member *member = &members[group->of[rank]];
		fi_addr_t addr;

		group->set[rank] = empty_set(&member->peer);
		for (int i = 0; i < group->count; i++)
			OK(fi_av_set_insert(group->set[rank],
					    member->world[group->of[i]]));
		OK(fi_av_set_addr(group->set[rank], &addr));
		OK(fi_join_collective(member->peer.ep, addr, group->set[rank],
				      0, &group->mc[rank], member));
	}
	for (int rank = 0; rank < group->count; rank++) {
		struct member *member = &members[group->of[rank]];
		double until = ct_now() + ct_patience();
		struct fi_eq_entry entry;
		uint32_t event;

		while (fi_eq_read(member->peer.eq.fid, &event, &entry,
				  sizeof(entry), 0) != sizeof(entry)) {
			REQUIRE(ct_now() < until);
			drive_all(count);
		}
		REQUIRE(event == FI_JOIN_COMPLETE);
		REQUIRE(entry.fid == &group->mc[rank]->fid);
		REQUIRE(entry.context == member);
	}
}

static void leave_group(struct group *group)
{
	for (int rank = 0; rank < group->count; rank++) {
		OK(fi_close(&group->mc[rank]->fid));
		OK(fi_close(&group->set[rank]->fid));
	}
}

/* ---- operations -------------------------------------------------------- */

struct operation {
	struct ct_collective what;
	void *input[MOST], *output[MOST];
	bool done[MOST];
};

static ssize_t post(struct operation *it, const struct group *group, int rank)
{
	struct member *member = &members[group->of[rank]];
	fi_addr_t root = member->world[group->of[it->what.root]];

	return ct_collective_post(&it->what, rank, group->count, member->peer.ep,
				  fi_mc_addr(group->mc[rank]), root,
				  it->input[rank], it->output[rank],
				  &it->done[rank]);
}

static void reap(int count)
{
	drive_all(count);
	for (int i = 0; i < count; i++) {
		struct ct_peer *peer = &members[i].peer;

		while (peer->tx.count) {
			struct ct_completion end = ct_next(peer, &peer->tx);
			bool *done = end.context;

			if (end.err)
				ct_fail(__FILE__, __LINE__, "an operation ended with %s",
					fi_strerror(end.err));
			REQUIRE(end.flags & FI_COLLECTIVE);
			REQUIRE(!*done);
			*done = true;
		}
	}
}

static void verify(struct operation *it, const struct group *group)
{
	for (int rank = 0; rank < group->count; rank++) {
		ct_collective_verify(&it->what, rank, group->count, it->output[rank]);
		free(it->input[rank]);
		free(it->output[rank]);
	}
}

/* Operations of one group that are in progress at the same time, started by
 * the members in any order. */
static void run_operations(struct group *group, int first, int how_many,
			   int count)
{
	static struct operation all[AT_ONCE];
	int posted[MOST] = { 0 }, left = how_many * group->count;

	for (int i = 0; i < how_many; i++) {
		memset(&all[i], 0, sizeof(all[i]));
		all[i].what = ct_draw_collective(&chance, members[0].peer.domain,
						 first + i, group->count, LONGEST);
		for (int rank = 0; rank < group->count; rank++)
			ct_collective_prepare(&all[i].what, rank, group->count,
					      &all[i].input[rank],
					      &all[i].output[rank]);
	}
	while (left) {
		int rank = (int)below((uint64_t)group->count);

		if (posted[rank] < how_many) {
			OK(post(&all[posted[rank]], group, rank));
			posted[rank]++;
			left--;
		}
		if (ct_once_in(&chance, 2))
			reap(count);
	}
	for (int i = 0; i < how_many; i++) {
		double until = ct_now() + ct_patience();

		for (int rank = 0; rank < group->count; rank++)
			while (!all[i].done[rank]) {
				if (ct_now() > until)
					ct_fail(__FILE__, __LINE__,
						"kind %d of %d members hangs",
						all[i].what.kind, group->count);
				reap(count);
			}
		verify(&all[i], group);
	}
}

static void run_groups(int count, int groups, int operations)
{
	const char *seed = getenv("CT_SEED");
	static struct group one, other;

	chance.state = seed ? strtoull(seed, NULL, 0) : (uint64_t)count;
	fprintf(stderr, "CT_SEED=%llu\n", (unsigned long long)chance.state);
	open_members(count);
	for (int i = 0; i < groups; i++) {
		draw_group(&one, count);
		draw_group(&other, count);
		join_group(&one, count);
		join_group(&other, count);
		for (int j = 0; j < ct_times(operations); j += AT_ONCE) {
			run_operations(&one, j, AT_ONCE, count);
			run_operations(&other, j, 1, count);
		}
		leave_group(&one);
		leave_group(&other);
	}
	close_members(count);
}

static void pairs(void)
{
	run_groups(2, 3, OPERATIONS);
}

/* The user's choice of providers and addresses is not about the provider that
 * has the operations. */
static void chosen(void)
{
	bool is_shm = ct_opt.provider && !strcmp(ct_opt.provider, "shm");

	if (ct_opt.provider)
		REQUIRE(!setenv("FI_PROVIDER", ct_opt.provider, 1));
	REQUIRE(!setenv("FI_ADDR_FORMAT",
			is_shm ? "FI_ADDR_STR" : "FI_SOCKADDR_IN", 1));
	run_groups(2, 1, OPERATIONS);
}

static void some(void)
{
	run_groups(7, 6, OPERATIONS);
}

static void many(void)
{
	run_groups(24, 2, OPERATIONS);
}

static void most(void)
{
	run_groups(MOST, 1, 9);
}

/* ---- other calls ------------------------------------------------------ */

static void sets(void)
{
	struct fi_av_set_attr attr = { .start_addr = 1, .end_addr = 6, .stride = 2 };
	struct fid_av_set *odd, *set;
	fi_addr_t one, other;
	struct group group = { .count = 3, .of = { 1, 3, 5 } };

	open_members(6);
	struct ct_peer *peer = &members[1].peer;
	const fi_addr_t *world = members[1].world;

	OK(fi_av_set(peer->av, &attr, &odd, NULL));	/* 1, 3, 5 */
	set = empty_set(peer);
	OK(fi_av_set_addr(odd, &one));
	OK(fi_av_set_addr(set, &other));
	CHECK(one != other, "sets have addresses of their own");
	OK(fi_av_set_insert(set, world[0]));
	OK(fi_av_set_insert(set, world[3]));
	EXPECT(fi_av_set_insert(set, world[3]), -FI_EINVAL);
	EXPECT(fi_av_set_insert(set, 77), -FI_EINVAL);
	EXPECT(fi_av_set_remove(set, world[4]), -FI_EINVAL);
	OK(fi_av_set_union(set, odd));			/* 0, 3, 1, 5 */
	OK(fi_av_set_remove(set, world[0]));
	OK(fi_av_set_diff(odd, set));			/* none */
	EXPECT(fi_av_set_remove(odd, world[1]), -FI_EINVAL);
	OK(fi_av_set_intersect(set, odd));
	EXPECT(fi_av_set_remove(set, world[3]), -FI_EINVAL);
	OK(fi_close(&odd->fid));
	OK(fi_close(&set->fid));

	/* An endpoint that is not in the set does not join. */
	struct fid_mc *mc;

	set = empty_set(peer);
	OK(fi_av_set_insert(set, world[0]));
	EXPECT(fi_join_collective(peer->ep, FI_ADDR_NOTAVAIL, set, 0, &mc, NULL),
	       -FI_EINVAL);
	OK(fi_close(&set->fid));

	/* A range makes the same group as its members one by one. */
	for (int rank = 0; rank < 3; rank++) {
		struct member *member = &members[group.of[rank]];

		if (rank == 1) {
			OK(fi_av_set(member->peer.av, &attr, &group.set[rank],
				     NULL));
		} else {
			group.set[rank] = empty_set(&member->peer);
			for (int i = 1; i < 6; i += 2)
				OK(fi_av_set_insert(group.set[rank],
						    member->world[i]));
		}
		OK(fi_join_collective(member->peer.ep, FI_ADDR_NOTAVAIL,
				      group.set[rank], 0, &group.mc[rank],
				      member));
	}
	for (int rank = 0; rank < 3; rank++) {
		struct fi_eq_entry entry;
		uint32_t event;
		double until = ct_now() + ct_patience();

		while (fi_eq_read(members[group.of[rank]].peer.eq.fid, &event,
				  &entry, sizeof(entry), 0) != sizeof(entry)) {
			REQUIRE(ct_now() < until);
			drive_all(6);
		}
	}
	leave_group(&group);
	close_members(6);
}

static void queries(void)
{
	struct fi_collective_attr attr = {
		.op = FI_SUM, .datatype = FI_DOUBLE,
	};
	struct ct_peer *peer = &members[0].peer;

	open_members(1);
	OK(fi_query_collective(peer->domain, FI_ALLREDUCE, &attr, 0));
	CHECK(attr.datatype_attr.size == sizeof(double), "size");
	CHECK(attr.datatype_attr.count >= 1 << 20, "count");
	CHECK(attr.max_members >= 1024, "members");
	attr.op = FI_BOR;
	CHECK(fi_query_collective(peer->domain, FI_ALLREDUCE, &attr, 0) < 0,
	      "no bits of real numbers");
	/* For operations that only move data, a query may leave out the
	 * operation. */
	attr.op = FI_MIN;
	attr.datatype = FI_VOID;
	OK(fi_query_collective(peer->domain, FI_ALLGATHER, &attr, 0));
	CHECK(attr.max_members >= 1024, "members, of any type");
	CHECK(peer->info->ep_attr->mem_tag_format >> 63 == 0,
	      "a bit of tags is reserved");
	/* No group. */
	EXPECT(fi_barrier(peer->ep, 12345, NULL), -FI_EINVAL);
	close_members(1);
}

/* A receive of any tag takes no message of an operation. */
static void wildcards(void)
{
	struct group group = { .count = 2, .of = { 0, 1 } };
	uint64_t in[2] = { 3, 4 }, out[2] = { 0 }, word = 5;
	struct fi_context2 context;
	bool done[2] = { false };
	struct ct_peer *receiver = &members[1].peer;

	open_members(2);
	OK(fi_trecv(receiver->ep, &word, sizeof(word), NULL, FI_ADDR_UNSPEC, 0,
		    ~0ULL, &context));
	join_group(&group, 2);
	for (int rank = 0; rank < 2; rank++)
		OK(fi_allreduce(members[rank].peer.ep, &in[rank], 1, NULL,
				&out[rank], NULL, fi_mc_addr(group.mc[rank]),
				FI_UINT64, FI_SUM, 0, &done[rank]));
	for (int rank = 0; rank < 2; rank++) {
		struct ct_peer *peer = &members[rank].peer;

		peer->partner = &members[1 - rank].peer;
		ct_done(peer, &peer->tx, &done[rank]);
		CHECK(out[rank] == 7, "sum");
	}
	word = 6;
	members[0].peer.to = members[0].world[1];
	OK(fi_tinject(members[0].peer.ep, &word, sizeof(word),
		      members[0].world[1], 9));
	CHECK(ct_done(receiver, &receiver->rx, &context).tag == 9, "its message");
	for (int rank = 0; rank < 2; rank++)
		members[rank].peer.partner = NULL;
	leave_group(&group);
	close_members(2);
}

/* Members that execute different operations get errors. */
static void mismatch(void)
{
	struct group group = { .count = 2, .of = { 0, 1 } };
	uint64_t in[2][2] = { { 1, 2 }, { 3, 4 } }, out[2][4] = { { 0 } };

	open_members(2);
	join_group(&group, 2);
	for (int rank = 0; rank < 2; rank++) {
		members[rank].peer.partner = &members[1 - rank].peer;
		OK(fi_allgather(members[rank].peer.ep, in[rank],
				(size_t)rank + 1, NULL, out[rank], NULL,
				fi_mc_addr(group.mc[rank]), FI_UINT64, 0,
				&in[rank]));
	}
	for (int rank = 0; rank < 2; rank++) {
		struct ct_peer *peer = &members[rank].peer;

		CHECK(ct_error(peer, &peer->tx).context == &in[rank],
		      "rank %d", rank);
	}
	for (int rank = 0; rank < 2; rank++)
		members[rank].peer.partner = NULL;
	leave_group(&group);
	close_members(2);
}

/* Each call is reported, also to a queue of selected completions, and counted. */
static void selected(void)
{
	struct ct_spec selective = spec;
	uint64_t in = 4, out = 0;
	struct fid_mc *mc;
	struct fid_av_set *set;
	struct ct_peer *peer = &members[0].peer;
	unsigned char name[CT_NAME];

	selective.selective_tx = true;
	selective.counters = FI_WRITE;
	ct_open_domain(peer, &selective, ct_getinfo(&selective), NULL, NULL);
	ct_open_ep(peer, peer->info);
	ct_name(&peer->ep->fid, name, sizeof(name));
	set = empty_set(peer);
	OK(fi_av_set_insert(set, ct_insert(peer, name)));
	OK(fi_join_collective(peer->ep, FI_ADDR_NOTAVAIL, set, 0, &mc, NULL));
	ct_event_of(peer, FI_JOIN_COMPLETE);
	uint64_t before = fi_cntr_read(peer->cntr[CT_CNTR_WRITE]);

	OK(fi_barrier(peer->ep, fi_mc_addr(mc), &in));
	CHECK(ct_done(peer, &peer->tx, &in).flags & FI_COLLECTIVE, "barrier");
	OK(fi_allreduce(peer->ep, &in, 1, NULL, &out, NULL, fi_mc_addr(mc),
			FI_UINT64, FI_SUM, FI_COMPLETION, &out));
	CHECK(ct_done(peer, &peer->tx, &out).flags & FI_COLLECTIVE, "flags");
	CHECK(out == 4, "alone, the input is the result");
	ct_count(peer, CT_CNTR_WRITE, before + 2);
	/* The endpoint may go before its groups. */
	OK(fi_close(&peer->ep->fid));
	OK(fi_close(&mc->fid));
	OK(fi_close(&set->fid));
	peer->ep = NULL;
	ct_close_peer(peer);
}

/* ---- threads that sleep ------------------------------------------------ */

enum { THREADS = 4 };

static struct group team;

static void *sleeper(void *arg)
{
	int rank = (int)(intptr_t)arg;
	struct ct_peer *peer = &members[rank].peer;

	for (uint64_t i = 0; i < 40; i++) {
		uint64_t in = i + (uint64_t)rank, out = 0;
		struct fi_cq_tagged_entry entry;
		ssize_t ret;

		/* So that it waits for others now and then. */
		if (i % 8 == (uint64_t)rank)
			usleep(2000);
		OK(fi_allreduce(peer->ep, &in, 1, NULL, &out, NULL,
				fi_mc_addr(team.mc[rank]), FI_UINT64, FI_SUM, 0,
				&out));
		while ((ret = fi_cq_sread(peer->tx.fid, &entry, 1, NULL,
					  (int)(ct_patience() * 1000))) ==
		       -FI_EAGAIN)
			;
		REQUIRE(ret == 1);
		REQUIRE(entry.op_context == &out);
		REQUIRE(out == THREADS * i + THREADS * (THREADS - 1) / 2);
	}
	return NULL;
}

static void sleepers(void)
{
	struct ct_spec waiting = spec;
	pthread_t threads[THREADS];
	char names[THREADS][256];

	waiting.wait = FI_WAIT_UNSPEC;
	team.count = THREADS;
	for (int i = 0; i < THREADS; i++) {
		struct ct_peer *peer = &members[i].peer;

		ct_open_domain(peer, &waiting, ct_getinfo(&waiting), NULL, NULL);
		ct_open_ep(peer, peer->info);
		memset(names[i], 0, sizeof(names[i]));
		ct_name(&peer->ep->fid, names[i], sizeof(names[i]));
		team.of[i] = i;
	}
	for (int i = 0; i < THREADS; i++)
		for (int j = 0; j < THREADS; j++)
			members[i].world[j] = ct_insert(&members[i].peer,
							names[j]);
	join_group(&team, THREADS);
	for (int i = 0; i < THREADS; i++)
		REQUIRE(!pthread_create(&threads[i], NULL, sleeper,
					(void *)(intptr_t)i));
	for (int i = 0; i < THREADS; i++)
		REQUIRE(!pthread_join(threads[i], NULL));
	leave_group(&team);
	close_members(THREADS);
}

/* ---- a member that is killed ------------------------------------------- */

enum { CROWD = 5, VICTIM = 2 };

static int own_rank;

static void run_member(int fd)
{
	static struct member self;
	struct ct_peer *peer = &self.peer;
	struct ct_card cards[CROWD], own = { 0 };
	struct fid_av_set *set = NULL;
	struct fid_mc *mc;
	uint64_t in = 1, out;
	int rounds = 0;

	REQUIRE(!setenv("FI_TCP_CONNECT_TIMEOUT", "5000", 1));
	REQUIRE(!setenv("FI_SHM_CONNECT_TIMEOUT", "5000", 1));
	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep(peer, peer->info);
	ct_name(&peer->ep->fid, own.name, sizeof(own.name));
	ct_tell(fd, &own, sizeof(own));
	ct_hear(fd, cards, sizeof(cards));
	set = empty_set(peer);
	for (int i = 0; i < CROWD; i++)
		OK(fi_av_set_insert(set, ct_insert(peer, cards[i].name)));
	OK(fi_join_collective(peer->ep, FI_ADDR_NOTAVAIL, set, 0, &mc, NULL));
	struct ct_event event = ct_event_of(peer, FI_JOIN_COMPLETE);

	REQUIRE(event.fid == &mc->fid);
	for (;;) {
		struct ct_completion end;
		ssize_t ret = fi_allreduce(peer->ep, &in, 1, NULL, &out, NULL,
					   fi_mc_addr(mc), FI_UINT64, FI_SUM, 0,
					   &out);

		if (ret) {
			/* The group is broken already. */
			REQUIRE(ret != -FI_EAGAIN);
			break;
		}
		end = ct_next(peer, &peer->tx);
		if (end.err)
			break;
		REQUIRE(out == CROWD);
		if (++rounds == 3)
			ct_tell(fd, "r", 1);
		/* One waits, to be killed while the others continue. */
		if (own_rank == VICTIM && rounds == 5)
			pause();
	}
	/* And stays so. */
	REQUIRE(fi_barrier(peer->ep, fi_mc_addr(mc), NULL) < 0);
	OK(fi_close(&mc->fid));
	OK(fi_close(&set->fid));
	ct_close_peer(peer);
	ct_tell(fd, "d", 1);
}

static void death(void)
{
	struct ct_child children[CROWD];
	struct ct_card cards[CROWD];
	char word;

	for (own_rank = 0; own_rank < CROWD; own_rank++)
		children[own_rank] = ct_spawn(run_member);
	for (int i = 0; i < CROWD; i++) {
		ct_begin(&children[i]);
		ct_hear(children[i].fd, &cards[i], sizeof(cards[i]));
	}
	for (int i = 0; i < CROWD; i++)
		ct_tell(children[i].fd, cards, sizeof(cards));
	for (int i = 0; i < CROWD; i++)
		ct_hear(children[i].fd, &word, 1);
	ct_kill(&children[VICTIM]);
	for (int i = 0; i < CROWD; i++)
		if (i != VICTIM) {
			ct_hear(children[i].fd, &word, 1);
			ct_join(&children[i]);
		}
}

/* Long messages to members that do not take them any more, since their group is
 * broken: the operation that has sent them ends with an error all the same. */
static void abandoned(void)
{
	enum { COUNT = 3, LEAVES = 2 };
	static unsigned char in[COUNT][1 << 20], out[COUNT][1 << 20];
	struct group group = { .count = COUNT, .of = { 0, 1, 2 } };
	struct ct_peer *first = &members[0].peer, *second = &members[1].peer;
	double until = ct_now() + ct_patience();
	struct ct_completion end;

	open_members(COUNT);
	join_group(&group, COUNT);
	OK(fi_close(&group.mc[LEAVES]->fid));
	OK(fi_close(&group.set[LEAVES]->fid));
	ct_close_peer(&members[LEAVES].peer);
	/* Before it knows, and again when it does. */
	for (int i = 0; i < 2; i++) {
		ssize_t ret = fi_alltoall(first->ep, in, sizeof(in[0]), NULL, out, NULL,
					  fi_mc_addr(group.mc[0]), FI_UINT8, 0, in);

		if (i) {
			REQUIRE(ret < 0 && ret != -FI_EAGAIN);
			continue;
		}
		OK(ret);
		while (!first->tx.count) {
			REQUIRE(ct_now() < until);
			drive_all(LEAVES);
		}
		end = ct_error(first, &first->tx);
		CHECK(end.context == in, "the sender's operation");
	}
	CT_UNTIL(fi_barrier(second->ep, fi_mc_addr(group.mc[1]), NULL) < 0, drive_all(LEAVES));
	group.count = LEAVES;
	leave_group(&group);
	close_members(LEAVES);
}

/* A member that has noticed a failure ends before it could tell another one,
 * which waits for members that are told and do nothing any more. */
static void hearsay(void)
{
	enum { COUNT = 6, DETECTS = 0, WAITS = 3, LEAVES = 4 };
	static unsigned char in[COUNT][1 << 12], out[COUNT][1 << 12];
	struct group group = { .count = COUNT, .of = { 0, 1, 2, 3, 4, 5 } };
	struct ct_peer *first = &members[DETECTS].peer, *last = &members[WAITS].peer;
	double until = ct_now() + ct_patience();
	struct ct_completion end;
	int ret;

	open_members(COUNT);
	join_group(&group, COUNT);
	OK(fi_close(&group.mc[LEAVES]->fid));
	OK(fi_close(&group.set[LEAVES]->fid));
	ct_close_peer(&members[LEAVES].peer);
	OK(fi_alltoall(first->ep, in, sizeof(in[0]), NULL, out, NULL,
		       fi_mc_addr(group.mc[DETECTS]), FI_UINT8, 0, in));
	/* Its operation is in progress until it has noticed. */
	while ((ret = fi_close(&group.mc[DETECTS]->fid)) == -FI_EBUSY) {
		REQUIRE(ct_now() < until);
		ct_progress(first);
	}
	OK(ret);
	OK(fi_close(&group.set[DETECTS]->fid));
	ct_close_peer(first);
	OK(fi_barrier(last->ep, fi_mc_addr(group.mc[WAITS]), in));
	while (!last->tx.count) {
		REQUIRE(ct_now() < until);
		for (int i = 0; i < COUNT; i++)
			if (i != DETECTS && i != LEAVES)
				ct_progress(&members[i].peer);
	}
	end = ct_error(last, &last->tx);
	CHECK(end.context == in, "the operation");
	for (int i = 0; i < COUNT; i++)
		if (i != DETECTS && i != LEAVES) {
			OK(fi_close(&group.mc[i]->fid));
			OK(fi_close(&group.set[i]->fid));
			ct_close_peer(&members[i].peer);
		}
}

/* Operations that members begin when a counter of theirs says so. */
static void triggered(void)
{
	enum { COUNT = 4 };
	struct group group = { .count = COUNT, .of = { 2, 0, 3, 1 } };
	struct fi_triggered_context2 when[COUNT];
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *counters[COUNT];
	uint64_t in[COUNT], out[COUNT];
	struct ct_completion error;
	struct ct_peer *first = &members[group.of[0]].peer;

	spec.caps |= FI_TRIGGER;
	open_members(COUNT);
	join_group(&group, COUNT);
	for (int rank = 0; rank < COUNT; rank++) {
		struct ct_peer *peer = &members[group.of[rank]].peer;

		OK(fi_cntr_open(peer->domain, &attr, &counters[rank], NULL));
		memset(&when[rank], 0, sizeof(when[rank]));
		when[rank].event_type = FI_TRIGGER_THRESHOLD;
		when[rank].trigger.threshold.cntr = counters[rank];
		when[rank].trigger.threshold.threshold = 1;
		in[rank] = 1 << rank;
		out[rank] = 0;
		OK(fi_allreduce(peer->ep, &in[rank], 1, NULL, &out[rank], NULL,
				fi_mc_addr(group.mc[rank]), FI_UINT64, FI_SUM, FI_TRIGGER,
				&when[rank]));
		if (rank)
			OK(fi_cntr_add(counters[rank], 1));
	}
	for (int i = 0; i < 200; i++)
		drive_all(COUNT);
	for (int rank = 0; rank < COUNT; rank++)
		CHECK(!members[group.of[rank]].peer.tx.count, "rank %d waits", rank);
	OK(fi_cntr_add(counters[0], 1));
	for (int rank = 0; rank < COUNT; rank++) {
		struct ct_peer *peer = &members[group.of[rank]].peer;

		double until = ct_now() + ct_patience();

		while (!peer->tx.count) {
			REQUIRE(ct_now() < until);
			drive_all(COUNT);
		}
		ct_done(peer, &peer->tx, &when[rank]);
		CHECK(out[rank] == (1 << COUNT) - 1, "rank %d", rank);
	}
	/* One that is taken back. */
	when[0].trigger.threshold.threshold = 2;
	OK(fi_barrier2(first->ep, fi_mc_addr(group.mc[0]), FI_TRIGGER, &when[0]));
	OK(fi_cancel(&first->ep->fid, &when[0]));
	error = ct_error(first, &first->tx);
	CHECK(error.err == FI_ECANCELED && error.context == &when[0], "cancelled");
	leave_group(&group);
	for (int rank = 0; rank < COUNT; rank++)
		OK(fi_close(&counters[rank]->fid));
	close_members(COUNT);
	spec.caps &= ~FI_TRIGGER;
}

static const struct ct_test tests[] = {
	{ "pairs", pairs, CT_RDM },
	{ "chosen", chosen, CT_RDM },
	{ "some", some, CT_RDM | CT_SLOW },
	{ "many", many, CT_RDM | CT_SLOW },
	{ "most", most, CT_RDM | CT_SLOW },
	{ "triggered", triggered, CT_RDM },
	{ "sets", sets, CT_RDM },
	{ "queries", queries, CT_RDM },
	{ "wildcards", wildcards, CT_RDM },
	{ "mismatch", mismatch, CT_RDM },
	{ "selected", selected, CT_RDM },
	{ "sleepers", sleepers, CT_RDM },
	{ "death", death, CT_RDM },
	{ "abandoned", abandoned, CT_RDM },
	{ "hearsay", hearsay, CT_RDM },
};

CT_MAIN(tests)
