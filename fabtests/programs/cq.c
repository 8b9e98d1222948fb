/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Completion queues: formats, batches, wait objects, errors. */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "late.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define TAG 0xabcdef0123456789ULL

static const struct {
	enum fi_cq_format format;
	size_t size;
	const char *name;
} formats[] = {
	{ FI_CQ_FORMAT_CONTEXT, sizeof(struct fi_cq_entry), "context" },
	{ FI_CQ_FORMAT_MSG, sizeof(struct fi_cq_msg_entry), "msg" },
	{ FI_CQ_FORMAT_DATA, sizeof(struct fi_cq_data_entry), "data" },
	{ FI_CQ_FORMAT_TAGGED, sizeof(struct fi_cq_tagged_entry), "tagged" },
};

static struct fi_context2 tx_context[256], rx_context[256];

/* Posts count receives at b and as many messages from a. */
static void exchange(struct ct_pair *pair, int count, bool tagged, uint64_t data)
{
	for (int i = 0; i < count; i++) {
		struct ct_message m = {
			.tagged = tagged, .tag = TAG, .from = FI_ADDR_UNSPEC,
			.context = &rx_context[i],
		};

		POST(&pair->b, ct_recv(&pair->b, CT_RECV, &m));
	}
	for (int i = 0; i < count; i++) {
		struct ct_message m = {
			.tagged = tagged, .tag = TAG, .data = data,
			.context = &tx_context[i],
		};

		POST(&pair->a, ct_send(&pair->a, data ? CT_SENDDATA : CT_SEND,
				       &m));
	}
}

/* Reads exactly count entries into an array of the format's own layout. */
static void read_raw(struct ct_peer *peer, struct ct_cq *cq, size_t entry_size,
		     void *entries, size_t count)
{
	double until = ct_now() + ct_patience();
	size_t got = 0;

	while (got < count) {
		ssize_t ret = fi_cq_read(cq->fid,
					 (char *)entries + got * entry_size,
					 count - got);

		if (ret == -FI_EAGAIN) {
			REQUIRE(ct_now() < until);
			ct_nudge(peer);
			ct_nudge(peer->partner);
			continue;
		}
		REQUIRE(ret > 0);
		got += (size_t)ret;
	}
}

/* An array read from the queue has the layout of its format, entry by entry,
 * and nothing is written after it. */
static void one_format(size_t which, bool tagged)
{
	enum { COUNT = 5 };
	struct ct_spec spec = {
		.caps = tagged ? FI_TAGGED : FI_MSG,
		.format = formats[which].format,
	};
	size_t size = formats[which].size;
	const uint64_t data = 0x5a, kind = tagged ? FI_TAGGED : FI_MSG;
	unsigned char raw[COUNT * sizeof(struct fi_cq_tagged_entry) + 64];
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	if (!ct_send_offered(&pair.a, CT_SENDDATA))
		SKIP("no immediate data");
	exchange(&pair, COUNT, tagged, data);
	for (int side = 0; side < 2; side++) {
		struct ct_peer *peer = side ? &pair.b : &pair.a;

		memset(raw, 0xcc, sizeof(raw));
		read_raw(peer, side ? &peer->rx : &peer->tx, size, raw, COUNT);
		REQUIRE(ct_is_all(raw + COUNT * size,
				  sizeof(raw) - COUNT * size, 0xcc));
		for (int i = 0; i < COUNT; i++) {
			struct fi_cq_tagged_entry e = { 0 };

			memcpy(&e, raw + (size_t)i * size, size);
			REQUIRE(e.op_context ==
				(side ? &rx_context[i] : &tx_context[i]));
			if (formats[which].format == FI_CQ_FORMAT_CONTEXT)
				continue;
			REQUIRE((e.flags & (FI_SEND | FI_RECV)) ==
				(side ? FI_RECV : FI_SEND));
			REQUIRE((e.flags & (FI_MSG | FI_TAGGED)) == kind);
			if (!side)
				continue;
			REQUIRE(e.len == 0);
			REQUIRE(e.flags & FI_REMOTE_CQ_DATA);
			if (size >= sizeof(struct fi_cq_data_entry))
				REQUIRE(e.data == data);
			if (formats[which].format == FI_CQ_FORMAT_TAGGED &&
			    tagged)
				REQUIRE(e.tag == TAG);
		}
	}
	CHECK(true, "%s", formats[which].name);
	ct_close_pair(&pair);
}

