/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A thread that sleeps at one endpoint's queue, under manual progress, beside
 * another endpoint of the domain whose queues nobody reads. A peer in another
 * process uses both: what it has with the second endpoint is carried out, and
 * completes there, while the thread sleeps. The main thread is outside of the
 * library meanwhile.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fi_atomic.h>

#include "check.h"
#include "child.h"
#include "connect.h"
#include "memory.h"
#include "survivor.h"
#include "transfer.h"
#include "wait.h"

#define LONG (1 << 20)
#define SHORT 8

/* How the thread sleeps. */
enum way {
	SREAD, TIMED, COUNTER, SET, DESCRIPTOR,
	NAPS,		/* for a moment at a time, at the descriptor */
	PAUSES,		/* the same, outside of the library */
	RESTS,		/* for a longer one, with a read after each */
};

/* Nanoseconds. */
#define MOMENT 50000
#define REST 20000000

/* What is done that often beside a thread that wakes all the time would last
 * for minutes if each step had to wait for some of its calls. */
#define MANY 100

/* What is on its way to or from the second endpoint. */
enum act {
	SENDS,		/* a long message to it */
	DELIVERS,	/* a short one, whose completion says that it was delivered */
	PUTS, GETS,	/* accesses to its memory */
	FETCHES,	/* atomically */
	RECEIVES,	/* a long message, which it has posted */
	IS_PUT_TO, IS_READ_FROM,
};

static struct plan {
	enum way way;
	enum act act;
	size_t len;
	bool has_met;	/* before the thread sleeps */
	int times;	/* that it is done, one after the other */
	enum fi_threading threading;
} plan;

static struct fi_context2 contexts[8];

static bool is_all(const unsigned char *data, unsigned char value)
{
	for (size_t i = 0; i < plan.len; i++)
		if (data[i] != value)
			return false;
	return true;
}

static struct ct_spec spec_of(void)
{
	bool accesses = plan.act >= PUTS && plan.act != RECEIVES;

	return (struct ct_spec) {
		.caps = FI_MSG | (plan.act == FETCHES ? FI_ATOMIC :
				  accesses ? FI_RMA : 0),
		.threading = plan.threading,
		.progress = FI_PROGRESS_MANUAL,
	};
}

/* The peer, which has an endpoint for each of the two. */
struct visitor {
	struct ct_peer awake, second;
	struct ct_card card;
	struct ct_memory memory;
};

static uint64_t remote_access(void)
{
	return FI_REMOTE_READ | FI_REMOTE_WRITE;
}

