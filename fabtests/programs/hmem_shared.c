/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Memory of a device in two processes of one host: the receiver and the initiator open
 * the other's by handles, and where that is not possible data passes through the
 * host's memory.
 */
#include <dlfcn.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "connect.h"
#include "device.h"
#include "memory.h"
#include "pattern.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

#define ROOM (3 << 20)
#define RENEWED 40
#define ARRAY(array) (sizeof(array) / sizeof((array)[0]))

static const size_t sizes[] = { 8, 9000, 70000, 1 << 20, (2 << 20) + 9 };

static void hints(struct fi_info *info)
{
	info->domain_attr->mr_mode |= FI_MR_HMEM;
}

static const struct ct_spec spec = {
	.caps = FI_MSG | FI_RMA | FI_HMEM, .hint = hints,
};

struct side {
	struct ct_peer peer;
	struct fid_pep *pep;
	uint64_t data;
	struct fid_mr *mr;
	struct ct_card other;
};

/* What the first process asks of the second one, with the answer. */
struct order {
	enum { RECEIVE, FILL, LOOK, RENEW, IDLE, QUIT } what;
	size_t len;
	unsigned seed;
};

struct answer {
	bool holds;
	unsigned opened, closed, within;
	struct ct_card card;
};

static bool refuses, forges;
static enum fi_hmem_iface interface = FI_HMEM_CUDA;
static unsigned char scratch[ROOM];

static void allocate(struct side *side)
{
	const struct ct_device *device = ct_device();
	struct fi_mr_attr attr = {
		.iov_count = 1, .iface = interface, .requested_key = ct_fresh_key(),
		.access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
	};
	struct iovec iov;

	OK(device->alloc(&side->data, ROOM));
	iov = (struct iovec) { (void *)(uintptr_t)side->data, ROOM };
	attr.mr_iov = &iov;
	OK(fi_mr_regattr(side->peer.domain, &attr, 0, &side->mr));
	ct_register_finish(&side->peer, side->mr);
}

static void release(struct side *side)
{
	OK(fi_close(&side->mr->fid));
	OK(ct_device()->free(side->data));
}

static struct ct_card card(struct side *side)
{
	return (struct ct_card) {
		.addr = ct_mr_mode(&side->peer) & FI_MR_VIRT_ADDR ? side->data : 0,
		.key = fi_mr_key(side->mr),
	};
}

static void open_side(struct side *side, int fd, bool listens)
{
	struct ct_card own;

	ct_device()->refuse_sharing(refuses);
	ct_device()->forge(forges);
	ct_open_domain(&side->peer, &spec, ct_getinfo(&spec), NULL, NULL);
	if (ct_opt.type == FI_EP_RDM)
		ct_open_ep(&side->peer, side->peer.info);
	else if (listens)
		side->pep = ct_listen(&side->peer);
	if (ct_opt.type == FI_EP_RDM) {
		allocate(side);
		own = card(side);
		ct_meet(&side->peer, &own, &side->other, fd, NULL);
		return;
	}
	/* The endpoint that regions may have to be bound to comes first. */
	own = (struct ct_card) { 0 };
	ct_meet(&side->peer, &own, &side->other, fd, side->pep);
	allocate(side);
	own = card(side);
	ct_tell(fd, &own, sizeof(own));
	ct_hear(fd, &side->other, sizeof(side->other));
}

static void close_side(struct side *side)
{
	release(side);
	if (side->pep)
		OK(fi_close(&side->pep->fid));
	ct_close_peer(&side->peer);
}

static void fill(struct side *side, size_t len, unsigned seed)
{
	ct_fill(scratch, len, seed);
	ct_device()->poke(side->data, scratch, len);
}

static bool holds(struct side *side, size_t len, unsigned seed)
{
	ct_device()->peek(side->data, scratch, len);
	return ct_holds(scratch, len, seed);
}

/* Makes progress until the other process says something. */
static void hear(struct ct_peer *peer, int fd, void *data, size_t len)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	while (!poll(&pfd, 1, 0)) {
		ct_nudge(peer);
		sched_yield();
	}
	ct_hear(fd, data, len);
}

