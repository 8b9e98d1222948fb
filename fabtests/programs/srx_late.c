/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Shared receive contexts that are bound late: to an endpoint that is enabled,
 * that is about to be connected, that has a connection, or that has messages
 * and receives of its own.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "check.h"
#include "connect.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define COUNT 4

static struct fi_context2 tx_context[COUNT], rx_context[COUNT], own_context[COUNT];
static unsigned char in[COUNT][100], out[COUNT][100], own[COUNT][100];

enum stage { ENABLED, BEGUN, CONNECTED, NEVER };
enum side { CONNECTS, ACCEPTS };

/* Who gets the shared context, and when. */
struct plan {
	enum stage stage;
	enum side side;
	bool announced;		/* rx_ctx_cnt is FI_SHARED_CONTEXT */
	bool posted;		/* receives are posted to it before it is bound */
	uint64_t caps;		/* 0: FI_MSG */
};

struct bench {
	struct ct_pair pair;
	struct ct_peer *from, *to;
	struct fid_ep *srx;
	struct plan plan;
};

static void post(struct fid_ep *ep, void *buf, void *context)
{
	OK(fi_recv(ep, buf, 100, NULL, FI_ADDR_UNSPEC, context));
}

static void bind_now(struct bench *bench)
{
	OK(fi_ep_bind(bench->to->ep, &bench->srx->fid, 0));
	bench->to->srx = bench->srx;
}

static void reach(struct bench *bench, struct ct_peer *peer, enum stage stage)
{
	if (peer == bench->to && stage == bench->plan.stage)
		bind_now(bench);
}

static void open_domain(struct ct_peer *peer, struct ct_peer *other, uint64_t caps,
			bool announced)
{
	struct ct_spec spec = { .caps = caps, .srx = announced };
	struct fi_info *info = ct_getinfo(&spec);

	spec.srx = false;
	ct_open_domain(peer, &spec, info, other ? other->fabric : NULL, NULL);
}

static void setup(struct bench *bench, const struct plan *plan)
{
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;
	struct ct_event request;
	unsigned char name[CT_NAME];

	memset(bench, 0, sizeof(*bench));
	bench->plan = *plan;
	bench->to = plan->side == CONNECTS ? b : a;
	bench->from = plan->side == CONNECTS ? a : b;
	open_domain(a, NULL, plan->caps, plan->announced && bench->to == a);
	open_domain(b, a, plan->caps, plan->announced && bench->to == b);
	a->partner = b;
	b->partner = a;
	OK(fi_srx_context(bench->to->domain, bench->to->info->rx_attr, &bench->srx,
			  NULL));
	for (int i = 0; plan->posted && i < COUNT; i++)
		post(bench->srx, in[i], &rx_context[i]);
	for (int i = 0; i < COUNT; i++)
		ct_fill(out[i], 100, (unsigned)i);
	if (ct_opt.type != FI_EP_MSG) {
		ct_open_ep(a, a->info);
		reach(bench, a, ENABLED);
		ct_open_ep(b, b->info);
		reach(bench, b, ENABLED);
		ct_name(&b->ep->fid, name, sizeof(name));
		a->to = ct_insert(a, name);
		ct_name(&a->ep->fid, name, sizeof(name));
		b->to = ct_insert(b, name);
		return;
	}
	bench->pair.pep = ct_listen(a);
	ct_name(&bench->pair.pep->fid, name, sizeof(name));
	ct_open_ep(b, b->info);
	reach(bench, b, ENABLED);
	OK(fi_connect(b->ep, name, NULL, 0));
	reach(bench, b, BEGUN);
	ct_wait_request(a, &request);
	ct_open_ep(a, request.info);
	fi_freeinfo(request.info);
	reach(bench, a, ENABLED);
	OK(fi_accept(a->ep, NULL, 0));
	reach(bench, a, BEGUN);
	ct_wait_connected(b);
	ct_wait_connected(a);
	reach(bench, a, CONNECTED);
	reach(bench, b, CONNECTED);
}

static void teardown(struct bench *bench)
{
	ct_close_pair(&bench->pair);
}

static void send(struct bench *bench, int i)
{
	POST(bench->from, fi_send(bench->from->ep, out[i], 100, NULL, bench->from->to,
				  &tx_context[i]));
}

