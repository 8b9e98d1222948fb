/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Several links between two hosts (FI_TCP_IFACE with several names, or FI_OFI_MRAIL_ADDR), each of
 * which carries a part of long payloads: in network namespaces of the test's own. Messages, writes, reads and atomic
 * operations arrive once and unchanged while links fail and come back, one after the other, for
 * CT_SECONDS=<number>.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_atomic.h>

#include "check.h"
#include "child.h"
#include "connect.h"
#include "memory.h"
#include "network.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

enum {
	LINKS = 3,
	LONGEST = 3 << 20,
	REGION = LONGEST + 64,	/* for writes; before these, a counter and a mark */
	COUNTER = 64,
	MARK = 8,
	FLAPS = 6,
};

/* What each side tells the other one about its memory. */
struct region {
	uint64_t addr, key;
};

struct end {
	struct ct_peer peer;
	struct fid_pep *pep;
	struct ct_memory region, out, in, back, old;
	struct region far;
	uint64_t added;
};

enum { OPERATIONS = 6 };

static struct fi_context2 contexts[OPERATIONS];

/* Lengths of all kinds: in one packet, eager and announced. */
static size_t length_of(unsigned round)
{
	static const size_t lengths[] = {
		8, 1 << 20, 1000, 3 << 20, 100, 300000, 40000, 2 << 20, 1,
	};

	return lengths[round % (sizeof(lengths) / sizeof(*lengths))];
}

static void use_links(const char *prefix, int count, int streams)
{
	char names[64] = "", number[8];

	for (int i = 0; i < count; i++)
		snprintf(names + strlen(names), sizeof(names) - strlen(names),
			 "%s%s%d", i ? "," : "", prefix, i);
	snprintf(number, sizeof(number), "%d", streams);
	setenv("FI_TCP_IFACE", names, 1);
	setenv("FI_TCP_STREAMS", number, 1);
	setenv("FI_SOCKETS_IFACE", names, 1);
	setenv("FI_SOCKETS_STREAMS", number, 1);
	setenv("FI_OFI_MRAIL_ADDR", names, 1);
	setenv("FI_OFI_MRAIL_STREAMS", number, 1);
	setenv("FI_TCP_LOCAL", "off", 1);
	setenv("FI_OFI_MRAIL_LOCAL", "off", 1);
	setenv("FI_SOCKETS_LOCAL", "off", 1);
}

static void open_end(struct end *end, const char *node)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC };
	struct fi_info *hints = ct_hints(&spec), *info;
	int rc;

	if (!ct_opt.provider || (strcmp(ct_opt.provider, "tcp") &&
				 strcmp(ct_opt.provider, "sockets") &&
				 strcmp(ct_opt.provider, "ofi_mrail")))
		SKIP("no parameter for several interfaces");
	rc = fi_getinfo(CT_API_VERSION, node, "0", FI_SOURCE, hints, &info);
	fi_freeinfo(hints);
	if (rc == -FI_ENODATA)
		SKIP("not advertised");
	OK(rc);
	ct_open_domain(&end->peer, &spec, info, NULL, NULL);
	if (ct_opt.type != FI_EP_MSG)
		ct_open_ep(&end->peer, info);
}

static void open_memory(struct end *end, int fd)
{
	struct region own;

	ct_memory_open(&end->peer, &end->region, REGION,
		       FI_REMOTE_READ | FI_REMOTE_WRITE);
	ct_memory_open(&end->peer, &end->out, LONGEST, FI_SEND | FI_WRITE);
	ct_memory_open(&end->peer, &end->in, LONGEST, FI_RECV);
	ct_memory_open(&end->peer, &end->back, LONGEST, FI_READ);
	ct_memory_open(&end->peer, &end->old, COUNTER, FI_READ | FI_WRITE);
	own = (struct region) { .addr = end->region.addr, .key = end->region.key };
	ct_tell(fd, &own, sizeof(own));
	ct_hear(fd, &end->far, sizeof(end->far));
}

static void close_end(struct end *end)
{
	ct_memory_close(&end->old);
	ct_memory_close(&end->back);
	ct_memory_close(&end->in);
	ct_memory_close(&end->out);
	ct_memory_close(&end->region);
	if (end->pep)
		OK(fi_close(&end->pep->fid));
	ct_close_peer(&end->peer);
}

/* The near side connects. */
static void join_near(struct end *end, int fd)
{
	struct sockaddr_in name;

	ct_hear(fd, &name, sizeof(name));
	if (ct_opt.type == FI_EP_MSG) {
		ct_open_ep(&end->peer, end->peer.info);
		OK(fi_connect(end->peer.ep, &name, NULL, 0));
		ct_wait_connected(&end->peer);
	} else {
		end->peer.to = ct_insert(&end->peer, &name);
		ct_name(&end->peer.ep->fid, &name, sizeof(name));
		ct_tell(fd, &name, sizeof(name));
	}
}

