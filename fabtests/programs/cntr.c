/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Counters: counting, changing and waiting. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context[64], rx_context[64];

static struct fid_cntr *open_counter(struct ct_peer *peer,
				     enum fi_wait_obj wait)
{
	struct fi_cntr_attr attr = {
		.events = FI_CNTR_EVENTS_COMP, .wait_obj = wait,
	};
	struct fid_cntr *cntr;
	int ret = fi_cntr_open(peer->domain, &attr, &cntr, NULL);

	if (ret == -FI_ENOSYS)
		SKIP("no such counters");
	OK(ret);
	return cntr;
}

/* A changed value may take a moment to be seen. */
static bool reads(struct fid_cntr *cntr, uint64_t value)
{
	double until = ct_now() + ct_patience();

	while (fi_cntr_read(cntr) != value)
		if (ct_now() > until)
			return false;
	return true;
}

static bool reads_errors(struct fid_cntr *cntr, uint64_t value)
{
	double until = ct_now() + ct_patience();

	while (fi_cntr_readerr(cntr) != value)
		if (ct_now() > until)
			return false;
	return true;
}

static void arithmetic(void)
{
	struct ct_spec spec = { 0 };
	struct fid_cntr *cntr;
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	cntr = open_counter(&peer, FI_WAIT_UNSPEC);
	CHECK(reads(cntr, 0) && reads_errors(cntr, 0), "starts-at-zero");
	OK(fi_cntr_add(cntr, 5));
	OK(fi_cntr_add(cntr, 7));
	CHECK(reads(cntr, 12) && reads_errors(cntr, 0), "add");
	OK(fi_cntr_adderr(cntr, 3));
	CHECK(reads(cntr, 12) && reads_errors(cntr, 3), "adderr");
	OK(fi_cntr_set(cntr, 1000));
	CHECK(reads(cntr, 1000) && reads_errors(cntr, 3), "set");
	OK(fi_cntr_seterr(cntr, 9));
	CHECK(reads(cntr, 1000) && reads_errors(cntr, 9), "seterr");
	OK(fi_cntr_set(cntr, 0));
	OK(fi_cntr_seterr(cntr, 0));
	CHECK(reads(cntr, 0) && reads_errors(cntr, 0), "reset");
	OK(fi_close(&cntr->fid));
	ct_close_peer(&peer);
}

static void waits_with(enum fi_wait_obj wait)
{
	struct ct_spec spec = { 0 };
	struct fid_cntr *cntr;
	struct ct_peer peer;
	double start;

	ct_open_single(&peer, &spec);
	cntr = open_counter(&peer, wait);
	start = ct_now();
	EXPECT(fi_cntr_wait(cntr, 1, 100), -FI_ETIMEDOUT);
	CHECK(ct_now() - start > 0.09, "timeout");
	OK(fi_cntr_add(cntr, 3));
	OK(fi_cntr_wait(cntr, 3, -1));
	OK(fi_cntr_wait(cntr, 1, -1));
	OK(fi_cntr_wait(cntr, 0, 0));
	CHECK(true, "reached");
	OK(fi_close(&cntr->fid));
	ct_close_peer(&peer);
}

static void wait_unspec(void)
{
	waits_with(FI_WAIT_UNSPEC);
}

static void wait_fd(void)
{
	waits_with(FI_WAIT_FD);
}

static void wait_mutex_cond(void)
{
	waits_with(FI_WAIT_MUTEX_COND);
}

static void wait_yield(void)
{
	waits_with(FI_WAIT_YIELD);
}

/* Not for waiting; a library may refuse it, or wait by polling, which programs
 * rely on. It must not return that the value was reached. */
static void wait_none(void)
{
	struct ct_spec spec = { 0 };
	struct fid_cntr *cntr;
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	cntr = open_counter(&peer, FI_WAIT_NONE);
	CHECK(fi_cntr_wait(cntr, 1, 50) < 0, "not-reached");
	OK(fi_close(&cntr->fid));
	ct_close_peer(&peer);
}

static void *add_late(void *cntr)
{
	usleep(50000);
	fi_cntr_add(cntr, 1);
	return NULL;
}

