/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * fork(2): a child that closes inherited objects does not affect its parent's,
 * and handlers of pthread_atfork(3) can close, open and use endpoints, whether
 * they were registered before or after the library's own.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "memory.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

enum { MESSAGES = 20 };

static struct ct_spec spec;
static struct ct_pair pair;

static void do_nothing(void)
{
}

/* A child that does this and ends. */
static void fork_and(void (*act)(void))
{
	pid_t pid = fork();
	int status;

	REQUIRE(pid >= 0);
	if (!pid) {
		/* One that hangs fails the test. */
		alarm((unsigned)ct_patience());
		act();
		exit(0);
	}
	REQUIRE(waitpid(pid, &status, 0) == pid);
	REQUIRE(WIFEXITED(status) && !WEXITSTATUS(status));
}

static void send_one(struct ct_peer *from, struct ct_peer *to)
{
	static struct fi_context2 rx, tx;
	unsigned out = 0x600d, in = 0;

	POST(to, fi_recv(to->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC, &rx));
	POST(from, fi_send(from->ep, &out, sizeof(out), NULL, from->to, &tx));
	ct_done(from, &from->tx, &tx);
	ct_done(to, &to->rx, &rx);
	REQUIRE(in == out);
}

static void use_pair(struct ct_pair *used)
{
	for (int i = 0; i < MESSAGES; i++) {
		send_one(&used->a, &used->b);
		send_one(&used->b, &used->a);
	}
}

static void variants(void (*test)(void))
{
	static const enum fi_threading levels[] = {
		FI_THREAD_SAFE, FI_THREAD_COMPLETION, FI_THREAD_DOMAIN,
	};

	for (int i = 0; i < 6; i++) {
		spec = (struct ct_spec){
			.wait = FI_WAIT_FD, .threading = levels[i % 3],
			.progress = i < 3 ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO,
		};
		test();
	}
}

static void close_inherited(void)
{
	ct_close_pair(&pair);
}

static void close_at_exit(void)
{
	REQUIRE(!atexit(close_inherited));
}

static void with_pair(void (*act)(void))
{
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	fork_and(act);
	use_pair(&pair);
	/* Once more, after the parent has opened new objects in between. */
	fork_and(act);
	use_pair(&pair);
	ct_close_pair(&pair);
}

static void with_closing_child(void) { with_pair(close_inherited); }
static void child_closes(void) { variants(with_closing_child); }
static void with_exiting_child(void) { with_pair(close_at_exit); }
static void child_closes_at_exit(void) { variants(with_exiting_child); }

static struct ct_survivor survivor;

static void close_survivors(void)
{
	if (ct_opt.type == FI_EP_MSG) {
		OK(fi_close(&survivor.pep->fid));
		ct_close_peer(&survivor.second);
	}
	ct_close_peer(&survivor.peer);
}

static void close_survivors_at_exit(void)
{
	REQUIRE(!atexit(close_survivors));
}

static void with_another_process(void)
{
	ct_open_survivor(&survivor, &spec);
	for (int i = 0; i < 3; i++) {
		fork_and(i % 2 ? close_survivors : close_survivors_at_exit);
		for (int j = 0; j < MESSAGES; j++)
			ct_exchange(&survivor, 'b');
	}
	ct_close_survivor(&survivor);
}

static void peer_in_another_process(void) { variants(with_another_process); }

/* Uses an inherited endpoint. */
static void try_to_add(struct ct_peer *peer)
{
	struct fid_ep *ep;

	OK(fi_endpoint(peer->domain, peer->info, &ep, NULL));
	if (peer->av)
		OK(fi_ep_bind(ep, &peer->av->fid, 0));
	else
		OK(fi_ep_bind(ep, &peer->eq.fid->fid, 0));
	OK(fi_ep_bind(ep, &peer->tx.fid->fid, FI_TRANSMIT));
	OK(fi_ep_bind(ep, &peer->rx.fid->fid, FI_RECV));
	EXPECT(fi_enable(ep), -FI_EOPBADSTATE);
	OK(fi_close(&ep->fid));
}