static void second(int fd)
{
	static struct fi_context2 context;
	static struct side side;
	struct ct_peer *peer = &side.peer;
	struct order order = { .what = LOOK };
	bool is_idle = false;

	open_side(&side, fd, false);
	while (order.what != QUIT) {
		struct answer answer = { .holds = true };

		if (is_idle)
			ct_hear(fd, &order, sizeof(order));
		else
			hear(peer, fd, &order, sizeof(order));
		switch (order.what) {
		case RECEIVE:
			POST(peer, fi_recv(peer->ep, (void *)(uintptr_t)side.data, order.len,
					   fi_mr_desc(side.mr), FI_ADDR_UNSPEC, &context));
			ct_tell(fd, "p", 1);
			ct_done(peer, &peer->rx, &context);
			answer.holds = holds(&side, order.len, order.seed);
			break;
		case FILL:
			fill(&side, order.len, order.seed);
			break;
		case LOOK:
			answer.holds = holds(&side, order.len, order.seed);
			break;
		case RENEW:
			release(&side);
			allocate(&side);
			break;
		case IDLE:
			is_idle = !is_idle;
			break;
		case QUIT:
			break;
		}
		answer.opened = ct_device()->opened();
		answer.closed = ct_device()->closed();
		answer.within = ct_device()->within();
		answer.card = card(&side);
		ct_tell(fd, &answer, sizeof(answer));
	}
	ct_hear(fd, &order, 1);
	close_side(&side);
	REQUIRE(!ct_device()->waits());
	_exit(0);
}

static struct side near;
static struct ct_child child;

static void setup(void)
{
	child = ct_spawn(second);
	ct_begin(&child);
	open_side(&near, child.fd, true);
}

static struct answer ask(struct order order)
{
	struct answer answer;

	ct_tell(child.fd, &order, sizeof(order));
	if (order.what == RECEIVE)
		hear(&near.peer, child.fd, &answer, 1);
	hear(&near.peer, child.fd, &answer, sizeof(answer));
	return answer;
}

static void teardown(void)
{
	ask((struct order) { .what = QUIT });
	ct_tell(child.fd, "e", 1);
	ct_join(&child);
	close_side(&near);
	REQUIRE(!ct_device()->waits());
}

/* Whether the two surely open each other's memory. */
static bool opens(void)
{
	return !refuses && !forges && ct_opt.provider && !strcmp(ct_opt.provider, "shm") &&
	       !getenv("FI_SHM_DISABLE_CMA");
}

static void send_one(size_t len, unsigned seed, bool expected, struct answer *answer)
{
	static struct fi_context2 context;
	struct order order = { RECEIVE, len, seed };
	struct ct_peer *peer = &near.peer;
	void *data = (void *)(uintptr_t)near.data;
	char posted;

	fill(&near, len, seed);
	if (expected) {
		ct_tell(child.fd, &order, sizeof(order));
		hear(peer, child.fd, &posted, 1);
	}
	POST(peer, fi_send(peer->ep, data, len, fi_mr_desc(near.mr), peer->to, &context));
	if (!expected) {
		ct_tell(child.fd, &order, sizeof(order));
		hear(peer, child.fd, &posted, 1);
	}
	hear(peer, child.fd, answer, sizeof(*answer));
	ct_done(peer, &peer->tx, &context);
	CHECK(answer->holds, "%s-%zu-%u", expected ? "expected" : "unexpected", len, seed);
}

static void pass_messages(void)
{
	unsigned seed = 0, before = 0;
	struct answer answer;

	setup();
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < ARRAY(sizes); i++)
			for (int expected = 0; expected < 2; expected++) {
				send_one(sizes[i], ++seed, expected, &answer);
				if (opens() && sizes[i] >= 70000)
					REQUIRE(answer.within > before);
				before = answer.within;
			}
	REQUIRE(answer.opened <= 1 && (answer.opened || !opens()));
	teardown();
}

static void messages(void)
{
	pass_messages();
}

/* A driver that makes no handles. */
static void refused(void)
{
	refuses = true;
	pass_messages();
}

/* Handles that stand for nothing are not opened, and disturb nothing. */
static void forged(void)
{
	forges = true;
	pass_messages();
}

static void access_one(bool reads, size_t len, unsigned seed)
{
	static struct fi_context2 context;
	struct ct_peer *peer = &near.peer;
	void *data = (void *)(uintptr_t)near.data, *desc = fi_mr_desc(near.mr);
	struct ct_rma rma = {
		.buf = data, .len = len, .desc = desc, .addr = near.other.addr,
		.key = near.other.key, .flags = FI_DELIVERY_COMPLETE, .context = &context,
	};

	fill(&near, len, reads ? ~seed : seed);
	ask((struct order) { FILL, len, reads ? seed : ~seed });
	POST(peer, ct_rma(peer, reads ? CT_READMSG : CT_WRITEMSG, &rma));
	ct_done(peer, &peer->tx, &context);
	if (reads)
		CHECK(holds(&near, len, seed), "read-%zu-%u", len, seed);
	else
		CHECK(ask((struct order) { LOOK, len, seed }).holds, "write-%zu-%u", len, seed);
}