static void *fail_late(void *cntr)
{
	usleep(50000);
	fi_cntr_adderr(cntr, 1);
	return NULL;
}

/* A waiter wakes when the value is reached, and for any error. */
static void woken(void)
{
	struct ct_spec spec = { .threading = FI_THREAD_SAFE };
	struct fid_cntr *cntr;
	struct ct_peer peer;
	pthread_t thread;
	int ret;

	ct_open_single(&peer, &spec);
	cntr = open_counter(&peer, FI_WAIT_UNSPEC);
	REQUIRE(!pthread_create(&thread, NULL, add_late, cntr));
	ret = fi_cntr_wait(cntr, 1, ct_patience_ms());
	pthread_join(thread, NULL);
	CHECK(ret == 0, "by-value");
	REQUIRE(!pthread_create(&thread, NULL, fail_late, cntr));
	ret = fi_cntr_wait(cntr, 2, ct_patience_ms());
	pthread_join(thread, NULL);
	CHECK(ret < 0 && ret != -FI_ETIMEDOUT, "by-error");
	OK(fi_close(&cntr->fid));
	ct_close_peer(&peer);
}

/* Messages of each kind count once per operation on each side. */
static void messages_of(uint64_t caps, bool tagged, bool quiet)
{
	struct ct_spec spec = {
		.caps = caps, .counters = FI_SEND | FI_RECV,
		.selective_tx = quiet, .selective_rx = quiet,
	};
	struct ct_pair pair;
	uint64_t sent = 0;

	ct_open_pair(&pair, &spec);
	for (enum ct_send_form form = 0; form < CT_SEND_FORMS; form++) {
		struct ct_message m = {
			.tagged = tagged, .tag = 4, .from = FI_ADDR_UNSPEC,
			.context = &rx_context[0],
		};

		if (!ct_send_offered(&pair.a, form))
			continue;
		POST(&pair.b, ct_recv(&pair.b, CT_RECV, &m));
		m.context = &tx_context[0];
		POST(&pair.a, ct_send(&pair.a, form, &m));
		sent++;
		ct_count(&pair.b, CT_CNTR_RECV, sent);
		ct_count(&pair.a, CT_CNTR_SEND, sent);
		CHECK(true, "%s%s", ct_send_name(form),
		      quiet ? "-quiet" : "");
	}
	EXPECT(fi_cntr_read(pair.a.cntr[CT_CNTR_RECV]), 0);
	EXPECT(fi_cntr_read(pair.b.cntr[CT_CNTR_SEND]), 0);
	EXPECT(fi_cntr_readerr(pair.a.cntr[CT_CNTR_SEND]), 0);
	EXPECT(fi_cntr_readerr(pair.b.cntr[CT_CNTR_RECV]), 0);
	if (quiet) {
		CHECK(ct_stays_empty(&pair.a, &pair.a.tx), "no-tx-entries");
		CHECK(ct_stays_empty(&pair.b, &pair.b.rx), "no-rx-entries");
	}
	ct_close_pair(&pair);
}

static void messages(void)
{
	messages_of(FI_MSG, false, false);
}

static void messages_tagged(void)
{
	messages_of(FI_TAGGED, true, false);
}

/* Counters in place of completions, as one-sided middleware uses them. */
static void instead_of_entries(void)
{
	messages_of(FI_MSG, false, true);
}