static void open_visitor(struct visitor *visitor, int fd)
{
	struct ct_spec spec = spec_of();
	struct ct_card own = { 0 }, other;

	ct_open_domain(&visitor->awake, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_domain(&visitor->second, &spec, ct_getinfo(&spec), NULL, NULL);
	if (ct_opt.type != FI_EP_MSG) {
		ct_open_ep(&visitor->awake, visitor->awake.info);
		ct_open_ep(&visitor->second, visitor->second.info);
	}
	ct_meet(&visitor->awake, &own, &other, fd, NULL);
	memset(&own, 0, sizeof(own));
	ct_memory_open(&visitor->second, &visitor->memory, LONG,
		       spec.caps == FI_MSG ? FI_SEND | FI_RECV :
		       remote_access() | FI_READ | FI_WRITE);
	memset(visitor->memory.data, 2, LONG);
	own.addr = visitor->memory.addr;
	own.key = visitor->memory.key;
	ct_meet(&visitor->second, &own, &visitor->card, fd, NULL);
}

/* A message and one back, so that two endpoints are connected. */
static void greet(struct ct_peer *peer)
{
	struct ct_message message = { .from = FI_ADDR_UNSPEC, .context = &contexts[7] };

	POST(peer, ct_recv(peer, CT_RECV, &message));
	message.context = &contexts[6];
	POST(peer, ct_send(peer, CT_SEND, &message));
	ct_done(peer, &peer->tx, &contexts[6]);
	ct_done(peer, &peer->rx, &contexts[7]);
}

static void fetch(struct visitor *visitor)
{
	struct ct_peer *peer = &visitor->second;
	uint64_t *local = (uint64_t *)visitor->memory.data;
	struct fi_context2 *context = &contexts[0];

	local[0] = 5;
	POST(peer, fi_fetch_atomic(peer->ep, &local[0], 1, visitor->memory.desc,
				   &local[1], visitor->memory.desc, peer->to,
				   visitor->card.addr, visitor->card.key,
				   FI_UINT64, FI_SUM, context));
	ct_done(peer, &peer->tx, context);
}

static void access_memory(struct visitor *visitor, enum ct_rma_form form)
{
	struct ct_peer *peer = &visitor->second;
	struct ct_rma rma = {
		.buf = visitor->memory.data, .len = plan.len,
		.desc = visitor->memory.desc, .addr = visitor->card.addr,
		.key = visitor->card.key, .context = &contexts[0],
		.flags = form == CT_WRITEMSG ? FI_DELIVERY_COMPLETE : 0,
	};

	POST(peer, ct_rma(peer, form, &rma));
	ct_done(peer, &peer->tx, &contexts[0]);
}

static void send_message(struct visitor *visitor)
{
	struct ct_peer *peer = &visitor->second;
	struct ct_message message = {
		.buf = visitor->memory.data, .len = plan.len,
		.desc = visitor->memory.desc, .context = &contexts[0],
		.flags = FI_DELIVERY_COMPLETE,
	};

	POST(peer, ct_send(peer, plan.act == DELIVERS ? CT_SENDMSG : CT_SEND,
			   &message));
	ct_done(peer, &peer->tx, &contexts[0]);
}

static void receive_message(struct visitor *visitor)
{
	struct ct_peer *peer = &visitor->second;
	struct ct_message message = {
		.buf = visitor->memory.data, .len = plan.len,
		.desc = visitor->memory.desc, .from = FI_ADDR_UNSPEC,
		.context = &contexts[0],
	};

	POST(peer, ct_recv(peer, CT_RECV, &message));
	ct_done(peer, &peer->rx, &contexts[0]);
	REQUIRE(is_all(visitor->memory.data, 1));
}

/* Makes progress until the other process says something. */
static void await_host(struct visitor *visitor, int fd)
{
	struct pollfd at = { .fd = fd, .events = POLLIN };
	char word;

	while (!poll(&at, 1, 0)) {
		ct_progress(&visitor->awake);
		ct_progress(&visitor->second);
	}
	ct_hear(fd, &word, 1);
}

/* The accesses of the other process to this one's memory. */
static void is_accessed(struct visitor *visitor, int fd)
{
	/* This process sees the end of a write, and the other one that of a read. */
	if (plan.act == IS_PUT_TO)
		UNTIL(&visitor->second,
		      __atomic_load_n(&visitor->memory.data[plan.len - 1],
				      __ATOMIC_ACQUIRE));
	else
		await_host(visitor, fd);
}

static void act_once(struct visitor *visitor, int fd)
{
	switch (plan.act) {
	case SENDS:
	case DELIVERS:
		send_message(visitor);
		break;
	case PUTS:
		access_memory(visitor, CT_WRITEMSG);
		break;
	case GETS:
		access_memory(visitor, CT_READ);
		REQUIRE(is_all(visitor->memory.data, 1));
		break;
	case FETCHES:
		fetch(visitor);
		break;
	case RECEIVES:
		receive_message(visitor);
		break;
	case IS_PUT_TO:
	case IS_READ_FROM:
		is_accessed(visitor, fd);
		break;
	}
}

static void act(struct visitor *visitor, int fd)
{
	for (int i = 0; i < plan.times; i++)
		act_once(visitor, fd);
}

static void run_visitor(int fd)
{
	struct ct_message message = { .context = &contexts[1] };
	struct visitor visitor;

	open_visitor(&visitor, fd);
	greet(&visitor.awake);
	if (plan.has_met)
		greet(&visitor.second);
	await_host(&visitor, fd);
	if (plan.act == IS_PUT_TO)
		memset(visitor.memory.data, 0, plan.len);
	ct_tell(fd, "r", 1);
	await_host(&visitor, fd);
	act(&visitor, fd);
	ct_tell(fd, "d", 1);
	/* The thread is called. */
	await_host(&visitor, fd);
	POST(&visitor.awake, ct_send(&visitor.awake, CT_SEND, &message));
	ct_done(&visitor.awake, &visitor.awake.tx, &contexts[1]);
	/* Nobody leaves with data that the other one is to get. */
	await_host(&visitor, fd);
	ct_memory_close(&visitor.memory);
	ct_close_peer(&visitor.awake);
	ct_close_peer(&visitor.second);
}

/* The process with the thread that sleeps. */
static struct host {
	struct ct_peer slept_at, second;
	struct ct_memory memory;
	struct ct_card card;
	struct fid_wait *set;
	struct fid_pep *peps[2];
	struct ct_child child;
	int asleep;
} host;

static void take_set(struct fid_wait *set, struct ct_peer *peer)
{
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET,
		.wait_set = set,
	};

	int ret;

	OK(fi_close(&peer->rx.fid->fid));
	ret = fi_cq_open(peer->domain, &attr, &peer->rx.fid, NULL);
	if (ret == -FI_ENOSYS)
		SKIP("queues are in no wait sets");
	OK(ret);
}