static void all_formats(void)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		one_format(i, false);
}

static void all_formats_tagged(void)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		one_format(i, true);
}

static void formats_rma(void)
{
	for (size_t which = 0; which < sizeof(formats) / sizeof(formats[0]);
	     which++) {
		struct ct_spec spec = {
			.caps = FI_MSG | FI_RMA,
			.format = formats[which].format,
		};
		struct fi_cq_tagged_entry e = { 0 };
		struct ct_memory local, remote;
		struct ct_pair pair;

		ct_open_pair(&pair, &spec);
		ct_memory_open(&pair.a, &local, 100, FI_WRITE);
		ct_memory_open(&pair.b, &remote, 100, FI_REMOTE_WRITE);
		POST(&pair.a, fi_writedata(pair.a.ep, local.data, 100,
					   local.desc, 0x77, pair.a.to,
					   remote.addr, remote.key,
					   &tx_context[0]));
		read_raw(&pair.a, &pair.a.tx, formats[which].size, &e, 1);
		REQUIRE(e.op_context == &tx_context[0]);
		if (formats[which].format != FI_CQ_FORMAT_CONTEXT)
			REQUIRE(e.flags & FI_WRITE);
		memset(&e, 0, sizeof(e));
		read_raw(&pair.b, &pair.b.rx, formats[which].size, &e, 1);
		REQUIRE(e.op_context == NULL);
		if (formats[which].format != FI_CQ_FORMAT_CONTEXT)
			REQUIRE(e.flags & FI_REMOTE_WRITE);
		if (formats[which].size >= sizeof(struct fi_cq_data_entry))
			REQUIRE(e.data == 0x77);
		CHECK(true, "%s", formats[which].name);
		ct_memory_close(&local);
		ct_memory_close(&remote);
		ct_close_pair(&pair);
	}
}

static void empty(void)
{
	struct fi_cq_err_entry err = { 0 };
	struct fi_cq_tagged_entry entry;
	struct ct_spec spec = { 0 };
	struct ct_pair pair;
	fi_addr_t src;

	ct_open_pair(&pair, &spec);
	EXPECT(fi_cq_read(pair.a.tx.fid, &entry, 1), -FI_EAGAIN);
	EXPECT(fi_cq_readfrom(pair.a.rx.fid, &entry, 1, &src), -FI_EAGAIN);
	EXPECT(fi_cq_readerr(pair.a.tx.fid, &err, 0), -FI_EAGAIN);
	/* No room: progress only, never an entry. */
	exchange(&pair, 1, false, 0);
	for (int i = 0; i < 50; i++) {
		ssize_t ret = fi_cq_read(pair.a.tx.fid, NULL, 0);

		REQUIRE(ret == 0 || ret == -FI_EAGAIN);
		ct_nudge(&pair.b);
	}
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	ct_done(&pair.b, &pair.b.rx, &rx_context[0]);
	ct_close_pair(&pair);
}

static void strerror_text(void)
{
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	char buf[80] = "";
	const char *text;

	ct_open_single(&peer, &spec);
	text = fi_cq_strerror(peer.tx.fid, FI_EIO, NULL, buf, sizeof(buf));
	REQUIRE(text && *text);
	CHECK(buf[0] && memchr(buf, 0, sizeof(buf)), "into-buffer");
	text = fi_cq_strerror(peer.tx.fid, FI_EIO, NULL, NULL, 0);
	REQUIRE(text && *text);
	ct_close_peer(&peer);
}

/* With resource management nothing is lost, however small the queue is. */
static void overrun(void)
{
	struct ct_spec spec = { .cq_size = 4 };
	struct ct_pair pair;

	ct_open_pair(&pair, &spec);
	if (pair.a.info->domain_attr->resource_mgmt != FI_RM_ENABLED)
		SKIP("no FI_RM_ENABLED");
	exchange(&pair, 200, false, 0);
	for (int i = 0; i < 200; i++) {
		ct_nudge(&pair.a);
		ct_nudge(&pair.b);
	}
	for (int i = 0; i < 200; i++) {
		ct_done(&pair.b, &pair.b.rx, &rx_context[i]);
		ct_done(&pair.a, &pair.a.tx, &tx_context[i]);
	}
	ct_close_pair(&pair);
}

