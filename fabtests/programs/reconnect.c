/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * One side sends numbered messages to the other while the connection between
 * them breaks again and again. Each message arrives once, complete and in
 * order, or is lost; one that is reported as delivered is not lost, and
 * endpoints that need no connections of their own (RDM) continue without help.
 *
 * CT_SEED=<number> repeats the one run that a failure names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "random.h"
#include "relay.h"
#include "transfer.h"
#include "wait.h"

enum { MESSAGES = 300, RECEIVES = 32, LONGEST = 30000, BREAKS = 6 };

struct sent {
	struct fi_context2 context;	/* first: completions lead back here */
	unsigned char *buf;
	size_t len;
	bool delivery;			/* asked for FI_DELIVERY_COMPLETE */
	bool ended, succeeded, arrived;
};

struct receive {
	struct fi_context2 context;	/* first, as above */
	unsigned char buf[LONGEST];
};

static struct world {
	struct ct_random random;
	struct ct_pair pair;
	struct ct_relay *relay;
	struct sent sent[MESSAGES];
	int count;
	int newest;			/* that has arrived; -1: none */
	struct receive receives[RECEIVES];
} world;

static void post_receive(struct receive *receive)
{
	struct ct_message message = {
		.buf = receive->buf, .len = LONGEST, .from = FI_ADDR_UNSPEC,
		.context = receive,
	};

	POST(&world.pair.b, ct_recv(&world.pair.b, CT_RECV, &message));
}

/* A message starts with its number; the rest depends on that. */
static void arrived(const struct receive *receive, size_t len)
{
	uint32_t number;
	struct sent *sent;

	REQUIRE(len >= sizeof(number));
	memcpy(&number, receive->buf, sizeof(number));
	REQUIRE(number < (uint32_t)world.count);
	sent = &world.sent[number];
	REQUIRE(!sent->arrived);
	REQUIRE((int)number > world.newest);
	REQUIRE(len == sent->len);
	REQUIRE(!memcmp(receive->buf, sent->buf, len));
	sent->arrived = true;
	world.newest = (int)number;
}

static void progress(void)
{
	struct ct_cq *tx = &world.pair.a.tx, *rx = &world.pair.b.rx;

	while (ct_pull(tx)) {
		struct ct_completion done = tx->stash[tx->first++];
		struct sent *sent = done.context;

		tx->count--;
		REQUIRE(sent >= world.sent && sent < world.sent + world.count);
		REQUIRE(!sent->ended);
		sent->ended = true;
		sent->succeeded = !done.err;
	}
	ct_pull(&world.pair.a.rx);
	ct_pull(&world.pair.b.tx);
	while (ct_pull(rx)) {
		struct ct_completion done = rx->stash[rx->first++];

		rx->count--;
		/* A message that broke off takes its receive with it. */
		if (!done.err)
			arrived(done.context, done.len);
		post_receive(done.context);
	}
	ct_relay_step(world.relay, &world.random);
}

/* False if it has to be tried again. */
static bool send_one(bool delivery)
{
	struct sent *sent = &world.sent[world.count];
	uint32_t number = (uint32_t)world.count;
	struct ct_message message;
	ssize_t ret;

	sent->len = sizeof(number) + ct_below(&world.random,
			ct_once_in(&world.random, 4) ? LONGEST - 4 : 100);
	sent->delivery = delivery;
	sent->buf = malloc(sent->len);
	REQUIRE(sent->buf);
	ct_fill(sent->buf, sent->len, number);
	memcpy(sent->buf, &number, sizeof(number));
	message = (struct ct_message) {
		.buf = sent->buf, .len = sent->len, .context = sent,
		.flags = FI_COMPLETION | (delivery ? FI_DELIVERY_COMPLETE : 0),
	};
	ret = ct_send(&world.pair.a, CT_SENDMSG, &message);
	if (ret == -FI_EAGAIN) {
		free(sent->buf);
		return false;
	}
	OK(ret);
	world.count++;
	return true;
}

/* Both sides, the first of which reaches the other through the relay. */
static void open_world(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct ct_peer *a = &world.pair.a, *b = &world.pair.b;
	unsigned char name[CT_NAME];
	struct fi_info *info = ct_getinfo(&spec);

	ct_open_domain(a, &spec, info, NULL, NULL);
	ct_open_domain(b, &spec, fi_dupinfo(info), a->fabric, NULL);
	ct_open_ep(a, a->info);
	ct_open_ep(b, b->info);
	ct_name(&b->ep->fid, name, sizeof(name));
	world.relay = ct_relay_open((struct sockaddr *)name);
	a->to = ct_insert(a, ct_relay_name(world.relay));
	ct_name(&a->ep->fid, name, sizeof(name));
	b->to = ct_insert(b, name);
}

static void close_world(void)
{
	for (int i = 0; i < world.count; i++)
		free(world.sent[i].buf);
	ct_close_pair(&world.pair);
	ct_relay_close(world.relay);
}

static bool all_ended(void)
{
	for (int i = 0; i < world.count; i++)
		if (!world.sent[i].ended)
			return false;
	return true;
}

static void run_one(uint64_t seed)
{
	int breaks = 0;

	printf("# CT_SEED=%llu\n", (unsigned long long)seed);
	memset(&world, 0, sizeof(world));
	world.random.state = seed;
	world.newest = -1;
	open_world();
	for (int i = 0; i < RECEIVES; i++)
		post_receive(&world.receives[i]);
	while (world.count < MESSAGES - 1) {
		if (ct_once_in(&world.random, 3))
			send_one(ct_once_in(&world.random, 4));
		progress();
		if (breaks < BREAKS && ct_once_in(&world.random, 200)) {
			breaks++;
			ct_relay_break(world.relay,
				       ct_once_in(&world.random, 2));
			ct_relay_mend(world.relay);
		}
	}
	CT_UNTIL(all_ended(), progress());
	/* By now there is a connection, or there will be one. */
	CT_UNTIL(send_one(true), progress());
	CT_UNTIL(all_ended(), progress());
	for (int i = 0; i < world.count; i++)
		if (world.sent[i].delivery && world.sent[i].succeeded)
			CT_UNTIL(world.sent[i].arrived, progress());
	REQUIRE(world.sent[world.count - 1].succeeded);
	close_world();
}

static void numbered(void)
{
	const char *seed = getenv("CT_SEED"), *runs = getenv("CT_RUNS");
	int count = runs ? atoi(runs) : ct_times(5);

	if (seed) {
		run_one(strtoull(seed, NULL, 0));
		return;
	}
	for (int i = 1; i <= count; i++)
		run_one((uint64_t)i);
}

static const struct ct_test tests[] = {
	{ "numbered", numbered, CT_RDM },
};

CT_MAIN(tests)
