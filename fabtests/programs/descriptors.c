/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A process with many peers of its host in other processes, and few descriptors: a link takes one at
 * most, whatever makes it faster is done without, and where there is none to set up a link an
 * operation fails with the reason.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "process.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

#define PEERS 40
/* Microseconds between two looks: many processes share the processors. */
#define PAUSE 2000
/* Of the message with a word. */
#define TAG(word) (100 + (uint64_t)(word))

static const struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED };
static struct ct_child children[PEERS];
static struct fi_context2 tx[PEERS], rx[PEERS];
static int words[PEERS];

static bool has_word(const struct ct_child *child)
{
	struct pollfd told = { .fd = child->fd, .events = POLLIN };

	return poll(&told, 1, 0) == 1;
}

static void allow(int descriptors)
{
	struct rlimit limit;

	REQUIRE(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = (rlim_t)descriptors;
	REQUIRE(!setrlimit(RLIMIT_NOFILE, &limit));
}

/* The next completion, while other processes have the processors. */
static struct ct_completion await(struct ct_peer *peer, struct ct_cq *cq)
{
	CT_UNTIL(cq->count || ct_pull(cq), usleep(PAUSE);
		 ct_pull(cq == &peer->tx ? &peer->rx : &peer->tx));
	return ct_next(peer, cq);
}

static void open_child(struct ct_peer *peer, int fd)
{
	struct ct_card own = { 0 }, other;

	setenv("FI_SHM_CONNECT_TIMEOUT", "2000", 1);
	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep(peer, peer->info);
	ct_meet(peer, &own, &other, fd, NULL);
}

/* Sends a word, and says how that ended; answers a word where there is a link. */
static void child(int fd)
{
	static struct fi_context2 context, answer;
	struct ct_completion done;
	struct ct_peer peer;
	int word = 0, err;
	char go;
	struct ct_message out = {
		.tagged = true, .buf = &word, .len = sizeof(word),
		.context = &context,
	};
	struct ct_message in = {
		.tagged = true, .tag = 2, .buf = &word, .len = sizeof(word),
		.from = FI_ADDR_UNSPEC, .context = &answer,
	};

	open_child(&peer, fd);
	ct_hear(fd, &word, sizeof(word));
	out.tag = TAG(word);
	OK(ct_send(&peer, CT_SEND, &out));
	done = await(&peer, &peer.tx);
	err = done.err;
	ct_tell(fd, &err, sizeof(err));
	if (!err) {
		int sent = word;

		OK(ct_recv(&peer, CT_RECV, &in));
		OK(await(&peer, &peer.rx).err);
		REQUIRE(word == sent + 1);
	}
	ct_tell(fd, "x", 1);
	ct_hear(fd, &go, 1);
	ct_close_peer(&peer);
}

/* Has all children send, with a limit of descriptors beyond what is open; how many of them could. */
static int run(int spare)
{
	struct ct_card own = { 0 }, other;
	fi_addr_t addrs[PEERS];
	int errs[PEERS], served = 0;
	struct ct_peer peer;

	if (!ct_opt.provider || strcmp(ct_opt.provider, "shm"))
		SKIP("connections over a network");

	for (int i = 0; i < PEERS; i++)
		children[i] = ct_spawn(child);
	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep(&peer, peer.info);
	for (int i = 0; i < PEERS; i++) {
		ct_begin(&children[i]);
		ct_meet(&peer, &own, &other, children[i].fd, NULL);
		addrs[i] = peer.to;
	}
	allow(ct_descriptors() + spare);
	for (int i = 0; i < PEERS; i++) {
		struct ct_message in = {
			.tagged = true, .tag = TAG(2 * i), .buf = &words[i],
			.len = sizeof(words[i]), .from = FI_ADDR_UNSPEC,
			.context = &rx[i],
		};

		OK(ct_recv(&peer, CT_RECV, &in));
		words[i] = 2 * i;
		ct_tell(children[i].fd, &words[i], sizeof(words[i]));
		words[i] = -1;
	}
	for (int i = 0; i < PEERS; i++) {
		struct ct_child *one = &children[i];
		int word = 2 * i + 1;
		struct ct_message out = {
			.tagged = true, .tag = 2, .buf = &word, .len = sizeof(word),
			.context = &tx[i],
		};

		CT_UNTIL(has_word(one), usleep(PAUSE); ct_pull(&peer.rx));
		ct_hear(one->fd, &errs[i], sizeof(errs[i]));
		if (errs[i])
			continue;
		served++;
		CT_UNTIL(words[i] == 2 * i, usleep(PAUSE); ct_pull(&peer.rx));
		peer.to = addrs[i];
		POST(&peer, ct_send(&peer, CT_SEND, &out));
		OK(await(&peer, &peer.tx).err);
	}
	for (int i = 0; i < PEERS; i++) {
		char word;

		CT_UNTIL(has_word(&children[i]), usleep(PAUSE); ct_pull(&peer.rx));
		ct_hear(children[i].fd, &word, 1);
	}
	for (int i = 0; i < PEERS; i++) {
		if (errs[i])
			EXPECT(errs[i], FI_EMFILE);
		ct_tell(children[i].fd, "x", 1);
		ct_join(&children[i]);
	}
	ct_close_peer(&peer);
	return served;
}

/* One for each peer, a third of that for what makes accesses faster, and some that are open for a
 * moment only. */
static void one_each(void)
{
	EXPECT(run(PEERS + PEERS / 3 + 34), PEERS);
}

/* Links give back their sockets. */
static void few(void)
{
	EXPECT(run(PEERS / 2), PEERS);
}

/* Peers get no link, and are told why. */
static void none_left(void)
{
	EXPECT(run(-3), 0);
}

static const struct ct_test tests[] = {
	{ "one-each", one_each, CT_RDM | CT_SLOW },
	{ "few", few, CT_RDM | CT_SLOW },
	{ "none-left", none_left, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