/* An error is reported out of band, once, and in its order among successes. */
static void error_entry(void)
{
	struct ct_spec spec = { .one_cq = true };
	struct fi_cq_err_entry err = { 0 };
	struct fi_cq_tagged_entry entry;
	char room[4], message[16] = "0123456789";
	struct ct_memory out;
	struct ct_pair pair;
	double until = ct_now() + ct_patience();
	ssize_t ret;

	ct_open_pair(&pair, &spec);
	ct_memory_open(&pair.a, &out, sizeof(message), FI_SEND);
	memcpy(out.data, message, sizeof(message));
	POST(&pair.b, fi_recv(pair.b.ep, room, sizeof(room), NULL,
			      FI_ADDR_UNSPEC, &rx_context[0]));
	POST(&pair.a, fi_send(pair.a.ep, out.data, sizeof(message), out.desc,
			      pair.a.to, &tx_context[0]));
	while ((ret = fi_cq_read(pair.b.tx.fid, &entry, 1)) == -FI_EAGAIN) {
		REQUIRE(ct_now() < until);
		ct_nudge(&pair.a);
	}
	EXPECT(ret, -FI_EAVAIL);
	EXPECT(fi_cq_read(pair.b.tx.fid, &entry, 1), -FI_EAVAIL);
	EXPECT(fi_cq_readerr(pair.b.tx.fid, &err, 0), 1);
	REQUIRE(err.err == FI_ETRUNC);
	REQUIRE(err.op_context == &rx_context[0]);
	CHECK(err.flags & FI_RECV, "flags");
	EXPECT(fi_cq_readerr(pair.b.tx.fid, &err, 0), -FI_EAGAIN);
	EXPECT(fi_cq_read(pair.b.tx.fid, &entry, 1), -FI_EAGAIN);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	ct_memory_close(&out);
	ct_close_pair(&pair);
}

/* The source of each message is the address that this side gave its sender. */
static void source(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_SOURCE };
	struct ct_peer third;
	struct ct_pair pair;
	fi_addr_t third_addr;

	ct_open_pair(&pair, &spec);
	third_addr = ct_open_third(&third, &pair.b);
	for (int i = 0; i < 10; i++) {
		struct ct_peer *from = i % 2 ? &third : &pair.a;
		struct ct_completion done;

		POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				      &rx_context[i]));
		POST(from, fi_send(from->ep, NULL, 0, NULL, from->to,
				   &tx_context[i]));
		ct_done(from, &from->tx, &tx_context[i]);
		done = ct_done(&pair.b, &pair.b.rx, &rx_context[i]);
		REQUIRE(done.src == (i % 2 ? third_addr : pair.b.to));
	}
	/* Unknown once it has left the address vector. */
	OK(fi_av_remove(pair.b.av, &third_addr, 1, 0));
	ct_close_peer(&third);
	ct_close_pair(&pair);
}

