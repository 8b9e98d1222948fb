/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A process with more peers of its host in other processes than it may have descriptors. All of them
 * talk, sleeping ones are woken, and the end of one is noticed.
 *
 * CT_PEERS=<number> and CT_LIMIT=<number> run it with others.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "process.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

#define MOST 2000
/* Microseconds between two looks: many processes share the processors. */
#define PAUSE 5000
/* Of the messages to the peers. */
#define ANSWER 1
#define ONCE_MORE 2
/* Of the message of a peer. */
#define TAG(place) (100 + (uint64_t)(place))
/* Milliseconds of one sleep. */
#define PERIOD 100

enum state { OPEN = 1, ANSWERED, WOKEN, CLOSED };

/* What the processes tell one another without libfabric, and without descriptors. */
static struct board {
	char hub[256];
	_Atomic int ready, end;
	struct seat {
		char name[256];
		_Atomic int state, closes;
	} seats[MOST];
} *board;

static const struct ct_spec spec = {
	.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV, .wait = FI_WAIT_UNSPEC, .one_cq = true,
};
static pid_t pids[MOST];
static fi_addr_t addrs[MOST];
static struct fi_context2 tx, rx[MOST];
static int words[MOST], place, peers;
static bool arrived[MOST];

static void limit_descriptors(int most)
{
	struct rlimit limit;

	REQUIRE(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = (rlim_t)most;
	REQUIRE(!setrlimit(RLIMIT_NOFILE, &limit));
}

/* The next completion; the process sleeps meanwhile. Returns its error, and its context. */
static int next(struct ct_peer *peer, void **context, int timeout)
{
	struct fi_cq_tagged_entry entry = { 0 };
	struct fi_cq_err_entry failed = { 0 };
	ssize_t ret = fi_cq_sread(peer->tx.fid, &entry, 1, NULL, timeout);

	*context = NULL;
	if (ret == -FI_EAGAIN)
		return 0;
	if (ret == -FI_EAVAIL) {
		EXPECT(fi_cq_readerr(peer->tx.fid, &failed, 0), 1);
		*context = failed.op_context;
		return failed.err;
	}
	EXPECT(ret, 1);
	*context = entry.op_context;
	return 0;
}

static void open_peer(struct ct_peer *peer, char *name)
{
	setenv("FI_SHM_CONNECT_TIMEOUT", "8000", 1);
	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep(peer, peer->info);
	ct_name(&peer->ep->fid, name, sizeof(board->hub));
}

static int receive(struct ct_peer *peer, uint64_t tag, fi_addr_t from, int *word,
		   struct fi_context2 *context)
{
	struct ct_message in = {
		.tagged = true, .tag = tag, .buf = word, .len = sizeof(*word), .from = from,
		.context = context,
	};

	return (int)ct_recv(peer, CT_RECV, &in);
}

static void send_word(struct ct_peer *peer, uint64_t tag, int *word)
{
	struct ct_message out = {
		.tagged = true, .tag = tag, .buf = word, .len = sizeof(*word), .context = &tx,
	};

	CT_UNTIL(ct_send(peer, CT_SEND, &out) != -FI_EAGAIN, usleep(PAUSE));
}

/* One of the peers. */
static void run_peer(void)
{
	static struct ct_peer peer;
	static int word, answer, once_more;
	struct seat *seat = &board->seats[place];
	struct fi_context2 contexts[2];
	void *done = NULL;

	open_peer(&peer, seat->name);
	seat->state = OPEN;
	while (!board->ready)
		usleep(PAUSE);
	peer.to = ct_insert(&peer, board->hub);
	OK(receive(&peer, ANSWER, FI_ADDR_UNSPEC, &answer, &contexts[0]));
	OK(receive(&peer, ONCE_MORE, FI_ADDR_UNSPEC, &once_more, &contexts[1]));
	word = place;
	send_word(&peer, TAG(place), &word);
	while (done != &contexts[0])
		OK(next(&peer, &done, -1));
	REQUIRE(answer == place + 1);
	seat->state = ANSWERED;
	OK(next(&peer, &done, -1));
	REQUIRE(done == &contexts[1] && once_more == place + 2);
	seat->state = WOKEN;
	while (!board->end && !seat->closes)
		usleep(PAUSE);
	ct_close_peer(&peer);
	seat->state = CLOSED;
	while (!board->end)
		usleep(PAUSE);
}

static void start(int limit)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	REQUIRE(board != MAP_FAILED);
	limit_descriptors(limit);
	for (place = 0; place < peers; place++) {
		pids[place] = fork();
		REQUIRE(pids[place] >= 0);
		if (!pids[place]) {
			/* It does not outlive a hub that fails. */
			REQUIRE(!prctl(PR_SET_PDEATHSIG, SIGKILL));
			run_peer();
			_exit(0);
		}
	}
}

