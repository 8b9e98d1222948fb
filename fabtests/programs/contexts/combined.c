/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Everything that fi_endpoint(3) lets a program combine: scalable endpoints,
 * shared contexts, triggered and collective operations, with each kind of
 * address vector, each way of waiting, aliases, and capabilities and orders
 * one by one. Each combination carries a message, or is refused when its
 * objects are opened.
 */
#include "form.h"

#include <rdma/fi_collective.h>
#include <rdma/fi_trigger.h>

#include "pattern.h"
#include "wait.h"

enum waiting { READS, SLEEPS, WAIT_SET, POLL_SET, WAITS };
enum { SIDES = 2 };

struct combination {
	enum ct_kind kind;
	uint64_t extra;		/* FI_TRIGGER or FI_COLLECTIVE: operations of that kind, too */
	enum waiting waiting;
	enum fi_av_type av_type;
	uint64_t caps, order;
	uint64_t alias;		/* the direction of one, or 0 */
};

/* One end, with the counter of triggered operations and the objects of collective ones. */
struct end {
	struct ct_side side;
	struct fid_ep *tx, *rx, *alias;
	struct fid_cntr *cntr;
	struct fid_poll *poll;
	struct fid_av_set *set;
	struct fid_mc *mc;
	fi_addr_t world[SIDES];
	int sent, received, ended;
};

static const struct combination *now;
static struct end ends[SIDES];

/* Whether the library refuses an object; other errors end the test. */
static bool refuses(int ret)
{
	switch (ret) {
	case 0:
		return false;
	case -FI_ENODATA: case -FI_EINVAL: case -FI_ENOSYS: case -FI_EOPNOTSUPP:
		return true;
	default:
		ct_fail(__FILE__, __LINE__, "kind %d, waiting %d: %s", now->kind, now->waiting,
			fi_strerror(-ret));
	}
}

/* Of the endpoint, or of the only contexts that are opened. */
static int used(void)
{
	return ct_is_scalable(now->kind) ? CT_CONTEXTS - 1 : 0;
}

static void say_order(struct fi_info *hints)
{
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = now->order;
}

static bool open_end(struct end *end, struct fi_info *info)
{
	static const enum fi_wait_obj objects[] = {
		[SLEEPS] = FI_WAIT_UNSPEC, [WAIT_SET] = FI_WAIT_SET, [WAITS] = FI_WAIT_NONE,
	};
	struct fi_cntr_attr counting = { 0 };
	struct fi_poll_attr polling = { 0 };
	struct ct_side *side = &end->side;

	if (refuses(ct_open_side(side, &(struct ct_setup) {
		.kind = now->kind, .first = used(), .count = used() + 1,
		.enabled_first = now->kind == CT_SCALABLE_SHARED, .info = info,
		.beside = end == ends ? NULL : &ends[0].side.peer,
		.spec = {
			.av_type = now->av_type, .wait = objects[now->waiting], .one_cq = true,
			.eq = true,
		},
	})))
		return false;
	OK(fi_cntr_open(side->peer.domain, &counting, &end->cntr, NULL));
	if (now->waiting == POLL_SET) {
		if (refuses(fi_poll_open(side->peer.domain, &polling, &end->poll)))
			return false;
		OK(fi_poll_add(end->poll, &side->peer.tx.fid->fid, 0));
	}
	if (refuses(ct_open_all(side)))
		return false;
	end->tx = side->tx[used()];
	end->rx = ct_taker(side, used());
	return true;
}

static bool open_all(void)
{
	struct fi_info *info = NULL;
	struct ct_setup setup = {
		.kind = now->kind, .spec = {
			.caps = FI_MSG | FI_TAGGED | now->caps | now->extra,
			.threading = FI_THREAD_SAFE, .av_type = now->av_type, .hint = say_order,
		},
	};

	if (refuses(ct_find(&setup, &info)))
		return false;
	if (!open_end(&ends[0], info) || !open_end(&ends[1], fi_dupinfo(info)))
		return false;
	for (int i = 0; i < SIDES; i++)
		for (int j = 0; j < SIDES; j++)
			ends[i].world[j] = ct_address(&ends[i].side, &ends[j].side, used());
	if (now->alias & FI_TRANSMIT)
		return !refuses(fi_ep_alias(ends[0].tx, &ends[0].alias, FI_TRANSMIT));
	if (now->alias & FI_RECV)
		return !refuses(fi_ep_alias(ends[1].rx, &ends[1].alias, FI_RECV));
	return true;
}

static void shut(void *object)
{
	if (object)
		OK(fi_close(object));
}

static void close_all(void)
{
	for (int i = SIDES; i--;) {
		struct end *end = &ends[i];

		shut(end->mc);
		shut(end->set);
		shut(end->alias);
		if (end->poll)
			OK(fi_poll_del(end->poll, &end->side.peer.tx.fid->fid, 0));
		shut(end->poll);
		ct_close_endpoints(&end->side);
		shut(end->cntr);
		ct_close_side(&end->side);
	}
	memset(ends, 0, sizeof(ends));
}

