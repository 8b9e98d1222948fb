/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Event queues: events of the application's own, waiting, errors. */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "pattern.h"
#include "peer.h"

/* A fabric is all that a queue needs. */
struct bench {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
};

static void setup(struct bench *bench, enum fi_wait_obj wait, uint64_t flags)
{
	struct fi_eq_attr attr = { .wait_obj = wait, .flags = flags };
	struct ct_spec spec = { 0 };
	int ret;

	bench->info = ct_getinfo(&spec);
	OK(fi_fabric(bench->info->fabric_attr, &bench->fabric, NULL));
	ret = fi_eq_open(bench->fabric, &attr, &bench->eq, bench);
	if (ret == -FI_ENOSYS)
		SKIP("this wait object is not supported");
	OK(ret);
	REQUIRE(bench->eq->fid.fclass == FI_CLASS_EQ);
	REQUIRE(bench->eq->fid.context == bench);
}

static void teardown(struct bench *bench)
{
	OK(fi_close(&bench->eq->fid));
	OK(fi_close(&bench->fabric->fid));
	fi_freeinfo(bench->info);
}

static void write_event(struct fid_eq *eq, uint32_t type, uint64_t data)
{
	struct fi_eq_entry entry = { .fid = &eq->fid, .data = data };

	EXPECT(fi_eq_write(eq, type, &entry, sizeof(entry), 0), sizeof(entry));
}

static void empty(void)
{
	struct fi_eq_err_entry err = { 0 };
	struct fi_eq_entry entry;
	struct bench bench;
	uint32_t type;

	setup(&bench, FI_WAIT_NONE, FI_WRITE);
	EXPECT(fi_eq_read(bench.eq, &type, &entry, sizeof(entry), 0),
	       -FI_EAGAIN);
	EXPECT(fi_eq_read(bench.eq, &type, &entry, sizeof(entry), FI_PEEK),
	       -FI_EAGAIN);
	EXPECT(fi_eq_readerr(bench.eq, &err, 0), -FI_EAGAIN);
	teardown(&bench);
}

/* Written events are read in order, and only once. */
static void order(void)
{
	enum { COUNT = 300 };
	struct fi_eq_entry entry;
	struct bench bench;
	uint32_t type;

	setup(&bench, FI_WAIT_NONE, FI_WRITE);
	for (uint64_t i = 0; i < COUNT; i++)
		write_event(bench.eq, FI_NOTIFY, i);
	for (uint64_t i = 0; i < COUNT; i++) {
		memset(&entry, 0, sizeof(entry));
		type = 99;
		EXPECT(fi_eq_read(bench.eq, &type, &entry, sizeof(entry), 0),
		       sizeof(entry));
		REQUIRE(type == FI_NOTIFY);
		REQUIRE(entry.data == i);
		REQUIRE(entry.fid == &bench.eq->fid);
	}
	EXPECT(fi_eq_read(bench.eq, &type, &entry, sizeof(entry), 0),
	       -FI_EAGAIN);
	teardown(&bench);
}

static void peek(void)
{
	struct fi_eq_entry entry;
	struct bench bench;
	uint32_t type;

	setup(&bench, FI_WAIT_NONE, FI_WRITE);
	write_event(bench.eq, FI_NOTIFY, 1);
	write_event(bench.eq, FI_NOTIFY, 2);
	for (int i = 0; i < 3; i++) {
		EXPECT(fi_eq_read(bench.eq, &type, &entry, sizeof(entry),
				  FI_PEEK), sizeof(entry));
		REQUIRE(entry.data == 1);
	}
	for (uint64_t i = 1; i <= 2; i++) {
		EXPECT(fi_eq_read(bench.eq, &type, &entry, sizeof(entry), 0),
		       sizeof(entry));
		REQUIRE(entry.data == i);
	}
	EXPECT(fi_eq_read(bench.eq, &type, &entry, sizeof(entry), FI_PEEK),
	       -FI_EAGAIN);
	teardown(&bench);
}

/* A reader with too little space gets a truncated event or an error; nothing
 * is written beyond its space. */
static void too_small(void)
{
	unsigned char raw[2 * sizeof(struct fi_eq_entry)];
	const size_t room = sizeof(struct fi_eq_entry) - 1;
	struct bench bench;
	uint32_t type;
	ssize_t ret;

	setup(&bench, FI_WAIT_NONE, FI_WRITE);
	write_event(bench.eq, FI_NOTIFY, 5);
	memset(raw, 0xee, sizeof(raw));
	ret = fi_eq_read(bench.eq, &type, raw, room, 0);
	REQUIRE(ret == -FI_ETOOSMALL || ret == (ssize_t)room);
	REQUIRE(ct_is_all(raw + room, sizeof(raw) - room, 0xee));
	teardown(&bench);
}

/* Events with data after the fixed part, like connection events. */
static void long_events(void)
{
	unsigned char in[200], out[200];
	struct bench bench;
	uint32_t type;

	setup(&bench, FI_WAIT_NONE, FI_WRITE);
	for (size_t len = sizeof(struct fi_eq_entry); len <= sizeof(in);
	     len += 13) {
		ct_fill(in, len, (unsigned)len);
		EXPECT(fi_eq_write(bench.eq, FI_NOTIFY, in, len, 0), len);
		memset(out, 0, sizeof(out));
		EXPECT(fi_eq_read(bench.eq, &type, out, sizeof(out), 0), len);
		REQUIRE(ct_holds(out, len, (unsigned)len));
		REQUIRE(ct_is_all(out + len, sizeof(out) - len, 0));
	}
	teardown(&bench);
}

