/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A client whose server is gone, as in a library for remote calls: for each
 * call it posts the receive for the answer first, which names the server, then
 * sends the request, and cancels the receive if that fails. The call is over
 * when the receive has ended as cancelled, and that must not take long.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "peer.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

enum { REQUEST = 1, ANSWER = 2, CALLS = 4 };

/* More than can be in flight to a process that does not receive. */
static char large[64 << 20];

/* The part of the usual time limit, thirty seconds, that a failing call may
 * take. */
#define MOST 0.1

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

static void post_request(struct ct_peer *peer, struct call *call, size_t len)
{
	struct ct_message message = {
		.tagged = true, .tag = REQUEST, .buf = large, .len = len,
		.context = &call->request,
	};

	POST(peer, ct_send(peer, CT_SEND, &message));
}

/* Handles completions. */
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
		/* The cause, if it was not this process. */
		REQUIRE(!end.err || end.prov_errno > 0);
	}
}

#define REAP_UNTIL(peer, call, cond) CT_UNTIL(cond, reap(peer, call))

/* Waits for the end of a call in vain, and takes its receive back. */
static void give_up(struct ct_peer *peer, struct call *call)
{
	REAP_UNTIL(peer, call, call->requested || call->answered);
	if (!call->answered) {
		int ret = fi_cancel(&peer->ep->fid, &call->answer);

		REQUIRE(ret == 0 || ret == -FI_ENOENT);
	}
	REAP_UNTIL(peer, call, call->requested && call->answered);
	REQUIRE(call->taken_back);
}

static void call_nobody(struct ct_peer *peer)
{
	struct call call = { 0 };

	post_answer(peer, &call);
	post_request(peer, &call, 8);
	give_up(peer, &call);
}

static void answer(struct ct_peer *peer)
{
	static struct fi_context2 rx, tx;
	char buf[8];
	struct ct_message request = {
		.tagged = true, .tag = REQUEST, .buf = buf,
		.len = sizeof(buf), .from = FI_ADDR_UNSPEC, .context = &rx,
	};
	struct ct_message reply = {
		.tagged = true, .tag = ANSWER, .buf = buf,
		.len = sizeof(buf), .context = &tx,
	};

	POST(peer, ct_recv(peer, CT_RECV, &request));
	while (!peer->rx.count)
		ct_progress(peer);
	ct_done(peer, &peer->rx, &rx);
	POST(peer, ct_send(peer, CT_SEND, &reply));
	ct_done(peer, &peer->tx, &tx);
}

static void open_server(struct ct_peer *peer, int fd)
{
	struct ct_card own = { 0 }, other;

	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep(peer, peer->info);
	ct_meet(peer, &own, &other, fd, NULL);
}

/* Answers calls until it is killed. */
static void server(int fd)
{
	struct ct_peer peer;

	open_server(&peer, fd);
	for (;;)
		answer(&peer);
}

/* Answers one call, and ignores everything later. */
static void stuck_server(int fd)
{
	struct ct_peer peer;

	open_server(&peer, fd);
	answer(&peer);
	for (;;)
		pause();
}

