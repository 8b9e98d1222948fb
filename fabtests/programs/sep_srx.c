/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Scalable endpoints whose contexts use shared ones (fi_endpoint(3), SHARED
 * CONTEXTS): several transmit contexts beside shared receives, receive
 * contexts with the same shared receives, and the other way round. All sides
 * are in one process. */
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_tagged.h>

#include "check.h"
#include "scalable.h"

enum { CONTEXTS = CT_CONTEXTS, BITS = CT_CONTEXT_BITS, MOST = 1 << 20, TAG = 7, SLOTS = 8 };

/* Which contexts of a scalable endpoint are shared. */
enum form {
	SHARED_RECEIVES,	/* FI_SHARED_CONTEXT for receives */
	SEVERAL_RECEIVES,	/* receive contexts, which are bound to a shared one */
	SHARED_TRANSMITS,	/* FI_SHARED_CONTEXT for transmits */
};

static unsigned char out[MOST], in[SLOTS][MOST];
static struct fi_context2 tx_context[SLOTS], rx_context[SLOTS];
static enum form form;

static void counts(struct fi_info *hints)
{
	hints->ep_attr->tx_ctx_cnt = form == SHARED_TRANSMITS ? FI_SHARED_CONTEXT : CONTEXTS;
	hints->ep_attr->rx_ctx_cnt = form == SHARED_RECEIVES ? FI_SHARED_CONTEXT : CONTEXTS;
	hints->caps |= FI_NAMED_RX_CTX;
}

/* Everything but the endpoint; size is that of the shared context. */
static void open_objects(struct ct_side *side, enum form which, uint64_t caps, size_t size)
{
	struct ct_spec spec = { .caps = caps | FI_SOURCE, .hint = counts };

	form = which;
	ct_open_objects(side, &spec);
	if (!side->info->domain_attr->max_ep_srx_ctx)
		SKIP("no shared receive contexts");
	if (which != SHARED_TRANSMITS) {
		struct fi_rx_attr rx = *side->info->rx_attr;

		rx.size = size ? size : rx.size;
		OK(fi_srx_context(side->domain, &rx, &side->srx, NULL));
	} else {
		struct fi_tx_attr tx = *side->info->tx_attr;

		tx.size = size ? size : tx.size;
		OK(fi_stx_context(side->domain, &tx, &side->stx, NULL));
	}
}

/* With shared receives, whose queue the scalable endpoint has. */
static void open_shared(struct ct_side *side, uint64_t caps, size_t size)
{
	open_objects(side, SHARED_RECEIVES, caps, size);
	ct_open_sep(side);
	OK(fi_scalable_ep_bind(side->sep, &side->srx->fid, 0));
	OK(fi_scalable_ep_bind(side->sep, &side->rxq[0].fid->fid, FI_RECV));
	for (int i = 0; i < CONTEXTS; i++)
		ct_open_tx(side, i);
	OK(fi_enable(side->sep));
}

static void drive_for_a_while(void)
{
	for (int i = 0; i < 100; i++)
		ct_drive();
}

static unsigned char byte(size_t i, int seed)
{
	return (unsigned char)(i * 31 + (size_t)seed * 7);
}

static void send(struct ct_side *from, int i, fi_addr_t to, size_t len, int seed, bool tagged)
{
	for (size_t at = 0; at < len; at++)
		out[at] = byte(at, seed);
	if (tagged)
		TRY(fi_tsend(from->tx[i], out, len, NULL, to, TAG, &tx_context[seed]));
	else
		TRY(fi_send(from->tx[i], out, len, NULL, to, &tx_context[seed]));
}

static void receive(struct fid_ep *srx, int slot, size_t len, fi_addr_t from, bool tagged)
{
	memset(in[slot], 0, len);
	if (tagged)
		OK(fi_trecv(srx, in[slot], len, NULL, from, TAG, 0, &rx_context[slot]));
	else
		OK(fi_recv(srx, in[slot], len, NULL, from, &rx_context[slot]));
}

static bool holds(int slot, size_t len, int seed)
{
	for (size_t i = 0; i < len; i++)
		if (in[slot][i] != byte(i, seed))
			return false;
	return true;
}

