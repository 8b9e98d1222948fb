/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Two endpoints that do anything in any order, all of it derived from one
 * seed: the operations they post, which of them makes progress, how many bytes
 * get through (MSG). Every message must be delivered once, in order and
 * unchanged, and every operation must complete once; the model predicts the
 * matches.
 *
 * CT_SEED=<number> repeats the one run that a failure names, CT_RUNS=<number>
 * does more of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "connect.h"
#include "model.h"
#include "pattern.h"
#include "random.h"
#include "relay.h"
#include "slots.h"
#include "transfer.h"
#include "wait.h"

enum {
	STEPS = 400,
	CAPACITY = STEPS + 200,		/* operations of a kind per direction */
	ACCESSES = STEPS,
	MIN_MULTI = 512,		/* no message to a multi-receive is longer */
};

/* The properties of a scenario besides messages that fit. */
struct scenario {
	uint64_t caps;
	size_t longest;
	bool truncation, cancel, peek, relay, breaks;
	bool handshake;			/* is cut into pieces, too */
	bool squeezed;			/* few messages are buffered */
};

/* One endpoint and its operations in progress. */
struct side {
	struct ct_peer *peer;
	struct side *other;
	struct ct_lane lane;		/* of messages from here to the other */
	struct ct_slots slots;		/* that the other reads and writes */
	struct ct_access accesses[ACCESSES];
	int access_count, accesses_open;
	/* A peek in progress: its purpose, and its answer. */
	struct fi_context2 peek_context;
	bool peek_open, peek_found;
	struct ct_completion peek_answer;
};

struct world {
	const struct scenario *scenario;
	struct ct_random random;
	struct ct_pair pair;
	struct side side[2];
	struct ct_relay *relay;
	bool broken;
};

enum context_kind { A_MESSAGE, A_RECEIVE, AN_ACCESS, A_PEEK, NOTHING_OF_OURS };

#define WITHIN(pointer, array, count)					\
	((char *)(pointer) >= (char *)(array) &&			\
	 (char *)(pointer) < (char *)((array) + (count)))

static enum context_kind kind_of(const struct side *side, void *context)
{
	if (WITHIN(context, side->lane.sent, side->lane.sent_count))
		return A_MESSAGE;
	if (WITHIN(context, side->other->lane.posted,
		   side->other->lane.posted_count))
		return A_RECEIVE;
	if (WITHIN(context, side->accesses, side->access_count))
		return AN_ACCESS;
	if (context == &side->peek_context)
		return A_PEEK;
	return NOTHING_OF_OURS;
}

static void sent_completed(struct world *world, struct ct_sent *sent,
			   const struct ct_completion *done)
{
	REQUIRE(sent->completes && !sent->completed);
	sent->completed = true;
	if (done->err) {
		REQUIRE(world->broken);
		return;
	}
	REQUIRE(done->flags & FI_SEND);
	REQUIRE(done->flags & (sent->tagged ? FI_TAGGED : FI_MSG));
}

/* The message must be the one that the model predicts, complete and unchanged.
 */
static void message_delivered(struct ct_posted *posted,
			      const struct ct_completion *done)
{
	struct ct_sent *sent = ct_lane_due(posted->lane, posted, done->buf);
	size_t room = posted->multi ? MIN_MULTI : posted->room, kept;

	REQUIRE(sent);
	kept = sent->len < room ? sent->len : room;
	if (kept < sent->len) {
		REQUIRE(done->err == FI_ETRUNC);
	} else {
		REQUIRE(!done->err);
		REQUIRE(done->len == sent->len);
		REQUIRE(done->flags & FI_RECV);
		REQUIRE(!(done->flags & FI_REMOTE_CQ_DATA) == !sent->has_data);
		REQUIRE(!sent->has_data || done->data == sent->data);
		REQUIRE(!sent->tagged || done->tag == sent->tag);
		REQUIRE(ct_holds(posted->buf + sent->offset, kept, sent->seed));
	}
	sent->delivered = true;
	posted->delivered++;
}

