/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Many processes of a host that sleep until one of the others wakes them, while some are killed at
 * any moment, also right before they would have woken another one: none of the others sleeps on
 * while a message waits for it.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "process.h"
#include "transfer.h"
#include "wait.h"

enum { PEERS = 12, ROUNDS = 40 };

#define TO_HUB 1
#define TO_PEER 2
/* Milliseconds of one sleep. */
#define PERIOD 100

/* What the processes tell one another without libfabric. */
static struct board {
	char hub[256];
	_Atomic int end;
	struct seat {
		char name[256];
		/* Messages that were answered. */
		_Atomic int answered;
		_Atomic int ready;
	} seats[PEERS];
} *board;

static const struct ct_spec spec = {
	.caps = FI_MSG | FI_TAGGED, .wait = FI_WAIT_UNSPEC, .one_cq = true,
};

static pid_t pids[PEERS];
static fi_addr_t addrs[PEERS];
static struct fi_context2 rx, tx;

static void open_peer(struct ct_peer *peer, char *name)
{
	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep(peer, peer->info);
	ct_name(&peer->ep->fid, name, sizeof(board->hub));
}

static void receive(struct ct_peer *peer, uint64_t tag, int *word)
{
	struct ct_message in = {
		.tagged = true, .tag = tag, .buf = word, .len = sizeof(*word),
		.from = FI_ADDR_UNSPEC, .context = &rx,
	};

	OK(ct_recv(peer, CT_RECV, &in));
}

/* Whether a message could be sent. One to a peer that was killed may be lost. */
static bool send_word(struct ct_peer *peer, uint64_t tag, int *word)
{
	struct ct_message out = {
		.tagged = true, .tag = tag, .buf = word, .len = sizeof(*word), .context = &tx,
	};

	return !ct_send(peer, CT_INJECT, &out);
}

/* Sleeps until there is a completion, or for a while. Returns whether a receive is complete. */
static bool next(struct ct_peer *peer, int timeout)
{
	struct fi_cq_tagged_entry entry = { 0 };
	struct fi_cq_err_entry failed = { 0 };
	ssize_t ret = fi_cq_sread(peer->tx.fid, &entry, 1, NULL, timeout);

	if (ret == -FI_EAVAIL)
		EXPECT(fi_cq_readerr(peer->tx.fid, &failed, 0), 1);
	return ret == 1 && entry.op_context == &rx;
}

/* One of the peers: asks and is answered. It sleeps without limit. */
static void run_peer(int place)
{
	static struct ct_peer peer;
	struct seat *seat = &board->seats[place];
	int word = place;

	open_peer(&peer, seat->name);
	peer.to = ct_insert(&peer, board->hub);
	seat->ready = 1;
	while (!board->end) {
		receive(&peer, TO_PEER, &word);
		word = place;
		while (!send_word(&peer, TO_HUB, &word))
			next(&peer, PERIOD);
		while (!next(&peer, -1))
			;
		seat->answered++;
	}
	ct_close_peer(&peer);
}

static void start(struct ct_peer *hub, int place)
{
	struct seat *seat = &board->seats[place];

	memset(seat->name, 0, sizeof(seat->name));
	seat->answered = seat->ready = 0;
	pids[place] = fork();
	REQUIRE(pids[place] >= 0);
	if (!pids[place]) {
		REQUIRE(!prctl(PR_SET_PDEATHSIG, SIGKILL));
		run_peer(place);
		_exit(0);
	}
	CT_UNTIL(seat->ready, usleep(1000));
	addrs[place] = ct_insert(hub, seat->name);
}

/* Answers messages. */
static void answer(struct ct_peer *hub, int *word)
{
	if (!next(hub, PERIOD))
		return;
	REQUIRE(*word >= 0 && *word < PEERS);
	hub->to = addrs[*word];
	/* The peer may have been killed since. */
	send_word(hub, TO_PEER, word);
	receive(hub, TO_HUB, word);
}

/* How many peers have been answered since. */
static int count_of_answered(const int *before)
{
	int count = 0;

	for (int i = 0; i < PEERS; i++)
		count += board->seats[i].answered > before[i];
	return count;
}

static void run(void)
{
	static struct ct_peer hub;
	int word = 0, before[PEERS];
	unsigned int seed = 7;

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	REQUIRE(board != MAP_FAILED);
	open_peer(&hub, board->hub);
	receive(&hub, TO_HUB, &word);
	for (int i = 0; i < PEERS; i++)
		start(&hub, i);
	for (int round = 0; round < ROUNDS; round++) {
		int victim = (int)(rand_r(&seed) % PEERS), status;

		for (int i = 0; i < PEERS; i++)
			before[i] = board->seats[i].answered;
		CT_UNTIL(count_of_answered(before) == PEERS, answer(&hub, &word));
		/* Somewhere in the middle of what they do. */
		for (int more = (int)(rand_r(&seed) % (2 * PEERS)); more; more--)
			answer(&hub, &word);
		REQUIRE(!kill(pids[victim], SIGKILL));
		REQUIRE(waitpid(pids[victim], &status, 0) == pids[victim]);
		start(&hub, victim);
	}
	board->end = 1;
	for (int i = 0; i < PEERS; i++) {
		int status, ended = 0;

		/* It may wait for its last answer. */
		CT_UNTIL((ended = waitpid(pids[i], &status, WNOHANG)), answer(&hub, &word));
		REQUIRE(ended == pids[i] && WIFEXITED(status) && !WEXITSTATUS(status));
	}
	ct_close_peer(&hub);
}

static const struct ct_test tests[] = {
	{ "killed", run, CT_RDM },
};

CT_MAIN(tests)
