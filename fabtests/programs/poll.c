/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Poll sets, wait sets and fi_trywait over several objects. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "check.h"
#include "late.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context[8], rx_context[8];

static void exchange(struct ct_pair *pair, int i)
{
	POST(&pair->b, fi_recv(pair->b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
			       &rx_context[i]));
	POST(&pair->a, fi_send(pair->a.ep, NULL, 0, NULL, pair->a.to,
			       &tx_context[i]));
}

/* Polls until the set reports this context; the test fails if it never does. */
static void until_reported(struct fid_poll *set, void *context,
			   struct ct_peer *other)
{
	double until = ct_now() + ct_patience();
	void *contexts[4];

	for (;;) {
		int ret = fi_poll(set, contexts, 4);

		REQUIRE(ret >= 0 && ret <= 4);
		for (int i = 0; i < ret; i++)
			if (contexts[i] == context)
				return;
		REQUIRE(ct_now() < until);
		ct_nudge(other);
	}
}

/* A queue with entries is reported by its context, an empty one is not. */
static void poll_set(void)
{
	struct fi_poll_attr attr = { 0 };
	struct ct_spec spec = { 0 };
	struct fid_poll *set;
	struct ct_pair pair;
	void *contexts[4];
	int ret;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	ret = fi_poll_open(pair.b.domain, &attr, &set);
	if (ret == -FI_ENOSYS)
		SKIP("no poll sets");
	OK(ret);
	OK(fi_poll_add(set, &pair.b.rx.fid->fid, 0));
	OK(fi_poll_add(set, &pair.b.tx.fid->fid, 0));
	EXPECT(fi_poll(set, contexts, 4), 0);
	exchange(&pair, 0);
	/* The context of a queue is the one given to fi_cq_open. */
	until_reported(set, &pair.b.rx, &pair.a);
	ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	CHECK(fi_poll(set, contexts, 4) == 0, "empty-again");
	OK(fi_poll_del(set, &pair.b.rx.fid->fid, 0));
	exchange(&pair, 1);
	for (int i = 0; i < 200; i++) {
		ret = fi_poll(set, contexts, 4);
		for (int j = 0; j < ret; j++)
			REQUIRE(contexts[j] != &pair.b.rx);
		ct_nudge(&pair.a);
	}
	CHECK(true, "deleted");
	ct_done(&pair.b, &pair.b.rx, &rx_context[1]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[1]);
	OK(fi_poll_del(set, &pair.b.tx.fid->fid, 0));
	OK(fi_close(&set->fid));
	ct_close_pair(&pair);
}

/* A counter that has changed since it was last looked at is reported. */
static void poll_counters(void)
{
	struct fi_poll_attr attr = { 0 };
	struct ct_spec spec = { .counters = FI_RECV };
	struct fid_cntr *cntr;
	struct fid_poll *set;
	struct ct_pair pair;
	void *contexts[2];
	int ret;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	ret = fi_poll_open(pair.b.domain, &attr, &set);
	if (ret == -FI_ENOSYS)
		SKIP("no poll sets");
	OK(ret);
	cntr = pair.b.cntr[CT_CNTR_RECV];
	cntr->fid.context = &pair.b.cntr;
	OK(fi_poll_add(set, &cntr->fid, 0));
	/* Completions from before it was added may be reported once. */
	fi_poll(set, contexts, 2);
	EXPECT(fi_poll(set, contexts, 2), 0);
	exchange(&pair, 0);
	until_reported(set, &pair.b.cntr, &pair.a);
	CHECK(true, "changed");
	CHECK(fi_poll(set, contexts, 2) == 0, "unchanged");
	ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	OK(fi_poll_del(set, &cntr->fid, 0));
	OK(fi_close(&set->fid));
	ct_close_pair(&pair);
}

