/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Binding of endpoints: counters and queues that are bound after fi_enable, or
 * twice, or for no direction, and endpoints with counters only.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"
#include "connect.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context[64], rx_context[64];

static struct fid_cntr *open_counter(struct ct_peer *peer)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *cntr;

	OK(fi_cntr_open(peer->domain, &attr, &cntr, NULL));
	return cntr;
}

static struct fid_eq *open_queue(struct ct_peer *peer)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_eq *eq;

	OK(fi_eq_open(peer->fabric, &attr, &eq, NULL));
	return eq;
}

/* Binds a counter for each of these kinds to an endpoint that is in use. */
static void count_from_now(struct ct_peer *peer, uint64_t kinds)
{
	for (int i = 0; i < CT_CNTR_MAX; i++) {
		if (!(kinds & ct_counter_flags[i]))
			continue;
		peer->cntr[i] = open_counter(peer);
		OK(fi_ep_bind(peer->ep, &peer->cntr[i]->fid,
			      ct_counter_flags[i]));
	}
}

/* Sends a message of each form, all of which are received. */
static uint64_t pass_messages(struct ct_pair *pair, bool tagged)
{
	uint64_t passed = 0;

	for (enum ct_send_form form = 0; form < CT_SEND_FORMS; form++) {
		struct ct_message m = {
			.tagged = tagged, .tag = 4, .from = FI_ADDR_UNSPEC,
			.context = &rx_context[0],
		};

		if (!ct_send_offered(&pair->a, form))
			continue;
		POST(&pair->b, ct_recv(&pair->b, CT_RECV, &m));
		m.context = &tx_context[0];
		POST(&pair->a, ct_send(&pair->a, form, &m));
		ct_done(&pair->b, &pair->b.rx, &rx_context[0]);
		if (ct_send_completes(form))
			ct_done(&pair->a, &pair->a.tx, &tx_context[0]);
		passed++;
	}
	return passed;
}

static void late_counters_of(uint64_t caps, bool tagged)
{
	struct ct_spec spec = { .caps = caps };
	struct ct_pair pair;
	uint64_t passed;

	ct_open_pair(&pair, &spec);
	pass_messages(&pair, tagged);
	count_from_now(&pair.a, FI_SEND);
	count_from_now(&pair.b, FI_RECV);
	EXPECT(fi_ep_bind(pair.a.ep, &pair.a.cntr[CT_CNTR_SEND]->fid, FI_SEND),
	       -FI_EINVAL);
	EXPECT(fi_cntr_read(pair.b.cntr[CT_CNTR_RECV]), 0);
	passed = pass_messages(&pair, tagged);
	ct_count(&pair.a, CT_CNTR_SEND, passed);
	ct_count(&pair.b, CT_CNTR_RECV, passed);
	CHECK(fi_cntr_read(pair.a.cntr[CT_CNTR_SEND]) == passed, "sent");
	CHECK(fi_cntr_read(pair.b.cntr[CT_CNTR_RECV]) == passed, "received");
	EXPECT(fi_close(&pair.a.cntr[CT_CNTR_SEND]->fid), -FI_EBUSY);
	ct_close_pair(&pair);
}

/* Counters that are bound to an endpoint in use count later completions. */
static void late_counters(void)
{
	late_counters_of(FI_MSG, false);
}

static void late_counters_tagged(void)
{
	late_counters_of(FI_TAGGED, true);
}

/* Writes and reads in each form; how many of them are reads. */
static uint64_t access_memory(struct ct_pair *pair, struct ct_memory *local,
			      struct ct_memory *remote)
{
	uint64_t reads = 0;

	for (enum ct_rma_form form = 0; form < CT_RMA_FORMS; form++) {
		struct ct_rma rma = {
			.buf = local->data, .len = 64, .desc = local->desc,
			.addr = remote->addr, .key = remote->key,
			.context = &tx_context[0],
		};

		POST(&pair->a, ct_rma(&pair->a, form, &rma));
		if (ct_rma_completes(form))
			ct_done(&pair->a, &pair->a.tx, &tx_context[0]);
		reads += ct_rma_is_read(form);
	}
	return reads;
}

