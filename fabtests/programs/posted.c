/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Posted receives beyond any size that is announced (fi_rx_attr): all are
 * accepted without a look at the queue, and are found by messages and by
 * fi_cancel(3). */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "transfer.h"
#include "wait.h"

enum { MOST = 200000, SENT = 60, TAKEN_BACK = 1000 };

static struct fi_context2 tx_context, rx_context[MOST];
static int number_of[MOST];		/* messages of each receive */
static int count;

struct way {
	bool tagged, directed, shared, multi;
	enum ct_recv_form form;
};

static char space[64];

static void post(struct ct_peer *peer, const struct way *way, int i)
{
	struct ct_message m = {
		.tagged = way->tagged, .tag = (uint64_t)i, .buf = space,
		.len = sizeof(space),
		.from = way->directed ? peer->to : FI_ADDR_UNSPEC,
		.flags = way->multi ? FI_MULTI_RECV : 0,
		.context = &rx_context[i],
	};

	OK(ct_recv(peer, way->form, &m));
}

/* A message for receive i, or for the oldest one if there are no tags. */
static void pass(struct ct_pair *pair, const struct way *way, int i)
{
	struct ct_message m = {
		.tagged = way->tagged, .tag = (uint64_t)i, .buf = space,
		.len = sizeof(space), .context = &tx_context,
	};
	struct ct_completion done;

	POST(&pair->a, ct_send(&pair->a, CT_SEND, &m));
	done = ct_next(&pair->b, &pair->b.rx);
	REQUIRE(!done.err && done.len == sizeof(space));
	REQUIRE(done.context == &rx_context[i]);
	REQUIRE(!number_of[i]++);
	ct_done(&pair->a, &pair->a.tx, &tx_context);
}

static void take_back(struct ct_pair *pair, int i)
{
	struct ct_peer *b = &pair->b;
	struct fid *at = b->spec.srx ? &b->srx->fid : &b->ep->fid;
	struct ct_completion error;

	OK(fi_cancel(at, &rx_context[i]));
	/* Mostly it is there, so that no other process has to run in between. */
	ct_pull(&b->rx);
	error = ct_error(b, &b->rx);
	REQUIRE(error.err == FI_ECANCELED && error.context == &rx_context[i]);
	REQUIRE(!number_of[i]++);
}

/* All are posted; messages and cancellations find those in the middle and at
 * both ends. */
static void use(struct ct_pair *pair, const struct way *way)
{
	int stride = count / (2 * SENT), oldest = 0;

	for (int i = 0; i < SENT; i++)
		pass(pair, way, way->tagged ? count - 1 - i * stride : oldest++);
	for (int i = oldest; i < oldest + count / 4; i++)
		if (!number_of[i])
			take_back(pair, i);
	for (int i = 0, left = TAKEN_BACK; left; i++)
		if (!number_of[count - 1 - i]) {
			take_back(pair, count - 1 - i);
			left--;
		}
	for (int i = 0, left = SENT; left; i++)
		if (!number_of[i]) {
			pass(pair, way, i);
			left--;
		}
	REQUIRE(ct_stays_empty(&pair->b, &pair->b.rx));
}

static struct ct_spec spec_of(const struct way *way)
{
	return (struct ct_spec) {
		.caps = FI_MSG | (way->tagged ? FI_TAGGED : 0) |
			(way->multi ? FI_MULTI_RECV : 0) |
			(way->directed ? FI_DIRECTED_RECV : 0),
		.srx = way->shared,
	};
}

static void many(struct way way)
{
	struct ct_spec spec = spec_of(&way);
	struct ct_pair pair;

	count = ct_times(MOST);
	if (count < MOST)
		count = 4 * SENT + 4 * TAKEN_BACK;
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	REQUIRE(pair.b.info->rx_attr->size);
	for (int i = 0; i < count; i++)
		post(&pair.b, &way, i);
	use(&pair, &way);
	ct_close_pair(&pair);
}

static void untagged(void) { many((struct way) { 0 }); }
static void tagged(void) { many((struct way) { .tagged = true }); }
static void directed(void) { many((struct way) { .directed = true }); }
static void shared(void) { many((struct way) { .shared = true }); }

static void tagged_directed(void)
{
	many((struct way) { .tagged = true, .directed = true });
}

static void tagged_shared(void)
{
	many((struct way) { .tagged = true, .shared = true });
}

static void shared_directed(void)
{
	many((struct way) { .tagged = true, .directed = true, .shared = true });
}

/* Each takes one message, as the rest is less than the minimum. */
static void multi(void)
{
	many((struct way) { .multi = true, .form = CT_RECVMSG });
}

/* The receives of an endpoint that is not enabled yet. */
static struct way early_way = { .tagged = true };
static bool is_second;

static void post_early(struct fid_ep *ep)
{
	struct ct_peer only = { .ep = ep };

	if (is_second)
		for (int i = 0; i < count; i++)
			post(&only, &early_way, i);
	is_second = !is_second;
}

static void early(void)
{
	struct ct_spec spec = spec_of(&early_way);
	struct ct_pair pair;

	count = ct_times(MOST);
	if (count < MOST)
		count = 4 * SENT + 4 * TAKEN_BACK;
	spec.prepare = post_early;
	ct_open_pair(&pair, &spec);
	use(&pair, &early_way);
	ct_close_pair(&pair);
}

/* Nobody's messages ever come: the endpoint is closed with all of them. */
static void left(void)
{
	struct ct_spec spec = { .caps = FI_MSG };
	struct way way = { 0 };
	struct ct_peer peer;

	count = ct_times(MOST);
	ct_open_single(&peer, &spec);
	for (int i = 0; i < count; i++)
		post(&peer, &way, i);
	CHECK(ct_stays_empty(&peer, &peer.rx), "nothing-comes");
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "untagged", untagged, CT_BOTH | CT_SLOW },
	{ "tagged", tagged, CT_BOTH | CT_SLOW },
	{ "directed", directed, CT_RDM | CT_SLOW },
	{ "tagged-directed", tagged_directed, CT_RDM | CT_SLOW },
	{ "shared", shared, CT_BOTH | CT_SLOW },
	{ "tagged-shared", tagged_shared, CT_BOTH | CT_SLOW },
	{ "shared-directed", shared_directed, CT_RDM | CT_SLOW },
	{ "multi", multi, CT_BOTH | CT_SLOW },
	{ "early", early, CT_RDM | CT_SLOW },
	{ "left", left, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