static void from_all_contexts(void)
{
	static const size_t sizes[] = { 0, 8, 5000, MOST };
	struct ct_side a, b;
	fi_addr_t to, back;

	open_shared(&a, FI_MSG | FI_TAGGED, 0);
	open_shared(&b, FI_MSG | FI_TAGGED, 0);
	to = ct_side_insert(&a, b.name);
	back = ct_side_insert(&b, a.name);
	for (int i = 0; i < CONTEXTS; i++)
		for (int s = 0; s < 4; s++)
			for (int k = 0; k < 4; k++) {
				bool tagged = k & 1, expected = k & 2;
				struct ct_completion got;

				if (expected)
					receive(b.srx, 0, sizes[s], FI_ADDR_UNSPEC, tagged);
				send(&a, i, to, sizes[s], 1, tagged);
				if (!expected)
					receive(b.srx, 0, sizes[s], FI_ADDR_UNSPEC, tagged);
				got = ct_done_of(&b.rxq[0], &rx_context[0]);
				REQUIRE(got.len == sizes[s] && got.src == back);
				ct_done_of(&a.txq[i], &tx_context[1]);
				REQUIRE(holds(0, sizes[s], 1));
				receive(a.srx, 0, sizes[s], FI_ADDR_UNSPEC, tagged);
				send(&b, i, back, sizes[s], 2, tagged);
				REQUIRE(ct_done_of(&a.rxq[0], &rx_context[0]).src == to);
				ct_done_of(&b.txq[i], &tx_context[2]);
				REQUIRE(holds(0, sizes[s], 2));
			}
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
	ct_close_side(&b);
}

/* The receive context is opened when messages have come: the shared one
 * receives them in their order. */
static void context_that_is_opened_late(void)
{
	static const size_t sizes[] = { 8, 5000, MOST, 16 };

	for (int first = 0; first < 2; first++) {
		struct ct_side a, b;
		fi_addr_t to;

		open_shared(&a, FI_MSG | FI_TAGGED, 0);
		open_objects(&b, SHARED_RECEIVES, FI_MSG | FI_TAGGED, 0);
		ct_open_sep(&b);
		OK(fi_scalable_ep_bind(b.sep, &b.srx->fid, 0));
		ct_open_tx(&b, 0);
		to = ct_side_insert(&a, b.name);
		ct_side_insert(&b, a.name);
		for (int i = 0; first && i < 4; i++)
			receive(b.srx, i, MOST, FI_ADDR_UNSPEC, i & 1);
		for (int i = 0; i < 4; i++) {
			send(&a, i % CONTEXTS, to, sizes[i], 1, i & 1);
			drive_for_a_while();
			/* A long one is sent from where it is. */
			if (sizes[i] == MOST)
				break;
		}
		REQUIRE(!b.rxq[0].count);
		ct_open_rx(&b, 0);
		for (int i = 0; !first && i < 4; i++)
			receive(b.srx, i, MOST, FI_ADDR_UNSPEC, i & 1);
		for (int i = 0; i < 3; i++) {
			struct ct_completion got = ct_next_of(&b.rxq[0]);
			long slot = (struct fi_context2 *)got.context - rx_context;

			REQUIRE(!got.err && slot >= 0 && slot < 4);
			REQUIRE(got.len == sizes[slot] && holds((int)slot, sizes[slot], 1));
		}
		for (int i = 0; i < 3; i++)
			ct_done_of(&a.txq[i], &tx_context[1]);
		ct_close_side(&a);
		ct_close_side(&b);
	}
}

/* Receive contexts that take the receives of one shared context, which each of
 * them or the scalable endpoint is bound to. */