/* A child uses everything that it inherited, and posts: its parent's
 * operations are not affected. */
static void try_inherited(void)
{
	static struct fi_context2 rx, tx;
	struct fi_cq_tagged_entry entry;
	struct fi_eq_cm_entry event;
	uint32_t type;
	char byte = 1;
	ssize_t ret;

	for (int i = 0; i < 100; i++) {
		ret = fi_send(pair.a.ep, &byte, 1, NULL, pair.a.to, &tx);
		REQUIRE(ret == -FI_EOPBADSTATE);
		ret = fi_recv(pair.b.ep, &byte, 1, NULL, FI_ADDR_UNSPEC, &rx);
		REQUIRE(ret == -FI_EOPBADSTATE);
		EXPECT(fi_cq_read(pair.a.tx.fid, &entry, 1), -FI_EAGAIN);
		EXPECT(fi_cq_read(pair.b.rx.fid, &entry, 1), -FI_EAGAIN);
		if (pair.a.eq.fid)
			EXPECT(fi_eq_read(pair.a.eq.fid, &type, &event,
					  sizeof(event), 0), -FI_EAGAIN);
	}
	EXPECT(fi_cq_sread(pair.b.rx.fid, &entry, 1, NULL, -1), -FI_EAGAIN);
	try_to_add(&pair.b);
}

/* Messages in flight while the child does so arrive once, and at the parent. */
static void with_trying_child(void)
{
	static struct fi_context2 rx, tx;
	unsigned out = 0x600d, in = 0;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	POST(&pair.b, fi_recv(pair.b.ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC,
			      &rx));
	fork_and(try_inherited);
	REQUIRE(!in);
	POST(&pair.a, fi_send(pair.a.ep, &out, sizeof(out), NULL, pair.a.to,
			      &tx));
	ct_done(&pair.a, &pair.a.tx, &tx);
	ct_done(&pair.b, &pair.b.rx, &rx);
	REQUIRE(in == out);
	use_pair(&pair);
	ct_close_pair(&pair);
}

static void child_cannot_use(void) { variants(with_trying_child); }

static struct fid_av *vector;

static void close_vector(void)
{
	OK(fi_close(&vector->fid));
}

/* The table of a vector with a name outlives the child's copy of it. */
static void named_vector(void)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .count = 16 };
	unsigned char name[CT_NAME], got[256];
	struct ct_peer peer;
	struct fid_av *reader;
	char text[64];
	fi_addr_t addr;
	size_t len;

	spec = (struct ct_spec){ .caps = FI_MSG };
	snprintf(text, sizeof(text), "ct-forks-%d", (int)getpid());
	attr.name = text;
	ct_open_single(&peer, &spec);
	len = ct_name(&peer.ep->fid, name, sizeof(name));
	OK(fi_av_open(peer.domain, &attr, &vector, NULL));
	EXPECT(fi_av_insert(vector, name, 1, &addr, 0, NULL), 1);
	fork_and(close_vector);
	attr.flags = FI_READ;
	for (int i = 0; i < 2; i++) {
		size_t size = sizeof(got);

		attr.name = text;
		OK(fi_av_open(peer.domain, &attr, &reader, NULL));
		OK(fi_av_lookup(reader, addr, got, &size));
		REQUIRE(size == len && !memcmp(got, name, len));
		fork_and(close_vector);
		OK(fi_close(&reader->fid));
	}
	OK(fi_av_remove(vector, &addr, 1, 0));
	EXPECT(fi_av_insert(vector, name, 1, &addr, 0, NULL), 1);
	OK(fi_close(&vector->fid));
	/* It ends with its last user. */
	REQUIRE(fi_av_open(peer.domain, &attr, &reader, NULL));
	ct_close_peer(&peer);
}

/* Handlers. */
static bool closes_before, opens_in_child;