/* The wait object of the objects that are slept at. */
static enum fi_wait_obj wait_obj(void)
{
	switch (plan.way) {
	case SET:
		return FI_WAIT_NONE;
	case DESCRIPTOR:
	case NAPS:
		return FI_WAIT_FD;
	default:
		return FI_WAIT_UNSPEC;
	}
}

static void open_host_domains(void)
{
	struct ct_spec spec = spec_of();
	struct fi_info *info;

	spec.wait = wait_obj();
	if (plan.way == COUNTER)
		spec.counters = FI_RECV;
	info = ct_getinfo(&spec);
	ct_open_domain(&host.slept_at, &spec, info, NULL, NULL);
	if (plan.way == SET) {
		struct fi_wait_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
		int ret = fi_wait_open(host.slept_at.fabric, &attr, &host.set);

		if (ret == -FI_ENOSYS)
			SKIP("no wait sets");
		OK(ret);
		take_set(host.set, &host.slept_at);
	}
	spec.counters = 0;
	spec.wait = FI_WAIT_NONE;
	ct_open_domain(&host.second, &spec, fi_dupinfo(info),
		       host.slept_at.fabric, host.slept_at.domain);
}

static void open_memory(struct ct_peer *peer)
{
	ct_memory_open(peer, &host.memory, LONG,
		       peer->spec.caps == FI_MSG ? FI_SEND | FI_RECV :
		       remote_access() | FI_READ | FI_WRITE);
	memset(host.memory.data, 1, LONG);
}

static void open_host(void)
{
	struct ct_card own = { 0 }, other;
	bool listens = ct_opt.type == FI_EP_MSG;

	host.child = ct_spawn(run_visitor);
	open_host_domains();
	ct_begin(&host.child);
	if (listens) {
		host.peps[0] = ct_listen(&host.slept_at);
		host.peps[1] = ct_listen(&host.second);
	} else {
		ct_open_ep(&host.slept_at, host.slept_at.info);
		ct_open_ep(&host.second, host.second.info);
	}
	ct_meet(&host.slept_at, &own, &other, host.child.fd, host.peps[0]);
	memset(&own, 0, sizeof(own));
	open_memory(&host.second);
	own.addr = host.memory.addr;
	own.key = host.memory.key;
	ct_meet(&host.second, &own, &host.card, host.child.fd, host.peps[1]);
	greet(&host.slept_at);
	if (plan.has_met)
		greet(&host.second);
}

/* What the second endpoint does, or is to be done to it. */
static void post_once(void)
{
	struct ct_peer *peer = &host.second;
	struct ct_message message = {
		.buf = host.memory.data, .len = plan.len,
		.desc = host.memory.desc, .from = FI_ADDR_UNSPEC,
		.context = &contexts[2],
	};
	struct ct_rma rma = {
		.buf = host.memory.data, .len = plan.len,
		.desc = host.memory.desc, .addr = host.card.addr,
		.key = host.card.key, .context = &contexts[2],
	};

	switch (plan.act) {
	case SENDS:
	case DELIVERS:
		POST(peer, ct_recv(peer, CT_RECV, &message));
		break;
	case RECEIVES:
		POST(peer, ct_send(peer, CT_SEND, &message));
		break;
	case IS_PUT_TO:
		POST(peer, ct_rma(peer, CT_WRITE, &rma));
		break;
	case IS_READ_FROM:
		memset(host.memory.data, 0, plan.len);
		POST(peer, ct_rma(peer, CT_READ, &rma));
		break;
	default:
		break;
	}
}

static void post(void)
{
	for (int i = 0; i < plan.times; i++)
		post_once();
}

static bool took(ssize_t ret, const struct fi_cq_tagged_entry *entry)
{
	if (ret == -FI_EAGAIN || ret == -FI_EINTR)
		return false;
	EXPECT(ret, 1);
	REQUIRE(entry->op_context == &contexts[3]);
	return true;
}