static void several_contexts(void)
{
	for (int through_sep = 0; through_sep < 2; through_sep++) {
		struct ct_side a, b;
		fi_addr_t to;

		open_shared(&a, FI_MSG | FI_TAGGED, 0);
		open_objects(&b, SEVERAL_RECEIVES, FI_MSG | FI_TAGGED, 0);
		ct_open_sep(&b);
		if (through_sep) {
			OK(fi_scalable_ep_bind(b.sep, &b.srx->fid, 0));
			for (int i = 0; i < CONTEXTS; i++)
				ct_open_tx(&b, i);
		}
		for (int i = 0; i < CONTEXTS; i++) {
			OK(fi_rx_context(b.sep, i, NULL, &b.rx[i], NULL));
			if (!through_sep)
				OK(fi_ep_bind(b.rx[i], &b.srx->fid, 0));
			OK(fi_ep_bind(b.rx[i], &b.rxq[i].fid->fid, FI_RECV));
			OK(fi_enable(b.rx[i]));
		}
		to = ct_side_insert(&a, b.name);
		ct_side_insert(&b, a.name);
		for (int i = 0; i < 2 * CONTEXTS; i++)
			receive(b.srx, i, 100, FI_ADDR_UNSPEC, true);
		for (int i = 0; i < 2 * CONTEXTS; i++) {
			int context = (i * 2) % CONTEXTS;

			send(&a, i % CONTEXTS, fi_rx_addr(to, context, BITS), 100, i, true);
			/* The queue is that of the context the message is for. */
			ct_done_of(&b.rxq[context], &rx_context[i]);
			ct_done_of(&a.txq[i % CONTEXTS], &tx_context[i]);
			REQUIRE(holds(i, 100, i));
		}
		REQUIRE(ct_all_stay_empty());
		ct_close_side(&a);
		ct_close_side(&b);
	}
}

/* A scalable endpoint and a plain one with the same shared context. */
static void beside_a_plain_endpoint(void)
{
	unsigned char name[CT_NAME];
	struct ct_side a, b;
	struct fid_ep *plain;
	fi_addr_t to, to_plain, back;

	open_shared(&a, FI_MSG | FI_TAGGED, 0);
	open_shared(&b, FI_MSG | FI_TAGGED, 0);
	OK(fi_endpoint(b.domain, b.info, &plain, NULL));
	OK(fi_ep_bind(plain, &b.av->fid, 0));
	OK(fi_ep_bind(plain, &b.srx->fid, 0));
	OK(fi_ep_bind(plain, &b.rxq[1].fid->fid, FI_RECV));
	OK(fi_ep_bind(plain, &b.txq[1].fid->fid, FI_TRANSMIT));
	OK(fi_enable(plain));
	ct_name(&plain->fid, name, sizeof(name));
	to = ct_side_insert(&a, b.name);
	to_plain = ct_side_insert(&a, name);
	back = ct_side_insert(&b, a.name);
	for (int i = 0; i < 4; i++)
		receive(b.srx, i, 5000, FI_ADDR_UNSPEC, true);
	for (int i = 0; i < 4; i++) {
		struct ct_completion got;

		send(&a, 0, i & 1 ? to_plain : to, 5000, i, true);
		got = ct_done_of(&b.rxq[i & 1], &rx_context[i]);
		REQUIRE(got.src == back && holds(i, 5000, i));
		ct_done_of(&a.txq[0], &tx_context[i]);
	}
	OK(fi_close(&plain->fid));
	ct_close_side(&a);
	ct_close_side(&b);
}

/* A receive for one sender is not for the messages of another one. */
static void directed(void)
{
	struct ct_side senders[2], b;
	fi_addr_t to[2], from[2];

	for (int i = 0; i < 2; i++)
		open_shared(&senders[i], FI_MSG | FI_TAGGED, 0);
	open_shared(&b, FI_MSG | FI_TAGGED | FI_DIRECTED_RECV, 0);
	for (int i = 0; i < 2; i++) {
		to[i] = ct_side_insert(&senders[i], b.name);
		from[i] = ct_side_insert(&b, senders[i].name);
	}
	for (int unexpected = 0; unexpected < 2; unexpected++) {
		/* Posted first, for the one that sends last. */
		if (!unexpected) {
			receive(b.srx, 1, 100, fi_rx_addr(from[1], 1, BITS), true);
			receive(b.srx, 0, 100, from[0], true);
		}
		for (int i = 0; i < 2; i++) {
			send(&senders[i], i, to[i], 100, i, true);
			ct_done_of(&senders[i].txq[i], &tx_context[i]);
		}
		drive_for_a_while();
		if (unexpected) {
			receive(b.srx, 1, 100, from[1], true);
			receive(b.srx, 0, 100, from[0], true);
		}
		for (int i = 0; i < 2; i++) {
			struct ct_completion got = ct_next_of(&b.rxq[0]);
			int who = got.context == &rx_context[1];

			REQUIRE(!got.err && got.src == from[who]);
			REQUIRE(holds(who, 100, who));
		}
	}
	REQUIRE(ct_all_stay_empty());
	for (int i = 0; i < 2; i++)
		ct_close_side(&senders[i]);
	ct_close_side(&b);
}