static void access_all(void)
{
	unsigned seed = 0;

	setup();
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY(sizes); i++) {
			access_one(false, sizes[i], ++seed);
			access_one(true, sizes[i], ++seed);
		}
		/* The other process makes no calls at all from now on. */
		if (opens() && !round)
			ask((struct order) { .what = IDLE });
	}
	if (opens()) {
		REQUIRE(ct_device()->opened() == 1);
		ask((struct order) { .what = IDLE });
	}
	teardown();
}

static void rma(void)
{
	access_all();
}

static void rma_refused(void)
{
	refuses = true;
	access_all();
}

static void rma_forged(void)
{
	forges = true;
	access_all();
}

/* Memory that is freed and allocated again, often at the same address, is another one. */
static void renewed(void)
{
	struct answer answer = { 0 };

	setup();
	for (unsigned round = 0; round < RENEWED; round++) {
		send_one(70000, 3 * round + 1, round % 2, &answer);
		access_one(false, 70000, 3 * round + 2);
		access_one(true, 70000, 3 * round + 3);
		release(&near);
		allocate(&near);
		near.other = ask((struct order) { .what = RENEW }).card;
	}
	if (opens()) {
		REQUIRE(answer.opened > RENEWED / 2);
		/* What has ended is closed; a thread does that. */
		CT_UNTIL(ct_device()->closed() + 2 >= ct_device()->opened(), usleep(1000));
	}
	teardown();
}

/* With the peer, what was opened of it is closed. */
static void killed(void)
{
	setup();
	access_one(false, 70000, 1);
	access_one(true, 70000, 2);
	ct_kill(&child);
	close_side(&near);
	CT_UNTIL(ct_device()->closed() == ct_device()->opened(), usleep(1000));
	REQUIRE(!opens() || ct_device()->opened() == 1);
}

/* The same by the handles of ROCr. */
static void as_rocr(void)
{
	setenv("FI_HMEM", "rocr", 1);
	ct_device_as("hmem-libhsa-runtime64.so");
	interface = FI_HMEM_ROCR;
}

static void rocr_messages(void)
{
	as_rocr();
	pass_messages();
}

static void rocr_forged(void)
{
	as_rocr();
	forges = true;
	pass_messages();
}

static void rocr_rma(void)
{
	as_rocr();
	access_all();
}

static void rocr_renewed(void)
{
	as_rocr();
	renewed();
}

static void rocr_killed(void)
{
	as_rocr();
	killed();
}

/* A driver that lacks functions is none: memory of the host is all there is. */
static void lacking(void)
{
	struct ct_spec one = { .caps = FI_MSG | FI_HMEM, .hint = hints };
	struct fi_mr_attr attr = {
		.iov_count = 1, .access = FI_SEND, .iface = FI_HMEM_CUDA,
		.requested_key = ct_fresh_key(),
	};
	static struct fi_context2 tx_context, rx_context;
	static char host[2][100];
	struct iovec iov = { host[0], 100 };
	char path[PATH_MAX + 32];
	struct ct_pair pair;
	struct fid_mr *mr;
	ssize_t len = readlink("/proc/self/exe", path, PATH_MAX);

	REQUIRE(len > 0);
	path[len] = 0;
	strcpy(strrchr(path, '/') + 1, "hmem_shared-libcuda.so");
	REQUIRE(dlopen(path, RTLD_NOW | RTLD_GLOBAL));
	ct_open_pair(&pair, &one);
	attr.mr_iov = &iov;
	EXPECT(fi_mr_regattr(pair.a.domain, &attr, 0, &mr), -FI_ENOSYS);
	ct_fill(host[0], 100, 3);
	POST(&pair.b, fi_recv(pair.b.ep, host[1], 100, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(&pair.a, fi_send(pair.a.ep, host[0], 100, NULL, pair.a.to, &tx_context));
	ct_done(&pair.b, &pair.b.rx, &rx_context);
	ct_done(&pair.a, &pair.a.tx, &tx_context);
	REQUIRE(ct_holds(host[1], 100, 3));
	ct_close_pair(&pair);
}

static const struct ct_test tests[] = {
	{ "messages", messages, CT_BOTH },
	{ "refused", refused, CT_BOTH },
	{ "forged", forged, CT_BOTH },
	{ "rma", rma, CT_BOTH },
	{ "rma_refused", rma_refused, CT_BOTH },
	{ "rma_forged", rma_forged, CT_BOTH },
	{ "renewed", renewed, CT_BOTH },
	{ "killed", killed, CT_BOTH },
	{ "rocr_messages", rocr_messages, CT_BOTH },
	{ "rocr_forged", rocr_forged, CT_BOTH },
	{ "rocr_rma", rocr_rma, CT_BOTH },
	{ "rocr_renewed", rocr_renewed, CT_BOTH },
	{ "rocr_killed", rocr_killed, CT_BOTH },
	{ "lacking", lacking, CT_BOTH },
};

CT_MAIN(tests)