static ssize_t poll_once(struct fi_cq_tagged_entry *entry,
			 const struct timespec *limit)
{
	struct fid *fid = &host.slept_at.rx.fid->fid;
	struct pollfd at = { .events = POLLIN };
	int ret;

	OK(fi_control(fid, FI_GETWAIT, &at.fd));
	ret = fi_trywait(host.slept_at.fabric, &fid, 1);
	if (ret != -FI_EAGAIN) {
		OK(ret);
		ret = ppoll(&at, 1, limit, NULL);
		REQUIRE(ret == 1 || (limit && !ret));
	}
	return fi_cq_read(host.slept_at.rx.fid, entry, 1);
}

static ssize_t pause_once(struct fi_cq_tagged_entry *entry, long nanoseconds)
{
	struct timespec pause = { .tv_nsec = nanoseconds };

	nanosleep(&pause, NULL);
	return fi_cq_read(host.slept_at.rx.fid, entry, 1);
}

static ssize_t sleep_once(struct fi_cq_tagged_entry *entry, uint64_t before)
{
	static const struct timespec moment = { .tv_nsec = MOMENT };
	struct fid_cq *cq = host.slept_at.rx.fid;

	switch (plan.way) {
	case SREAD:
		return fi_cq_sread(cq, entry, 1, NULL, -1);
	case TIMED:
		return fi_cq_sread(cq, entry, 1, NULL, 3600 * 1000);
	case COUNTER:
		OK(fi_cntr_wait(host.slept_at.cntr[CT_CNTR_RECV], before + 1,
				-1));
		return fi_cq_read(cq, entry, 1);
	case SET:
		OK(fi_wait(host.set, -1));
		return fi_cq_read(cq, entry, 1);
	case DESCRIPTOR:
		return poll_once(entry, NULL);
	case NAPS:
		return poll_once(entry, &moment);
	case PAUSES:
		return pause_once(entry, MOMENT);
	case RESTS:
		return pause_once(entry, REST);
	}
	return -FI_EINVAL;
}

/* Posts the work of the second endpoint, and sleeps until the first one has a
 * message. */
static void *fall_asleep(void *arg)
{
	struct fi_cq_tagged_entry entry;
	uint64_t before = 0;
	ssize_t ret;

	if (plan.way == COUNTER)
		before = fi_cntr_read(host.slept_at.cntr[CT_CNTR_RECV]);
	post();
	__atomic_store_n(&host.asleep, 1, __ATOMIC_RELEASE);
	do
		ret = sleep_once(&entry, before);
	while (!took(ret, &entry));
	return arg;
}

/* The second endpoint's share of what was done. */
static void check_once(void)
{
	struct ct_peer *peer = &host.second;

	switch (plan.act) {
	case SENDS:
	case DELIVERS:
		ct_done(peer, &peer->rx, &contexts[2]);
		REQUIRE(is_all(host.memory.data, 2));
		break;
	case PUTS:
		REQUIRE(is_all(host.memory.data, 2));
		break;
	case RECEIVES:
	case IS_PUT_TO:
		ct_done(peer, &peer->tx, &contexts[2]);
		break;
	case IS_READ_FROM:
		ct_done(peer, &peer->tx, &contexts[2]);
		REQUIRE(is_all(host.memory.data, 2));
		break;
	default:
		break;
	}
}

static void check_second(void)
{
	for (int i = 0; i < plan.times; i++)
		check_once();
}

/* Waits outside of the library for the end of what the peer does. */
static void await_visitor(void)
{
	struct pollfd at = { .fd = host.child.fd, .events = POLLIN };
	char word;

	if (plan.act == IS_READ_FROM) {
		CT_UNTIL(__atomic_load_n(&host.memory.data[plan.len - 1],
					 __ATOMIC_ACQUIRE), usleep(100));
		ct_tell(host.child.fd, "s", 1);
	}
	REQUIRE(poll(&at, 1, (int)(ct_patience() * 1000)) == 1);
	ct_hear(host.child.fd, &word, 1);
}

static void close_host(void)
{
	ct_tell(host.child.fd, "q", 1);
	ct_join(&host.child);
	ct_memory_close(&host.memory);
	for (int i = 0; i < 2; i++)
		if (host.peps[i])
			OK(fi_close(&host.peps[i]->fid));
	ct_close_peer(&host.second);
	if (host.set) {
		OK(fi_close(&host.slept_at.ep->fid));
		host.slept_at.ep = NULL;
		OK(fi_close(&host.slept_at.rx.fid->fid));
		host.slept_at.rx.fid = NULL;
		OK(fi_close(&host.set->fid));
	}
	ct_close_peer(&host.slept_at);
}

