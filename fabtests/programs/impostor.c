/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A member of a group of collective operations (fi_collective(3)) whose
 * partners send anything: messages of wrong lengths, with wrong numbers, too
 * many of them, notifications of failures. Each operation of the member ends
 * once, and nothing is written outside its result.
 *
 * CT_SEED=<number> selects other groups, operations and messages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_tagged.h>

#include "check.h"
#include "collective.h"
#include "element.h"
#include "peer.h"
#include "random.h"
#include "wait.h"

enum {
	MOST = 4,		/* members, one of which is honest */
	AT_ONCE = 3,
	LONGEST = 4000,		/* elements of an operation */
	ROUNDS = 60,
	RECEIVES = 4,		/* posted at a time by an impostor */
	ROOM = 1 << 18,		/* bytes that an impostor receives or sends */
	GUARD = 64,		/* bytes around a result */
	PATTERN = 0xa5,
};

/* The layout of the tags of collective messages: the number of the operation
 * is above the bit of a notification of failure, and the group above both. */
#define TAG_FAILURE 1ULL
#define TAG_GROUP (~0ULL << 17)
#define TAG_STEP 2ULL

struct impostor {
	struct ct_peer peer;
	fi_addr_t honest;
	unsigned char *room[RECEIVES];
	struct fi_context2 contexts[RECEIVES];
};

static struct ct_peer honest;
static fi_addr_t itself;
static struct impostor impostors[MOST - 1];
static fi_addr_t others[MOST - 1];
static unsigned char noise[ROOM];
static uint64_t known;			/* the tag of the honest one's last message */
static struct ct_random chance;

static uint64_t below(uint64_t limit)
{
	return ct_below(&chance, limit);
}

/* ---- impostors -------------------------------------------------------- */

static void listen_for(struct impostor *it, int which)
{
	OK(fi_trecv(it->peer.ep, it->room[which], ROOM, NULL, FI_ADDR_UNSPEC, 0,
		    ~0ULL, &it->contexts[which]));
}

static void open_impostor(struct impostor *it, const char *name, fi_addr_t *addr)
{
	struct ct_spec spec = { .caps = FI_TAGGED, .one_cq = true };
	char own[256] = { 0 };

	ct_open_single(&it->peer, &spec);
	ct_name(&it->peer.ep->fid, own, sizeof(own));
	it->honest = ct_insert(&it->peer, name);
	*addr = ct_insert(&honest, own);
	for (int i = 0; i < RECEIVES; i++) {
		it->room[i] = malloc(ROOM);
		REQUIRE(it->room[i]);
		listen_for(it, i);
	}
}

static void close_impostor(struct impostor *it)
{
	ct_close_peer(&it->peer);
	for (int i = 0; i < RECEIVES; i++)
		free(it->room[i]);
}

/* Takes what has arrived, and makes room for more. */
static void hear(struct impostor *it)
{
	while (ct_pull(&it->peer.tx))
		;
	while (it->peer.tx.count) {
		struct ct_completion end = ct_next(&it->peer, &it->peer.tx);

		for (int i = 0; i < RECEIVES; i++)
			if (end.context == &it->contexts[i]) {
				known = end.tag;
				listen_for(it, i);
			}
	}
}

/* Injected, so that the impostor waits for nothing; what finds no room is not
 * sent. */
static void say(struct impostor *it, uint64_t tag, size_t len)
{
	struct fi_tx_attr *tx = it->peer.info->tx_attr;

	if (len <= tx->inject_size)
		(void)fi_tinject(it->peer.ep, noise, len, it->honest, tag);
	else
		(void)fi_tsend(it->peer.ep, noise, len, NULL, it->honest, tag, NULL);
}

static void drive_all(void)
{
	ct_progress(&honest);
	for (int i = 0; i < MOST - 1; i++)
		hear(&impostors[i]);
}

static uint64_t any_tag(void)
{
	switch (below(8)) {
	case 0:
		return known ^ 1ULL << below(64);
	case 1:
		return known & TAG_GROUP;
	case 2:
		return ct_bits(&chance) | 1ULL << 63;
	default:
		return known + TAG_STEP * below(AT_ONCE + 1);
	}
}

static size_t any_length(const struct ct_collective *it)
{
	size_t size = ct_datatype_size(it->type);

	switch (below(6)) {
	case 0:
		return 0;
	case 1:
		return below(100);
	case 2:
		return below(ROOM);
	case 3:
		return it->count * size / 2;
	default:
		return it->count * size <= ROOM ? it->count * size : ROOM;
	}
}

/* ---- the honest member -------------------------------------------------- */

struct operation {
	struct ct_collective what;
	void *input, *output, *unused;	/* `output` is within `result` */
	unsigned char *result;
	size_t len;			/* bytes of the output */
	int ended;
};

static bool is_joined(struct fid_mc *mc)
{
	double until = ct_now() + ct_patience();
	struct fi_eq_entry entry;
	struct fi_eq_err_entry error = { 0 };
	uint32_t event;
	ssize_t ret;

	while ((ret = fi_eq_read(honest.eq.fid, &event, &entry, sizeof(entry), 0)) ==
	       -FI_EAGAIN) {
		struct impostor *it = &impostors[below(MOST - 1)];

		REQUIRE(ct_now() < until);
		drive_all();
		if (known)
			say(it, known & TAG_GROUP, ct_once_in(&chance, 40) ? 8 : 0);
	}
	if (ret == -FI_EAVAIL) {
		REQUIRE(fi_eq_readerr(honest.eq.fid, &error, 0) == sizeof(error));
		REQUIRE(error.fid == &mc->fid && error.err);
		return false;
	}
	REQUIRE(ret == sizeof(entry) && event == FI_JOIN_COMPLETE);
	REQUIRE(entry.fid == &mc->fid);
	return true;
}

