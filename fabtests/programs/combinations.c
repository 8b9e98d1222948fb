/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Everything that fi_endpoint(3) lets a program combine: scalable endpoints,
 * shared contexts, triggered and collective operations, with each kind of
 * address vector, each way of waiting, aliases, and capabilities and orders
 * one by one. Each combination carries a message, or is refused when its
 * objects are opened.
 */
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

#include "check.h"
#include "peer.h"

enum kind {
	PLAIN, SCALABLE, SCALABLE_SHARED, SHARED_RECEIVES, SHARED_TRANSMITS, TRIGGERED, COLLECTIVE,
};
enum waiting { READS, SLEEPS, WAIT_SET, POLL_SET, WAITS };
enum { SIDES = 2, CONTEXTS = 2, BITS = 2, LEN = 64, TAG = 7 };

static const char *const waits[] = { "reads", "sleeps", "wait set", "poll set" };

struct combination {
	enum kind kind;
	enum waiting waiting;
	enum fi_av_type av_type;
	uint64_t caps, order;
	uint64_t alias;		/* the direction of one, or 0 */
};

static const struct combination *now;

/* Whether the library refuses an object; other errors end the test. */
static bool refuses(int ret)
{
	switch (ret) {
	case 0:
		return false;
	case -FI_ENODATA: case -FI_EINVAL: case -FI_ENOSYS: case -FI_EOPNOTSUPP:
		return true;
	default:
		ct_fail(__FILE__, __LINE__, "kind %d, %s: %s", now->kind,
			waits[now->waiting], fi_strerror(-ret));
	}
}

struct side {
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct fid_eq *eq;
	struct fid_av *av;
	struct fid_stx *stx;
	struct fid_ep *srx, *scalable, *tx, *rx, *alias;
	struct fid_av_set *set;
	struct fid_mc *mc;
	struct fid_wait *wait;
	struct fid_poll *poll;
	fi_addr_t world[SIDES];
	int sent, received, ended;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct side sides[SIDES];
static struct fi_context2 contexts[SIDES][2];
static unsigned char out[LEN], in[LEN];

static struct fi_info *find(void)
{
	uint64_t caps[] = {
		[SCALABLE] = FI_NAMED_RX_CTX, [SCALABLE_SHARED] = FI_NAMED_RX_CTX,
		[TRIGGERED] = FI_TRIGGER, [COLLECTIVE] = FI_COLLECTIVE,
	};
	struct ct_spec spec = {
		.caps = FI_MSG | FI_TAGGED | now->caps |
			(now->kind < sizeof(caps) / sizeof(caps[0]) ? caps[now->kind] : 0),
		.threading = FI_THREAD_SAFE,
	};
	struct fi_info *hints = ct_hints(&spec), *found = NULL;
	int ret;

	hints->tx_attr->msg_order = hints->rx_attr->msg_order = now->order;
	hints->domain_attr->av_type = now->av_type;
	if (now->kind == SCALABLE)
		hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = CONTEXTS;
	if (now->kind == SCALABLE_SHARED)
		hints->ep_attr->tx_ctx_cnt = CONTEXTS;
	if (now->kind == SHARED_RECEIVES || now->kind == SCALABLE_SHARED)
		hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	if (now->kind == SHARED_TRANSMITS)
		hints->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	ret = fi_getinfo(CT_API_VERSION, ct_opt.source, NULL,
			 ct_opt.source ? FI_SOURCE : 0, hints, &found);
	fi_freeinfo(hints);
	return refuses(ret) ? NULL : found;
}

static bool open_queues(struct side *side)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cntr_attr counting = { 0 };
	struct fi_eq_attr events = { .wait_obj = FI_WAIT_NONE };
	struct fi_wait_attr waiting = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_poll_attr polling = { 0 };
	struct fi_av_attr vector = { .type = now->av_type };