/* The messages arrive in order, in the receives of the shared context. */
static void arrive(struct bench *bench)
{
	for (int i = 0; i < COUNT; i++) {
		struct ct_completion done;

		done = ct_done(bench->to, &bench->to->rx, &rx_context[i]);
		REQUIRE(done.len == 100);
		REQUIRE(ct_holds(in[i], 100, (unsigned)i));
		ct_done(bench->from, &bench->from->tx, &tx_context[i]);
	}
}

static void bound(const struct plan *plan)
{
	struct bench bench;

	setup(&bench, plan);
	for (int i = 0; i < COUNT; i++) {
		if (!plan->posted)
			post(bench.srx, in[i], &rx_context[i]);
		send(&bench, i);
	}
	arrive(&bench);
	teardown(&bench);
}

#define BOUND(name, ...)						\
	static void name(void)						\
	{								\
		bound(&(struct plan) { __VA_ARGS__ });			\
	}

BOUND(enabled, .stage = ENABLED, .side = CONNECTS)
BOUND(enabled_posted, .stage = ENABLED, .side = CONNECTS, .posted = true)
BOUND(enabled_to_accept, .stage = ENABLED, .side = ACCEPTS)
BOUND(connecting, .stage = BEGUN, .side = CONNECTS)
BOUND(connecting_posted, .stage = BEGUN, .side = CONNECTS, .posted = true)
BOUND(connecting_announced, .stage = BEGUN, .side = CONNECTS, .announced = true)
BOUND(accepting, .stage = BEGUN, .side = ACCEPTS)
BOUND(accepting_posted, .stage = BEGUN, .side = ACCEPTS, .posted = true)
BOUND(connected, .stage = CONNECTED, .side = CONNECTS)
BOUND(connected_posted, .stage = CONNECTED, .side = CONNECTS, .posted = true)
BOUND(connected_announced, .stage = CONNECTED, .side = CONNECTS, .announced = true)
BOUND(accepted, .stage = CONNECTED, .side = ACCEPTS)
BOUND(accepted_announced, .stage = CONNECTED, .side = ACCEPTS, .announced = true)

/* Messages wait for a receive of the endpoint when the context is bound. */
static void arrived(void)
{
	struct plan plan = { .stage = NEVER };
	struct bench bench;

	setup(&bench, &plan);
	if (ct_opt.type != FI_EP_MSG)
		ct_warm_up(&bench.pair);
	for (int i = 0; i < COUNT; i++)
		send(&bench, i);
	REQUIRE(ct_stays_empty(bench.to, &bench.to->rx));
	bind_now(&bench);
	for (int i = 0; i < COUNT; i++)
		post(bench.srx, in[i], &rx_context[i]);
	arrive(&bench);
	teardown(&bench);
}

/* The same, and the context has receives for them. */
static void arrived_posted(void)
{
	struct plan plan = { .stage = NEVER, .posted = true };
	struct bench bench;

	setup(&bench, &plan);
	for (int i = 0; i < COUNT; i++)
		send(&bench, i);
	REQUIRE(ct_stays_empty(bench.to, &bench.to->rx));
	bind_now(&bench);
	arrive(&bench);
	teardown(&bench);
}

/* Receives of the endpoint itself take nothing any more, and can be cancelled. */
static void own_receives(void)
{
	struct plan plan = { .stage = NEVER };
	struct ct_completion end;
	struct bench bench;

	setup(&bench, &plan);
	for (int i = 0; i < 2; i++)
		post(bench.to->ep, own[i], &own_context[i]);
	bind_now(&bench);
	REQUIRE(ct_stays_empty(bench.to, &bench.to->rx));
	for (int i = 0; i < COUNT; i++) {
		post(bench.srx, in[i], &rx_context[i]);
		send(&bench, i);
	}
	arrive(&bench);
	OK(fi_cancel(&bench.to->ep->fid, &own_context[1]));
	end = ct_error(bench.to, &bench.to->rx);
	REQUIRE(end.err == FI_ECANCELED && end.context == &own_context[1]);
	teardown(&bench);
}

/* One of them has taken messages before. */
static void own_receives_done(void)
{
	struct plan plan = { .stage = NEVER };
	struct bench bench;

	setup(&bench, &plan);
	post(bench.to->ep, own[0], &own_context[0]);
	send(&bench, 0);
	ct_done(bench.to, &bench.to->rx, &own_context[0]);
	ct_done(bench.from, &bench.from->tx, &tx_context[0]);
	REQUIRE(ct_holds(own[0], 100, 0));
	bind_now(&bench);
	for (int i = 0; i < COUNT; i++) {
		post(bench.srx, in[i], &rx_context[i]);
		send(&bench, i);
	}
	arrive(&bench);
	teardown(&bench);
}

