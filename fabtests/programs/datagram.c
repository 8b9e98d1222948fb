/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Datagrams: every form of message, what becomes of those that do not fit, and
 * multicast. Both sides are in one process, and no more is on its way than a
 * socket has room for, so that nothing is lost.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "check.h"
#include "transfer.h"
#include "wait.h"

#define LONGEST 1472

static struct fi_context2 tx_context[64], rx_context[64];
static unsigned char out[LONGEST + 100], in[64][LONGEST + 100];

static void fill(unsigned char seed)
{
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (unsigned char)(seed + i * 7);
}

/* Passes a message of this length in these forms. */
static void pass(struct ct_pair *pair, enum ct_send_form send,
		 enum ct_recv_form recv, size_t len, size_t pieces)
{
	struct ct_peer *a = &pair->a, *b = &pair->b;
	struct ct_message to = {
		.buf = out, .len = len, .pieces = pieces,
		.flags = send == CT_SENDMSG ? FI_COMPLETION : 0,
		.context = &tx_context[0],
	};
	struct ct_message from = {
		.buf = in[0], .len = sizeof(in[0]), .pieces = pieces,
		.flags = FI_COMPLETION, .from = FI_ADDR_UNSPEC,
		.context = &rx_context[0],
	};
	struct ct_completion done;

	fill((unsigned char)(len + pieces));
	memset(in[0], 0, sizeof(in[0]));
	POST(b, ct_recv(b, recv, &from));
	POST(a, ct_send(a, send, &to));
	if (ct_send_completes(send))
		ct_done(a, &a->tx, &tx_context[0]);
	done = ct_done(b, &b->rx, &rx_context[0]);
	REQUIRE(done.len == len && !memcmp(in[0], out, len));
	REQUIRE(done.flags == (FI_RECV | FI_MSG));
}

static void forms(void)
{
	static const size_t lengths[] = { 0, 1, 8, 100, LONGEST };
	struct ct_spec spec = { 0 };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	for (int send = 0; send < CT_SEND_FORMS; send++) {
		if (ct_send_has_data(send)) {
			struct ct_message m = { .buf = out, .len = 8, .data = 7 };

			CHECK(ct_send(&pair.a, send, &m) == -FI_ENOSYS, "%s",
			      ct_send_name(send));
			continue;
		}
		for (int recv = 0; recv < CT_RECV_FORMS; recv++)
			for (size_t i = 0; i < 5; i++)
				for (size_t pieces = 1; pieces <= 4; pieces += 3)
					pass(&pair, send, recv, lengths[i], pieces);
		CHECK(true, "%s", ct_send_name(send));
	}
	ct_close_pair(&pair);
}

static void formats(void)
{
	for (int format = FI_CQ_FORMAT_CONTEXT; format <= FI_CQ_FORMAT_TAGGED;
	     format++) {
		struct ct_spec spec = { .format = format };
		struct ct_pair pair;
		struct ct_completion done;

		ct_open_pair(&pair, &spec);
		POST(&pair.b, fi_recv(pair.b.ep, in[0], 64, NULL, FI_ADDR_UNSPEC,
				      &rx_context[0]));
		POST(&pair.a, fi_send(pair.a.ep, out, 9, NULL, pair.a.to,
				      &tx_context[0]));
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		done = ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
		if (format >= FI_CQ_FORMAT_MSG)
			REQUIRE(done.len == 9);
		ct_close_pair(&pair);
		CHECK(true, "%d", format);
	}
}