	if (now->waiting == WAIT_SET) {
		if (refuses(fi_wait_open(fabric, &waiting, &side->wait)))
			return false;
		attr.wait_obj = FI_WAIT_SET;
		attr.wait_set = side->wait;
	} else if (now->waiting == SLEEPS) {
		attr.wait_obj = FI_WAIT_UNSPEC;
	}
	if (refuses(fi_cq_open(domain, &attr, &side->cq, side)))
		return false;
	if (now->waiting == POLL_SET) {
		if (refuses(fi_poll_open(domain, &polling, &side->poll)))
			return false;
		OK(fi_poll_add(side->poll, &side->cq->fid, 0));
	}
	if (now->kind == SCALABLE)
		vector.rx_ctx_bits = BITS;
	OK(fi_cntr_open(domain, &counting, &side->cntr, NULL));
	OK(fi_eq_open(fabric, &events, &side->eq, NULL));
	return !refuses(fi_av_open(domain, &vector, &side->av, NULL));
}

static bool open_contexts(struct side *side)
{
	int last = CONTEXTS - 1;

	if (refuses(fi_scalable_ep(domain, info, &side->scalable, NULL)))
		return false;
	OK(fi_scalable_ep_bind(side->scalable, &side->av->fid, 0));
	if (side->srx) {
		OK(fi_scalable_ep_bind(side->scalable, &side->srx->fid, 0));
		OK(fi_scalable_ep_bind(side->scalable, &side->cq->fid, FI_RECV));
		OK(fi_enable(side->scalable));
	}
	OK(fi_tx_context(side->scalable, last, NULL, &side->tx, NULL));
	if (!side->srx)
		OK(fi_rx_context(side->scalable, last, NULL, &side->rx, NULL));
	OK(fi_ep_bind(side->tx, &side->cq->fid, FI_TRANSMIT));
	OK(fi_enable(side->tx));
	if (side->srx) {
		side->rx = side->srx;
		return true;
	}
	OK(fi_ep_bind(side->rx, &side->cq->fid, FI_RECV));
	OK(fi_enable(side->rx));
	return true;
}

static bool open_endpoint(struct side *side)
{
	int ret;

	if ((now->kind == SHARED_RECEIVES || now->kind == SCALABLE_SHARED) &&
	    refuses(fi_srx_context(domain, info->rx_attr, &side->srx, NULL)))
		return false;
	if (now->kind == SCALABLE || now->kind == SCALABLE_SHARED)
		return open_contexts(side);
	if (now->kind == SHARED_TRANSMITS &&
	    refuses(fi_stx_context(domain, info->tx_attr, &side->stx, NULL)))
		return false;
	if (refuses(fi_endpoint(domain, info, &side->tx, NULL)))
		return false;
	OK(fi_ep_bind(side->tx, &side->av->fid, 0));
	OK(fi_ep_bind(side->tx, &side->eq->fid, 0));
	OK(fi_ep_bind(side->tx, &side->cq->fid, FI_TRANSMIT | FI_RECV));
	if (side->srx)
		OK(fi_ep_bind(side->tx, &side->srx->fid, 0));
	if (side->stx)
		OK(fi_ep_bind(side->tx, &side->stx->fid, 0));
	ret = fi_enable(side->tx);
	side->rx = side->srx ? side->srx : side->tx;
	return !refuses(ret);
}

static void insert_all(void)
{
	unsigned char names[SIDES][256];

	for (int i = 0; i < SIDES; i++) {
		struct fid_ep *ep = sides[i].scalable ? sides[i].scalable : sides[i].tx;
		size_t len = sizeof(names[i]);

		OK(fi_getname(&ep->fid, names[i], &len));
	}
	for (int i = 0; i < SIDES; i++)
		for (int j = 0; j < SIDES; j++)
			EXPECT(fi_av_insert(sides[i].av, names[j], 1, &sides[i].world[j], 0,
					    NULL), 1);
}

