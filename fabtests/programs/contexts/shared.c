/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Scalable endpoints whose contexts use shared ones: when these are opened and closed, and beside
 * what. */
#include "form.h"

enum { CONTEXTS = CT_CONTEXTS, BITS = CT_CONTEXT_BITS };

static const struct ct_setup with_shared = {
	.kind = CT_SCALABLE_SHARED, .spec.caps = FI_MSG | FI_TAGGED | FI_SOURCE,
};

/* A side with the scalable endpoint alone, bound to the shared context. */
static void open_bound(struct ct_side *side, enum ct_kind kind)
{
	struct ct_setup setup = with_shared;

	setup.kind = kind;
	OK(ct_open_side(side, &setup));
	OK(ct_open_sep(side));
	OK(fi_scalable_ep_bind(side->sep, &side->peer.srx->fid, 0));
}

/* The receive context is opened when messages have come: the shared one
 * receives them in their order. */
static void context_that_is_opened_late(void)
{
	static const size_t sizes[] = { 8, 5000, CT_PLACE, 16 };

	for (int is_first = 0; is_first < 2; is_first++) {
		struct ct_side a, b;

		ct_open_ready(&a, &with_shared);
		open_bound(&b, CT_SCALABLE_SHARED);
		OK(ct_open_tx(&b, 0));
		ct_address(&b, &a, 0);
		for (int i = 0; is_first && i < 4; i++)
			ct_side_receive(&b, 0, i, CT_PLACE, FI_ADDR_UNSPEC, i & 1 ? TAG : CT_UNTAGGED);
		/* The last one is sent from where it is. */
		for (int i = 0; i < 3; i++) {
			ct_side_send(&a, i, ct_address(&a, &b, 0), i, sizes[i],
				     i & 1 ? TAG : CT_UNTAGGED);
			drive_for_a_while();
		}
		REQUIRE(!b.rxq[0]->count);
		OK(ct_open_rx(&b, 0));
		for (int i = 0; !is_first && i < 4; i++)
			ct_side_receive(&b, 0, i, CT_PLACE, FI_ADDR_UNSPEC, i & 1 ? TAG : CT_UNTAGGED);
		for (int i = 0; i < 3; i++) {
			struct ct_completion got = ct_next_of(b.rxq[0]);
			long slot = (struct fi_context2 *)got.context - ct_received;

			REQUIRE(!got.err && slot >= 0 && slot < 4 && got.len == sizes[slot]);
			REQUIRE(ct_side_holds(&b, (int)slot, sizes[slot], (int)slot));
		}
		for (int i = 0; i < 3; i++)
			ct_side_sent(&a, i, i);
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
	fi_addr_t to[2], from;

	ct_open_ready(&a, &with_shared);
	ct_open_ready(&b, &with_shared);
	OK(fi_endpoint(b.peer.domain, b.peer.info, &plain, NULL));
	OK(fi_ep_bind(plain, &b.peer.av->fid, 0));
	OK(fi_ep_bind(plain, &b.peer.srx->fid, 0));
	OK(fi_ep_bind(plain, &b.txq[1]->fid->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_enable(plain));
	ct_name(&plain->fid, name, sizeof(name));
	from = ct_source(&b, &a, 0);
	to[0] = ct_address(&a, &b, 0);
	to[1] = ct_side_insert(&a, name);
	for (int i = 0; i < 4; i++)
		ct_side_receive(&b, 0, i, 5000, FI_ADDR_UNSPEC, TAG);
	for (int i = 0; i < 4; i++) {
		struct ct_completion got;

		ct_side_send(&a, 0, to[i & 1], i, 5000, TAG);
		got = ct_done_of(i & 1 ? b.txq[1] : b.rxq[0], &ct_received[i]);
		REQUIRE(got.src == from && ct_side_holds(&b, i, 5000, i));
		ct_side_sent(&a, 0, i);
	}
	OK(fi_close(&plain->fid));
	ct_close_side(&a);
	ct_close_side(&b);
}

/* Messages for a receive context that is closed take no buffers of the shared
 * one, and wait for the context that is opened in its place. */
static void context_that_is_closed(void)
{
	struct ct_side a, b;

	ct_open_ready(&a, &with_shared);
	open_bound(&b, CT_SCALABLE_THROUGH);
	for (int i = 0; i < 2; i++) {
		OK(ct_open_tx(&b, i));
		OK(ct_open_rx(&b, i));
	}
	ct_address(&b, &a, 0);
	ct_side_send(&a, 0, ct_address(&a, &b, 0), 0, LENGTH, CT_UNTAGGED);
	ct_side_sent(&a, 0, 0);
	drive_for_a_while();
	OK(fi_close(&b.rx[0]->fid));
	for (int i = 1; i < 4; i++)
		ct_side_receive(&b, 0, i, 5000, FI_ADDR_UNSPEC, CT_UNTAGGED);
	ct_side_send(&a, 0, ct_address(&a, &b, 0), 2, LENGTH, CT_UNTAGGED);
	ct_side_sent(&a, 0, 2);
	drive_for_a_while();
	REQUIRE(!b.rxq[0]->count && !b.rxq[1]->count);
	ct_side_send(&a, 1, ct_address(&a, &b, 1), 1, 5000, CT_UNTAGGED);
	ct_side_done(&b, 1, 1, 5000, 1);
	ct_side_sent(&a, 1, 1);
	OK(ct_open_rx(&b, 0));
	ct_side_done(&b, 0, 2, LENGTH, 0);
	ct_side_done(&b, 0, 3, LENGTH, 2);
	/* The transmit context goes on. */
	pass(&b, 0, &a, 0, 8, true, CT_UNTAGGED);
	REQUIRE(ct_all_stay_empty());
	ct_close_side(&a);
	ct_close_side(&b);
}

static void rules(void)
{
	struct ct_setup setup = with_shared;
	struct fid_stx *stx;
	struct fid_ep *ep;
	struct ct_side b;

	OK(ct_open_side(&b, &setup));
	OK(ct_open_sep(&b));
	OK(fi_stx_context(b.peer.domain, b.peer.info->tx_attr, &stx, NULL));
	OK(fi_tx_context(b.sep, 0, NULL, &b.tx[0], NULL));
	OK(fi_rx_context(b.sep, 0, NULL, &b.rx[0], NULL));
	EXPECT(fi_rx_context(b.sep, 1, NULL, &ep, NULL), -FI_EINVAL);
	OK(fi_ep_bind(b.tx[0], &b.txq[0]->fid->fid, FI_TRANSMIT));
	/* Nothing moves through the pair without its shared context. */
	EXPECT(fi_enable(b.tx[0]), -FI_EOPBADSTATE);
	EXPECT(fi_ep_bind(b.tx[0], &b.peer.srx->fid, 0), -FI_EINVAL);
	EXPECT(fi_ep_bind(b.rx[0], &stx->fid, 0), -FI_EINVAL);
	OK(fi_ep_bind(b.rx[0], &b.peer.srx->fid, 0));
	EXPECT(fi_enable(b.rx[0]), ct_needs_queues() ? -FI_ENOCQ : 0);
	OK(fi_enable(b.tx[0]));
	OK(fi_ep_bind(b.rx[0], &b.rxq[0]->fid->fid, FI_RECV));
	OK(fi_enable(b.rx[0]));
	OK(fi_scalable_ep_bind(b.sep, &b.peer.srx->fid, 0));
	EXPECT(fi_close(&b.peer.srx->fid), -FI_EBUSY);
	EXPECT(fi_close(&b.sep->fid), -FI_EBUSY);
	OK(fi_close(&stx->fid));
	ct_close_side(&b);

	setup.kind = CT_SCALABLE_SEVERAL;
	OK(ct_open_side(&b, &setup));
	OK(ct_open_sep(&b));
	OK(ct_open_tx(&b, 1));
	for (int i = 1; i < 3; i++) {
		OK(fi_rx_context(b.sep, i, NULL, &b.rx[i], NULL));
		OK(fi_ep_bind(b.rx[i], &b.peer.srx->fid, 0));
	}
	ct_close_side(&b);
}

/* The transmit context of a scalable endpoint counts with those of others. */
static void shared_transmits(void)
{
	enum { SIZE = 4 };
	const struct ct_setup setup = {
		.kind = CT_SCALABLE_SENDS, .size = SIZE, .spec.caps = FI_MSG | FI_SOURCE,
	};
	struct ct_side a, b;
	struct fid_ep *ep;
	int posted = 0;
	ssize_t ret;

	OK(ct_open_side(&a, &setup));
	if (!a.peer.info->domain_attr->max_ep_srx_ctx)
		SKIP("no shared receive contexts");
	OK(ct_open_sep(&a));
	OK(fi_tx_context(a.sep, 0, NULL, &a.tx[0], NULL));
	EXPECT(fi_tx_context(a.sep, 1, NULL, &ep, NULL), -FI_EINVAL);
	OK(fi_ep_bind(a.tx[0], &a.txq[0]->fid->fid, FI_TRANSMIT));
	EXPECT(fi_enable(a.tx[0]), -FI_EOPBADSTATE);
	OK(fi_scalable_ep_bind(a.sep, &a.stx->fid, 0));
	OK(fi_enable(a.tx[0]));
	for (int i = 0; i < CONTEXTS; i++)
		OK(ct_open_rx(&a, i));
	ct_open_ready(&b, &with_shared);
	ct_address(&b, &a, 0);
	/* Nobody receives them yet. */
	while (!(ret = fi_send(a.tx[0], a.out.data, CT_PLACE, a.out.desc, ct_address(&a, &b, 0),
			       &ct_sent[posted])))
		REQUIRE(++posted <= SIZE);
	EXPECT(ret, -FI_EAGAIN);
	REQUIRE(posted == SIZE);
	for (int i = 0; i < posted; i++)
		ct_side_receive(&b, 0, i, CT_PLACE, FI_ADDR_UNSPEC, CT_UNTAGGED);
	for (int i = 0; i < posted; i++) {
		ct_done_of(b.rxq[0], &ct_received[i]);
		ct_side_sent(&a, 0, i);
	}
	for (int i = 0; i < CONTEXTS; i++)
		pass(&b, i, &a, i, 8, true, CT_UNTAGGED);
	ct_close_side(&a);
	ct_close_side(&b);
}

const struct ct_test shared_tests[] = {
	{ "scalable-shared/opened-late", context_that_is_opened_late, CT_RDM },
	{ "scalable-shared/plain-endpoint", beside_a_plain_endpoint, CT_RDM },
	{ "scalable-shared/closed-context", context_that_is_closed, CT_RDM },
	{ "scalable-shared/rules", rules, CT_RDM },
	{ "scalable-shared/transmits", shared_transmits, CT_RDM },
};
const size_t shared_count = sizeof(shared_tests) / sizeof(shared_tests[0]);