/* Messages that follow one another may leave together: they come one by one. */
static void bursts(void)
{
	struct ct_spec spec = { .counters = FI_SEND | FI_RECV };
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;
	uint64_t all = 0;

	ct_open_pair(&pair, &spec);
	for (int round = 0; round < ct_times(40); round++) {
		for (int i = 0; i < 64; i++)
			POST(b, fi_recv(b->ep, in[i], sizeof(in[i]), NULL,
					FI_ADDR_UNSPEC, &rx_context[i]));
		for (int i = 0; i < 64; i++, all++) {
			size_t len = 1 + (size_t)(i * round) % 200;

			memset(out, i + round, len);
			if (i % 3)
				POST(a, fi_send(a->ep, out, len, NULL, a->to,
						&tx_context[i]));
			else
				POST(a, fi_inject(a->ep, out, len, a->to));
			/* The bytes are the library's until they have left. */
			if (i % 3)
				ct_done(a, &a->tx, &tx_context[i]);
		}
		for (int i = 0; i < 64; i++) {
			struct ct_completion done =
				ct_done(b, &b->rx, &rx_context[i]);

			REQUIRE(done.len == 1 + (size_t)(i * round) % 200);
			REQUIRE(in[i][done.len - 1] == (unsigned char)(i + round));
		}
	}
	ct_count(a, CT_CNTR_SEND, all);
	ct_count(b, CT_CNTR_RECV, all);
	ct_close_pair(&pair);
}

/* Nobody reads a queue while these are posted. */
static void windows(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;

	ct_open_pair(&pair, &spec);
	for (int round = 0; round < ct_times(40); round++) {
		for (int i = 0; i < 64; i++)
			OK(fi_recv(b->ep, in[i], sizeof(in[i]), NULL,
				   FI_ADDR_UNSPEC, &rx_context[i]));
		for (int i = 0; i < 64; i++) {
			unsigned char *from = out + i * 8;

			memset(from, i + round, 8);
			OK(fi_send(a->ep, from, 8, NULL, a->to, &tx_context[i]));
		}
		for (int i = 0; i < 64; i++)
			ct_done(a, &a->tx, &tx_context[i]);
		for (int i = 0; i < 64; i++) {
			struct ct_completion done =
				ct_done(b, &b->rx, &rx_context[i]);

			REQUIRE(done.len == 8);
			REQUIRE(in[i][7] == (unsigned char)(i + round));
		}
	}
	ct_close_pair(&pair);
}

/* What is injected leaves though no further call is made. */
static void left_alone(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;
	double limit;
	int came = 0;

	ct_open_pair(&pair, &spec);
	for (int i = 0; i < 8; i++)
		OK(fi_recv(b->ep, in[i], sizeof(in[i]), NULL, FI_ADDR_UNSPEC,
			   &rx_context[i]));
	for (int i = 0; i < 8; i++)
		OK(fi_inject(a->ep, out, 8, a->to));
	limit = ct_now() + ct_patience();
	while (came < 8) {
		struct fi_cq_tagged_entry entry;

		REQUIRE(ct_now() < limit);
		if (fi_cq_read(b->rx.fid, &entry, 1) == 1)
			came++;
	}
	ct_close_pair(&pair);
}

static void too_long(void)
{
	static unsigned char bytes[65536];
	struct ct_spec spec = { 0 };
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;

	ct_open_pair(&pair, &spec);
	EXPECT(fi_send(a->ep, bytes, sizeof(bytes), NULL, a->to, &tx_context[0]),
	       -FI_EMSGSIZE);
	EXPECT(fi_inject(a->ep, bytes, sizeof(bytes), a->to), -FI_EMSGSIZE);
	CHECK(ct_stays_empty(a, &a->tx), "nothing-completes");
	/* More than max_msg_size, which the system takes apart. */
	OK(fi_recv(b->ep, bytes, sizeof(bytes), NULL, FI_ADDR_UNSPEC,
		   &rx_context[0]));
	POST(a, fi_send(a->ep, bytes, 20000, NULL, a->to, &tx_context[0]));
	ct_done(a, &a->tx, &tx_context[0]);
	CHECK(ct_done(b, &b->rx, &rx_context[0]).len == 20000, "in-parts");
	ct_close_pair(&pair);
}

