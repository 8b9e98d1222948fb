/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Receives that are posted before fi_enable. */
#include <string.h>

#include "check.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context[10];

/* Receives that the endpoints of a pair have before they are enabled. */
#define EARLY 3
static unsigned char early_room[2][EARLY][64];
static struct fi_context2 early_context[2][EARLY];
static int early_endpoints;
static bool early_tags;

static void receive_early(struct fid_ep *ep)
{
	int i = early_endpoints++;
	struct iovec iov[EARLY];

	for (int k = 0; k < EARLY; k++) {
		iov[k].iov_base = early_room[i][k];
		iov[k].iov_len = sizeof(early_room[i][k]);
	}
	if (early_tags) {
		struct fi_msg_tagged msg = {
			.msg_iov = &iov[2], .iov_count = 1, .tag = 7,
			.addr = FI_ADDR_UNSPEC, .context = &early_context[i][2],
		};

		OK(fi_trecv(ep, iov[0].iov_base, 64, NULL, FI_ADDR_UNSPEC, 7, 0,
			    &early_context[i][0]));
		OK(fi_trecvv(ep, &iov[1], NULL, 1, FI_ADDR_UNSPEC, 7, 0,
			     &early_context[i][1]));
		OK(fi_trecvmsg(ep, &msg, FI_COMPLETION));
	} else {
		struct fi_msg msg = {
			.msg_iov = &iov[2], .iov_count = 1,
			.addr = FI_ADDR_UNSPEC, .context = &early_context[i][2],
		};

		OK(fi_recv(ep, iov[0].iov_base, 64, NULL, FI_ADDR_UNSPEC,
			   &early_context[i][0]));
		OK(fi_recvv(ep, &iov[1], NULL, 1, FI_ADDR_UNSPEC,
			    &early_context[i][1]));
		OK(fi_recvmsg(ep, &msg, FI_COMPLETION));
	}
	/* The vectors are the program's again. */
	memset(iov, 0xff, sizeof(iov));
}

static void early_receives_of(uint64_t caps, bool tagged)
{
	struct ct_spec spec = { .caps = caps, .prepare = receive_early };
	struct ct_pair pair;

	early_tags = tagged;
	ct_open_pair(&pair, &spec);
	for (int side = 0; side < 2; side++) {
		struct ct_peer *to = side ? &pair.b : &pair.a;
		struct ct_peer *from = side ? &pair.a : &pair.b;
		/* The one that connects is opened first. */
		int i = ct_opt.type == FI_EP_MSG ? !side : side;

		for (int k = 0; k < EARLY; k++) {
			struct ct_message m = {
				.tagged = tagged, .tag = 7, .buf = "early",
				.len = 5, .context = &tx_context[0],
			};
			struct ct_completion done;

			POST(from, ct_send(from, CT_SEND, &m));
			ct_done(from, &from->tx, &tx_context[0]);
			done = ct_done(to, &to->rx, &early_context[i][k]);
			REQUIRE(done.len == 5);
			REQUIRE(!memcmp(early_room[i][k], "early", 5));
		}
		CHECK(true, side ? "forwards" : "backwards");
	}
	ct_close_pair(&pair);
}

static void early_receives(void)
{
	early_receives_of(FI_MSG, false);
}

static void early_receives_tagged(void)
{
	early_receives_of(FI_TAGGED, true);
}

static void cancel_early(struct fid_ep *ep)
{
	receive_early(ep);
	OK(fi_cancel(&ep->fid, &tx_context[9]));
	OK(fi_cancel(&ep->fid, &early_context[early_endpoints - 1][1]));
}

/* One of them is taken back before the endpoint is enabled. */
static void early_receive_cancelled(void)
{
	struct ct_spec spec = { .prepare = cancel_early };
	struct ct_pair pair;
	struct ct_peer *b = &pair.b, *a = &pair.a;
	int i = ct_opt.type == FI_EP_MSG ? 0 : 1;
	struct ct_completion gone;

	ct_open_pair(&pair, &spec);
	gone = ct_error(b, &b->rx);
	CHECK(gone.err == FI_ECANCELED &&
	      gone.context == &early_context[i][1], "told");
	for (int k = 0; k < EARLY; k += 2) {
		POST(a, fi_send(a->ep, NULL, 0, NULL, a->to, &tx_context[0]));
		ct_done(a, &a->tx, &tx_context[0]);
		ct_done(b, &b->rx, &early_context[i][k]);
	}
	CHECK(true, "others");
	ct_close_pair(&pair);
}

/* An endpoint with receives is closed without ever having been enabled. */
static void early_receives_closed(void)
{
	struct ct_spec spec = { .prepare = receive_early };
	struct ct_peer peer;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep_disabled(&peer, peer.info);
	ct_close_peer(&peer);
	CHECK(true, "closed");
}

static const struct ct_test tests[] = {
	{ "early-receives", early_receives, CT_BOTH },
	{ "early-receives-tagged", early_receives_tagged, CT_BOTH },
	{ "early-receive-cancelled", early_receive_cancelled, CT_BOTH },
	{ "early-receives-closed", early_receives_closed, CT_BOTH },
};

CT_MAIN(tests)