static void late_counters_of_accesses(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct ct_memory local, remote;
	struct ct_pair pair;
	uint64_t reads;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &local, 64, FI_READ | FI_WRITE);
	ct_memory_open(&pair.b, &remote, 64, FI_REMOTE_READ | FI_REMOTE_WRITE);
	access_memory(&pair, &local, &remote);
	/* An injected operation has no entry to wait for; a read after it has.
	 */
	POST(&pair.a, fi_read(pair.a.ep, local.data, 64, local.desc, pair.a.to,
			      remote.addr, remote.key, &tx_context[1]));
	ct_done(&pair.a, &pair.a.tx, &tx_context[1]);
	ct_stays_empty(&pair.a, &pair.a.tx);
	count_from_now(&pair.a, FI_READ | FI_WRITE);
	reads = access_memory(&pair, &local, &remote);
	ct_count(&pair.a, CT_CNTR_READ, reads);
	ct_count(&pair.a, CT_CNTR_WRITE, CT_RMA_FORMS - reads);
	CHECK(fi_cntr_read(pair.a.cntr[CT_CNTR_READ]) == reads, "reads");
	CHECK(fi_cntr_read(pair.a.cntr[CT_CNTR_WRITE]) == CT_RMA_FORMS - reads,
	      "writes");
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* A thread that sleeps on a counter that was bound late is woken when it
 * counts. */
static void late_counter_wakes(void)
{
	enum { COUNT = 20 };
	struct ct_spec spec = { .threading = FI_THREAD_SAFE };
	struct ct_driver *driver;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	count_from_now(&pair.b, FI_RECV);
	for (int i = 0; i < COUNT; i++) {
		POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				      &rx_context[i]));
		POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
				      &tx_context[i]));
		driver = ct_driver_start(&pair.a);
		OK(fi_cntr_wait(pair.b.cntr[CT_CNTR_RECV], i + 1, 60000));
		ct_driver_stop(driver);
	}
	CHECK(true, "woken");
	ct_close_pair(&pair);
}

struct sender {
	struct ct_pair *pair;
	atomic_int sent;
	atomic_bool stop;
};

static void *send_on_and_on(void *arg)
{
	struct sender *me = arg;
	struct ct_peer *a = &me->pair->a;

	while (!atomic_load(&me->stop)) {
		struct fi_cq_tagged_entry entry;
		ssize_t ret = fi_inject(a->ep, "x", 1, a->to);

		fi_cq_read(a->tx.fid, &entry, 1);
		if (ret == -FI_EAGAIN)
			continue;
		OK(ret);
		atomic_fetch_add(&me->sent, 1);
	}
	return NULL;
}

/* Counters are bound while one thread sends and another one drives. */
static void late_counters_beside_threads(void)
{
	enum { ROOM = 4000, ENOUGH = 200, MORE = 20 };
	struct ct_spec spec = { .threading = FI_THREAD_SAFE };
	struct sender sender = { 0 };
	static char room[ROOM];
	struct ct_driver *driver;
	struct ct_pair pair;
	pthread_t thread;
	uint64_t received = 0, counted = 0;
	int posted = 0;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	sender.pair = &pair;
	driver = ct_driver_start(&pair.b);
	REQUIRE(!pthread_create(&thread, NULL, send_on_and_on, &sender));
	/* Messages arrive all the time. */
	while (received < ENOUGH || !pair.b.cntr[CT_CNTR_RECV] ||
	       fi_cntr_read(pair.b.cntr[CT_CNTR_RECV]) < ENOUGH) {
		struct fi_cq_tagged_entry entry;
		ssize_t ret;

		ret = fi_recv(pair.b.ep, &room[posted % ROOM], 1, NULL,
			      FI_ADDR_UNSPEC, &rx_context[posted % 64]);
		REQUIRE(!ret || ret == -FI_EAGAIN);
		posted += !ret;
		ret = fi_cq_read(pair.b.rx.fid, &entry, 1);
		REQUIRE(ret == 1 || ret == -FI_EAGAIN);
		received += ret == 1;
		if (received == ENOUGH / 2 && !pair.b.cntr[CT_CNTR_RECV]) {
			count_from_now(&pair.b, FI_RECV);
			count_from_now(&pair.a, FI_SEND);
		}
	}
	atomic_store(&sender.stop, true);
	REQUIRE(!pthread_join(thread, NULL));
	ct_driver_stop(driver);
	/* Earlier messages have been counted when a later one has. */
	for (int i = 0; i <= MORE; i++) {
		POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
				      &tx_context[0]));
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		if (!i)
			counted = fi_cntr_read(pair.a.cntr[CT_CNTR_SEND]);
	}
	CHECK(counted <= (uint64_t)sender.sent + 1, "from-then-on");
	CHECK(fi_cntr_read(pair.a.cntr[CT_CNTR_SEND]) == counted + MORE,
	      "each-once");
	ct_close_pair(&pair);
}

