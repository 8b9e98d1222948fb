/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Event queues and wait sets belong to a fabric and to no domain: a thread may wait
 * there while another one, the only one in the domain, moves data
 * (FI_THREAD_DOMAIN, FI_THREAD_COMPLETION).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"
#include "connect.h"
#include "transfer.h"
#include "wait.h"

/* Milliseconds of one wait. */
enum { WAIT = 1 };
/* Seconds after which there are messages enough: each may take a turn of everybody else who wants the
 * processor, and there are six variants. */
#define ENOUGH 3.0

static struct ct_spec spec;
/* Queues are bound after fi_enable; counters report until then. */
static bool is_late;
static struct ct_pair pair;
static struct fid_wait *set;
static atomic_bool stop;
static atomic_int waits, errors;

static void *watch_queues(void *arg)
{
	while (!atomic_load(&stop)) {
		struct fid_eq *eqs[] = { pair.a.eq.fid, pair.b.eq.fid };

		for (int i = 0; i < 2; i++) {
			struct fi_eq_cm_entry event;
			uint32_t type;
			ssize_t ret = fi_eq_sread(eqs[i], &type, &event,
						  sizeof(event), WAIT, 0);

			if (ret != -FI_EAGAIN)
				atomic_fetch_add(&errors, 1);
		}
		atomic_fetch_add(&waits, 1);
	}
	return arg;
}

static void *watch_set(void *arg)
{
	while (!atomic_load(&stop)) {
		int ret = fi_wait(set, WAIT);

		if (ret && ret != -FI_ETIMEDOUT)
			atomic_fetch_add(&errors, 1);
		atomic_fetch_add(&waits, 1);
	}
	return arg;
}

/* Messages both ways while another thread watches. */
static void exchange(void *(*watch)(void *))
{
	static struct fi_context2 rx, tx;
	int least = ct_times(50), messages = ct_times(2000);
	double until = ct_now() + ENOUGH;
	pthread_t thread;

	ct_warm_up(&pair);
	atomic_store(&stop, false);
	atomic_store(&waits, 0);
	REQUIRE(!pthread_create(&thread, NULL, watch, NULL));
	for (int i = 0; (i < messages && ct_now() < until) || atomic_load(&waits) < least; i++) {
		struct ct_peer *from = i % 2 ? &pair.a : &pair.b;
		struct ct_peer *to = from->partner;
		int in = -1;

		POST(to, fi_recv(to->ep, &in, sizeof(in), NULL, FI_ADDR_UNSPEC,
				 &rx));
		POST(from, fi_send(from->ep, &i, sizeof(i), NULL, from->to,
				   &tx));
		ct_done(from, &from->tx, &tx);
		ct_done(to, &to->rx, &rx);
		REQUIRE(in == i);
	}
	atomic_store(&stop, true);
	REQUIRE(!pthread_join(thread, NULL));
	REQUIRE(!atomic_load(&errors));
}

static void variants(void (*test)(void))
{
	static const enum fi_threading levels[] = {
		FI_THREAD_DOMAIN, FI_THREAD_COMPLETION, FI_THREAD_SAFE,
	};

	for (int i = 0; i < 6; i++) {
		spec = (struct ct_spec){
			.threading = levels[i % 3],
			.progress = i < 3 ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO,
			.counters = is_late ? FI_SEND | FI_RECV : 0,
			.no_queue = is_late ? FI_TRANSMIT | FI_RECV : 0,
		};
		test();
	}
}

static void with_event_queues(void)
{
	ct_open_pair(&pair, &spec);
	exchange(watch_queues);
	ct_close_pair(&pair);
}

static void event_queue(void) { variants(with_event_queues); }

static void open_queue(struct ct_peer *peer, struct ct_cq *cq)
{
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET,
		.wait_set = set,
	};

	OK(fi_close(&cq->fid->fid));
	OK(fi_cq_open(peer->domain, &attr, &cq->fid, NULL));
}

/* A side whose queues are in the set. */
static void open_side(struct ct_peer *peer, struct fid_fabric *fabric,
		      struct fi_info *info)
{
	ct_open_domain(peer, &spec, info, fabric, NULL);
	open_queue(peer, &peer->tx);
	open_queue(peer, &peer->rx);
}

static void bind_late(struct ct_peer *peer)
{
	if (!is_late)
		return;
	OK(fi_ep_bind(peer->ep, &peer->tx.fid->fid, FI_TRANSMIT));
	OK(fi_ep_bind(peer->ep, &peer->rx.fid->fid, FI_RECV));
}

static void with_wait_set(void)
{
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_info *info = ct_getinfo(&spec);
	struct fid_fabric *fabric;
	unsigned char name[CT_NAME];

	memset(&pair, 0, sizeof(pair));
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_wait_open(fabric, &attr, &set));
	open_side(&pair.a, fabric, info);
	open_side(&pair.b, fabric, fi_dupinfo(info));
	pair.a.partner = &pair.b;
	pair.b.partner = &pair.a;
	if (ct_opt.type == FI_EP_MSG) {
		ct_connect_pair(&pair);
	} else {
		ct_open_ep(&pair.a, pair.a.info);
		ct_open_ep(&pair.b, pair.b.info);
		ct_name(&pair.b.ep->fid, name, sizeof(name));
		pair.a.to = ct_insert(&pair.a, name);
		ct_name(&pair.a.ep->fid, name, sizeof(name));
		pair.b.to = ct_insert(&pair.b, name);
	}
	bind_late(&pair.a);
	bind_late(&pair.b);
	exchange(watch_set);
	ct_close_pair(&pair);
	OK(fi_close(&set->fid));
	OK(fi_close(&fabric->fid));
}

static void wait_set(void) { variants(with_wait_set); }

static void late_wait_set(void)
{
	is_late = true;
	variants(with_wait_set);
}

static const struct ct_test tests[] = {
	{ "event-queue", event_queue, CT_MSG },
	{ "wait-set", wait_set, CT_BOTH },
	{ "late-wait-set", late_wait_set, CT_BOTH },
};

CT_MAIN(tests)
