/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Copies that fail, and a device that is reset. */
#include <rdma/fi_atomic.h>

#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* A copy that fails is the error of its operation, and of no other. */
void failing(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	static struct fi_context2 tx_context, rx_context;

	demands_desc = true;
	for (int late = 0; late < 2; late++) {
		setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, false);
		pass(&bench, false, CT_SEND, CT_RECV, 100, true);
		ct_device()->fail(1, late);
		EXPECT(fi_send(a->ep, bench.near.data, 64, bench.near.desc, a->to, &tx_context), -FI_EIO);
		pass(&bench, false, CT_SEND, CT_RECV, 100, true);
		teardown(&bench);
		setup(&bench, (struct ct_spec) { .caps = FI_MSG }, false, true);
		for (size_t len = 64; len <= 64000; len *= 1000) {
			pass(&bench, false, CT_SEND, CT_RECV, len, true);
			ct_device()->fail(1, late);
			POST(b, fi_recv(b->ep, bench.far.data, len, bench.far.desc, FI_ADDR_UNSPEC,
					&rx_context));
			POST(a, fi_send(a->ep, bench.near.data, len, NULL, a->to, &tx_context));
			REQUIRE(ct_error(b, &b->rx).err == FI_EIO);
			ct_next(a, &a->tx);
			pass(&bench, false, CT_SEND, CT_RECV, len, true);
		}
		teardown(&bench);
	}
}

/* A peer's read of memory that its device does not read is in error. */
void failing_reads(void)
{
	static struct fi_context2 context;

	demands_desc = true;
	for (size_t len = 64; len <= 64000; len *= 10) {
		struct bench bench = { 0 };
		struct ct_peer *a = &bench.pair.a;

		setup(&bench, (struct ct_spec) { .caps = FI_MSG | FI_RMA }, false, true);
		put(&bench, &bench.far, len, 1);
		put(&bench, &bench.near, len, 2);
		POST(a, fi_read(a->ep, bench.near.data, len, bench.near.desc, a->to, bench.far.addr,
				bench.far.key, &context));
		ct_done(a, &a->tx, &context);
		CHECK(holds(&bench, &bench.near, len, 1), "%zu", len);
		ct_device()->fail(1, false);
		POST(a, fi_read(a->ep, bench.near.data, len, bench.near.desc, a->to, bench.far.addr,
				bench.far.key, &context));
		CHECK(ct_error(a, &a->tx).err != 0, "failing-%zu", len);
		teardown(&bench);
	}
}

void after_a_reset(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	static struct fi_context2 tx_context, rx_context;

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, false, true);
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	POST(b, fi_recv(b->ep, bench.far.data, 100, bench.far.desc, FI_ADDR_UNSPEC, &rx_context));
	ct_device()->reset();
	POST(a, fi_send(a->ep, bench.near.data, 100, NULL, a->to, &tx_context));
	REQUIRE(ct_error(b, &b->rx).err == FI_EIO);
	ct_done(a, &a->tx, &tx_context);
	/* Memory of the host goes on. */
	static char host[2][100];
	ct_fill(host[0], 100, 3);
	POST(b, fi_recv(b->ep, host[1], 100, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(a, fi_send(a->ep, host[0], 100, NULL, a->to, &tx_context));
	ct_done(b, &b->rx, &rx_context);
	ct_done(a, &a->tx, &tx_context);
	REQUIRE(ct_holds(host[1], 100, 3));
	teardown(&bench);
}

/* A device that is reset while it copies what was received: that is an error, and all else goes on. */
void reset_receiving(void)
{
	for (size_t len = 100; len <= 100000; len *= 1000) {
		struct bench bench = { 0 };
		struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
		static struct fi_context2 tx_context, rx_context;

		demands_desc = true;
		setup(&bench, (struct ct_spec) { .caps = FI_MSG }, false, true);
		pass(&bench, false, CT_SEND, CT_RECV, len, true);
		POST(b, fi_recv(b->ep, bench.far.data, len, bench.far.desc, FI_ADDR_UNSPEC, &rx_context));
		ct_device()->hold(true);
		POST(a, fi_send(a->ep, bench.near.data, len, NULL, a->to, &tx_context));
		for (int turn = 0; turn < 100; turn++) {
			ct_progress(a);
			ct_progress(b);
		}
		ct_device()->reset();
		ct_device()->hold(false);
		CHECK(ct_error(b, &b->rx).err == FI_EIO, "%zu", len);
		ct_done(a, &a->tx, &tx_context);
		pass_host(a, a->to, b);
		/* It is new again. */
		teardown(&bench);
		ct_device()->renew();
	}
}

/* The same while it copies what is sent. Nothing is lost but this message, and perhaps its connection. */
void reset_sending(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b, third;
	static struct fi_context2 tx_context, rx_context;
	fi_addr_t to_third;

	demands_desc = true;
	ct_device()->refuse_sharing(true);
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, false);
	to_third = ct_open_third(&third, a);
	pass_host(a, to_third, &third);
	pass(&bench, false, CT_SEND, CT_RECV, LARGEST, true);
	POST(b, fi_recv(b->ep, bench.far.data, LARGEST, NULL, FI_ADDR_UNSPEC, &rx_context));
	ct_device()->hold(true);
	POST(a, fi_send(a->ep, bench.near.data, LARGEST, bench.near.desc, a->to, &tx_context));
	for (int turn = 0; turn < 100; turn++) {
		ct_progress(a);
		ct_progress(b);
	}
	ct_device()->reset();
	ct_device()->hold(false);
	REQUIRE(ct_error(a, &a->tx).err != 0);
	/* The receiver has heard of it, or has not, and takes it back. */
	fi_cancel(&b->ep->fid, &rx_context);
	REQUIRE(ct_error(b, &b->rx).err != 0);
	pass_host(a, to_third, &third);
	pass_host(a, a->to, b);
	ct_close_peer(&third);
	teardown(&bench);
}