static void source_unknown(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_SOURCE };
	struct ct_completion done;
	unsigned char name[CT_NAME];
	struct ct_peer a, b;

	ct_open_single(&a, &spec);
	ct_open_single(&b, &spec);
	a.partner = &b;
	b.partner = &a;
	ct_name(&b.ep->fid, name, sizeof(name));
	a.to = ct_insert(&a, name);
	POST(&b, fi_recv(b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	POST(&a, fi_send(a.ep, NULL, 0, NULL, a.to, &tx_context[0]));
	done = ct_done(&b, &b.rx, &rx_context[0]);
	REQUIRE(done.src == FI_ADDR_NOTAVAIL);
	/* Known from now on. */
	ct_name(&a.ep->fid, name, sizeof(name));
	b.to = ct_insert(&b, name);
	POST(&b, fi_recv(b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[1]));
	ct_done(&a, &a.tx, &tx_context[0]);
	POST(&a, fi_send(a.ep, NULL, 0, NULL, a.to, &tx_context[1]));
	done = ct_done(&b, &b.rx, &rx_context[1]);
	CHECK(done.src == b.to, "later-known");
	ct_done(&a, &a.tx, &tx_context[1]);
	ct_close_peer(&a);
	ct_close_peer(&b);
}

static void source_error(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_SOURCE | FI_SOURCE_ERR };
	unsigned char name[CT_NAME], reported[256];
	struct fi_cq_err_entry err = {
		.err_data = reported, .err_data_size = sizeof(reported),
	};
	struct fi_cq_tagged_entry entry;
	double until = ct_now() + ct_patience();
	struct ct_peer a, b;
	fi_addr_t src;
	ssize_t ret;
	size_t len;

	ct_open_single(&a, &spec);
	ct_open_single(&b, &spec);
	ct_name(&b.ep->fid, name, sizeof(name));
	a.to = ct_insert(&a, name);
	POST(&b, fi_recv(b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	POST(&a, fi_send(a.ep, NULL, 0, NULL, a.to, &tx_context[0]));
	while ((ret = fi_cq_readfrom(b.rx.fid, &entry, 1, &src)) == -FI_EAGAIN) {
		REQUIRE(ct_now() < until);
		ct_nudge(&a);
	}
	EXPECT(ret, -FI_EAVAIL);
	EXPECT(fi_cq_readerr(b.rx.fid, &err, 0), 1);
	REQUIRE(err.err == FI_EADDRNOTAVAIL);
	len = ct_name(&a.ep->fid, name, sizeof(name));
	REQUIRE(err.err_data_size == len);
	REQUIRE(!memcmp(err.err_data, name, len));
	ct_done(&a, &a.tx, &tx_context[0]);
	ct_close_peer(&a);
	ct_close_peer(&b);
}

static void open_waiting(struct ct_pair *pair, enum fi_wait_obj wait,
			 enum fi_progress progress)
{
	struct ct_spec spec = {
		.wait = wait, .threading = FI_THREAD_SAFE, .progress = progress,
	};

	ct_open_pair(pair, &spec);
	ct_warm_up(pair);
}

/* The properties of every blocking read, whatever object it sleeps on. */
static void blocking(enum fi_wait_obj wait, enum fi_progress progress)
{
	struct fi_cq_tagged_entry entry;
	struct ct_late *late;
	struct ct_pair pair;
	struct ct_peer *b = &pair.b;
	double start, took;
	fi_addr_t src;
	ssize_t ret;

	open_waiting(&pair, wait, progress);

	start = ct_now();
	EXPECT(fi_cq_sread(b->rx.fid, &entry, 1, NULL, 100), -FI_EAGAIN);
	took = ct_now() - start;
	CHECK(took > 0.09 && took < 0.1 + ct_patience(), "timeout");

	start = ct_now();
	EXPECT(fi_cq_sread(b->rx.fid, &entry, 1, NULL, 0), -FI_EAGAIN);
	CHECK(true, "no-time");

	POST(b, fi_recv(b->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[0]));
	late = ct_late_start(&pair.a, &tx_context[0]);
	start = ct_now();
	ret = fi_cq_sread(b->rx.fid, &entry, 1, NULL, ct_patience_ms());
	ct_late_stop(late);
	EXPECT(ret, 1);
	REQUIRE(entry.op_context == &rx_context[0]);
	CHECK(ct_now() - start < 0.9 * ct_patience(), "woken");
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);

	POST(b, fi_recv(b->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context[1]));
	late = ct_late_start(&pair.a, &tx_context[0]);
	ret = fi_cq_sreadfrom(b->rx.fid, &entry, 1, &src, NULL, -1);
	ct_late_stop(late);
	EXPECT(ret, 1);
	CHECK(entry.op_context == &rx_context[1], "woken-without-limit");
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);

	/* Available entries are read without a wait. */
	exchange(&pair, 1, false, 0);
	UNTIL(b, pair.a.tx.count && b->rx.count);
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	ct_done(b, &b->rx, &rx_context[0]);
	ct_close_pair(&pair);
}

static void wait_unspec(void)
{
	blocking(FI_WAIT_UNSPEC, FI_PROGRESS_MANUAL);
}

static void wait_unspec_auto(void)
{
	blocking(FI_WAIT_UNSPEC, FI_PROGRESS_AUTO);
}