/* Queues that wait through a set: fi_wait wakes for any of them. */
static void wait_set_of(enum fi_wait_obj object)
{
	struct fi_wait_attr attr = { .wait_obj = object };
	struct ct_spec spec = { .threading = FI_THREAD_SAFE };
	struct fi_cq_attr cq_attr = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET,
	};
	struct ct_late *late;
	struct fid_wait *set;
	struct ct_peer a, b;
	unsigned char name[CT_NAME];
	double start;
	int ret;

	ct_open_single(&a, &spec);
	ct_open_domain(&b, &spec, ct_getinfo(&spec), NULL, NULL);
	ret = fi_wait_open(b.fabric, &attr, &set);
	if (ret == -FI_ENOSYS)
		SKIP("no wait sets");
	OK(ret);
	OK(fi_close(&b.rx.fid->fid));
	cq_attr.wait_set = set;
	OK(fi_cq_open(b.domain, &cq_attr, &b.rx.fid, &b.rx));
	ct_open_ep(&b, b.info);
	ct_name(&b.ep->fid, name, sizeof(name));
	a.to = ct_insert(&a, name);
	a.partner = &b;
	POST(&b, fi_recv(b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[1]));
	POST(&a, fi_send(a.ep, NULL, 0, NULL, a.to, &tx_context[1]));
	ct_done(&a, &a.tx, &tx_context[1]);
	UNTIL(&a, b.rx.count);
	b.rx.count = 0;
	a.partner = NULL;

	start = ct_now();
	ret = fi_wait(set, 100);
	CHECK(ret == -FI_ETIMEDOUT || ret == 0, "timeout");
	CHECK(ret == 0 || ct_now() - start > 0.09, "waited");

	POST(&b, fi_recv(b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	late = ct_late_start(&a, &tx_context[0]);
	start = ct_now();
	/* A wake-up without an entry is allowed; sleeping for ever is not. */
	while (!b.rx.count) {
		REQUIRE(ct_now() - start < ct_patience());
		ret = fi_wait(set, ct_patience_ms());
		REQUIRE(ret == 0);
		ct_pull(&b.rx);
	}
	ct_late_stop(late);
	CHECK(b.rx.stash[b.rx.first].context == &rx_context[0], "woken");
	/* The queue keeps its wait object, and does not keep the set open. */
	OK(fi_close(&set->fid));
	OK(fi_close(&b.ep->fid));
	OK(fi_close(&b.rx.fid->fid));
	b.ep = NULL;
	b.rx.fid = NULL;
	ct_close_peer(&a);
	ct_close_peer(&b);
}

static void wait_set_unspec(void)
{
	wait_set_of(FI_WAIT_UNSPEC);
}

static void wait_set_fd(void)
{
	wait_set_of(FI_WAIT_FD);
}

/* One call for the descriptors of several objects: any entry refuses it. */
static void trywait_many(void)
{
	struct ct_spec spec = { .wait = FI_WAIT_FD, .threading = FI_THREAD_SAFE };
	double until = ct_now() + ct_patience();
	struct pollfd pfd[2] = { { .events = POLLIN }, { .events = POLLIN } };
	struct ct_late *late;
	struct ct_pair pair;
	struct ct_peer *b = &pair.b;
	struct fid *fids[2];
	int ret;

	ct_open_pair(&pair, &spec);
	ct_warm_up(&pair);
	fids[0] = &b->tx.fid->fid;
	fids[1] = &b->rx.fid->fid;
	OK(fi_control(fids[0], FI_GETWAIT, &pfd[0].fd));
	OK(fi_control(fids[1], FI_GETWAIT, &pfd[1].fd));
	POST(b, fi_recv(b->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	late = ct_late_start(&pair.a, &tx_context[0]);
	while (!b->rx.count) {
		REQUIRE(ct_now() < until);
		ret = fi_trywait(b->fabric, fids, 2);
		if (ret != -FI_EAGAIN) {
			OK(ret);
			REQUIRE(poll(pfd, 2, ct_patience_ms()) > 0);
		}
		ct_pull(&b->tx);
		ct_pull(&b->rx);
	}
	ct_late_stop(late);
	ct_done(b, &b->rx, &rx_context[0]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	OK(fi_trywait(b->fabric, NULL, 0));
	ct_close_pair(&pair);
}

/* The application has a descriptor of its own that watches those of a queue and of a
 * counter, from before anything is connected. The system allows few such descriptors
 * one within the other. */
static void within_epoll(void)
{
	struct ct_spec spec = {
		.counters = FI_RECV, .wait = FI_WAIT_FD,
		.threading = FI_THREAD_SAFE,
	};
	double until = ct_now() + ct_patience();
	int own = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN };
	struct ct_late *late;
	struct ct_pair pair;
	struct ct_peer *b = &pair.b;
	struct fid *fids[2];
	int ret;

	REQUIRE(own >= 0);
	ct_open_pair(&pair, &spec);
	fids[0] = &b->rx.fid->fid;
	fids[1] = &b->cntr[CT_CNTR_RECV]->fid;
	for (int i = 0; i < 2; i++) {
		int fd;

		OK(fi_control(fids[i], FI_GETWAIT, &fd));
		REQUIRE(!epoll_ctl(own, EPOLL_CTL_ADD, fd, &event));
	}
	POST(b, fi_recv(b->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	late = ct_late_start(&pair.a, &tx_context[0]);
	while (!b->rx.count || !fi_cntr_read(b->cntr[CT_CNTR_RECV])) {
		REQUIRE(ct_now() < until);
		ret = fi_trywait(b->fabric, fids, 2);
		if (ret != -FI_EAGAIN) {
			OK(ret);
			/* A process that is stopped and continued has been
			 * interrupted. */
			ret = epoll_wait(own, &event, 1, ct_patience_ms());
			REQUIRE(ret > 0 || (ret < 0 && errno == EINTR));
		}
		ct_pull(&b->rx);
	}
	ct_late_stop(late);
	ct_done(b, &b->rx, &rx_context[0]);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	ct_close_pair(&pair);
	close(own);
}

static const struct ct_test tests[] = {
	{ "poll-set", poll_set, CT_BOTH },
	{ "poll-counters", poll_counters, CT_BOTH },
	{ "wait-set-unspec", wait_set_unspec, CT_RDM },
	{ "wait-set-fd", wait_set_fd, CT_RDM },
	{ "trywait-many", trywait_many, CT_BOTH },
	{ "within-epoll", within_epoll, CT_BOTH },
};

CT_MAIN(tests)