static void receive_completed(struct world *world, struct ct_posted *posted,
			      const struct ct_completion *done)
{
	REQUIRE(!posted->released);
	if (done->err && done->err != FI_ETRUNC) {
		REQUIRE(posted->cancelling ? done->err == FI_ECANCELED
					   : world->broken);
		posted->cancelled = posted->released = true;
		posted->lane->dirty = true;
		return;
	}
	if (!posted->multi || done->flags & ~FI_MULTI_RECV)
		message_delivered(posted, done);
	posted->released = !posted->multi || done->flags & FI_MULTI_RECV;
	/* A multi-receive buffer is released when it is full, not before. */
	REQUIRE(!posted->multi || !posted->released ||
		(posted->closed && posted->delivered == posted->messages));
}

static void access_completed(struct world *world, struct side *side,
			     struct ct_access *access,
			     const struct ct_completion *done)
{
	if (done->err)
		REQUIRE(world->broken);
	else
		ct_access_check(access, done->flags);
	ct_access_end(access);
	side->accesses_open--;
}

static void completed(struct world *world, struct side *side,
		      const struct ct_completion *done)
{
	switch (kind_of(side, done->context)) {
	case A_MESSAGE:
		sent_completed(world, done->context, done);
		break;
	case A_RECEIVE:
		receive_completed(world, done->context, done);
		break;
	case AN_ACCESS:
		access_completed(world, side, done->context, done);
		break;
	case A_PEEK:
		REQUIRE(side->peek_open);
		side->peek_open = false;
		side->peek_found = !done->err;
		REQUIRE(!done->err || done->err == FI_ENOMSG);
		side->peek_answer = *done;
		break;
	case NOTHING_OF_OURS:
		REQUIRE(done->flags & FI_REMOTE_WRITE);
		REQUIRE(done->flags & FI_REMOTE_CQ_DATA);
		REQUIRE(side->slots.data > 0);
		side->slots.data--;
		break;
	}
}

/* Reads at most this many completions of each queue. */
static void progress(struct world *world, struct side *side, int most)
{
	struct ct_cq *queues[] = { &side->peer->tx, &side->peer->rx };

	for (int i = 0; i < 2; i++) {
		struct ct_cq *cq = queues[i];

		for (int n = 0; n < most && ct_pull(cq); n++) {
			struct ct_completion done = cq->stash[cq->first++];

			cq->count--;
			completed(world, side, &done);
		}
	}
	if (world->relay)
		ct_relay_step(world->relay, &world->random);
}

static void progress_both(struct world *world)
{
	for (int i = 0; i < 2; i++)
		progress(world, &world->side[i], 64);
}

#define WORLD_UNTIL(world, cond) CT_UNTIL(cond, progress_both(world))

static uint64_t some_tag(struct ct_random *random)
{
	return ct_below(random, 4) | (ct_once_in(random, 4) ? 1ULL << 63 : 0);
}

static size_t some_length(struct world *world, size_t limit)
{
	struct ct_random *random = &world->random;
	size_t len = 0;

	switch (ct_below(random, 8)) {
	case 0:
		break;
	case 1:
	case 2:
	case 3:
		len = 1 + ct_below(random, 64);
		break;
	case 7:
		len = 1 + ct_below(random, world->scenario->longest);
		break;
	default:
		len = 1 + ct_below(random, 5000);
	}
	if (len > world->scenario->longest)
		len = world->scenario->longest;
	return len < limit ? len : limit;
}

static bool may_be_tagged(struct world *world)
{
	uint64_t caps = world->scenario->caps;

	return caps & FI_TAGGED && (!(caps & FI_MSG) ||
				    ct_once_in(&world->random, 2));
}