static int count_of(enum state state)
{
	int count = 0;

	for (int i = 0; i < peers; i++)
		count += board->seats[i].state >= (int)state;
	return count;
}

/* Takes a completion of the hub, which has to be a success. */
static void take(struct ct_peer *hub)
{
	void *done;

	OK(next(hub, &done, PERIOD));
	if (done && done != &tx)
		arrived[(struct fi_context2 *)done - rx] = true;
}

/* A receive from this peer ends with an error once it is gone. */
static void notices_death(struct ct_peer *hub, int who)
{
	int status, err = 0;
	void *done = NULL;

	OK(receive(hub, TAG(who), addrs[who], &words[who], &rx[who]));
	REQUIRE(!kill(pids[who], SIGKILL));
	REQUIRE(waitpid(pids[who], &status, 0) == pids[who]);
	pids[who] = 0;
	CT_UNTIL(done, err = next(hub, &done, PERIOD));
	REQUIRE(done == &rx[who] && err);
}

/* The error of a message to one of them, 0 if it is sent. */
static int sends_to(struct ct_peer *hub, int who)
{
	static int word;
	int err = 0;
	void *done = NULL;

	hub->to = addrs[who];
	send_word(hub, ANSWER, &word);
	CT_UNTIL(done, err = next(hub, &done, PERIOD));
	REQUIRE(done == &tx);
	return err;
}

/* A receive from one that closes its endpoint waits; a message to it fails, once the hub has
 * learnt of that in a call. */
static void notices_end(struct ct_peer *hub, int who)
{
	board->seats[who].closes = 1;
	CT_UNTIL(board->seats[who].state == CLOSED, take(hub));
	CT_UNTIL(sends_to(hub, who), usleep(PAUSE));
}

static void run(int most, int limit)
{
	struct ct_peer hub;
	int answered = 0;
	void *done;

	if (!ct_opt.provider || strcmp(ct_opt.provider, "shm"))
		SKIP("connections over a network");
	peers = getenv("CT_PEERS") ? atoi(getenv("CT_PEERS")) : most;
	limit = getenv("CT_LIMIT") ? atoi(getenv("CT_LIMIT")) : limit;
	REQUIRE(peers <= MOST);
	start(limit);
	open_peer(&hub, board->hub);
	CT_UNTIL(count_of(OPEN) == peers, usleep(PAUSE));
	for (int i = 0; i < peers; i++) {
		addrs[i] = ct_insert(&hub, board->seats[i].name);
		OK(receive(&hub, TAG(i), FI_ADDR_UNSPEC, &words[i], &rx[i]));
	}
	board->ready = 1;
	while (answered < peers) {
		int i = 0;

		CT_UNTIL(({ for (i = 0; i < peers && !arrived[i]; i++) ; i < peers; }), take(&hub));
		REQUIRE(words[i] == i);
		arrived[i] = false;
		words[i]++;
		hub.to = addrs[i];
		send_word(&hub, ANSWER, &words[i]);
		answered++;
	}
	CT_UNTIL(count_of(ANSWERED) == peers, take(&hub));
	REQUIRE(ct_descriptors() < limit);
	/* They sleep by now. */
	usleep(20 * PAUSE);
	for (int i = 0; i < peers; i++) {
		words[i]++;
		hub.to = addrs[i];
		send_word(&hub, ONCE_MORE, &words[i]);
	}
	CT_UNTIL(count_of(WOKEN) == peers, take(&hub));
	do
		OK(next(&hub, &done, PERIOD));
	while (done);
	notices_death(&hub, 0);
	notices_death(&hub, peers - 1);
	notices_end(&hub, 1);
	notices_end(&hub, peers - 2);
	ct_close_peer(&hub);
	board->end = 1;
	for (int i = 0; i < peers; i++) {
		int status;

		if (!pids[i])
			continue;
		REQUIRE(waitpid(pids[i], &status, 0) == pids[i]);
		REQUIRE(WIFEXITED(status) && !WEXITSTATUS(status));
	}
}

static void of_64(void) { run(100, 64); }
static void of_128(void) { run(200, 128); }

static const struct ct_test tests[] = {
	{ "of-64", of_64, CT_RDM | CT_SLOW },
	{ "of-128", of_128, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