/* A multi-receive buffer takes messages that wait and later ones, and is released with
 * the last one that it has room for. */
static void multi_receive(bool waiting)
{
	enum { ROOM = 16384 };	/* FI_OPT_MIN_MULTI_RECV is not above it */
	static unsigned char large[COUNT * 100 + ROOM - 1];
	struct plan plan = { .stage = NEVER, .caps = FI_MSG | FI_MULTI_RECV };
	struct iovec iov = { large, sizeof(large) };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = &rx_context[0],
	};
	size_t room = ROOM, at = 0;
	struct bench bench;

	setup(&bench, &plan);
	OK(fi_setopt(&bench.srx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &room,
		     sizeof(room)));
	for (int i = 0; waiting && i < 2; i++)
		send(&bench, i);
	REQUIRE(ct_stays_empty(bench.to, &bench.to->rx));
	bind_now(&bench);
	OK(fi_recvmsg(bench.srx, &msg, FI_MULTI_RECV));
	for (int i = waiting ? 2 : 0; i < COUNT; i++)
		send(&bench, i);
	for (int i = 0; i < COUNT; i++, at += 100) {
		struct ct_completion done;

		done = ct_done(bench.to, &bench.to->rx, &rx_context[0]);
		REQUIRE(done.len == 100 && done.buf == large + at);
		REQUIRE(ct_holds(done.buf, 100, (unsigned)i));
		REQUIRE(!(done.flags & FI_MULTI_RECV) == (i < COUNT - 1));
		ct_done(bench.from, &bench.from->tx, &tx_context[i]);
	}
	teardown(&bench);
}

static void multi_receive_waiting(void)
{
	multi_receive(true);
}

static void multi_receive_later(void)
{
	multi_receive(false);
}

static void tsend(struct bench *bench, int i)
{
	POST(bench->from, fi_tsend(bench->from->ep, out[i], 100, NULL, bench->from->to,
				   (uint64_t)i, &tx_context[i]));
}

/* Tagged messages that wait are found by their tags, whatever their order. */
static void tagged(void)
{
	struct plan plan = { .stage = NEVER, .caps = FI_TAGGED };
	struct bench bench;

	setup(&bench, &plan);
	for (int i = 0; i < COUNT; i++)
		tsend(&bench, i);
	REQUIRE(ct_stays_empty(bench.to, &bench.to->rx));
	bind_now(&bench);
	for (int i = COUNT - 1; i >= 0; i--) {
		OK(fi_trecv(bench.srx, in[i], 100, NULL, FI_ADDR_UNSPEC, (uint64_t)i, 0,
			    &rx_context[i]));
		ct_done(bench.to, &bench.to->rx, &rx_context[i]);
		REQUIRE(ct_holds(in[i], 100, (unsigned)i));
	}
	for (int i = 0; i < COUNT; i++)
		ct_done(bench.from, &bench.from->tx, &tx_context[i]);
	teardown(&bench);
}

static struct fi_msg_tagged about(int i)
{
	static struct iovec iov[COUNT];

	iov[i] = (struct iovec) { in[i], 100 };
	return (struct fi_msg_tagged) {
		.msg_iov = &iov[i], .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.tag = (uint64_t)i, .context = &rx_context[i],
	};
}

/* Messages that wait at the endpoint are looked at, claimed and dropped. */
static void peek_and_claim(void)
{
	struct plan plan = { .stage = NEVER, .caps = FI_TAGGED };
	struct fi_msg_tagged msg;
	struct ct_completion done;
	struct bench bench;

	setup(&bench, &plan);
	for (int i = 0; i < 3; i++)
		tsend(&bench, i);
	REQUIRE(ct_stays_empty(bench.to, &bench.to->rx));
	bind_now(&bench);
	/* All have arrived when the last one has. */
	msg = about(2);
	do {
		OK(fi_trecvmsg(bench.srx, &msg, FI_PEEK));
		done = ct_next(bench.to, &bench.to->rx);
		REQUIRE(done.context == &rx_context[2]);
	} while (done.err == FI_ENOMSG);
	REQUIRE(!done.err && done.len == 100 && done.tag == 2);
	msg = about(1);
	OK(fi_trecvmsg(bench.srx, &msg, FI_PEEK | FI_CLAIM));
	ct_done(bench.to, &bench.to->rx, &rx_context[1]);
	OK(fi_trecvmsg(bench.srx, &msg, FI_CLAIM));
	ct_done(bench.to, &bench.to->rx, &rx_context[1]);
	REQUIRE(ct_holds(in[1], 100, 1));
	msg = about(0);
	OK(fi_trecvmsg(bench.srx, &msg, FI_PEEK | FI_DISCARD));
	ct_done(bench.to, &bench.to->rx, &rx_context[0]);
	msg = about(3);
	OK(fi_trecvmsg(bench.srx, &msg, FI_PEEK));
	done = ct_error(bench.to, &bench.to->rx);
	REQUIRE(done.err == FI_ENOMSG && done.context == &rx_context[3]);
	msg = about(2);
	OK(fi_trecvmsg(bench.srx, &msg, 0));
	ct_done(bench.to, &bench.to->rx, &rx_context[2]);
	for (int i = 0; i < 3; i++)
		ct_done(bench.from, &bench.from->tx, &tx_context[i]);
	teardown(&bench);
}