static void send_one(struct world *world, struct side *side)
{
	struct ct_random *random = &world->random;
	struct ct_sent *sent = ct_lane_next_sent(&side->lane);
	enum ct_send_form form = ct_below(random, CT_SEND_FORMS);
	struct ct_message message;
	ssize_t ret;

	if (!sent)
		return;
	sent->tagged = may_be_tagged(world);
	sent->tag = sent->tagged ? some_tag(random) : 0;
	sent->len = some_length(world, ct_send_limit(side->peer, form));
	sent->has_data = ct_send_has_data(form);
	sent->data = (uint32_t)ct_bits(random);
	sent->seed = (unsigned)ct_bits(random);
	sent->completes = ct_send_completes(form);
	sent->buf = malloc(sent->len ? sent->len : 1);
	REQUIRE(sent->buf);
	ct_fill(sent->buf, sent->len, sent->seed);
	message = (struct ct_message) {
		.tagged = sent->tagged, .buf = sent->buf, .len = sent->len,
		.pieces = 1 + ct_below(random, 4), .tag = sent->tag,
		.data = sent->data, .context = sent,
	};
	ret = ct_send(side->peer, form, &message);
	if (ret == -FI_EAGAIN) {
		free(sent->buf);
		return;
	}
	OK(ret);
	if (form == CT_INJECT || form == CT_INJECTDATA ||
	    form == CT_SENDMSG_INJECT)
		memset(sent->buf, 0xee, sent->len);
	ct_lane_commit_sent(&side->lane);
}

/* Posts a receive; `wide` ones accept whatever is left at the end. */
static void post_one(struct world *world, struct side *side, bool tagged,
		     bool wide)
{
	struct ct_random *random = &world->random;
	struct ct_lane *lane = &side->other->lane;
	struct ct_posted *posted = ct_lane_next_posted(lane);
	struct ct_message message;
	ssize_t ret;

	if (!posted)
		return;
	posted->tagged = tagged;
	posted->room = world->scenario->longest;
	posted->multi = !tagged && world->scenario->caps & FI_MULTI_RECV &&
			(wide || ct_once_in(random, 2));
	if (posted->multi)
		posted->room = MIN_MULTI * (1 + ct_below(random, 6));
	else if (world->scenario->truncation && !wide && ct_once_in(random, 3))
		posted->room = ct_below(random, 1000);
	posted->min = MIN_MULTI;
	if (tagged) {
		static const uint64_t masks[] = { 0, 0, 0, 1, 1ULL << 63,
						  UINT64_MAX };

		posted->tag = some_tag(random);
		posted->ignore = wide ? UINT64_MAX : masks[ct_below(random, 6)];
	}
	posted->buf = malloc(posted->room ? posted->room : 1);
	REQUIRE(posted->buf);
	message = (struct ct_message) {
		.tagged = tagged, .buf = posted->buf, .len = posted->room,
		/* A multi-receive buffer is a single one. */
		.pieces = posted->multi ? 1 : 1 + ct_below(random, 4),
		.tag = posted->tag,
		.ignore = posted->ignore, .from = FI_ADDR_UNSPEC,
		.flags = posted->multi ? FI_MULTI_RECV : 0, .context = posted,
	};
	ret = ct_recv(side->peer,
		      posted->multi ? CT_RECVMSG : ct_below(random, CT_RECV_FORMS),
		      &message);
	if (ret == -FI_EAGAIN) {
		free(posted->buf);
		return;
	}
	OK(ret);
	ct_lane_commit_posted(lane);
}

static void cancel_one(struct world *world, struct side *side)
{
	struct ct_lane *lane = &side->other->lane;
	struct ct_posted *posted;

	if (!lane->posted_count)
		return;
	posted = &lane->posted[ct_below(&world->random,
					(uint64_t)lane->posted_count)];
	if (posted->multi || posted->released || posted->cancelling)
		return;
	posted->cancelling = !fi_cancel(&side->peer->ep->fid, posted);
}