static void truncated(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;
	struct ct_completion error;

	ct_open_pair(&pair, &spec);
	fill(3);
	OK(fi_recv(b->ep, in[0], 10, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	POST(a, fi_send(a->ep, out, 30, NULL, a->to, &tx_context[0]));
	error = ct_error(b, &b->rx);
	CHECK(error.err == FI_ETRUNC && error.context == &rx_context[0], "error");
	CHECK(error.len == 10 && error.olen == 20, "lengths");
	CHECK(!memcmp(in[0], out, 10) && !in[0][10], "bytes");
	ct_close_pair(&pair);
}

static void before_receives(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;

	ct_open_pair(&pair, &spec);
	for (int i = 0; i < 3; i++) {
		memset(out, i + 1, 8);
		POST(a, fi_inject(a->ep, out, 8, a->to));
	}
	ct_progress(a);
	CHECK(ct_stays_empty(b, &b->rx), "nothing-completes");
	for (int i = 0; i < 3; i++) {
		OK(fi_recv(b->ep, in[i], 64, NULL, FI_ADDR_UNSPEC, &rx_context[i]));
		ct_done(b, &b->rx, &rx_context[i]);
		REQUIRE(in[i][0] == i + 1);
	}
	ct_close_pair(&pair);
}

static void *receive_asleep(void *arg)
{
	struct ct_peer *b = arg;

	for (int i = 0; i < 20; i++) {
		struct fi_cq_tagged_entry entry;
		ssize_t ret;

		do
			ret = fi_cq_sread(b->rx.fid, &entry, 1, NULL, 60000);
		while (ret == -FI_EAGAIN || ret == -FI_EINTR);
		if (ret != 1 || entry.len != 8)
			return "a receive did not wake the thread";
	}
	return NULL;
}

static void sleeping(void)
{
	static const enum fi_wait_obj objects[] = {
		FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND,
	};

	for (int o = 0; o < 3; o++) {
		struct ct_spec spec = { .wait = objects[o] };
		struct ct_pair pair;
		struct ct_peer *a = &pair.a, *b = &pair.b;
		pthread_t thread;
		void *failure;

		ct_open_pair(&pair, &spec);
		/* Some have come before there is a receive for them. */
		for (int i = 0; i < 5; i++)
			POST(a, fi_inject(a->ep, out, 8, a->to));
		OK(pthread_create(&thread, NULL, receive_asleep, b));
		for (int i = 0; i < 20; i++)
			OK(fi_recv(b->ep, in[i], 64, NULL, FI_ADDR_UNSPEC,
				   &rx_context[i]));
		for (int i = 5; i < 20; i++)
			POST(a, fi_inject(a->ep, out, 8, a->to));
		OK(pthread_join(thread, &failure));
		REQUIRE(!failure);
		ct_close_pair(&pair);
		CHECK(true, "%d", o);
	}
}

/* What no message is sent to. */
static void nowhere(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	EXPECT(fi_send(pair.a.ep, out, 8, NULL, 1000, &tx_context[0]), -FI_EINVAL);
	EXPECT(fi_inject(pair.a.ep, out, 8, FI_ADDR_UNSPEC), -FI_EINVAL);
	EXPECT(fi_tsend(pair.a.ep, out, 8, NULL, pair.a.to, 7, NULL), -FI_ENOSYS);
	ct_close_pair(&pair);
}

/* At any address of the host: what is sent to a group reaches no other one. */
static void any_address(struct fi_info *info)
{
	struct sockaddr_in *addr = info->src_addr;

	if (addr->sin_family == AF_INET)
		addr->sin_addr.s_addr = htonl(INADDR_ANY);
	else
		((struct sockaddr_in6 *)info->src_addr)->sin6_addr = in6addr_any;
}

static void group_of(struct ct_peer *peer, struct sockaddr_storage *group)
{
	memset(group, 0, sizeof(*group));
	ct_name(&peer->ep->fid, group, sizeof(*group));
	if (group->ss_family == AF_INET)
		inet_pton(AF_INET, "224.0.1.201",
			  &((struct sockaddr_in *)group)->sin_addr);
	else
		inet_pton(AF_INET6, "ff01::201",
			  &((struct sockaddr_in6 *)group)->sin6_addr);
}

static struct fid_mc *joined(struct ct_peer *peer,
			     const struct sockaddr_storage *group, uint64_t flags)
{
	struct fid_mc *mc = NULL;
	struct ct_event event;
	int ret = fi_join(peer->ep, group, flags, &mc, &tx_context[9]);

	if (ret == -FI_ENODEV || ret == -FI_EADDRNOTAVAIL)
		SKIP("no route leads to groups");
	OK(ret);
	event = ct_event_of(peer, FI_JOIN_COMPLETE);
	REQUIRE(event.fid == &mc->fid);
	return mc;
}

static void groups(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_MULTICAST, .eq = true };
	struct ct_peer a, b;
	struct sockaddr_storage group;
	struct fid_mc *to, *mc;
	struct fi_msg msg;
	struct iovec iov = { .iov_base = out, .iov_len = 8 };

	spec.change = any_address;
	ct_open_single(&a, &spec);
	ct_open_single(&b, &spec);
	a.partner = &b;
	b.partner = &a;
	group_of(&b, &group);
	mc = joined(&b, &group, FI_RECV);
	to = joined(&a, &group, FI_SEND);
	EXPECT(fi_close(&b.ep->fid), -FI_EBUSY);
	CHECK(true, "keeps-the-endpoint-open");
	fill(5);
	OK(fi_recv(b.ep, in[0], 64, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	msg = (struct fi_msg) {
		.msg_iov = &iov, .iov_count = 1, .addr = fi_mc_addr(to),
		.context = &tx_context[0],
	};
	if (CT_POST(&a, fi_sendmsg(a.ep, &msg, FI_MULTICAST | FI_COMPLETION)))
		SKIP("no route leads to groups");
	ct_done(&a, &a.tx, &tx_context[0]);
	ct_done(&b, &b.rx, &rx_context[0]);
	CHECK(!memcmp(in[0], out, 8), "reaches-members");
	OK(fi_close(&mc->fid));
	OK(fi_close(&to->fid));
	EXPECT(fi_sendmsg(a.ep, &msg, FI_MULTICAST), -FI_EINVAL);
	CHECK(true, "is-gone-when-it-is-closed");
	ct_close_peer(&b);
	ct_close_peer(&a);
}

static void joining(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_MULTICAST };
	struct ct_peer peer;
	struct sockaddr_storage group;
	struct sockaddr_in other = { .sin_family = AF_UNIX };
	struct fid_mc *mc;

	ct_open_single(&peer, &spec);
	group_of(&peer, &group);
	EXPECT(fi_join(peer.ep, &group, 0, &mc, NULL), -FI_ENOEQ);
	CHECK(true, "without-events");
	ct_close_peer(&peer);
	spec.eq = true;
	ct_open_single(&peer, &spec);
	EXPECT(fi_join(peer.ep, &other, 0, &mc, NULL), -EAFNOSUPPORT);
	EXPECT(fi_join(peer.ep, &group, 0, NULL, NULL), -FI_EINVAL);
	ct_name(&peer.ep->fid, &group, sizeof(group));
	EXPECT(fi_join(peer.ep, &group, 0, &mc, NULL), -FI_EINVAL);
	CHECK(ct_no_event(&peer), "what-is-no-group");
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "forms", forms, CT_DGRAM },
	{ "formats", formats, CT_DGRAM },
	{ "bursts", bursts, CT_DGRAM },
	{ "windows", windows, CT_DGRAM },
	{ "left-alone", left_alone, CT_DGRAM },
	{ "too-long", too_long, CT_DGRAM },
	{ "truncated", truncated, CT_DGRAM },
	{ "before-receives", before_receives, CT_DGRAM },
	{ "sleeping", sleeping, CT_DGRAM },
	{ "nowhere", nowhere, CT_DGRAM },
	{ "groups", groups, CT_DGRAM },
	{ "joining", joining, CT_DGRAM },
};

CT_MAIN(tests)