static void wait_fd(void)
{
	blocking(FI_WAIT_FD, FI_PROGRESS_MANUAL);
}

static void wait_fd_auto(void)
{
	blocking(FI_WAIT_FD, FI_PROGRESS_AUTO);
}

static void wait_mutex_cond(void)
{
	blocking(FI_WAIT_MUTEX_COND, FI_PROGRESS_AUTO);
}

static void wait_yield(void)
{
	blocking(FI_WAIT_YIELD, FI_PROGRESS_MANUAL);
}

static void wait_none(void)
{
	struct fi_cq_tagged_entry entry;
	struct ct_spec spec = { 0 };
	struct ct_peer peer;
	ssize_t ret;

	ct_open_single(&peer, &spec);
	ret = fi_cq_sread(peer.rx.fid, &entry, 1, NULL, 100);
	CHECK(ret < 0 && ret != -FI_EAGAIN, "sread-refused");
	ct_close_peer(&peer);
}

static void *signal_late(void *arg)
{
	usleep(50000);
	return (void *)(intptr_t)fi_cq_signal(arg);
}

/* A signal ends a wait that nothing else would end. */
static void signalled(void)
{
	struct fi_cq_tagged_entry entry;
	struct ct_pair pair;
	pthread_t thread;
	void *ret;

	open_waiting(&pair, FI_WAIT_UNSPEC, FI_PROGRESS_MANUAL);
	REQUIRE(!pthread_create(&thread, NULL, signal_late, pair.b.rx.fid));
	EXPECT(fi_cq_sread(pair.b.rx.fid, &entry, 1, NULL, -1), -FI_EAGAIN);
	pthread_join(thread, &ret);
	REQUIRE(ret == NULL);
	ct_close_pair(&pair);
}

/* The threshold is an optimisation: entries may be reported earlier, but must
 * be reported. */
static void threshold(void)
{
	enum { COUNT = 8 };
	struct fi_cq_tagged_entry entry[COUNT];
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC,
		.wait_cond = FI_CQ_COND_THRESHOLD,
	};
	struct ct_spec spec = { .threading = FI_THREAD_SAFE };
	struct ct_driver *driver;
	struct fid_cq *cq;
	struct ct_peer a, b;
	unsigned char name[CT_NAME];
	ssize_t ret;
	int got = 0;

	ct_open_single(&a, &spec);
	ct_open_domain(&b, &spec, ct_getinfo(&spec), NULL, NULL);
	ret = fi_cq_open(b.domain, &attr, &cq, NULL);
	if (ret == -FI_ENOSYS)
		SKIP("no wait conditions");
	OK(ret);
	/* In place of the usual queue, which stays unused. */
	OK(fi_close(&b.rx.fid->fid));
	b.rx.fid = cq;
	ct_open_ep(&b, b.info);
	ct_name(&b.ep->fid, name, sizeof(name));
	a.to = ct_insert(&a, name);
	for (int i = 0; i < COUNT; i++)
		POST(&b, fi_recv(b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				 &rx_context[i]));
	driver = ct_driver_start(&b);
	for (int i = 0; i < COUNT; i++)
		POST(&a, fi_send(a.ep, NULL, 0, NULL, a.to, &tx_context[i]));
	for (int i = 0; i < COUNT; i++)
		ct_done(&a, &a.tx, &tx_context[i]);
	while (got < COUNT) {
		ret = fi_cq_sread(cq, entry + got, (size_t)(COUNT - got),
				  (void *)(uintptr_t)(COUNT - got),
				  ct_patience_ms());
		REQUIRE(ret > 0);
		got += (int)ret;
	}
	ct_driver_stop(driver);
	for (int i = 0; i < COUNT; i++)
		REQUIRE(entry[i].op_context == &rx_context[i]);
	ct_close_peer(&a);
	ct_close_peer(&b);
}