/* Asks for a message that no receive meets, and perhaps takes it away. */
static void peek_one(struct world *world, struct side *side)
{
	struct ct_random *random = &world->random;
	struct ct_lane *lane = &side->other->lane;
	uint64_t tag = some_tag(random), ignore = ct_once_in(random, 2) ? 0 : 1;
	uint64_t what = ct_below(random, 3);
	struct ct_sent *sent;
	struct ct_message message = {
		.tagged = true, .tag = tag, .ignore = ignore,
		.from = FI_ADDR_UNSPEC, .context = &side->peek_context,
		.flags = FI_PEEK | (what == 1 ? FI_CLAIM :
				    what == 2 ? FI_DISCARD : 0),
	};

	side->peek_open = true;
	POST(side->peer, ct_recv(side->peer, CT_RECVMSG, &message));
	WORLD_UNTIL(world, !side->peek_open);
	if (!side->peek_found)
		return;
	sent = ct_lane_waiting(lane, true, tag, ignore);
	REQUIRE(sent);
	REQUIRE(side->peek_answer.tag == sent->tag);
	REQUIRE(side->peek_answer.len == sent->len);
	if (!what)
		return;
	sent->removed = true;
	lane->dirty = true;
	if (what == 2) {
		sent->delivered = true;
		return;
	}
	message.flags = FI_CLAIM;
	message.len = sent->len;
	message.buf = malloc(sent->len ? sent->len : 1);
	REQUIRE(message.buf);
	side->peek_open = true;
	POST(side->peer, ct_recv(side->peer, CT_RECVMSG, &message));
	WORLD_UNTIL(world, !side->peek_open);
	REQUIRE(side->peek_found);
	REQUIRE(side->peek_answer.len == sent->len);
	REQUIRE(ct_holds(message.buf, sent->len, sent->seed));
	free(message.buf);
	/* It has gone where no receive of the model is. */
	sent->delivered = true;
	sent->receive = -1;
}

static void access_one(struct world *world, struct side *side)
{
	if (side->access_count == ACCESSES ||
	    !ct_access_post(side->peer, &side->accesses[side->access_count],
			    &side->other->slots, &world->random))
		return;
	side->access_count++;
	side->accesses_open++;
}

static void step(struct world *world)
{
	const struct scenario *scenario = world->scenario;
	struct ct_random *random = &world->random;
	struct side *side = &world->side[ct_below(random, 2)];

	switch (ct_below(random, 16)) {
	case 0: case 1: case 2: case 3:
		if (scenario->caps & (FI_MSG | FI_TAGGED))
			send_one(world, side);
		break;
	case 4: case 5: case 6: case 7:
		if (scenario->caps & (FI_MSG | FI_TAGGED))
			post_one(world, side, may_be_tagged(world), false);
		break;
	case 8: case 9:
		if (scenario->caps & (FI_RMA | FI_ATOMIC))
			access_one(world, side);
		break;
	case 10:
		if (scenario->cancel)
			cancel_one(world, side);
		break;
	case 11:
		if (scenario->peek)
			peek_one(world, side);
		break;
	default:
		progress(world, side, (int)ct_below(random, 4));
	}
}

static bool all_sent(const struct ct_lane *lane)
{
	for (int i = 0; i < lane->sent_count; i++)
		if (lane->sent[i].completes && !lane->sent[i].completed)
			return false;
	return true;
}

static bool all_delivered(const struct ct_lane *lane)
{
	for (int i = 0; i < lane->sent_count; i++)
		if (!lane->sent[i].delivered)
			return false;
	return true;
}

/* Receives for everything that no receive meets yet. */
static void receive_the_rest(struct world *world, struct side *side)
{
	struct ct_lane *lane = &side->other->lane;

	for (int tagged = 0; tagged < 2; tagged++)
		while (ct_lane_waiting(lane, tagged, 0, UINT64_MAX)) {
			int before = lane->posted_count;

			REQUIRE(before < lane->capacity);
			post_one(world, side, tagged, true);
			if (lane->posted_count == before)
				progress(world, side, 64);
		}
}

/* Whether everything has arrived. A receive that turns out to be cancelled
 * leaves its message to others. */
static bool settled(struct world *world)
{
	bool done = true;

	for (int i = 0; i < 2; i++) {
		receive_the_rest(world, &world->side[i]);
		done = done && all_delivered(&world->side[!i].lane);
	}
	return done;
}

static bool all_released(const struct ct_lane *lane)
{
	for (int i = 0; i < lane->posted_count; i++)
		if (!lane->posted[i].released)
			return false;
	return true;
}

static void finish(struct world *world, struct side *side)
{
	struct ct_lane *lane = &side->lane;

	WORLD_UNTIL(world, ct_slots_placed(&side->slots));
	/* Receives that are still posted matched nothing, and can be
	 * cancelled. */
	for (int i = 0; i < lane->posted_count; i++) {
		struct ct_posted *posted = &lane->posted[i];

		if (posted->released)
			continue;
		posted->cancelling = true;
		if (posted->multi && posted->messages)
			posted->released = true;
		else
			OK(fi_cancel(&side->other->peer->ep->fid, posted));
	}
	WORLD_UNTIL(world, all_released(lane));
}