static void remote_access(void)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA, .counters = FI_READ | FI_WRITE,
	};
	struct ct_memory local, remote;
	struct ct_pair pair;
	uint64_t reads_done = 0, writes_done = 0;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &local, 64, FI_READ | FI_WRITE);
	ct_memory_open(&pair.b, &remote, 64, FI_REMOTE_READ | FI_REMOTE_WRITE);
	for (enum ct_rma_form form = 0; form < CT_RMA_FORMS; form++) {
		struct ct_rma rma = {
			.buf = local.data, .len = 64, .desc = local.desc,
			.addr = remote.addr, .key = remote.key,
			.context = &tx_context[0],
		};

		POST(&pair.a, ct_rma(&pair.a, form, &rma));
		if (ct_rma_is_read(form))
			reads_done++;
		else
			writes_done++;
		ct_count(&pair.a, CT_CNTR_READ, reads_done);
		ct_count(&pair.a, CT_CNTR_WRITE, writes_done);
		CHECK(true, "%s", ct_rma_name(form));
	}
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* With FI_RMA_EVENT the target counts too. */
static void target(void)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA | FI_RMA_EVENT,
		.counters = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RECV,
	};
	struct ct_memory local, remote;
	struct ct_pair pair;
	uint64_t reads_done = 0, writes_done = 0;
	size_t completions = 0;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &local, 64, FI_READ | FI_WRITE);
	ct_memory_open(&pair.b, &remote, 64, FI_REMOTE_READ | FI_REMOTE_WRITE);
	for (enum ct_rma_form form = 0; form < CT_RMA_FORMS; form++) {
		struct ct_rma rma = {
			.buf = local.data, .len = 64, .desc = local.desc,
			.addr = remote.addr, .key = remote.key,
			.context = &tx_context[0],
		};

		ct_fill(local.data, 64, (unsigned)form);
		POST(&pair.a, ct_rma(&pair.a, form, &rma));
		completions += ct_rma_completes(form);
		if (ct_rma_is_read(form))
			reads_done++;
		else
			writes_done++;
		ct_count(&pair.b, CT_CNTR_REMOTE_READ, reads_done);
		ct_count(&pair.b, CT_CNTR_REMOTE_WRITE, writes_done);
		if (!ct_rma_is_read(form))
			REQUIRE(ct_holds(remote.data, 64, (unsigned)form));
		CHECK(true, "%s", ct_rma_name(form));
	}
	EXPECT(fi_cntr_read(pair.b.cntr[CT_CNTR_RECV]), 0);
	/* The data of a read may arrive after the target has counted it. */
	UNTIL(&pair.a, pair.a.tx.count == completions);
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* Messages of any length are no accesses to memory, however they are transferred. */
static void messages_are_no_accesses(void)
{
	enum { LONG = 3 << 20 };
	struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA | FI_RMA_EVENT,
		.counters = FI_REMOTE_READ | FI_REMOTE_WRITE,
	};
	struct ct_memory out, in, local, remote;
	struct ct_pair pair;
	struct ct_rma rma;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &out, LONG, FI_SEND);
	ct_memory_open(&pair.b, &in, LONG, FI_RECV);
	ct_memory_open(&pair.a, &local, 64, FI_WRITE);
	ct_memory_open(&pair.b, &remote, 64, FI_REMOTE_WRITE);
	for (uint64_t i = 1; i <= 3; i++) {
		POST(&pair.b, fi_recv(pair.b.ep, in.data, LONG, in.desc,
				      FI_ADDR_UNSPEC, &rx_context[0]));
		POST(&pair.a, fi_send(pair.a.ep, out.data, LONG, out.desc,
				      pair.a.to, &tx_context[0]));
		ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		CHECK(reads(pair.a.cntr[CT_CNTR_REMOTE_READ], 0) &&
		      reads(pair.b.cntr[CT_CNTR_REMOTE_WRITE], i - 1), "not counted");
		rma = (struct ct_rma) {
			.buf = local.data, .len = 64, .desc = local.desc,
			.addr = remote.addr, .key = remote.key,
			.context = &tx_context[0],
		};
		POST(&pair.a, ct_rma(&pair.a, CT_WRITE, &rma));
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		ct_count(&pair.b, CT_CNTR_REMOTE_WRITE, i);
	}
	ct_memory_close(&out);
	ct_memory_close(&in);
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* A memory region's own counter counts writes into it, not into others. */
static void region(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA | FI_RMA_EVENT };
	struct fid_cntr *cntr;
	struct ct_memory local, other, counted = { 0 };
	struct ct_pair pair;
	static unsigned char target[64];
	uint64_t flags;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &local, 64, FI_WRITE);
	ct_memory_open(&pair.b, &other, 64, FI_REMOTE_WRITE);
	cntr = open_counter(&pair.b, FI_WAIT_NONE);
	flags = ct_mr_mode(&pair.b) & FI_MR_RMA_EVENT ? FI_RMA_EVENT : 0;
	OK(fi_mr_reg(pair.b.domain, target, sizeof(target), FI_REMOTE_WRITE, 0,
		     ct_fresh_key(), flags, &counted.mr, NULL));
	OK(fi_mr_bind(counted.mr, &cntr->fid, FI_REMOTE_WRITE));
	ct_register_finish(&pair.b, counted.mr);
	counted.addr = ct_mr_mode(&pair.b) & FI_MR_VIRT_ADDR ?
		       (uintptr_t)target : 0;
	for (uint64_t i = 1; i <= 3; i++) {
		struct ct_rma rma = {
			.buf = local.data, .len = 64, .desc = local.desc,
			.addr = other.addr, .key = other.key,
			.context = &tx_context[0],
		};

		POST(&pair.a, ct_rma(&pair.a, CT_WRITE, &rma));
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		rma.addr = counted.addr;
		rma.key = fi_mr_key(counted.mr);
		POST(&pair.a, ct_rma(&pair.a, CT_WRITE, &rma));
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
		UNTIL(&pair.b, fi_cntr_read(cntr) == i);
	}
	CHECK(fi_close(&cntr->fid) == -FI_EBUSY, "busy");
	OK(fi_close(&counted.mr->fid));
	OK(fi_close(&cntr->fid));
	ct_memory_close(&local);
	ct_memory_close(&other);
	ct_close_pair(&pair);
}