static void join_far(struct end *end, int fd)
{
	struct sockaddr_in name;

	if (ct_opt.type == FI_EP_MSG) {
		struct ct_event request;

		end->pep = ct_listen(&end->peer);
		ct_name(&end->pep->fid, &name, sizeof(name));
		ct_tell(fd, &name, sizeof(name));
		ct_wait_request(&end->peer, &request);
		ct_accept(&end->peer, &request, NULL, 0);
		ct_wait_connected(&end->peer);
	} else {
		ct_name(&end->peer.ep->fid, &name, sizeof(name));
		ct_tell(fd, &name, sizeof(name));
		ct_hear(fd, &name, sizeof(name));
		end->peer.to = ct_insert(&end->peer, &name);
	}
}

/* Message number `round` in each direction, with a tag or without. */
static void post_messages(struct end *end, unsigned round, bool is_near)
{
	size_t len = length_of(round);
	struct ct_message in = {
		.tagged = round % 2, .tag = round, .buf = end->in.data, .len = len,
		.desc = end->in.desc, .from = FI_ADDR_UNSPEC,
		.context = &contexts[0],
	};
	struct ct_message out = {
		.tagged = round % 2, .tag = round, .buf = end->out.data, .len = len,
		.desc = end->out.desc, .context = &contexts[1],
	};

	POST(&end->peer, ct_recv(&end->peer, CT_RECV, &in));
	ct_fill(end->out.data, len, 2 * round + is_near);
	POST(&end->peer, ct_send(&end->peer, CT_SEND, &out));
}

static void finish_messages(struct end *end, unsigned round, bool is_near)
{
	size_t len = length_of(round);

	REQUIRE(ct_done_large(&end->peer, &end->peer.rx, &contexts[0]).len == len);
	REQUIRE(ct_holds(end->in.data, len, 2 * round + !is_near));
}

/* A write, a read of the same bytes, an addition to a counter, and a write that the far side is told
 * of, by the near side. */
static void post_accesses(struct end *end, unsigned round)
{
	size_t len = length_of(round + 3);
	struct ct_rma write = {
		.buf = end->out.data, .len = len, .desc = end->out.desc,
		.addr = end->far.addr + COUNTER, .key = end->far.key,
		.context = &contexts[2],
	};
	struct ct_rma read = {
		.buf = end->back.data, .len = len, .desc = end->back.desc,
		.addr = end->far.addr + COUNTER, .key = end->far.key,
		.context = &contexts[3],
	};
	uint64_t *one = (uint64_t *)(end->old.data + 8);
	uint64_t *mark = (uint64_t *)(end->old.data + 16);
	struct ct_rma told = {
		.buf = mark, .len = sizeof(*mark), .desc = end->old.desc,
		.addr = end->far.addr + MARK, .key = end->far.key, .data = round,
		.context = &contexts[5],
	};

	POST(&end->peer, ct_rma(&end->peer, CT_WRITE, &write));
	POST(&end->peer, ct_rma(&end->peer, CT_READ, &read));
	*one = 1;
	*mark = round + 1;
	POST(&end->peer,
	     fi_fetch_atomic(end->peer.ep, one, 1, end->old.desc, end->old.data,
			     end->old.desc, end->peer.to, end->far.addr,
			     end->far.key, FI_UINT64, FI_SUM, &contexts[4]));
	POST(&end->peer, ct_rma(&end->peer, CT_WRITEDATA, &told));
}

/* Takes this many completions of transmit operations. */
static void finish(struct end *end, int count)
{
	bool seen[OPERATIONS] = { false };

	for (int i = 0; i < count; i++) {
		struct ct_completion done = ct_next(&end->peer, &end->peer.tx);
		size_t which = (size_t)((struct fi_context2 *)done.context - contexts);

		if (done.err)
			ct_fail(__FILE__, __LINE__, "operation %zu: %s", which,
				fi_strerror(done.err));
		REQUIRE(which < OPERATIONS && !seen[which]);
		seen[which] = true;
	}
}

static void near_round(struct end *end, unsigned round)
{
	size_t len = length_of(round + 3);

	post_messages(end, round, true);
	finish_messages(end, round, true);
	finish(end, 1);
	ct_fill(end->out.data, len, ~round);
	memset(end->back.data, 0, len);
	post_accesses(end, round);
	finish(end, 4);
	REQUIRE(ct_holds(end->back.data, len, ~round));
	REQUIRE(*(uint64_t *)end->old.data == end->added++);
}