/* A direction that its capabilities leave out may get its queue later. */
static void sends_alone(struct fi_info *hints)
{
	hints->caps = FI_MSG | FI_SEND;
}

static void late_queue(void)
{
	struct ct_spec spec = { .hint = sends_alone, .no_queue = FI_RECV };
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	OK(fi_ep_bind(peer.ep, &peer.rx.fid->fid, FI_RECV));
	EXPECT(fi_ep_bind(peer.ep, &peer.rx.fid->fid, FI_RECV), -FI_EINVAL);
	EXPECT(fi_ep_bind(peer.ep, &peer.tx.fid->fid, FI_TRANSMIT), -FI_EINVAL);
	EXPECT(fi_close(&peer.rx.fid->fid), -FI_EBUSY);
	CHECK(true, "bound");
	ct_close_peer(&peer);
}

static void enable_again(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	OK(fi_enable(pair.a.ep));
	OK(fi_enable(pair.b.ep));
	pass_messages(&pair, false);
	OK(fi_enable(pair.a.ep));
	pass_messages(&pair, false);
	CHECK(true, "goes-on");
	ct_close_pair(&pair);
}

/* An object bound for no direction counts and reports nothing, and may be
 * closed. */
static void for_no_direction(void)
{
	struct ct_spec spec = { 0 };
	struct fid_cntr *cntr;
	struct ct_pair pair;
	struct ct_peer idle;

	ct_open_pair(&pair, &spec);
	cntr = open_counter(&pair.a);
	OK(fi_ep_bind(pair.a.ep, &cntr->fid, 0));
	OK(fi_ep_bind(pair.a.ep, &pair.b.tx.fid->fid, 0));
	OK(fi_ep_bind(pair.a.ep, &pair.b.tx.fid->fid, FI_SELECTIVE_COMPLETION));
	pass_messages(&pair, false);
	CHECK(fi_cntr_read(cntr) == 0, "counts-nothing");
	CHECK(fi_close(&cntr->fid) == 0, "may-be-closed");
	ct_close_pair(&pair);

	ct_open_domain(&idle, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep_disabled(&idle, idle.info);
	cntr = open_counter(&idle);
	OK(fi_ep_bind(idle.ep, &cntr->fid, 0));
	OK(fi_enable(idle.ep));
	CHECK(fi_close(&cntr->fid) == 0, "before-enable");
	ct_close_peer(&idle);
}

/* An event queue may be bound again, and another one takes its place. */
static void queue_twice(void)
{
	struct ct_spec spec = { .eq = true };
	struct fid_eq *other;
	struct ct_peer peer;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	ct_open_ep_disabled(&peer, peer.info);
	other = open_queue(&peer);
	OK(fi_ep_bind(peer.ep, &peer.eq.fid->fid, 0));
	OK(fi_ep_bind(peer.ep, &other->fid, 0));
	OK(fi_ep_bind(peer.ep, &peer.eq.fid->fid, 0));
	OK(fi_close(&other->fid));
	OK(fi_enable(peer.ep));
	OK(fi_ep_bind(peer.ep, &peer.eq.fid->fid, 0));
	other = open_queue(&peer);
	OK(fi_ep_bind(peer.ep, &other->fid, 0));
	OK(fi_ep_bind(peer.ep, &peer.eq.fid->fid, 0));
	CHECK(fi_close(&other->fid) == 0, "lets-go");
	ct_close_peer(&peer);
}

/* Connection events are reported to the queue that is bound at that time. */
static void late_event_queue(void)
{
	struct ct_spec spec = { 0 };
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;
	struct fi_info *info = ct_getinfo(&spec), *copy = fi_dupinfo(info);
	struct fid_eq *first, *second, *door;
	unsigned char name[CT_NAME];
	struct ct_event request;

	memset(&pair, 0, sizeof(pair));
	ct_open_domain(a, &spec, info, NULL, NULL);
	ct_open_domain(b, &spec, copy, a->fabric, NULL);
	a->partner = b;
	b->partner = a;
	pair.pep = ct_listen(a);
	ct_name(&pair.pep->fid, name, sizeof(name));
	/* Requests, too. */
	door = a->eq.fid;
	a->eq.fid = open_queue(a);
	OK(fi_pep_bind(pair.pep, &a->eq.fid->fid, 0));
	OK(fi_close(&door->fid));
	ct_open_ep(b, b->info);
	first = b->eq.fid;
	b->eq.fid = open_queue(b);
	OK(fi_ep_bind(b->ep, &b->eq.fid->fid, 0));
	OK(fi_close(&first->fid));
	OK(fi_connect(b->ep, name, NULL, 0));
	ct_wait_request(a, &request);
	CHECK(true, "request");
	ct_accept(a, &request, NULL, 0);
	ct_wait_connected(b);
	ct_wait_connected(a);
	CHECK(true, "connected");
	second = b->eq.fid;
	b->eq.fid = open_queue(b);
	OK(fi_ep_bind(b->ep, &b->eq.fid->fid, 0));
	OK(fi_close(&second->fid));
	OK(fi_shutdown(a->ep, 0));
	REQUIRE(ct_event_of(b, FI_SHUTDOWN).fid == &b->ep->fid);
	CHECK(true, "shut-down");
	ct_close_pair(&pair);
}

/* Drives the counters of both sides until one has reached a value. */
static void until(struct ct_pair *pair, struct fid_cntr *cntr, bool errors,
		  uint64_t value)
{
	double patience = ct_now() + ct_patience();

	for (;;) {
		uint64_t is = errors ? fi_cntr_readerr(cntr) : fi_cntr_read(cntr);

		if (is >= value) {
			REQUIRE(is == value);
			return;
		}
		REQUIRE(ct_now() < patience);
		for (int i = 0; i < CT_CNTR_MAX; i++) {
			if (pair->a.cntr[i])
				fi_cntr_read(pair->a.cntr[i]);
			if (pair->b.cntr[i])
				fi_cntr_read(pair->b.cntr[i]);
		}
		ct_progress_events(&pair->a);
	}
}

/* Endpoints with counters and without queues: counters count errors, too. */
static void counters_alone(void)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA, .counters = FI_SEND | FI_RECV | FI_READ,
		.no_queue = FI_TRANSMIT | FI_RECV,
	};
	struct ct_memory out, remote;
	uint64_t sent = 0, received = 0;
	unsigned char room[64];
	struct ct_pair pair;
	struct fid_cntr *sends, *receives, *reads;

	ct_open_pair(&pair, &spec);
	sends = pair.a.cntr[CT_CNTR_SEND];
	receives = pair.b.cntr[CT_CNTR_RECV];
	reads = pair.a.cntr[CT_CNTR_READ];
	ct_memory_open(&pair.a, &out, 64, FI_SEND | FI_READ);
	ct_memory_open(&pair.b, &remote, 64, FI_REMOTE_READ);
	/* The first may have to wait for its connection. */
	OK(fi_recv(pair.b.ep, room, sizeof(room), NULL, FI_ADDR_UNSPEC,
		   &rx_context[0]));
	double patience = ct_now() + ct_patience();
	ssize_t ret;

	while ((ret = fi_send(pair.a.ep, out.data, 64, out.desc, pair.a.to,
			      &tx_context[0])) == -FI_EAGAIN) {
		REQUIRE(ct_now() < patience);
		fi_cntr_read(sends);
		fi_cntr_read(receives);
	}
	OK(ret);
	until(&pair, receives, false, ++received);
	until(&pair, sends, false, ++sent);
	for (enum ct_send_form form = 0; form < CT_SEND_FORMS; form++) {
		struct ct_message m = {
			.buf = room, .len = 8, .from = FI_ADDR_UNSPEC,
			.context = &rx_context[0],
		};

		OK(ct_recv(&pair.b, CT_RECV, &m));
		m.buf = out.data;
		m.desc = out.desc;
		m.context = &tx_context[0];
		OK(ct_send(&pair.a, form, &m));
		until(&pair, receives, false, ++received);
		until(&pair, sends, false, ++sent);
	}
	CHECK(true, "messages");
	OK(fi_recv(pair.b.ep, room, 8, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	OK(fi_send(pair.a.ep, out.data, 64, out.desc, pair.a.to,
		   &tx_context[0]));
	until(&pair, receives, true, 1);
	CHECK(fi_cntr_read(receives) == received, "truncated");
	OK(fi_read(pair.a.ep, out.data, 8, out.desc, pair.a.to, remote.addr,
		   remote.key, &tx_context[1]));
	until(&pair, reads, false, 1);
	OK(fi_read(pair.a.ep, out.data, 8, out.desc, pair.a.to, remote.addr,
		   remote.key ^ 0x5555, &tx_context[1]));
	until(&pair, reads, true, 1);
	CHECK(fi_cntr_read(reads) == 1, "refused");
	ct_memory_close(&out);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* Endpoints for remote memory access need no queue for receives. */
static void transmit_queue_alone(void)
{
	struct ct_spec spec = { .caps = FI_RMA, .no_queue = FI_RECV };
	struct ct_memory local, remote;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &local, 64, FI_READ | FI_WRITE);
	ct_memory_open(&pair.b, &remote, 64, FI_REMOTE_READ | FI_REMOTE_WRITE);
	ct_fill(local.data, 64, 7);
	POST(&pair.a, fi_write(pair.a.ep, local.data, 64, local.desc, pair.a.to,
			       remote.addr, remote.key, &tx_context[0]));
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	POST(&pair.a, fi_read(pair.a.ep, local.data, 64, local.desc, pair.a.to,
			      remote.addr, remote.key, &tx_context[1]));
	ct_done(&pair.a, &pair.a.tx, &tx_context[1]);
	CHECK(ct_holds(remote.data, 64, 7), "written");
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* Enables an endpoint without queues, if the provider does, and binds them then. */
static void bind_queues_late(struct fid_ep *ep)
{
	struct ct_peer *peer = ep->fid.context;

	EXPECT(fi_enable(ep), ct_needs_queues() ? -FI_ENOCQ : 0);
	OK(fi_ep_bind(ep, &peer->tx.fid->fid, FI_TRANSMIT));
	OK(fi_ep_bind(ep, &peer->rx.fid->fid, FI_RECV));
}

static void late_queues(void)
{
	struct ct_spec spec = {
		.no_queue = FI_TRANSMIT | FI_RECV, .prepare = bind_queues_late,
	};
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	pass_messages(&pair, false);
	CHECK(true, "received");
	ct_close_pair(&pair);
}

/* Operations of such an endpoint are not reported. */
static void neither(void)
{
	int want = ct_needs_queues() ? -FI_ENOCQ : 0;
	static const struct {
		const char *name;
		uint64_t caps, no_queue;
	} lacking[] = {
		{ "both", FI_MSG, FI_TRANSMIT | FI_RECV },
		{ "receives", FI_MSG, FI_RECV },
		{ "transmits", FI_MSG, FI_TRANSMIT },
		{ "accesses", FI_RMA, FI_TRANSMIT | FI_RECV },
	};

	for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
		struct ct_spec spec = {
			.caps = lacking[i].caps, .no_queue = lacking[i].no_queue,
		};
		struct ct_peer peer;

		ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
		ct_open_ep_disabled(&peer, peer.info);
		CHECK(fi_enable(peer.ep) == want, "%s", lacking[i].name);
		ct_close_peer(&peer);
	}
}

/* Shared receives report to the queue and the counter that are bound last. */
static void shared_twice(void)
{
	struct ct_spec spec = { .srx = true };
	struct fid_cntr *first, *second;
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	first = open_counter(&peer);
	second = open_counter(&peer);
	OK(fi_ep_bind(peer.srx, &first->fid, FI_RECV));
	OK(fi_ep_bind(peer.srx, &first->fid, FI_RECV));
	OK(fi_ep_bind(peer.srx, &second->fid, FI_RECV));
	OK(fi_ep_bind(peer.srx, &peer.tx.fid->fid, FI_RECV));
	OK(fi_ep_bind(peer.srx, &peer.rx.fid->fid, FI_RECV));
	OK(fi_ep_bind(peer.ep, &peer.srx->fid, 0));
	OK(fi_recv(peer.srx, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	OK(fi_cancel(&peer.srx->fid, &rx_context[0]));
	CHECK(ct_error(&peer, &peer.rx).err == FI_ECANCELED, "last-queue");
	CHECK(fi_cntr_readerr(second) == 1, "last-counter");
	CHECK(fi_cntr_readerr(first) == 0, "not-the-first");
	OK(fi_close(&first->fid));
	OK(fi_close(&peer.ep->fid));
	peer.ep = NULL;
	OK(fi_close(&peer.srx->fid));
	peer.srx = NULL;
	OK(fi_close(&second->fid));
	ct_close_peer(&peer);
}

/* The shared receive context may be bound after fi_enable. */
static void late_shared(void)
{
	struct ct_spec spec = { .srx = true };
	struct ct_pair pair;
	struct ct_peer *a = &pair.a, *b = &pair.b;
	struct fi_info *info = ct_getinfo(&spec), *copy = fi_dupinfo(info);
	unsigned char name[CT_NAME];
	struct fid_ep *shared;

	memset(&pair, 0, sizeof(pair));
	ct_open_domain(a, &spec, info, NULL, NULL);
	ct_open_domain(b, &spec, copy, a->fabric, NULL);
	a->partner = b;
	b->partner = a;
	pair.pep = ct_listen(a);
	ct_name(&pair.pep->fid, name, sizeof(name));
	shared = b->srx;
	b->srx = NULL;
	ct_open_ep(b, b->info);
	OK(fi_ep_bind(b->ep, &shared->fid, 0));
	b->srx = shared;
	ct_connect(b, a, name);
	OK(fi_recv(b->srx, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	POST(a, fi_send(a->ep, NULL, 0, NULL, a->to, &tx_context[0]));
	ct_done(a, &a->tx, &tx_context[0]);
	ct_done(b, &b->rx, &rx_context[0]);
	CHECK(true, "received");
	ct_close_pair(&pair);
}

static const struct ct_test tests[] = {
	{ "late-counters", late_counters, CT_BOTH },
	{ "late-counters-tagged", late_counters_tagged, CT_BOTH },
	{ "late-counters-of-accesses", late_counters_of_accesses, CT_BOTH },
	{ "late-counter-wakes", late_counter_wakes, CT_BOTH },
	{ "late-counters-beside-threads", late_counters_beside_threads,
	  CT_BOTH },
	{ "late-queue", late_queue, CT_BOTH },
	{ "late-event-queue", late_event_queue, CT_MSG },
	{ "late-shared", late_shared, CT_MSG },
	{ "enable-again", enable_again, CT_BOTH },
	{ "for-no-direction", for_no_direction, CT_BOTH },
	{ "queue-twice", queue_twice, CT_BOTH },
	{ "shared-twice", shared_twice, CT_BOTH },
	{ "counters-alone", counters_alone, CT_BOTH },
	{ "transmit-queue-alone", transmit_queue_alone, CT_BOTH },
	{ "neither", neither, CT_BOTH },
	{ "late-queues", late_queues, CT_BOTH },
};

CT_MAIN(tests)