static bool open_all(void)
{
	info = find();
	if (!info)
		return false;
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	if (refuses(fi_domain(fabric, info, &domain, NULL)))
		return false;
	for (int i = 0; i < SIDES; i++)
		if (!open_queues(&sides[i]) || !open_endpoint(&sides[i]))
			return false;
	insert_all();
	if (now->alias & FI_TRANSMIT)
		return !refuses(fi_ep_alias(sides[0].tx, &sides[0].alias, FI_TRANSMIT));
	if (now->alias & FI_RECV)
		return !refuses(fi_ep_alias(sides[1].rx, &sides[1].alias, FI_RECV));
	return true;
}

static void shut(void *object)
{
	if (object)
		OK(fi_close(object));
}

static void close_all(void)
{
	for (int i = 0; i < SIDES; i++) {
		struct side *side = &sides[i];

		shut(side->mc);
		shut(side->set);
		shut(side->alias);
		shut(side->tx);
		if (side->rx != side->tx && side->rx != side->srx)
			shut(side->rx);
		shut(side->scalable);
		shut(side->srx);
		shut(side->stx);
		if (side->poll)
			OK(fi_poll_del(side->poll, &side->cq->fid, 0));
		shut(side->poll);
		shut(side->cq);
		shut(side->wait);
		shut(side->cntr);
		shut(side->eq);
		shut(side->av);
	}
	shut(domain);
	shut(fabric);
	fi_freeinfo(info);
	memset(sides, 0, sizeof(sides));
	domain = NULL;
	fabric = NULL;
	info = NULL;
}

/* Waits in the way of the combination, and counts what has ended. */
static void look(struct side *side)
{
	struct fi_cq_tagged_entry entry;
	void *ready[1];
	ssize_t ret;

	if (now->waiting == WAIT_SET) {
		ret = fi_wait(side->wait, 1);
		REQUIRE(!ret || ret == -FI_ETIMEDOUT || ret == -FI_EAGAIN);
	} else if (now->waiting == POLL_SET) {
		REQUIRE(fi_poll(side->poll, ready, 1) >= 0);
	}
	ret = now->waiting == SLEEPS ? fi_cq_sread(side->cq, &entry, 1, NULL, 1)
				     : fi_cq_read(side->cq, &entry, 1);
	REQUIRE(ret == 1 || ret == -FI_EAGAIN);
	if (ret != 1)
		return;
	side->sent += !!(entry.flags & FI_SEND);
	side->received += !!(entry.flags & FI_RECV);
	side->ended += !!(entry.flags & FI_COLLECTIVE);
}

#define UNTIL_ALL(cond) do {						\
		double until_ = ct_now() + ct_patience();		\
									\
		while (!(cond)) {					\
			REQUIRE(ct_now() < until_);			\
			for (int i_ = 0; i_ < SIDES; i_++)		\
				look(&sides[i_]);			\
		}							\
	} while (0)

static void pass_message(void)
{
	struct side *a = &sides[0], *b = &sides[1];
	struct fid_ep *ep = a->alias ? a->alias : a->tx;
	struct fi_triggered_context2 trigger = { .event_type = FI_TRIGGER_THRESHOLD };
	struct iovec iov = { out, LEN };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = 1, .tag = TAG, .context = &contexts[0][0],
		.addr = now->kind == SCALABLE ? fi_rx_addr(a->world[1], CONTEXTS - 1, BITS)
					      : a->world[1],
	};
	uint64_t flags = FI_COMPLETION;
	ssize_t ret;

	memset(in, 0, LEN);
	for (int i = 0; i < LEN; i++)
		out[i] = (unsigned char)(i * 7 + now->kind);
	OK(fi_trecv(b->alias ? b->alias : b->rx, in, LEN, NULL, FI_ADDR_UNSPEC, TAG, 0, &contexts[1][1]));
	if (now->kind == TRIGGERED) {
		trigger.trigger.threshold.cntr = a->cntr;
		trigger.trigger.threshold.threshold = 1;
		msg.context = &trigger;
		flags |= FI_TRIGGER;
	}
	while ((ret = fi_tsendmsg(ep, &msg, flags)) == -FI_EAGAIN)
		look(a);
	OK(ret);
	if (now->kind == TRIGGERED)
		OK(fi_cntr_add(a->cntr, 1));
	UNTIL_ALL(a->sent == 1 && b->received == 1);
	REQUIRE(!memcmp(in, out, LEN));
}