static void multi_receive(void)
{
	struct ct_side a, b;
	size_t least = 100;
	struct iovec iov = { in[0], 350 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = &rx_context[0],
	};
	struct ct_completion got;
	fi_addr_t to;

	open_shared(&a, FI_MSG, 0);
	open_shared(&b, FI_MSG | FI_MULTI_RECV, 0);
	OK(fi_setopt(&b.srx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	to = ct_side_insert(&a, b.name);
	ct_side_insert(&b, a.name);
	OK(fi_recvmsg(b.srx, &msg, FI_MULTI_RECV));
	for (int i = 0; i < 3; i++) {
		send(&a, i, to, 100, i, false);
		got = ct_done_of(&b.rxq[0], &rx_context[0]);
		REQUIRE(got.len == 100 && !!(got.flags & FI_MULTI_RECV) == (i == 2));
		ct_done_of(&a.txq[i], &tx_context[i]);
		for (size_t at = 0; at < 100; at++)
			REQUIRE(in[0][(size_t)i * 100 + at] == byte(at, i));
	}
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
	ct_close_side(&b);
}

/* A shared context without a queue of its own tells at an endpoint's. */
static void peek_and_claim(void)
{
	struct ct_side a, b;
	struct iovec iov = { in[0], 100 };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = TAG,
		.context = &rx_context[0],
	};
	double until = ct_now() + ct_patience();
	struct ct_completion got;
	fi_addr_t to;

	open_shared(&a, FI_TAGGED, 0);
	open_shared(&b, FI_TAGGED, 0);
	to = ct_side_insert(&a, b.name);
	ct_side_insert(&b, a.name);
	OK(fi_trecvmsg(b.srx, &msg, FI_PEEK));
	REQUIRE(ct_next_of(&b.rxq[0]).err == FI_ENOMSG);
	send(&a, 1, to, 100, 3, true);
	do {
		REQUIRE(ct_now() < until);
		OK(fi_trecvmsg(b.srx, &msg, FI_PEEK | FI_CLAIM));
		got = ct_next_of(&b.rxq[0]);
	} while (got.err == FI_ENOMSG);
	REQUIRE(!got.err && got.len == 100 && got.tag == TAG);
	/* Nobody else gets it. */
	receive(b.srx, 1, 100, FI_ADDR_UNSPEC, true);
	REQUIRE(!b.rxq[0].count);
	OK(fi_trecvmsg(b.srx, &msg, FI_CLAIM));
	ct_done_of(&b.rxq[0], &rx_context[0]);
	REQUIRE(holds(0, 100, 3));
	ct_done_of(&a.txq[1], &tx_context[3]);
	EXPECT(fi_trecvmsg(b.srx, &msg, FI_CLAIM), -FI_ENOMSG);
	ct_close_side(&a);
	ct_close_side(&b);
}

static void cancelled(void)
{
	struct ct_side b;

	open_shared(&b, FI_MSG | FI_TAGGED, 0);
	receive(b.srx, 0, 8, FI_ADDR_UNSPEC, false);
	receive(b.srx, 1, 8, FI_ADDR_UNSPEC, true);
	for (int i = 0; i < 2; i++) {
		struct ct_completion got;

		OK(fi_cancel(&b.srx->fid, &rx_context[i]));
		got = ct_next_of(&b.rxq[0]);
		REQUIRE(got.err == FI_ECANCELED && got.context == &rx_context[i]);
	}
	OK(fi_cancel(&b.srx->fid, &rx_context[0]));
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&b);
}