static void minimum(struct fid_ep *ep)
{
	size_t min = MIN_MULTI;

	OK(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min,
		     sizeof(min)));
}

/* As ct_open_pair, with the relay between the two. */
static void open_relayed(struct world *world, const struct ct_spec *spec)
{
	struct ct_peer *a = &world->pair.a, *b = &world->pair.b;
	unsigned char name[CT_NAME];
	struct ct_event request;
	struct fi_info *info = ct_getinfo(spec);
	struct ct_random *random = world->scenario->handshake ? &world->random
							      : NULL;

	ct_open_domain(a, spec, info, NULL, NULL);
	ct_open_domain(b, spec, fi_dupinfo(info), a->fabric, NULL);
	a->partner = b;
	b->partner = a;
	world->pair.pep = ct_listen(a);
	ct_name(&world->pair.pep->fid, name, sizeof(name));
	world->relay = ct_relay_open((struct sockaddr *)name);
	ct_open_ep(b, b->info);
	OK(fi_connect(b->ep, ct_relay_name(world->relay), NULL, 0));
	while (!a->eq.count) {
		ct_progress_events(a);
		ct_progress(a);
		ct_relay_step(world->relay, random);
	}
	ct_wait_request(a, &request);
	ct_accept(a, &request, NULL, 0);
	while (!a->eq.count || !b->eq.count) {
		ct_progress_events(a);
		ct_progress(a);
		ct_relay_step(world->relay, random);
	}
	ct_wait_connected(a);
	ct_wait_connected(b);
}

static void open_world(struct world *world, const struct scenario *scenario,
		       uint64_t seed)
{
	struct ct_spec spec = {
		.caps = scenario->caps,
		.prepare = scenario->caps & FI_MULTI_RECV ? minimum : NULL,
	};
	struct ct_peer *peers[] = { &world->pair.a, &world->pair.b };

	memset(world, 0, sizeof(*world));
	world->scenario = scenario;
	world->random.state = seed;
	if (scenario->relay)
		open_relayed(world, &spec);
	else
		ct_open_pair(&world->pair, &spec);
	for (int i = 0; i < 2; i++) {
		struct side *side = &world->side[i];

		side->peer = peers[i];
		side->other = &world->side[!i];
		ct_lane_open(&side->lane, CAPACITY);
		ct_slots_open(side->peer, &side->slots);
	}
}

static void close_world(struct world *world)
{
	for (int i = 0; i < 2; i++) {
		struct side *side = &world->side[i];

		ct_slots_close(&side->slots);
		if (world->broken)
			OK(fi_close(&side->peer->ep->fid));
	}
	if (world->broken)
		world->pair.a.ep = world->pair.b.ep = NULL;
	for (int i = 0; i < 2; i++)
		ct_lane_close(&world->side[i].lane);
	ct_close_pair(&world->pair);
	if (world->relay)
		ct_relay_close(world->relay);
}

/* The connection ends during transfers: operations in progress complete,
 * successfully or not, and both sides get events. */
static void break_off(struct world *world)
{
	world->broken = true;
	ct_relay_break(world->relay, ct_once_in(&world->random, 2));
	for (int i = 0; i < 2; i++) {
		struct side *side = &world->side[i];

		WORLD_UNTIL(world, (ct_progress_events(side->peer),
				    side->peer->eq.count));
		ct_event_of(side->peer, FI_SHUTDOWN);
		WORLD_UNTIL(world, all_sent(&side->lane) &&
				   !side->accesses_open);
	}
}