static int links = LINKS, streams = 1, far_links = LINKS;

static void far(int fd)
{
	struct end end = { 0 };
	uint32_t rounds = 0;

	use_links("b", far_links, streams);
	open_end(&end, "10.78.0.2");
	join_far(&end, fd);
	open_memory(&end, fd);
	/* The near side says before each round whether there is one. */
	for (;; rounds++) {
		unsigned char more;
		struct ct_completion word;
		struct ct_message in = {
			.tagged = true, .tag = 1ull << 40, .buf = &more, .len = 1,
			.from = FI_ADDR_UNSPEC, .context = &contexts[0],
		};

		POST(&end.peer, ct_recv(&end.peer, CT_RECV, &in));
		word = ct_done_large(&end.peer, &end.peer.rx, &contexts[0]);
		REQUIRE(word.len == 1);
		if (!more)
			break;
		post_messages(&end, rounds, false);
		finish_messages(&end, rounds, false);
		finish(&end, 1);
		word = ct_next(&end.peer, &end.peer.rx);
		REQUIRE(!word.err && word.flags & FI_REMOTE_CQ_DATA);
		REQUIRE(word.data == rounds);
		REQUIRE(*(uint64_t *)(end.region.data + MARK) == rounds + 1);
	}
	REQUIRE(*(uint64_t *)end.region.data == rounds);
	REQUIRE(ct_stays_empty(&end.peer, &end.peer.rx));
	ct_tell(fd, "", 1);
	ct_hear(fd, &(char) { 0 }, 1);
	close_end(&end);
}

static void announce(struct end *end, unsigned char more)
{
	struct ct_message out = {
		.tagged = true, .tag = 1ull << 40, .buf = &more, .len = 1,
		.context = &contexts[1],
	};

	POST(&end->peer, ct_send(&end->peer, CT_INJECT, &out));
}

/* Rounds on these links, of which one after the other fails and comes back if that is wanted. */
static void exchange(int rounds, int flaps)
{
	struct ct_child child = ct_links(LINKS, far);
	struct end end = { 0 };
	int flap = 0, round = 0;
	double next;
	char done;

	use_links("a", links, streams);
	open_end(&end, "10.78.0.1");
	ct_begin(&child);
	join_near(&end, child.fd);
	open_memory(&end, child.fd);
	next = ct_now() + 0.3;
	for (; round < rounds || flap < 2 * flaps; round++) {
		if (flap < 2 * flaps && ct_now() >= next) {
			ct_set_link(flap / 2 % LINKS, flap % 2);
			flap++;
			next = ct_now() + 1;
		}
		announce(&end, 1);
		near_round(&end, (unsigned)round);
	}
	announce(&end, 0);
	/* The far side may need this one to drive. */
	while (recv(child.fd, &done, 1, MSG_DONTWAIT) != 1)
		ct_progress(&end.peer);
	REQUIRE(ct_stays_empty(&end.peer, &end.peer.rx));
	ct_tell(child.fd, "", 1);
	close_end(&end);
	ct_join(&child);
}

static void check_shares(int used)
{
	unsigned long long all = 0;

	for (int i = 0; i < LINKS; i++)
		all += ct_link_sent(i);
	for (int i = 0; i < LINKS; i++) {
		bool takes_part = ct_link_sent(i) * 20 > all;

		CHECK(takes_part == (i < used), "link-%d", i);
	}
}

static void all_links(void)
{
	exchange(40, 0);
	check_shares(LINKS);
}

/* The far side has one interface, which the near side's own do not reach all. */
static void one_link_there(void)
{
	far_links = 1;
	exchange(20, 0);
	check_shares(1);
}

static void asked_for_by_one_side(void)
{
	links = 1;
	exchange(40, 0);
}

static void streams_of_one_link(void)
{
	links = far_links = 1;
	streams = 4;
	exchange(40, 0);
	check_shares(1);
}

/* As without the parameters. */
static void single(void)
{
	links = far_links = 1;
	exchange(20, 0);
	check_shares(1);
}

static void links_that_fail(void)
{
	const char *seconds = getenv("CT_SECONDS");

	exchange(40, seconds ? atoi(seconds) / 2 : FLAPS);
}

static const struct ct_test tests[] = {
	{ "all-links", all_links, CT_BOTH },
	{ "one-link-there", one_link_there, CT_BOTH },
	{ "asked-for-by-one-side", asked_for_by_one_side, CT_BOTH },
	{ "streams-of-one-link", streams_of_one_link, CT_BOTH },
	{ "single", single, CT_BOTH },
	{ "links-that-fail", links_that_fail, CT_BOTH | CT_SLOW | CT_LASTING },
};

CT_MAIN(tests)