/* Receives of the context are cancelled, which the endpoint's queue reports. */
static void cancel(void)
{
	struct plan plan = { .stage = CONNECTED, .posted = true };
	struct ct_completion end;
	struct bench bench;

	if (ct_opt.type != FI_EP_MSG)
		plan.stage = ENABLED;
	setup(&bench, &plan);
	OK(fi_cancel(&bench.srx->fid, &rx_context[1]));
	end = ct_error(bench.to, &bench.to->rx);
	REQUIRE(end.err == FI_ECANCELED && end.context == &rx_context[1]);
	send(&bench, 0);
	ct_done(bench.to, &bench.to->rx, &rx_context[0]);
	ct_done(bench.from, &bench.from->tx, &tx_context[0]);
	teardown(&bench);
}

/* Endpoints with queues of their own, one of which was bound before it was enabled. */
struct group {
	struct ct_peer hub, from[3], to[3];
	struct fid_pep *pep;
};

static void open_member(struct group *group, int i, struct fi_info *info)
{
	struct ct_peer *to = &group->to[i];

	to->srx = i ? NULL : group->hub.srx;
	ct_open_ep(to, info);
}

static void open_group(struct group *group)
{
	struct ct_spec spec = { 0 };
	struct ct_peer *hub = &group->hub;
	unsigned char name[CT_NAME];

	memset(group, 0, sizeof(*group));
	ct_open_domain(hub, &spec, ct_getinfo(&spec), NULL, NULL);
	OK(fi_srx_context(hub->domain, hub->info->rx_attr, &hub->srx, NULL));
	if (ct_opt.type == FI_EP_MSG)
		group->pep = ct_listen(hub);
	for (int i = 0; i < 3; i++) {
		struct ct_peer *from = &group->from[i], *to = &group->to[i];
		struct ct_event request;

		ct_open_domain(from, &spec, fi_dupinfo(hub->info), hub->fabric, NULL);
		ct_open_domain(to, &spec, fi_dupinfo(hub->info), hub->fabric, hub->domain);
		from->partner = to;
		to->partner = from;
		ct_open_ep(from, from->info);
		if (ct_opt.type != FI_EP_MSG) {
			open_member(group, i, to->info);
			ct_name(&to->ep->fid, name, sizeof(name));
			from->to = ct_insert(from, name);
			ct_name(&from->ep->fid, name, sizeof(name));
			ct_insert(to, name);
			continue;
		}
		ct_name(&group->pep->fid, name, sizeof(name));
		OK(fi_connect(from->ep, name, NULL, 0));
		hub->partner = from;
		ct_wait_request(hub, &request);
		open_member(group, i, request.info);
		fi_freeinfo(request.info);
		OK(fi_accept(to->ep, NULL, 0));
		ct_wait_connected(from);
		ct_wait_connected(to);
	}
}

static void close_group(struct group *group)
{
	for (int i = 0; i < 3; i++)
		group->to[i].srx = NULL;
	for (int i = 0; i < 3; i++)
		ct_close_peer(&group->to[i]);
	for (int i = 0; i < 3; i++)
		ct_close_peer(&group->from[i]);
	if (group->pep)
		OK(fi_close(&group->pep->fid));
	ct_close_peer(&group->hub);
}

static void send_to_member(struct group *group, int i)
{
	struct ct_peer *from = &group->from[i];

	POST(from, fi_send(from->ep, out[i], 100, NULL, from->to, &tx_context[i]));
}