/* The size of a receive context is no limit of the receives that are posted to it. */
static void beyond_the_size(void)
{
	enum { SIZE = 2, MORE = 3 * SIZE };
	struct ct_side a, b;
	fi_addr_t to;

	open_shared(&a, FI_MSG, 0);
	open_shared(&b, FI_MSG, SIZE);
	to = ct_side_insert(&a, b.name);
	ct_side_insert(&b, a.name);
	for (int i = 0; i < MORE; i++)
		receive(b.srx, i, 8, FI_ADDR_UNSPEC, false);
	for (int i = 0; i < MORE; i++) {
		send(&a, 0, to, 8, i, false);
		ct_done_of(&b.rxq[0], &rx_context[i]);
		ct_done_of(&a.txq[0], &tx_context[i]);
	}
	ct_close_side(&a);
	ct_close_side(&b);
}

/* Messages for a receive context that is closed take no buffers of the shared
 * one, and wait for the context that is opened in its place. */
static void context_that_is_closed(void)
{
	struct ct_side a, b;
	fi_addr_t to;

	open_shared(&a, FI_MSG, 0);
	open_objects(&b, SEVERAL_RECEIVES, FI_MSG, 0);
	ct_open_sep(&b);
	OK(fi_scalable_ep_bind(b.sep, &b.srx->fid, 0));
	for (int i = 0; i < 2; i++) {
		ct_open_tx(&b, i);
		ct_open_rx(&b, i);
	}
	to = ct_side_insert(&a, b.name);
	ct_side_insert(&b, a.name);
	send(&a, 0, fi_rx_addr(to, 0, BITS), 100, 0, false);
	ct_done_of(&a.txq[0], &tx_context[0]);
	drive_for_a_while();
	OK(fi_close(&b.rx[0]->fid));
	b.rx[0] = NULL;
	for (int i = 1; i < 4; i++)
		receive(b.srx, i, 5000, FI_ADDR_UNSPEC, false);
	send(&a, 0, fi_rx_addr(to, 0, BITS), 100, 2, false);
	ct_done_of(&a.txq[0], &tx_context[2]);
	drive_for_a_while();
	REQUIRE(!b.rxq[0].count && !b.rxq[1].count);
	send(&a, 1, fi_rx_addr(to, 1, BITS), 5000, 1, false);
	ct_done_of(&b.rxq[1], &rx_context[1]);
	ct_done_of(&a.txq[1], &tx_context[1]);
	REQUIRE(holds(1, 5000, 1));
	ct_open_rx(&b, 0);
	for (int i = 2; i < 4; i++) {
		ct_done_of(&b.rxq[0], &rx_context[i]);
		REQUIRE(holds(i, 100, i == 2 ? 0 : 2));
	}
	/* The transmit context goes on. */
	receive(a.srx, 0, 8, FI_ADDR_UNSPEC, false);
	send(&b, 0, ct_side_insert(&b, a.name), 8, 4, false);
	ct_done_of(&a.rxq[0], &rx_context[0]);
	ct_done_of(&b.txq[0], &tx_context[4]);
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
	ct_close_side(&b);
}

static void rules(void)
{
	struct fid_stx *stx;
	struct fid_ep *ep;
	struct ct_side b;

	open_objects(&b, SHARED_RECEIVES, FI_MSG, 0);
	ct_open_sep(&b);
	OK(fi_stx_context(b.domain, b.info->tx_attr, &stx, NULL));
	OK(fi_tx_context(b.sep, 0, NULL, &b.tx[0], NULL));
	OK(fi_rx_context(b.sep, 0, NULL, &b.rx[0], NULL));
	EXPECT(fi_rx_context(b.sep, 1, NULL, &ep, NULL), -FI_EINVAL);
	OK(fi_ep_bind(b.tx[0], &b.txq[0].fid->fid, FI_TRANSMIT));
	/* Nothing moves through the pair without its shared context. */
	EXPECT(fi_enable(b.tx[0]), -FI_EOPBADSTATE);
	EXPECT(fi_ep_bind(b.tx[0], &b.srx->fid, 0), -FI_EINVAL);
	EXPECT(fi_ep_bind(b.rx[0], &stx->fid, 0), -FI_EINVAL);
	OK(fi_ep_bind(b.rx[0], &b.srx->fid, 0));
	EXPECT(fi_enable(b.rx[0]), ct_needs_queues() ? -FI_ENOCQ : 0);
	OK(fi_enable(b.tx[0]));
	OK(fi_ep_bind(b.rx[0], &b.rxq[0].fid->fid, FI_RECV));
	OK(fi_enable(b.rx[0]));
	OK(fi_scalable_ep_bind(b.sep, &b.srx->fid, 0));
	EXPECT(fi_close(&b.srx->fid), -FI_EBUSY);
	EXPECT(fi_close(&b.sep->fid), -FI_EBUSY);
	OK(fi_close(&stx->fid));
	ct_close_side(&b);

	open_objects(&b, SEVERAL_RECEIVES, FI_MSG, 0);
	ct_open_sep(&b);
	ct_open_tx(&b, 1);
	OK(fi_rx_context(b.sep, 1, NULL, &b.rx[1], NULL));
	OK(fi_ep_bind(b.rx[1], &b.srx->fid, 0));
	OK(fi_rx_context(b.sep, 2, NULL, &b.rx[2], NULL));
	OK(fi_ep_bind(b.rx[2], &b.srx->fid, 0));
	ct_close_side(&b);
}