static bool begin(struct operation *it, int number, int rank, int members,
		  const fi_addr_t *of, struct fid_mc *mc)
{
	memset(it, 0, sizeof(*it));
	it->what = ct_draw_collective(&chance, honest.domain, number, members, LONGEST);
	ct_collective_prepare(&it->what, rank, members, &it->input, &it->unused);
	it->len = ct_collective_output(&it->what, rank, members) *
		  ct_datatype_size(it->what.type);
	it->result = malloc(it->len + 2 * GUARD);
	REQUIRE(it->result);
	memset(it->result, PATTERN, it->len + 2 * GUARD);
	it->output = it->result + GUARD;
	return !ct_collective_post(&it->what, rank, members, honest.ep, fi_mc_addr(mc),
				   of[it->what.root], it->input, it->output, it);
}

static void verify(struct operation *it)
{
	for (size_t i = 0; i < GUARD; i++) {
		REQUIRE(it->result[i] == PATTERN);
		REQUIRE(it->result[GUARD + it->len + i] == PATTERN);
	}
	free(it->result);
	free(it->input);
	free(it->unused);
}

static void reap(void)
{
	drive_all();
	while (honest.tx.count) {
		struct ct_completion end = ct_next(&honest, &honest.tx);
		struct operation *it = end.context;

		REQUIRE(it && !it->ended);
		it->ended = end.err ? -1 : 1;
	}
}

static void run_round(int number, int *succeeded, int *failed)
{
	static struct operation all[AT_ONCE];
	struct fi_av_set_attr attr = {
		.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL,
	};
	int members = 2 + (int)below(MOST - 1), rank = (int)below((uint64_t)members);
	int how_many = 1 + (int)below(AT_ONCE), begun = 0;
	fi_addr_t of[MOST];
	struct fid_av_set *set;
	struct fid_mc *mc;

	OK(fi_av_set(honest.av, &attr, &set, NULL));
	for (int i = 0, other = 0; i < members; i++) {
		of[i] = i == rank ? itself : others[other++];
		OK(fi_av_set_insert(set, of[i]));
	}
	OK(fi_join_collective(honest.ep, FI_ADDR_NOTAVAIL, set, 0, &mc, NULL));
	if (is_joined(mc)) {
		while (begun < how_many && begin(&all[begun], number + begun, rank,
						 members, of, mc))
			begun++;
		if (begun < how_many)	/* the group is broken */
			verify(&all[begun]);
	}
	for (int i = (int)below(30); i > 0 && begun; i--) {
		struct impostor *it = &impostors[below(MOST - 1)];

		say(it, any_tag(), any_length(&all[below((uint64_t)begun)].what));
		if (ct_once_in(&chance, 2))
			reap();
	}
	/* What still waits for messages ends by a notification. */
	double until = ct_now() + ct_patience();

	for (int i = 0; i < begun; i++) {
		while (!all[i].ended) {
			struct impostor *it = &impostors[below(MOST - 1)];

			REQUIRE(ct_now() < until);
			say(it, (known & TAG_GROUP) | TAG_FAILURE, 0);
			reap();
		}
		*(all[i].ended > 0 ? succeeded : failed) += 1;
		verify(&all[i]);
	}
	OK(fi_close(&mc->fid));
	OK(fi_close(&set->fid));
}

static void open_all(void)
{
	struct ct_spec spec = {
		.caps = FI_TAGGED | FI_COLLECTIVE, .eq = true, .one_cq = true,
	};
	char name[256] = { 0 };

	known = 0;
	ct_open_single(&honest, &spec);
	ct_name(&honest.ep->fid, name, sizeof(name));
	itself = ct_insert(&honest, name);
	for (int i = 0; i < MOST - 1; i++)
		open_impostor(&impostors[i], name, &others[i]);
}

static void close_all(void)
{
	bool honest_first = ct_once_in(&chance, 2);

	if (honest_first)
		ct_close_peer(&honest);
	for (int i = 0; i < MOST - 1; i++)
		close_impostor(&impostors[i]);
	if (!honest_first)
		ct_close_peer(&honest);
}

static void anything(void)
{
	const char *seed = getenv("CT_SEED");
	int succeeded = 0, failed = 0;

	chance.state = seed ? strtoull(seed, NULL, 0) : 1;
	fprintf(stderr, "CT_SEED=%llu\n", (unsigned long long)chance.state);
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (unsigned char)ct_bits(&chance);
	/* What the impostors send beyond what is received would fill the honest
	 * one's buffers after some rounds, so each has endpoints of its own. */
	for (int i = 0; i < ct_times(ROUNDS); i++) {
		open_all();
		run_round(i, &succeeded, &failed);
		close_all();
	}
	fprintf(stderr, "%d operations succeeded, %d failed\n", succeeded, failed);
	REQUIRE(failed);
}

static const struct ct_test tests[] = {
	{ "anything", anything, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