static void run_one(const struct scenario *scenario, uint64_t seed)
{
	static struct world world;
	int steps;

	printf("# CT_SEED=%llu\n", (unsigned long long)seed);
	open_world(&world, scenario, seed);
	steps = scenario->breaks ? (int)ct_below(&world.random, STEPS) : STEPS;
	for (int i = 0; i < steps; i++)
		step(&world);
	if (scenario->breaks) {
		break_off(&world);
		close_world(&world);
		return;
	}
	WORLD_UNTIL(&world, settled(&world));
	WORLD_UNTIL(&world, all_sent(&world.side[0].lane) &&
			    all_sent(&world.side[1].lane));
	WORLD_UNTIL(&world, !world.side[0].accesses_open &&
			    !world.side[1].accesses_open);
	WORLD_UNTIL(&world, !world.side[0].slots.data &&
			    !world.side[1].slots.data);
	finish(&world, &world.side[0]);
	finish(&world, &world.side[1]);
	close_world(&world);
}

static void run(const struct scenario *scenario)
{
	const char *seed = getenv("CT_SEED"), *runs = getenv("CT_RUNS");
	int count = runs ? atoi(runs) : ct_times(10);

	/* Before the library looks; others do not know the variable. */
	if (scenario->squeezed)
		REQUIRE(!setenv("FI_TCP_MAX_UNEXPECTED", "1000", 1));
	if (seed) {
		run_one(scenario, strtoull(seed, NULL, 0));
		return;
	}
	for (int i = 1; i <= count; i++)
		run_one(scenario, (uint64_t)i);
}

#define SCENARIO(name, ...)						\
	static void name(void)						\
	{								\
		static const struct scenario scenario = { __VA_ARGS__ };	\
									\
		run(&scenario);						\
	}

SCENARIO(plain, .caps = FI_MSG, .longest = 20000)
SCENARIO(tagged, .caps = FI_TAGGED, .longest = 20000)
SCENARIO(both, .caps = FI_MSG | FI_TAGGED, .longest = 20000)
SCENARIO(large, .caps = FI_MSG | FI_TAGGED, .longest = 1000000)
SCENARIO(truncated, .caps = FI_MSG | FI_TAGGED, .longest = 20000,
	 .truncation = true)
SCENARIO(cancelled, .caps = FI_MSG | FI_TAGGED, .longest = 20000,
	 .cancel = true)
SCENARIO(peeked, .caps = FI_MSG | FI_TAGGED, .longest = 20000, .peek = true)
SCENARIO(multi, .caps = FI_MSG | FI_MULTI_RECV, .longest = MIN_MULTI)
SCENARIO(rma, .caps = FI_RMA | FI_MSG, .longest = 2000)
SCENARIO(atomic, .caps = FI_ATOMIC | FI_RMA | FI_MSG, .longest = 2000)
SCENARIO(everything, .caps = FI_MSG | FI_TAGGED | FI_RMA, .longest = 100000,
	 .truncation = true, .cancel = true, .peek = true)
SCENARIO(squeezed, .caps = FI_MSG | FI_TAGGED, .longest = 1000000,
	 .peek = true, .squeezed = true)
SCENARIO(relayed, .caps = FI_MSG | FI_TAGGED | FI_RMA, .longest = 20000,
	 .relay = true)
SCENARIO(relayed_untagged, .caps = FI_MSG | FI_RMA, .longest = 20000,
	 .relay = true)
SCENARIO(cut_handshake, .caps = FI_MSG, .longest = 2000, .relay = true,
	 .handshake = true)
SCENARIO(broken_off, .caps = FI_MSG | FI_RMA, .longest = 20000,
	 .relay = true, .breaks = true)

static const struct ct_test tests[] = {
	{ "plain", plain, CT_BOTH },
	{ "tagged", tagged, CT_BOTH },
	{ "both", both, CT_BOTH },
	{ "large", large, CT_BOTH },
	{ "truncated", truncated, CT_BOTH },
	{ "cancelled", cancelled, CT_BOTH },
	{ "peeked", peeked, CT_BOTH },
	{ "multi", multi, CT_BOTH },
	{ "rma", rma, CT_BOTH },
	{ "atomic", atomic, CT_BOTH },
	{ "everything", everything, CT_BOTH },
	{ "squeezed", squeezed, CT_BOTH },
	{ "relayed", relayed, CT_MSG },
	{ "relayed_untagged", relayed_untagged, CT_MSG },
	{ "cut_handshake", cut_handshake, CT_MSG },
	{ "broken_off", broken_off, CT_MSG },
};

CT_MAIN(tests)
