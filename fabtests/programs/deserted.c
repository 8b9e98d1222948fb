/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A client whose server is gone, as a library for remote calls is one: for each
 * call it posts the receive for the answer first, which names the server, then
 * sends the request, and takes the receive back where that fails. The call is
 * over when the receive has ended as one that was taken back, and it must not
 * take long.
 */
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "peer.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

enum { REQUEST = 1, ANSWER = 2, CALLS = 4 };

/* Of the usual patience, ten seconds: what a call in vain may take. */
#define MOST 0.3

struct call {
	struct fi_context2 request, answer;
	bool requested, failed, answered, taken_back;
	char buf[8];
};

static const struct ct_spec spec = {
	.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV,
};

static void post_answer(struct ct_peer *peer, struct call *call)
{
	struct ct_message message = {
		.tagged = true, .tag = ANSWER, .buf = call->buf,
		.len = sizeof(call->buf), .from = peer->to,
		.context = &call->answer,
	};

	POST(peer, ct_recv(peer, CT_RECV, &message));
}

static void post_request(struct ct_peer *peer, struct call *call)
{
	struct ct_message message = {
		.tagged = true, .tag = REQUEST, .buf = "request", .len = 8,
		.context = &call->request,
	};

	POST(peer, ct_send(peer, CT_SEND, &message));
}

/* Takes in what has ended. */
static void reap(struct ct_peer *peer, struct call *call)
{
	ct_progress(peer);
	if (peer->tx.count) {
		struct ct_completion end = ct_next(peer, &peer->tx);

		REQUIRE(end.context == &call->request && !call->requested);
		call->requested = true;
		call->failed = end.err;
	}
	if (peer->rx.count) {
		struct ct_completion end = ct_next(peer, &peer->rx);

		REQUIRE(end.context == &call->answer && !call->answered);
		call->answered = true;
		call->taken_back = end.err == FI_ECANCELED;
		REQUIRE(call->taken_back || !end.err);
		/* The cause, where it was not this process. */
		REQUIRE(!end.err || end.prov_errno > 0);
	}
}

#define REAP_UNTIL(peer, call, cond)					\
	do {								\
		double until_ = ct_now() + ct_patience();		\
									\
		while (!(cond)) {					\
			if (ct_now() > until_)				\
				ct_fail(__FILE__, __LINE__,		\
					"never: %s", #cond);		\
			reap(peer, call);				\
		}							\
	} while (0)

/* A call in vain. */
static void call_nobody(struct ct_peer *peer)
{
	struct call call = { 0 };

	post_answer(peer, &call);
	post_request(peer, &call);
	REAP_UNTIL(peer, &call, call.requested || call.answered);
	if (!call.answered) {
		int ret = fi_cancel(&peer->ep->fid, &call.answer);

		REQUIRE(ret == 0 || ret == -FI_ENOENT);
	}
	REAP_UNTIL(peer, &call, call.requested && call.answered);
	REQUIRE(call.taken_back);
}

/* Answers calls until it is killed. */
static void server(int fd)
{
	struct ct_card own = { 0 }, other;
	struct ct_peer peer;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep(&peer, peer.info);
	ct_meet(&peer, &own, &other, fd, NULL);
	for (;;) {
		static struct fi_context2 rx, tx;
		char buf[8];
		struct ct_message request = {
			.tagged = true, .tag = REQUEST, .buf = buf,
			.len = sizeof(buf), .from = FI_ADDR_UNSPEC,
			.context = &rx,
		};
		struct ct_message answer = {
			.tagged = true, .tag = ANSWER, .buf = buf,
			.len = sizeof(buf), .context = &tx,
		};

		POST(&peer, ct_recv(&peer, CT_RECV, &request));
		while (!peer.rx.count)
			ct_progress(&peer);
		ct_done(&peer, &peer.rx, &rx);
		POST(&peer, ct_send(&peer, CT_SEND, &answer));
		ct_done(&peer, &peer.tx, &tx);
	}
}

/* The server is killed with a call under way, or before the first one. */
static void server_dies(bool was_called)
{
	struct ct_child child = ct_spawn(server);
	struct ct_card own = { 0 }, other;
	struct call call = { 0 };
	struct ct_peer peer;
	double since;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_begin(&child);
	ct_open_ep(&peer, peer.info);
	ct_meet(&peer, &own, &other, child.fd, NULL);
	if (was_called) {
		post_answer(&peer, &call);
		post_request(&peer, &call);
		REAP_UNTIL(&peer, &call, call.requested && call.answered);
		REQUIRE(!call.failed && !call.taken_back);
		call = (struct call) { 0 };
		post_answer(&peer, &call);
	}
	ct_kill(&child);
	since = ct_now();
	if (was_called) {
		REAP_UNTIL(&peer, &call, call.answered);
		REQUIRE(call.taken_back);
	}
	call_nobody(&peer);
	ct_close_peer(&peer);
	REQUIRE(ct_now() - since < ct_patience() * MOST);
}

static void connected(void)
{
	server_dies(true);
}

static void never_reached(void)
{
	server_dies(false);
}

/* Nobody waits for the calls: their receives are the application's at close. */
static void left_behind(void)
{
	struct ct_child child = ct_spawn(server);
	struct ct_card own = { 0 }, other;
	static struct call calls[CALLS];
	struct ct_peer peer;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_begin(&child);
	ct_open_ep(&peer, peer.info);
	ct_meet(&peer, &own, &other, child.fd, NULL);
	ct_kill(&child);
	for (int i = 0; i < CALLS; i++) {
		post_answer(&peer, &calls[i]);
		post_request(&peer, &calls[i]);
	}
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "connected", connected, CT_RDM },
	{ "never-reached", never_reached, CT_RDM },
	{ "left-behind", left_behind, CT_RDM },
};

CT_MAIN(tests)