static void run(void)
{
	struct ct_message message = {
		.from = FI_ADDR_UNSPEC, .context = &contexts[3],
	};
	pthread_t thread;
	char word;

	open_host();
	POST(&host.slept_at, ct_recv(&host.slept_at, CT_RECV, &message));
	ct_tell(host.child.fd, "p", 1);
	ct_hear(host.child.fd, &word, 1);
	REQUIRE(!pthread_create(&thread, NULL, fall_asleep, NULL));
	CT_UNTIL(__atomic_load_n(&host.asleep, __ATOMIC_ACQUIRE), usleep(100));
	/* Now it is in the call, or about to be. */
	usleep(20000);
	ct_tell(host.child.fd, "g", 1);
	await_visitor();
	ct_tell(host.child.fd, "w", 1);
	REQUIRE(!pthread_join(thread, NULL));
	check_second();
	close_host();
}

static bool is_repeated(void)
{
	/* Those that the thread posts, and that say when they are done, are
	 * done once. */
	return plan.way >= NAPS && plan.act <= FETCHES && plan.has_met;
}

static void run_plan(enum way way, enum fi_threading threading, enum act act, bool has_met)
{
	plan.way = way;
	plan.threading = threading;
	plan.act = act;
	plan.has_met = has_met;
	plan.times = is_repeated() ? MANY : 1;
	plan.len = act == DELIVERS || act == FETCHES ? SHORT : LONG;
	run();
}

#define TESTS_OF(name, way, threading)					\
	static void name##_sends(void) { run_plan(way, threading, SENDS, true); } \
	static void name##_sends_first(void) { run_plan(way, threading, SENDS, false); } \
	static void name##_delivers(void) { run_plan(way, threading, DELIVERS, true); } \
	static void name##_puts(void) { run_plan(way, threading, PUTS, true); } \
	static void name##_gets(void) { run_plan(way, threading, GETS, true); } \
	static void name##_gets_first(void) { run_plan(way, threading, GETS, false); } \
	static void name##_fetches(void) { run_plan(way, threading, FETCHES, true); } \
	static void name##_receives(void) { run_plan(way, threading, RECEIVES, true); } \
	static void name##_receives_first(void) { run_plan(way, threading, RECEIVES, false); } \
	static void name##_is_put_to(void) { run_plan(way, threading, IS_PUT_TO, true); } \
	static void name##_is_read_from(void) { run_plan(way, threading, IS_READ_FROM, true); }

#define ROWS(name)							\
	{ #name "/sends", name##_sends, CT_BOTH },			\
	{ #name "/sends-first", name##_sends_first, CT_BOTH },		\
	{ #name "/delivers", name##_delivers, CT_BOTH },		\
	{ #name "/puts", name##_puts, CT_BOTH },			\
	{ #name "/gets", name##_gets, CT_BOTH },			\
	{ #name "/gets-first", name##_gets_first, CT_BOTH },		\
	{ #name "/fetches", name##_fetches, CT_BOTH },			\
	{ #name "/receives", name##_receives, CT_BOTH },		\
	{ #name "/receives-first", name##_receives_first, CT_BOTH },	\
	{ #name "/is-put-to", name##_is_put_to, CT_BOTH },		\
	{ #name "/is-read-from", name##_is_read_from, CT_BOTH }

TESTS_OF(sread, SREAD, FI_THREAD_SAFE)
TESTS_OF(timed, TIMED, FI_THREAD_SAFE)
TESTS_OF(counter, COUNTER, FI_THREAD_SAFE)
TESTS_OF(set, SET, FI_THREAD_SAFE)
TESTS_OF(descriptor, DESCRIPTOR, FI_THREAD_SAFE)
TESTS_OF(naps, NAPS, FI_THREAD_SAFE)
TESTS_OF(pauses, PAUSES, FI_THREAD_SAFE)
TESTS_OF(rests, RESTS, FI_THREAD_SAFE)
TESTS_OF(domain, SREAD, FI_THREAD_DOMAIN)
TESTS_OF(completion, SREAD, FI_THREAD_COMPLETION)

static const struct ct_test tests[] = {
	ROWS(sread),
	ROWS(timed),
	ROWS(counter),
	ROWS(set),
	ROWS(descriptor),
	ROWS(naps),
	ROWS(pauses),
	ROWS(rests),
	ROWS(domain),
	ROWS(completion),
};

CT_MAIN(tests)
