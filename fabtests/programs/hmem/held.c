/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* A device that is busy, or does not copy, holds nothing else up. */
#include <rdma/fi_atomic.h>

#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* A kernel that waits for the host on the default stream holds nothing up, and neither does
 * a copy that takes long return early. */
void under_a_kernel(void)
{
	static volatile int flag;
	struct bench bench = { 0 };

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	ct_device()->kernel(&flag);
	ct_device()->delay(300);
	for (size_t i = 0; i < SIZES; i++) {
		pass(&bench, false, CT_SEND, CT_RECV, sizes[i], true);
		pass(&bench, false, CT_SEND, CT_RECV, sizes[i], false);
	}
	flag = 1;
	ct_device()->delay(0);
	teardown(&bench);
}

/* A device that does not copy delays the messages to its memory, and no others. */
void held(void)
{
	static struct fi_context2 tx_context[2], rx_context[2];
	static unsigned char host[2][64];

	demands_desc = true;
	for (size_t len = 64; len <= 70000; len *= 1000) {
		struct bench bench = { 0 };
		struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;

		setup(&bench, (struct ct_spec) { .caps = FI_MSG }, false, true);
		pass(&bench, false, CT_SEND, CT_RECV, len, true);
		put(&bench, &bench.near, len, 1);
		put(&bench, &bench.far, len, 2);
		ct_fill(host[0], 64, 3);
		memset(host[1], 0, 64);
		POST(b, fi_recv(b->ep, bench.far.data, len, bench.far.desc, FI_ADDR_UNSPEC,
				&rx_context[0]));
		POST(b, fi_recv(b->ep, host[1], 64, NULL, FI_ADDR_UNSPEC, &rx_context[1]));
		ct_device()->hold(true);
		POST(a, fi_send(a->ep, bench.near.data, len, NULL, a->to, &tx_context[0]));
		POST(a, fi_send(a->ep, host[0], 64, NULL, a->to, &tx_context[1]));
		ct_done(b, &b->rx, &rx_context[1]);
		CHECK(ct_holds(host[1], 64, 3), "%zu", len);
		ct_device()->hold(false);
		REQUIRE(ct_done(b, &b->rx, &rx_context[0]).len == len);
		CHECK(holds(&bench, &bench.far, len, 1), "device-%zu", len);
		ct_next(a, &a->tx);
		ct_next(a, &a->tx);
		teardown(&bench);
	}
}

/* The same at the sender: its lane goes on, with another peer. */
void held_sends(void)
{
	static struct fi_context2 tx_context[2], rx_context[2];
	static unsigned char host[2][64];

	demands_desc = true;
	for (size_t len = 6000; len <= LARGEST; len *= 12) {
		struct bench bench = { 0 };
		struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b, third;
		fi_addr_t to_third;

		/* The receiver would copy by itself. */
		ct_device()->refuse_sharing(true);
		setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, false);
		to_third = ct_open_third(&third, a);
		pass(&bench, false, CT_SEND, CT_RECV, len, true);
		put(&bench, &bench.near, len, 1);
		put(&bench, &bench.far, len, 2);
		for (unsigned i = 0; i < 2; i++) {
			/* The first message is under way when there is a connection. */
			if (i) {
				POST(b, fi_recv(b->ep, bench.far.data, len, NULL, FI_ADDR_UNSPEC,
						&rx_context[0]));
				ct_device()->hold(true);
				POST(a, fi_send(a->ep, bench.near.data, len, bench.near.desc, a->to,
						&tx_context[0]));
				for (int turn = 0; turn < 100; turn++)
					ct_progress(a);
			}
			ct_fill(host[0], 64, i);
			POST(&third, fi_recv(third.ep, host[1], 64, NULL, FI_ADDR_UNSPEC, &rx_context[1]));
			POST(a, fi_send(a->ep, host[0], 64, NULL, to_third, &tx_context[1]));
			ct_done(&third, &third.rx, &rx_context[1]);
			ct_done(a, &a->tx, &tx_context[1]);
			CHECK(ct_holds(host[1], 64, i), "other-%zu-%u", len, i);
		}
		ct_device()->hold(false);
		REQUIRE(ct_done(b, &b->rx, &rx_context[0]).len == len);
		CHECK(holds(&bench, &bench.far, len, 1), "device-%zu", len);
		ct_done(a, &a->tx, &tx_context[0]);
		ct_close_peer(&third);
		teardown(&bench);
	}
}

/* Old values that a device does not copy yet hold nothing else up. */
void held_results(void)
{
	static struct fi_context2 tx_context[2], rx_context;
	static unsigned char host[2][64];
	static uint64_t operand = 2;
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG | FI_ATOMIC }, true, false);
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	set(&bench.far, 0, 40);
	set(&bench.near, 0, 0);
	ct_device()->hold(true);
	POST(a, fi_fetch_atomic(a->ep, &operand, 1, NULL, bench.near.data, bench.near.desc, a->to,
				bench.far.addr, bench.far.key, FI_UINT64, FI_SUM, &tx_context[0]));
	UNTIL(b, word(&bench, &bench.far) == 42);
	ct_fill(host[0], 64, 3);
	POST(b, fi_recv(b->ep, host[1], 64, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(a, fi_send(a->ep, host[0], 64, NULL, a->to, &tx_context[1]));
	ct_done(b, &b->rx, &rx_context);
	ct_done(a, &a->tx, &tx_context[1]);
	REQUIRE(ct_holds(host[1], 64, 3));
	ct_device()->hold(false);
	ct_done(a, &a->tx, &tx_context[0]);
	CHECK(word(&bench, &bench.near) == 40, "result");
	teardown(&bench);
}