/* A thread that sleeps on a region's counter is woken, although no endpoint
 * has the counter. */
static void region_wakes(void)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA | FI_RMA_EVENT,
		.threading = FI_THREAD_SAFE,
	};
	struct ct_memory local, counted = { 0 };
	static unsigned char target[64];
	struct ct_driver *driver;
	struct fid_cntr *cntr;
	struct ct_pair pair;
	uint64_t flags;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &local, 64, FI_WRITE);
	cntr = open_counter(&pair.b, FI_WAIT_UNSPEC);
	flags = ct_mr_mode(&pair.b) & FI_MR_RMA_EVENT ? FI_RMA_EVENT : 0;
	OK(fi_mr_reg(pair.b.domain, target, sizeof(target), FI_REMOTE_WRITE, 0,
		     ct_fresh_key(), flags, &counted.mr, NULL));
	OK(fi_mr_bind(counted.mr, &cntr->fid, FI_REMOTE_WRITE));
	ct_register_finish(&pair.b, counted.mr);
	counted.addr = ct_mr_mode(&pair.b) & FI_MR_VIRT_ADDR ?
		       (uintptr_t)target : 0;
	for (uint64_t i = 1; i <= 3; i++) {
		struct ct_rma rma = {
			.buf = local.data, .len = 64, .desc = local.desc,
			.addr = counted.addr, .key = fi_mr_key(counted.mr),
			.context = &tx_context[0],
		};

		POST(&pair.a, ct_rma(&pair.a, CT_WRITE, &rma));
		driver = ct_driver_start(&pair.a);
		OK(fi_cntr_wait(cntr, i, ct_patience_ms()));
		ct_driver_stop(driver);
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	}
	CHECK(true, "woken");
	OK(fi_close(&counted.mr->fid));
	OK(fi_close(&cntr->fid));
	ct_memory_close(&local);
	ct_close_pair(&pair);
}

/* A failed operation counts as an error, not as a success. */
static void failure(void)
{
	struct ct_spec spec = { .counters = FI_RECV | FI_SEND };
	unsigned char room[8];
	struct ct_memory out;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &out, 64, FI_SEND);
	POST(&pair.b, fi_recv(pair.b.ep, room, sizeof(room), NULL,
			      FI_ADDR_UNSPEC, &rx_context[0]));
	POST(&pair.a, fi_send(pair.a.ep, out.data, 64, out.desc, pair.a.to,
			      &tx_context[0]));
	REQUIRE(ct_error(&pair.b, &pair.b.rx).err == FI_ETRUNC);
	CHECK(reads_errors(pair.b.cntr[CT_CNTR_RECV], 1), "error");
	CHECK(reads(pair.b.cntr[CT_CNTR_RECV], 0), "no-success");
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	ct_memory_close(&out);
	ct_close_pair(&pair);
}