/* Waits in the way of the combination, and counts what has ended. */
static void look(struct end *end)
{
	struct fid_cq *queue = end->side.peer.tx.fid;
	struct fi_cq_tagged_entry entry;
	void *ready[1];
	ssize_t ret;

	if (now->waiting == WAIT_SET) {
		ret = fi_wait(end->side.wait, 1);
		REQUIRE(!ret || ret == -FI_ETIMEDOUT || ret == -FI_EAGAIN);
	} else if (now->waiting == POLL_SET) {
		REQUIRE(fi_poll(end->poll, ready, 1) >= 0);
	}
	ret = now->waiting == SLEEPS ? fi_cq_sread(queue, &entry, 1, NULL, 1)
				     : fi_cq_read(queue, &entry, 1);
	REQUIRE(ret == 1 || ret == -FI_EAGAIN);
	if (ret != 1)
		return;
	end->sent += !!(entry.flags & FI_SEND);
	end->received += !!(entry.flags & FI_RECV);
	end->ended += !!(entry.flags & FI_COLLECTIVE);
}

static void look_at_both(void)
{
	look(&ends[0]);
	look(&ends[1]);
}

static void pass_message(void)
{
	struct end *a = &ends[0], *b = &ends[1];
	struct fid_ep *tx = a->alias ? a->alias : a->tx, *rx = b->alias ? b->alias : b->rx;
	struct ct_memory *out = &a->side.out, *in = &b->side.in;
	struct fi_triggered_context2 trigger = { .event_type = FI_TRIGGER_THRESHOLD };
	struct iovec iov = { out->data, LENGTH };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .desc = &out->desc, .iov_count = 1, .tag = TAG,
		.context = &ct_sent[0], .addr = a->world[1],
	};
	uint64_t flags = FI_COMPLETION;
	ssize_t ret;

	ct_fill(out->data, LENGTH, now->kind);
	OK(fi_trecv(rx, in->data, LENGTH, in->desc, FI_ADDR_UNSPEC, TAG, 0, &ct_received[0]));
	if (now->extra == FI_TRIGGER) {
		trigger.trigger.threshold.cntr = a->cntr;
		trigger.trigger.threshold.threshold = 1;
		msg.context = &trigger;
		flags |= FI_TRIGGER;
	}
	while ((ret = fi_tsendmsg(tx, &msg, flags)) == -FI_EAGAIN)
		look(a);
	OK(ret);
	if (now->extra == FI_TRIGGER)
		OK(fi_cntr_add(a->cntr, 1));
	CT_UNTIL(a->sent == 1 && b->received == 1, look_at_both());
	REQUIRE(ct_holds(in->data, LENGTH, now->kind));
}

/* Counts the events of both, too. */
static int joined(void)
{
	int count = 0;

	for (int i = 0; i < SIDES; i++) {
		struct fi_eq_entry entry;
		uint32_t event;

		look(&ends[i]);
		count += fi_eq_read(ends[i].side.peer.eq.fid, &event, &entry, sizeof(entry), 0) ==
			 sizeof(entry);
	}
	return count;
}

static void meet_all(void)
{
	struct fi_av_set_attr attr = {
		.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL,
	};
	int members = 0;

	for (int i = 0; i < SIDES; i++) {
		OK(fi_av_set(ends[i].side.peer.av, &attr, &ends[i].set, NULL));
		for (int j = 0; j < SIDES; j++)
			OK(fi_av_set_insert(ends[i].set, ends[i].world[j]));
		OK(fi_join_collective(ends[i].tx, FI_ADDR_NOTAVAIL, ends[i].set, 0,
				      &ends[i].mc, NULL));
	}
	CT_UNTIL(members == SIDES, members += joined());
	for (int i = 0; i < SIDES; i++)
		OK(fi_barrier(ends[i].tx, fi_mc_addr(ends[i].mc), &ct_sent[i]));
	CT_UNTIL(ends[0].ended == 1 && ends[1].ended == 1, look_at_both());
}

static int tried[2];

/* Counts it as refused or as possible. */
static void try(struct combination it)
{
	bool is_possible;

	now = &it;
	is_possible = open_all();
	if (is_possible) {
		pass_message();
		if (it.extra == FI_COLLECTIVE)
			meet_all();
	}
	close_all();
	tried[is_possible]++;
}

void combined(const struct form *form)
{
	static const uint64_t orders[] = {
		FI_ORDER_NONE, FI_ORDER_SAS, FI_ORDER_RAR, FI_ORDER_RAW, FI_ORDER_RAS,
		FI_ORDER_WAR, FI_ORDER_WAW, FI_ORDER_WAS, FI_ORDER_SAR, FI_ORDER_SAW,
		FI_ORDER_ATOMIC_RAW, FI_ORDER_RMA_WAW,
	};
	static const uint64_t caps[] = {
		0, FI_RMA | FI_RMA_EVENT, FI_VARIABLE_MSG, FI_SOURCE | FI_DIRECTED_RECV,
		FI_MULTI_RECV, FI_RMA | FI_ATOMIC, FI_TRIGGER, FI_COLLECTIVE,
	};
	static const enum fi_av_type types[] = { FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE };
	static const uint64_t aliases[] = { 0, FI_TRANSMIT, FI_RECV };
	struct combination it = { .kind = form->setup.kind, .extra = form->setup.spec.caps };

	for (int alias = 0; alias < 3; alias++) {
		it.alias = aliases[alias];
		for (it.waiting = READS; it.waiting < WAITS; it.waiting++)
			for (int type = 0; type < 3; type++) {
				it.av_type = types[type];
				try(it);
			}
		it.waiting = READS;
		it.av_type = FI_AV_UNSPEC;
		for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
			it.caps = caps[i];
			try(it);
		}
		it.caps = 0;
	}
	it.alias = 0;
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		it.order = orders[i];
		try(it);
	}
	CHECK(true, "%d possible, %d refused", tried[true], tried[false]);
	if (!tried[true])
		SKIP("not offered");
}