/* Or when the receiver has a part of the message: neither end takes it for whole. */
void reset_midway(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	static struct fi_context2 tx_context, rx_context;
	struct ct_completion received;
	unsigned before;

	demands_desc = true;
	ct_device()->refuse_sharing(true);
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, false);
	pass(&bench, false, CT_SEND, CT_RECV, LARGEST, true);
	put(&bench, &bench.near, LARGEST, 1);
	put(&bench, &bench.far, LARGEST, 2);
	POST(b, fi_recv(b->ep, bench.far.data, LARGEST, NULL, FI_ADDR_UNSPEC, &rx_context));
	before = ct_device()->copies();
	POST(a, fi_send(a->ep, bench.near.data, LARGEST, bench.near.desc, a->to, &tx_context));
	CT_UNTIL(ct_device()->copies() != before, (ct_progress(a), ct_progress(b)));
	ct_device()->reset();
	CT_UNTIL(a->tx.count && b->rx.count, (ct_progress(a), ct_progress(b)));
	ct_next(a, &a->tx);
	received = ct_next(b, &b->rx);
	REQUIRE(received.err || holds(&bench, &bench.far, LARGEST, 1));
	if (ct_opt.type == FI_EP_RDM)
		pass_host(a, a->to, b);
	teardown(&bench);
}

/* And while peers access its memory, and memory is accessed from it: by a call or by an answer, and never
 * as if it had been copied. */
void reset_accessing(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	static struct fi_context2 context;
	struct ct_rma rma;
	ssize_t posted;

	demands_desc = true;
	for (int device_is_far = 0; device_is_far < 2; device_is_far++) {
		for (int reads = 0; reads < 2; reads++) {
			setup(&bench, (struct ct_spec) { .caps = FI_MSG | FI_RMA }, !device_is_far,
			      device_is_far);
			pass(&bench, false, CT_SEND, CT_RECV, 100, true);
			ct_device()->reset();
			rma = (struct ct_rma) {
				.buf = bench.near.data, .len = 70000, .desc = bench.near.desc,
				.addr = bench.far.addr, .key = bench.far.key, .context = &context,
				.flags = reads ? 0 : FI_DELIVERY_COMPLETE,
			};
			do {
				posted = ct_rma(a, reads ? CT_READMSG : CT_WRITEMSG, &rma);
				ct_progress(a);
				ct_progress(b);
			} while (posted == -FI_EAGAIN);
			CHECK(posted || ct_error(a, &a->tx).err, "%s-%s", device_is_far ? "far" : "near",
			      reads ? "read" : "write");
			teardown(&bench);
			ct_device()->renew();
		}
	}
}

/* Nor are a peer's atomic operations on it. A connection may end with one that is refused. */
void reset_counting(void)
{
	static struct fi_context2 context;
	static uint64_t operand = 2, old;
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	ssize_t posted;

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG | FI_ATOMIC }, false, true);
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	ct_device()->reset();
	do {
		posted = fi_fetch_atomic(a->ep, &operand, 1, NULL, &old, NULL, a->to, bench.far.addr,
					 bench.far.key, FI_UINT64, FI_SUM, &context);
		ct_progress(a);
		ct_progress(b);
	} while (posted == -FI_EAGAIN);
	REQUIRE(!posted && ct_error(a, &a->tx).err);
	if (ct_opt.type == FI_EP_RDM)
		pass_host(a, a->to, b);
	teardown(&bench);
}