static void *write_late(void *arg)
{
	usleep(50000);
	write_event(arg, FI_NOTIFY, 77);
	return NULL;
}

static void blocking(enum fi_wait_obj wait)
{
	struct fi_eq_entry entry;
	struct bench bench;
	pthread_t thread;
	uint32_t type;
	double start;
	ssize_t ret;

	setup(&bench, wait, FI_WRITE);
	start = ct_now();
	EXPECT(fi_eq_sread(bench.eq, &type, &entry, sizeof(entry), 100, 0),
	       -FI_EAGAIN);
	CHECK(ct_now() - start > 0.09, "timeout");
	for (int timeout = -1; timeout <= 8000; timeout += 8001) {
		REQUIRE(!pthread_create(&thread, NULL, write_late, bench.eq));
		ret = fi_eq_sread(bench.eq, &type, &entry, sizeof(entry),
				  timeout, 0);
		pthread_join(thread, NULL);
		EXPECT(ret, sizeof(entry));
		REQUIRE(entry.data == 77);
	}
	CHECK(true, "woken");
	write_event(bench.eq, FI_NOTIFY, 3);
	EXPECT(fi_eq_sread(bench.eq, &type, &entry, sizeof(entry), -1, FI_PEEK),
	       sizeof(entry));
	EXPECT(fi_eq_sread(bench.eq, &type, &entry, sizeof(entry), 0, 0),
	       sizeof(entry));
	CHECK(entry.data == 3, "at-once");
	teardown(&bench);
}

static void wait_unspec(void)
{
	blocking(FI_WAIT_UNSPEC);
}

static void wait_fd(void)
{
	blocking(FI_WAIT_FD);
}

static void wait_mutex_cond(void)
{
	blocking(FI_WAIT_MUTEX_COND);
}

static void wait_yield(void)
{
	blocking(FI_WAIT_YIELD);
}

static void wait_none(void)
{
	struct fi_eq_entry entry;
	struct bench bench;
	uint32_t type;
	ssize_t ret;

	setup(&bench, FI_WAIT_NONE, FI_WRITE);
	ret = fi_eq_sread(bench.eq, &type, &entry, sizeof(entry), 50, 0);
	CHECK(ret < 0 && ret != -FI_EAGAIN, "refused");
	teardown(&bench);
}

static void native_fd(void)
{
	struct pollfd pfd = { .events = POLLIN };
	enum fi_wait_obj object = FI_WAIT_NONE;
	struct fi_eq_entry entry;
	struct bench bench;
	struct fid *fids[1];
	uint32_t type;
	int ret;

	setup(&bench, FI_WAIT_FD, FI_WRITE);
	fids[0] = &bench.eq->fid;
	OK(fi_control(&bench.eq->fid, FI_GETWAIT, &pfd.fd));
	ret = fi_control(&bench.eq->fid, FI_GETWAITOBJ, &object);
	CHECK(!ret && object == FI_WAIT_FD, "getwaitobj");
	for (int i = 0; i < 3; i++) {
		OK(fi_trywait(bench.fabric, fids, 1));
		REQUIRE(poll(&pfd, 1, 20) == 0);
		write_event(bench.eq, FI_NOTIFY, 1);
		REQUIRE(poll(&pfd, 1, ct_patience_ms()) == 1);
		EXPECT(fi_trywait(bench.fabric, fids, 1), -FI_EAGAIN);
		EXPECT(fi_eq_read(bench.eq, &type, &entry, sizeof(entry), 0),
		       sizeof(entry));
	}
	teardown(&bench);
}

static void strerror_text(void)
{
	struct bench bench;
	char buf[80] = "";
	const char *text;

	setup(&bench, FI_WAIT_NONE, FI_WRITE);
	text = fi_eq_strerror(bench.eq, FI_ECONNREFUSED, NULL, buf,
			      sizeof(buf));
	REQUIRE(text && *text);
	CHECK(*buf && memchr(buf, 0, sizeof(buf)), "into-buffer");
	text = fi_eq_strerror(bench.eq, FI_ECONNREFUSED, NULL, NULL, 0);
	REQUIRE(text && *text);
	teardown(&bench);
}

static void fabric_busy(void)
{
	struct bench bench;

	setup(&bench, FI_WAIT_NONE, 0);
	EXPECT(fi_close(&bench.fabric->fid), -FI_EBUSY);
	teardown(&bench);
}

static const struct ct_test tests[] = {
	{ "empty", empty, CT_BOTH },
	{ "order", order, CT_BOTH },
	{ "peek", peek, CT_BOTH },
	{ "too-small", too_small, CT_BOTH },
	{ "long-events", long_events, CT_BOTH },
	{ "wait-unspec", wait_unspec, CT_BOTH },
	{ "wait-fd", wait_fd, CT_BOTH },
	{ "wait-mutex-cond", wait_mutex_cond, CT_BOTH },
	{ "wait-yield", wait_yield, CT_BOTH },
	{ "wait-none", wait_none, CT_BOTH },
	{ "native-fd", native_fd, CT_BOTH },
	{ "strerror", strerror_text, CT_BOTH },
	{ "fabric-busy", fabric_busy, CT_BOTH },
};

CT_MAIN(tests)