/* The transmit context of a scalable endpoint counts with those of others. */
static void shared_transmits(void)
{
	enum { SIZE = 4 };
	struct ct_side a, b;
	struct fid_ep *ep;
	fi_addr_t to;
	int posted = 0;
	ssize_t ret;

	open_objects(&a, SHARED_TRANSMITS, FI_MSG, SIZE);
	ct_open_sep(&a);
	OK(fi_tx_context(a.sep, 0, NULL, &a.tx[0], NULL));
	EXPECT(fi_tx_context(a.sep, 1, NULL, &ep, NULL), -FI_EINVAL);
	OK(fi_ep_bind(a.tx[0], &a.txq[0].fid->fid, FI_TRANSMIT));
	EXPECT(fi_enable(a.tx[0]), -FI_EOPBADSTATE);
	OK(fi_scalable_ep_bind(a.sep, &a.stx->fid, 0));
	OK(fi_enable(a.tx[0]));
	for (int i = 0; i < CONTEXTS; i++)
		ct_open_rx(&a, i);
	open_shared(&b, FI_MSG, 0);
	to = ct_side_insert(&a, b.name);
	ct_side_insert(&b, a.name);
	/* Nobody receives them yet. */
	for (int i = 0; i < SLOTS; i++) {
		ret = fi_send(a.tx[0], out, MOST, NULL, to, &tx_context[i]);
		if (ret)
			break;
		posted++;
	}
	EXPECT(ret, -FI_EAGAIN);
	REQUIRE(posted == SIZE);
	for (int i = 0; i < posted; i++)
		receive(b.srx, i, MOST, FI_ADDR_UNSPEC, false);
	for (int i = 0; i < posted; i++) {
		ct_done_of(&b.rxq[0], &rx_context[i]);
		ct_done_of(&a.txq[0], &tx_context[i]);
	}
	for (int i = 0; i < CONTEXTS; i++) {
		OK(fi_recv(a.rx[i], in[i], 8, NULL, FI_ADDR_UNSPEC, &rx_context[i]));
		send(&b, i, fi_rx_addr(ct_side_insert(&b, a.name), i, BITS), 8, i, false);
		ct_done_of(&a.rxq[i], &rx_context[i]);
		ct_done_of(&b.txq[i], &tx_context[i]);
		REQUIRE(holds(i, 8, i));
	}
	ct_close_side(&a);
	ct_close_side(&b);
}

static const struct ct_test tests[] = {
	{ "all-contexts", from_all_contexts, CT_RDM },
	{ "opened-late", context_that_is_opened_late, CT_RDM },
	{ "several-contexts", several_contexts, CT_RDM },
	{ "plain-endpoint", beside_a_plain_endpoint, CT_RDM },
	{ "directed", directed, CT_RDM },
	{ "multi-receive", multi_receive, CT_RDM },
	{ "peek-claim", peek_and_claim, CT_RDM },
	{ "cancel", cancelled, CT_RDM },
	{ "beyond-the-size", beyond_the_size, CT_RDM },
	{ "closed-context", context_that_is_closed, CT_RDM },
	{ "rules", rules, CT_RDM },
	{ "shared-transmits", shared_transmits, CT_RDM },
};

CT_MAIN(tests)