static void meet(void)
{
	struct fi_av_set_attr attr = {
		.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL,
	};
	int joined = 0;

	for (int i = 0; i < SIDES; i++) {
		OK(fi_av_set(sides[i].av, &attr, &sides[i].set, NULL));
		for (int j = 0; j < SIDES; j++)
			OK(fi_av_set_insert(sides[i].set, sides[i].world[j]));
		OK(fi_join_collective(sides[i].tx, FI_ADDR_NOTAVAIL, sides[i].set, 0,
				      &sides[i].mc, NULL));
	}
	double until = ct_now() + ct_patience();

	while (joined < SIDES) {
		REQUIRE(ct_now() < until);
		for (int i = 0; i < SIDES; i++) {
			struct fi_eq_entry entry;
			uint32_t event;

			look(&sides[i]);
			joined += fi_eq_read(sides[i].eq, &event, &entry, sizeof(entry), 0) ==
				  sizeof(entry);
		}
	}
	for (int i = 0; i < SIDES; i++)
		OK(fi_barrier(sides[i].tx, fi_mc_addr(sides[i].mc), &contexts[i][0]));
	UNTIL_ALL(sides[0].ended == 1 && sides[1].ended == 1);
}

/* Returns whether it was possible. */
static bool try(const struct combination *it)
{
	bool is_possible;

	now = it;
	is_possible = open_all();
	if (is_possible) {
		if ((ct_mr_mode(&(struct ct_peer){ .info = info }) & FI_MR_LOCAL))
			SKIP("local buffers have to be registered");
		pass_message();
		if (it->kind == COLLECTIVE)
			meet();
	}
	close_all();
	return is_possible;
}

static void all_of(enum kind kind)
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
	int possible = 0, refused = 0;

	for (enum waiting waiting = READS; waiting < WAITS; waiting++)
		for (size_t type = 0; type < 3; type++)
			for (int alias = 0; alias < 3; alias++) {
				struct combination it = {
					.kind = kind, .waiting = waiting,
					.av_type = types[type], .alias = aliases[alias],
				};

				*(try(&it) ? &possible : &refused) += 1;
			}
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		struct combination it = { .kind = kind, .order = orders[i] };

		*(try(&it) ? &possible : &refused) += 1;
	}
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
		for (int alias = 0; alias < 3; alias++) {
			struct combination it = {
				.kind = kind, .caps = caps[i], .alias = aliases[alias],
			};

			*(try(&it) ? &possible : &refused) += 1;
		}
	CHECK(true, "%d possible, %d refused", possible, refused);
	if (!possible)
		SKIP("not offered");
}

static void plain(void)
{
	all_of(PLAIN);
}

static void scalable(void)
{
	all_of(SCALABLE);
}

static void scalable_shared(void)
{
	all_of(SCALABLE_SHARED);
}

static void shared_receives(void)
{
	all_of(SHARED_RECEIVES);
}

static void shared_transmits(void)
{
	all_of(SHARED_TRANSMITS);
}

static void triggered(void)
{
	all_of(TRIGGERED);
}

static void collective(void)
{
	all_of(COLLECTIVE);
}

static const struct ct_test tests[] = {
	{ "plain", plain, CT_RDM | CT_SLOW },
	{ "scalable", scalable, CT_RDM | CT_SLOW },
	{ "scalable-shared-receives", scalable_shared, CT_RDM | CT_SLOW },
	{ "shared-receives", shared_receives, CT_RDM | CT_SLOW },
	{ "shared-transmits", shared_transmits, CT_RDM | CT_SLOW },
	{ "triggered", triggered, CT_RDM | CT_SLOW },
	{ "collective", collective, CT_RDM | CT_SLOW },
};

CT_MAIN(tests)