/* fi_cntr_wait drives progress: a receiver that only waits gets its messages. */
static void wait_for_messages(void)
{
	enum { COUNT = 50 };
	struct ct_spec spec = {
		.counters = FI_RECV, .wait = FI_WAIT_UNSPEC,
		.threading = FI_THREAD_SAFE,
	};
	struct ct_driver *driver;
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	for (int i = 0; i < COUNT; i++)
		POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				      &rx_context[i]));
	for (int i = 0; i < COUNT; i++)
		POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
				      &tx_context[i]));
	driver = ct_driver_start(&pair.a);
	OK(fi_cntr_wait(pair.b.cntr[CT_CNTR_RECV], COUNT, ct_patience_ms()));
	ct_driver_stop(driver);
	ct_close_pair(&pair);
}

/* Bytes instead of operations. */
static void bytes(void)
{
	struct fi_cntr_attr attr = {
		.events = FI_CNTR_EVENTS_BYTES, .wait_obj = FI_WAIT_NONE,
	};
	struct ct_spec spec = { 0 };
	struct fid_cntr *cntr;
	struct ct_memory out;
	unsigned char name[CT_NAME];
	struct ct_peer a, b;
	int ret;

	ct_open_single(&a, &spec);
	ct_open_domain(&b, &spec, ct_getinfo(&spec), NULL, NULL);
	ret = fi_cntr_open(b.domain, &attr, &cntr, NULL);
	if (ret == -FI_ENOSYS || ret == -FI_EINVAL || ret == -FI_EOPNOTSUPP)
		SKIP("no counters of bytes");
	OK(ret);
	b.cntr[CT_CNTR_RECV] = cntr;
	ct_open_ep(&b, b.info);
	a.partner = &b;
	b.partner = &a;
	ct_name(&b.ep->fid, name, sizeof(name));
	a.to = ct_insert(&a, name);
	ct_memory_open(&a, &out, 1000, FI_SEND);
	for (int i = 0; i < 3; i++) {
		static unsigned char in[1000];

		POST(&b, fi_recv(b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC,
				 &rx_context[0]));
		POST(&a, fi_send(a.ep, out.data, 300, out.desc, a.to,
				 &tx_context[0]));
		ct_done(&b, &b.rx, &rx_context[0]);
		ct_done(&a, &a.tx, &tx_context[0]);
	}
	ct_count(&b, CT_CNTR_RECV, 900);
	ct_memory_close(&out);
	ct_close_peer(&a);
	ct_close_peer(&b);
}

static void close_busy(void)
{
	struct ct_spec spec = { .counters = FI_SEND };
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	EXPECT(fi_close(&peer.cntr[CT_CNTR_SEND]->fid), -FI_EBUSY);
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "arithmetic", arithmetic, CT_BOTH },
	{ "wait-unspec", wait_unspec, CT_BOTH },
	{ "wait-fd", wait_fd, CT_BOTH },
	{ "wait-mutex-cond", wait_mutex_cond, CT_BOTH },
	{ "wait-yield", wait_yield, CT_BOTH },
	{ "wait-none", wait_none, CT_BOTH },
	{ "woken", woken, CT_BOTH },
	{ "messages", messages, CT_BOTH },
	{ "messages-tagged", messages_tagged, CT_BOTH },
	{ "instead-of-entries", instead_of_entries, CT_BOTH },
	{ "remote-access", remote_access, CT_BOTH },
	{ "target", target, CT_BOTH },
	{ "messages-are-no-accesses", messages_are_no_accesses, CT_BOTH },
	{ "region", region, CT_BOTH },
	{ "region-wakes", region_wakes, CT_BOTH },
	{ "failure", failure, CT_BOTH },
	{ "wait-for-messages", wait_for_messages, CT_BOTH },
	{ "bytes", bytes, CT_RDM },
	{ "close-busy", close_busy, CT_BOTH },
};

CT_MAIN(tests)