/* fi_trywait, then poll(2): a descriptor that becomes readable. */
static void native_fd(void)
{
	enum { ROUNDS = 20 };
	enum fi_wait_obj object = FI_WAIT_NONE;
	struct ct_pair pair;
	struct ct_peer *b = &pair.b;
	struct fid *fids[1];
	struct pollfd pfd = { .events = POLLIN };
	int ret;

	open_waiting(&pair, FI_WAIT_FD, FI_PROGRESS_MANUAL);
	OK(fi_control(&b->rx.fid->fid, FI_GETWAIT, &pfd.fd));
	REQUIRE(pfd.fd >= 0);
	ret = fi_control(&b->rx.fid->fid, FI_GETWAITOBJ, &object);
	CHECK(!ret && object == FI_WAIT_FD, "getwaitobj");
	fids[0] = &b->rx.fid->fid;

	UNTIL(b, (ret = fi_trywait(b->fabric, fids, 1)) != -FI_EAGAIN);
	OK(ret);
	CHECK(poll(&pfd, 1, 50) == 0, "silent-when-idle");

	for (int i = 0; i < ROUNDS; i++) {
		double until = ct_now() + ct_patience();
		struct fi_cq_tagged_entry entry;
		struct ct_late *late;
		ssize_t got;

		POST(b, fi_recv(b->ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
				&rx_context[i]));
		late = ct_late_start(&pair.a, &tx_context[0]);
		while ((got = fi_cq_read(b->rx.fid, &entry, 1)) == -FI_EAGAIN) {
			REQUIRE(ct_now() < until);
			ret = fi_trywait(b->fabric, fids, 1);
			if (ret == -FI_EAGAIN)
				continue;
			OK(ret);
			REQUIRE(poll(&pfd, 1, ct_patience_ms()) == 1);
		}
		ct_late_stop(late);
		EXPECT(got, 1);
		REQUIRE(entry.op_context == &rx_context[i]);
		ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	}

	/* A thread must not sleep while an entry waits to be read. */
	exchange(&pair, 1, false, 0);
	for (int i = 0; i < 200; i++) {
		ct_nudge(&pair.a);
		ct_nudge(b);
	}
	CHECK(fi_trywait(b->fabric, fids, 1) == -FI_EAGAIN, "trywait-refuses");
	ct_done(&pair.a, &pair.a.tx, &tx_context[0]);
	ct_done(b, &b->rx, &rx_context[0]);
	ct_close_pair(&pair);
}

static void native_mutex_cond(void)
{
	struct fi_mutex_cond object = { 0 };
	struct ct_pair pair;

	open_waiting(&pair, FI_WAIT_MUTEX_COND, FI_PROGRESS_AUTO);
	OK(fi_control(&pair.b.rx.fid->fid, FI_GETWAIT, &object));
	REQUIRE(object.mutex && object.cond);
	REQUIRE(!pthread_mutex_lock(object.mutex));
	REQUIRE(!pthread_mutex_unlock(object.mutex));
	ct_close_pair(&pair);
}

static void close_busy(void)
{
	struct ct_spec spec = { 0 };
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	EXPECT(fi_close(&peer.tx.fid->fid), -FI_EBUSY);
	EXPECT(fi_close(&peer.rx.fid->fid), -FI_EBUSY);
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "formats", all_formats, CT_BOTH },
	{ "formats-tagged", all_formats_tagged, CT_BOTH },
	{ "formats-rma", formats_rma, CT_BOTH },
	{ "empty", empty, CT_BOTH },
	{ "strerror", strerror_text, CT_BOTH },
	{ "overrun", overrun, CT_BOTH },
	{ "error-entry", error_entry, CT_BOTH },
	{ "source", source, CT_RDM },
	{ "source-unknown", source_unknown, CT_RDM },
	{ "source-error", source_error, CT_RDM },
	{ "wait-unspec", wait_unspec, CT_BOTH },
	{ "wait-unspec-auto", wait_unspec_auto, CT_BOTH },
	{ "wait-fd", wait_fd, CT_BOTH },
	{ "wait-fd-auto", wait_fd_auto, CT_BOTH },
	{ "wait-mutex-cond", wait_mutex_cond, CT_BOTH },
	{ "wait-yield", wait_yield, CT_BOTH },
	{ "wait-none", wait_none, CT_BOTH },
	{ "signal", signalled, CT_BOTH },
	{ "threshold", threshold, CT_RDM },
	{ "native-fd", native_fd, CT_BOTH },
	{ "native-mutex-cond", native_mutex_cond, CT_BOTH },
	{ "close-busy", close_busy, CT_BOTH },
};

CT_MAIN(tests)