static void before_fork(void)
{
	if (closes_before)
		ct_close_pair(&pair);
	closes_before = false;
}

static void in_child(void)
{
	struct ct_pair own;

	if (!opens_in_child)
		return;
	opens_in_child = false;
	ct_open_pair(&own, &spec);
	use_pair(&own);
	ct_close_pair(&own);
}

static void with_handlers(void)
{
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	closes_before = true;
	fork_and(do_nothing);
	REQUIRE(!closes_before);

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	opens_in_child = true;
	fork_and(do_nothing);
	fork_and(close_inherited);
	opens_in_child = false;
	use_pair(&pair);
	ct_close_pair(&pair);
}

static void register_handlers(void)
{
	REQUIRE(!pthread_atfork(before_fork, NULL, in_child));
}

static void handlers_before(void)
{
	register_handlers();
	variants(with_handlers);
}

static void handlers_after(void)
{
	spec = (struct ct_spec){ .progress = FI_PROGRESS_AUTO };
	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	ct_close_pair(&pair);
	register_handlers();
	variants(with_handlers);
}

static struct ct_memory region;

/* Memory that a device could write to may be missing in a child, or be the
 * parent's. */
static void use_region(void)
{
	for (size_t i = 0; i < region.size; i++) {
		REQUIRE(region.data[i] == (unsigned char)i);
		region.data[i] = 0xc0;
	}
}

/* Memory that is registered, or is used by operations, stays the child's own
 * copy, whatever the variables say that are about RDMA devices. */
static void registered_memory(void)
{
	static const char *const names[] = {
		"FI_FORK_UNSAFE", "RDMAV_FORK_SAFE", "IBV_FORK_SAFE",
		"RDMAV_HUGEPAGES_SAFE",
	};
	static struct fi_context2 rx, tx;

	spec = (struct ct_spec){ .wait = FI_WAIT_FD };
	for (unsigned set = 0; set < 16; set++) {
		for (unsigned i = 0; i < 4; i++)
			if (set & 1u << i)
				setenv(names[i], "1", 1);
			else
				unsetenv(names[i]);
		ct_open_pair(&pair, &spec);
		ct_warm_up(&pair);
		ct_memory_open(&pair.b, &region, 20000, FI_RECV | FI_SEND);
		for (size_t i = 0; i < region.size; i++)
			region.data[i] = (unsigned char)i;
		POST(&pair.b, fi_recv(pair.b.ep, region.data + 8192, 4096,
				      region.desc, FI_ADDR_UNSPEC, &rx));
		fork_and(use_region);
		REQUIRE(region.data[8192] == 0 && region.data[8193] == 1);
		/* It arrives in the parent's memory, on the page that both had. */
		POST(&pair.a, fi_send(pair.a.ep, region.data + 1, 4000, NULL,
				      pair.a.to, &tx));
		ct_done(&pair.a, &pair.a.tx, &tx);
		ct_done(&pair.b, &pair.b.rx, &rx);
		for (size_t i = 0; i < 4000; i++)
			REQUIRE(region.data[8192 + i] == (unsigned char)(i + 1));
		ct_memory_close(&region);
		use_pair(&pair);
		ct_close_pair(&pair);
	}
}

static const struct ct_test tests[] = {
	{ "registered-memory", registered_memory, CT_BOTH },
	{ "child-closes", child_closes, CT_BOTH | CT_SLOW },
	{ "child-closes-at-exit", child_closes_at_exit, CT_BOTH | CT_SLOW },
	{ "peer-in-another-process", peer_in_another_process, CT_BOTH | CT_SLOW },
	{ "child-cannot-use", child_cannot_use, CT_BOTH | CT_SLOW },
	{ "named-vector", named_vector, CT_RDM },
	{ "handlers-before", handlers_before, CT_BOTH | CT_SLOW },
	{ "handlers-after", handlers_after, CT_BOTH | CT_SLOW },
};

CT_MAIN(tests)