/* A client that has met the server of this process. */
static void open_client(struct ct_peer *peer, const struct ct_child *child)
{
	struct ct_card own = { 0 }, other;

	ct_open_domain(peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_begin(child);
	ct_open_ep(peer, peer->info);
	ct_meet(peer, &own, &other, child->fd, NULL);
}

static void call_server(struct ct_peer *peer)
{
	struct call call = { 0 };

	post_answer(peer, &call);
	post_request(peer, &call, 8);
	REAP_UNTIL(peer, &call, call.requested && call.answered);
	REQUIRE(!call.failed && !call.taken_back);
}

static void close_in_time(struct ct_peer *peer, double since)
{
	ct_close_peer(peer);
	REQUIRE(ct_now() - since < ct_patience() * MOST);
}

/* The server is killed while an answer is awaited, or before the first call. */
static void server_dies(bool was_called)
{
	struct ct_child child = ct_spawn(server);
	struct call call = { 0 };
	struct ct_peer peer;
	double since;

	open_client(&peer, &child);
	if (was_called) {
		call_server(&peer);
		post_answer(&peer, &call);
	}
	ct_kill(&child);
	since = ct_now();
	if (was_called) {
		REAP_UNTIL(&peer, &call, call.answered);
		REQUIRE(call.taken_back);
	}
	call_nobody(&peer);
	close_in_time(&peer, since);
}

static void connected(void)
{
	server_dies(true);
}

/* With shm, a peer may have yet to start. */
static void short_wait_for_starters(void)
{
	REQUIRE(!setenv("FI_SHM_CONNECT_TIMEOUT", "2000", 1));
}

static void never_reached(void)
{
	short_wait_for_starters();
	server_dies(false);
}

/* The server is killed with a request on its way to it. */
static void in_the_middle(void)
{
	struct ct_child child = ct_spawn(stuck_server);
	struct call call = { 0 };
	struct ct_peer peer;
	double since;

	open_client(&peer, &child);
	call_server(&peer);
	post_answer(&peer, &call);
	post_request(&peer, &call, sizeof(large));
	ct_progress(&peer);
	ct_kill(&child);
	since = ct_now();
	give_up(&peer, &call);
	REQUIRE(call.failed);
	close_in_time(&peer, since);
}

/* Returns an address like this endpoint's, at which no endpoint has ever
 * listened: this one's text and more, or one that a socket which does not
 * listen blocks. Of linked providers, that of an endpoint that was closed. */
static int nobodys_address(struct ct_peer *peer, char *name, size_t room)
{
	struct sockaddr_storage address = { 0 };
	socklen_t size = sizeof(address);
	int fd;

	if (!strcmp(peer->info->fabric_attr->prov_name, "lnx")) {
		struct ct_peer gone;

		ct_open_single(&gone, &spec);
		ct_name(&gone.ep->fid, name, room);
		ct_close_peer(&gone);
		return -1;
	}
	if (peer->info->addr_format == FI_ADDR_STR) {
		size_t len = ct_name(&peer->ep->fid, name, room);

		REQUIRE(len + 1 < room);
		name[len - 1] = 'x';
		name[len] = '\0';
		return -1;
	}
	ct_name(&peer->ep->fid, &address, sizeof(address));
	if (address.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&address)->sin6_port = 0;
	else
		((struct sockaddr_in *)&address)->sin_port = 0;
	fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	REQUIRE(fd >= 0);
	REQUIRE(!bind(fd, (struct sockaddr *)&address, sizeof(address)));
	REQUIRE(!getsockname(fd, (struct sockaddr *)&address, &size));
	REQUIRE(sizeof(address) <= room);
	memcpy(name, &address, sizeof(address));
	return fd;
}

static void never_existed(void)
{
	char name[256] = { 0 };
	struct ct_peer peer;
	double since;
	int fd;

	short_wait_for_starters();
	ct_open_single(&peer, &spec);
	fd = nobodys_address(&peer, name, sizeof(name));
	peer.to = ct_insert(&peer, name);
	since = ct_now();
	call_nobody(&peer);
	close_in_time(&peer, since);
	if (fd >= 0)
		close(fd);
}

/* The calls are not waited for: their receives are freed at close. */
static void left_behind(void)
{
	struct ct_child child = ct_spawn(server);
	static struct call calls[CALLS];
	struct ct_peer peer;

	open_client(&peer, &child);
	ct_kill(&child);
	for (int i = 0; i < CALLS; i++) {
		post_answer(&peer, &calls[i]);
		post_request(&peer, &calls[i], 8);
	}
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "connected", connected, CT_RDM },
	{ "in-the-middle", in_the_middle, CT_RDM },
	{ "never-reached", never_reached, CT_RDM },
	{ "never-existed", never_existed, CT_RDM },
	{ "left-behind", left_behind, CT_RDM },
};

CT_MAIN(tests)