static void member_has(struct group *group, int i, int slot)
{
	ct_done(&group->to[i], &group->to[i].rx, &rx_context[slot]);
	REQUIRE(ct_holds(in[slot], 100, (unsigned)i));
	ct_done(&group->from[i], &group->from[i].tx, &tx_context[i]);
}

static void several(void)
{
	struct group group;

	for (int i = 0; i < COUNT; i++)
		ct_fill(out[i], 100, (unsigned)i);
	open_group(&group);
	/* One message waits, the others come later; each member has its own queue. */
	send_to_member(&group, 1);
	REQUIRE(ct_stays_empty(&group.to[1], &group.to[1].rx));
	for (int i = 1; i < 3; i++)
		OK(fi_ep_bind(group.to[i].ep, &group.hub.srx->fid, 0));
	EXPECT(fi_close(&group.hub.srx->fid), -FI_EBUSY);
	post(group.hub.srx, in[0], &rx_context[0]);
	member_has(&group, 1, 0);
	for (int i = 2; i >= 0; i--) {
		post(group.hub.srx, in[i], &rx_context[i]);
		send_to_member(&group, i);
		member_has(&group, i, i);
	}
	/* A receive stays with the context when an endpoint leaves. */
	post(group.hub.srx, in[3], &rx_context[3]);
	OK(fi_close(&group.to[2].ep->fid));
	group.to[2].ep = NULL;
	send_to_member(&group, 1);
	member_has(&group, 1, 3);
	close_group(&group);
}

/* Receives that are posted by one thread while another one takes in messages. */
struct poster {
	struct fid_ep *srx;
	int count;
};

static void *post_all(void *arg)
{
	struct poster *poster = arg;
	static unsigned char place[8];

	for (int i = 0; i < poster->count; i++)
		while (fi_recv(poster->srx, place, 8, NULL, FI_ADDR_UNSPEC,
			       &rx_context[0]) == -FI_EAGAIN)
			sched_yield();
	return NULL;
}

static void threads(void)
{
	struct plan plan = { .stage = NEVER };
	int count = ct_times(2000), sent = 0, received = 0;
	struct poster poster;
	struct bench bench;
	pthread_t thread;

	setup(&bench, &plan);
	if (ct_opt.type == FI_EP_MSG)
		bind_now(&bench);
	else
		ct_warm_up(&bench.pair), bind_now(&bench);
	poster = (struct poster) { bench.srx, count };
	REQUIRE(!pthread_create(&thread, NULL, post_all, &poster));
	while (sent < count || received < count) {
		if (sent < count && !fi_inject(bench.from->ep, out[0], 8, bench.from->to))
			sent++;
		ct_progress(bench.to);
		while (bench.to->rx.count) {
			ct_done(bench.to, &bench.to->rx, &rx_context[0]);
			received++;
		}
	}
	REQUIRE(!pthread_join(thread, NULL));
	teardown(&bench);
}

static const struct ct_test tests[] = {
	{ "enabled", enabled, CT_BOTH },
	{ "enabled-posted", enabled_posted, CT_BOTH },
	{ "enabled-to-accept", enabled_to_accept, CT_MSG },
	{ "connecting", connecting, CT_MSG },
	{ "connecting-posted", connecting_posted, CT_MSG },
	{ "connecting-announced", connecting_announced, CT_MSG },
	{ "accepting", accepting, CT_MSG },
	{ "accepting-posted", accepting_posted, CT_MSG },
	{ "connected", connected, CT_MSG },
	{ "connected-posted", connected_posted, CT_MSG },
	{ "connected-announced", connected_announced, CT_MSG },
	{ "accepted", accepted, CT_MSG },
	{ "accepted-announced", accepted_announced, CT_MSG },
	{ "arrived", arrived, CT_BOTH },
	{ "arrived-posted", arrived_posted, CT_BOTH },
	{ "own-receives", own_receives, CT_BOTH },
	{ "own-receives-done", own_receives_done, CT_BOTH },
	{ "multi-receive-waiting", multi_receive_waiting, CT_BOTH },
	{ "multi-receive-later", multi_receive_later, CT_BOTH },
	{ "tagged", tagged, CT_BOTH },
	{ "peek-claim", peek_and_claim, CT_BOTH },
	{ "cancel", cancel, CT_BOTH },
	{ "several", several, CT_BOTH },
	{ "threads", threads, CT_BOTH },
};

CT_MAIN(tests)
