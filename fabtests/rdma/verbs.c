/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Connected endpoints of the verbs provider on a device. Run on a machine with
 * a device: `make check-rdma`.
 */
#define _GNU_SOURCE
#include "ends.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "process.h"

static struct place place;
static struct end a, b;

static void fill(unsigned char *memory, size_t length, unsigned seed)
{
	size_t i;

	for (i = 0; i < length; i++)
		memory[i] = (unsigned char)(seed + i * 7 + i / 251);
}

static bool is_filled(const unsigned char *memory, size_t length, unsigned seed)
{
	size_t i;

	for (i = 0; i < length; i++)
		if (memory[i] != (unsigned char)(seed + i * 7 + i / 251))
			return false;
	return true;
}

static void start(const struct wish *wish)
{
	open_place(&place, wish);
	connect_ends(&place, wish, &a, &b, NULL);
}

static void stop(void)
{
	close_end(&a);
	close_end(&b);
	close_place(&place);
}

/* A failed request ends the connection, and both ends get events. */
static void has_ended(void)
{
	struct fi_eq_cm_entry first, second;

	event_of(&place, FI_SHUTDOWN, &first, sizeof(first));
	event_of(&place, FI_SHUTDOWN, &second, sizeof(second));
	REQUIRE(first.fid != second.fid);
	EXPECT(fi_send(a.ep, a.memory, 8, a.desc, 0, &a), -FI_ENOTCONN);
	EXPECT(fi_send(b.ep, b.memory, 8, b.desc, 0, &b), -FI_ENOTCONN);
}

static void messages(void)
{
	static const size_t sizes[] = { 0, 1, 8, 255, 256, 257, 4096, 4097, 100000, MEMORY / 2 };
	size_t i;

	start(NULL);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct fi_cq_data_entry entry;

		fill(a.memory, sizes[i], (unsigned)i);
		OK(fi_recv(b.ep, b.memory, MEMORY, b.desc, 0, (void *)&sizes[i]));
		OK(fi_send(a.ep, a.memory, sizes[i], a.desc, 0, &a));
		entry = done(b.rx, (void *)&sizes[i]);
		EXPECT(entry.len, sizes[i]);
		EXPECT(entry.flags, FI_RECV | FI_MSG);
		entry = done(a.tx, &a);
		EXPECT(entry.flags, FI_SEND | FI_MSG);
		CHECK(is_filled(b.memory, sizes[i], (unsigned)i), "%zu", sizes[i]);
	}
	stop();
}

static void vectors(void)
{
	struct iovec out[4], in[4];
	void *out_desc[4], *in_desc[4];
	int i;

	start(NULL);
	for (i = 0; i < 4; i++) {
		out[i].iov_base = a.memory + 1000 * i;
		out[i].iov_len = 100;
		out_desc[i] = a.desc;
		fill(out[i].iov_base, 100, 0);
		in[i].iov_base = b.memory + 5000 * (3 - i);
		in[i].iov_len = 150 - 20 * (size_t)i;
		in_desc[i] = b.desc;
	}
	OK(fi_recvv(b.ep, in, in_desc, 4, 0, &b));
	OK(fi_sendv(a.ep, out, out_desc, 4, 0, &a));
	EXPECT(done(b.rx, &b).len, 400);
	done(a.tx, &a);
	CHECK(is_filled(in[0].iov_base, 100, 0), "first");
	/* 400 bytes end in the fourth buffer: 150, 130, 110, 10. */
	CHECK(!memcmp(in[3].iov_base, (char *)out[3].iov_base + 90, 10), "last");
	stop();
}

static void injected(void)
{
	unsigned char buffer[64];
	int i;

	start(NULL);
	for (i = 0; i < 100; i++) {
		OK(fi_recv(b.ep, b.memory, MEMORY, b.desc, 0, &b));
		fill(buffer, sizeof(buffer), (unsigned)i);
		POST(fi_inject(a.ep, buffer, sizeof(buffer), 0));
		memset(buffer, 0, sizeof(buffer));
		done(b.rx, &b);
		REQUIRE(is_filled(b.memory, sizeof(buffer), (unsigned)i));
	}
	CHECK(stays_empty(a.tx), "no-completion");
	stop();
}

static void immediate(void)
{
	struct fi_cq_data_entry entry;

	start(NULL);
	OK(fi_recv(b.ep, b.memory, MEMORY, b.desc, 0, &b));
	OK(fi_senddata(a.ep, a.memory, 10, a.desc, 0x12345678, 0, &a));
	entry = done(b.rx, &b);
	EXPECT(entry.data, 0x12345678);
	EXPECT(entry.flags, FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA);
	done(a.tx, &a);
	OK(fi_recv(b.ep, b.memory, MEMORY, b.desc, 0, &b));
	fill(a.memory, 1000, 3);
	OK(fi_writedata(a.ep, a.memory, 1000, a.desc, 0xfedcba98, 0,
			(uint64_t)(uintptr_t)(b.memory + 5), b.key, &a));
	entry = done(b.rx, &b);
	EXPECT(entry.data, 0xfedcba98);
	EXPECT(entry.len, 1000);
	EXPECT(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
	done(a.tx, &a);
	REQUIRE(is_filled(b.memory + 5, 1000, 3));
	stop();
}

static void remote_memory(void)
{
	static const size_t sizes[] = { 1, 8, 256, 5000, 300000 };
	size_t i;

	start(NULL);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t there = (uint64_t)(uintptr_t)(b.memory + 11);

		fill(a.memory, sizes[i], (unsigned)i);
		OK(fi_write(a.ep, a.memory, sizes[i], a.desc, 0, there, b.key, &a));
		EXPECT(done(a.tx, &a).flags, FI_RMA | FI_WRITE);
		CHECK(is_filled(b.memory + 11, sizes[i], (unsigned)i), "write-%zu", sizes[i]);
		fill(b.memory + 11, sizes[i], 77);
		OK(fi_read(a.ep, a.memory + 3, sizes[i], a.desc, 0, there, b.key, &a));
		EXPECT(done(a.tx, &a).flags, FI_RMA | FI_READ);
		CHECK(is_filled(a.memory + 3, sizes[i], 77), "read-%zu", sizes[i]);
	}
	stop();
}

static void atomics(void)
{
	uint64_t *mine, *theirs, there, operand = 5, compare, result;
	size_t count;

	start(NULL);
	mine = (uint64_t *)a.memory;
	theirs = (uint64_t *)b.memory;
	there = (uint64_t)(uintptr_t)theirs;
	*theirs = 100;
	OK(fi_fetch_atomicvalid(a.ep, FI_UINT64, FI_SUM, &count));
	EXPECT(count, 1);
	EXPECT(fi_fetch_atomicvalid(a.ep, FI_UINT32, FI_SUM, &count), -FI_EOPNOTSUPP);
	EXPECT(fi_atomicvalid(a.ep, FI_UINT64, FI_MAX, &count), -FI_EOPNOTSUPP);
	OK(fi_fetch_atomic(a.ep, &operand, 1, NULL, mine, a.desc, 0, there, b.key,
			   FI_UINT64, FI_SUM, &a));
	EXPECT(done(a.tx, &a).flags, FI_ATOMIC | FI_READ);
	EXPECT(*mine, 100);
	EXPECT(*theirs, 105);
	compare = 105;
	operand = 7;
	OK(fi_compare_atomic(a.ep, &operand, 1, NULL, &compare, NULL, mine, a.desc, 0, there,
			     b.key, FI_UINT64, FI_CSWAP, &a));
	done(a.tx, &a);
	EXPECT(*mine, 105);
	EXPECT(*theirs, 7);
	/* The value has changed. */
	OK(fi_compare_atomic(a.ep, &operand, 1, NULL, &compare, NULL, mine, a.desc, 0, there,
			     b.key, FI_UINT64, FI_CSWAP, &a));
	done(a.tx, &a);
	EXPECT(*mine, 7);
	OK(fi_fetch_atomic(a.ep, &result, 1, NULL, mine + 1, a.desc, 0, there, b.key,
			   FI_UINT64, FI_ATOMIC_READ, &a));
	done(a.tx, &a);
	EXPECT(mine[1], 7);
	mine[0] = 42;
	OK(fi_atomic(a.ep, mine, 1, a.desc, 0, there, b.key, FI_UINT64, FI_ATOMIC_WRITE, &a));
	done(a.tx, &a);
	EXPECT(*theirs, 42);
	/* Without a result, and with operands that need no registration. */
	operand = 8;
	OK(fi_atomic(a.ep, &operand, 1, NULL, 0, there, b.key, FI_UINT64, FI_SUM, &a));
	EXPECT(done(a.tx, &a).flags, FI_ATOMIC | FI_WRITE);
	EXPECT(*theirs, 50);
	OK(fi_fetch_atomic(a.ep, &operand, 1, NULL, mine, a.desc, 0, there, b.key, FI_INT64,
			   FI_DIFF, &a));
	done(a.tx, &a);
	EXPECT(*mine, 50);
	EXPECT(*theirs, 42);
	OK(fi_inject_atomic(a.ep, &operand, 1, 0, there, b.key, FI_UINT64, FI_SUM));
	/* It takes effect before later operations. */
	OK(fi_fetch_atomic(a.ep, &operand, 1, NULL, mine, a.desc, 0, there, b.key, FI_UINT64,
			   FI_SUM, &a));
	done(a.tx, &a);
	EXPECT(*mine, 50);
	EXPECT(*theirs, 58);
	stop();
}

static void connection_data(void)
{
	struct { struct fi_eq_cm_entry entry; unsigned char data[256]; } event;
	struct fi_eq_err_entry error;
	struct fi_info *mine;
	unsigned char data[55], back[55];
	size_t length, limit = 0, size = sizeof(limit);

	open_place(&place, NULL);
	fill(data, sizeof(data), 1);
	fill(back, sizeof(back), 2);
	OK(fi_getopt(&place.pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &limit, &size));
	EXPECT(limit, sizeof(data));

	mine = fi_dupinfo(place.info);
	open_end(&a, &place, mine, NULL, NULL);
	OK(fi_connect(a.ep, &place.address, data, sizeof(data)));
	length = event_of(&place, FI_CONNREQ, &event.entry, sizeof(event));
	EXPECT(length, sizeof(data));
	REQUIRE(!memcmp(event.data, data, sizeof(data)));
	OK(fi_reject(place.pep, event.entry.info->handle, back, sizeof(back)));
	fi_freeinfo(event.entry.info);
	error = failed_event(&place);
	EXPECT(error.err, FI_ECONNREFUSED);
	REQUIRE(error.fid == &a.ep->fid);
	EXPECT(error.err_data_size, sizeof(back));
	REQUIRE(!memcmp(error.err_data, back, sizeof(back)));
	close_end(&a);

	open_end(&a, &place, mine, NULL, NULL);
	OK(fi_connect(a.ep, &place.address, data, 3));
	EXPECT(event_of(&place, FI_CONNREQ, &event.entry, sizeof(event)), 3);
	open_end(&b, &place, event.entry.info, NULL, NULL);
	OK(fi_accept(b.ep, back, 7));
	length = event_of(&place, FI_CONNECTED, &event.entry, sizeof(event));
	if (event.entry.fid == &b.ep->fid) {
		EXPECT(length, 0);
		length = event_of(&place, FI_CONNECTED, &event.entry, sizeof(event));
	} else {
		struct fi_eq_cm_entry other;

		EXPECT(event_of(&place, FI_CONNECTED, &other, sizeof(other)), 0);
	}
	EXPECT(length, 7);
	REQUIRE(!memcmp(event.data, back, 7));
	fi_freeinfo(b.info);
	fi_freeinfo(mine);
	stop();
}

static void names(void)
{
	struct sockaddr_storage own, peer;
	size_t own_length = sizeof(own), peer_length = sizeof(peer);

	start(NULL);
	OK(fi_getname(&a.ep->fid, &own, &own_length));
	OK(fi_getpeer(b.ep, &peer, &peer_length));
	EXPECT(own_length, peer_length);
	REQUIRE(!memcmp(&own, &peer, own_length));
	peer_length = sizeof(peer);
	OK(fi_getpeer(a.ep, &peer, &peer_length));
	REQUIRE(!memcmp(&peer, &place.address, place.length));
	stop();
}

static void nobody_listens(void)
{
	struct fi_info *mine;

	open_place(&place, NULL);
	mine = fi_dupinfo(place.info);
	open_end(&a, &place, mine, NULL, NULL);
	/* A port that does not exist. */
	((unsigned char *)&place.address)[3] ^= 1;
	OK(fi_connect(a.ep, &place.address, NULL, 0));
	EXPECT(failed_event(&place).err, FI_ECONNREFUSED);
	EXPECT(fi_send(a.ep, a.memory, 8, a.desc, 0, &a), -FI_ENOTCONN);
	close_end(&a);
	fi_freeinfo(mine);
	close_place(&place);
}

static void silent_sends(void)
{
	struct wish wish = { .selective = true };
	struct fi_msg msg = { 0 };
	struct iovec iov;
	int i;

	start(&wish);
	iov.iov_base = a.memory;
	iov.iov_len = 16;
	msg.msg_iov = &iov;
	msg.desc = &a.desc;
	msg.iov_count = 1;
	msg.context = &a;
	/* Many times the size of the queues. */
	for (i = 0; i < 3000; i++) {
		OK(fi_recv(b.ep, b.memory, 64, b.desc, 0, &b));
		POST(fi_sendmsg(a.ep, &msg, 0));
		done(b.rx, &b);
	}
	CHECK(stays_empty(a.tx), "none");
	OK(fi_recv(b.ep, b.memory, 64, b.desc, 0, &b));
	POST(fi_sendmsg(a.ep, &msg, FI_COMPLETION));
	done(a.tx, &a);
	CHECK(stays_empty(a.tx), "one");
	stop();
}

static void counted(void)
{
	struct wish wish = { .counters = true, .selective = true };
	int i;

	start(&wish);
	for (i = 0; i < 20; i++)
		OK(fi_recv(b.ep, b.memory, 64, b.desc, 0, &b));
	for (i = 0; i < 20; i++)
		POST(fi_inject(a.ep, a.memory, 8, 0));
	OK(fi_cntr_wait(a.sent, 20, (int)(ct_patience() * 1000)));
	OK(fi_cntr_wait(b.received, 20, (int)(ct_patience() * 1000)));
	OK(fi_write(a.ep, a.memory, 8, a.desc, 0, (uint64_t)(uintptr_t)b.memory, b.key, &a));
	OK(fi_cntr_wait(a.sent, 21, (int)(ct_patience() * 1000)));
	EXPECT(fi_cntr_read(b.received), 20);
	stop();
}

static void waiting(void)
{
	struct wish wish = { .wait = FI_WAIT_FD };
	struct fi_cq_data_entry entry;
	struct fid *fids[1];
	struct pollfd descriptor = { .events = POLLIN };
	int i;

	start(&wish);
	fids[0] = &b.rx->fid;
	EXPECT(fi_cq_sread(b.rx, &entry, 1, NULL, 50), -FI_EAGAIN);
	for (i = 0; i < 10; i++) {
		OK(fi_recv(b.ep, b.memory, 64, b.desc, 0, &b));
		OK(fi_send(a.ep, a.memory, 8, a.desc, 0, &a));
		EXPECT(fi_cq_sread(b.rx, &entry, 1, NULL, (int)(ct_patience() * 1000)), 1);
		EXPECT(fi_cq_sread(a.tx, &entry, 1, NULL, (int)(ct_patience() * 1000)), 1);
	}
	OK(fi_control(&b.rx->fid, FI_GETWAIT, &descriptor.fd));
	for (i = 0; i < 10; i++) {
		OK(fi_recv(b.ep, b.memory, 64, b.desc, 0, &b));
		EXPECT(fi_cq_read(b.rx, &entry, 1), -FI_EAGAIN);
		OK(fi_trywait(place.fabric, fids, 1));
		EXPECT(poll(&descriptor, 1, 20), 0);
		OK(fi_send(a.ep, a.memory, 8, a.desc, 0, &a));
		EXPECT(poll(&descriptor, 1, (int)(ct_patience() * 1000)), 1);
		done(b.rx, &b);
		done(a.tx, &a);
	}
	stop();
}

static void too_long(void)
{
	struct fi_cq_err_entry error;

	start(NULL);
	OK(fi_recv(b.ep, b.memory, 10, b.desc, 0, &b));
	OK(fi_send(a.ep, a.memory, 100, a.desc, 0, &a));
	error = failed(b.rx);
	/* Soft-RoCE calls it an invalid request, as it does others. */
	REQUIRE(error.err == FI_ETRUNC || error.err == FI_EIO);
	REQUIRE(error.op_context == &b);
	error = failed(a.tx);
	EXPECT(error.err, FI_EIO);
	REQUIRE(error.op_context == &a);
	EXPECT(error.err_data_size, sizeof(uint32_t));
	CHECK(strstr(fi_cq_strerror(a.tx, error.prov_errno, error.err_data, NULL, 0), "remote"),
	      "text: %s", fi_cq_strerror(a.tx, error.prov_errno, error.err_data, NULL, 0));
	has_ended();
	stop();
}

static void wrong_key(void)
{
	start(NULL);
	OK(fi_write(a.ep, a.memory, 1000, a.desc, 0, (uint64_t)(uintptr_t)b.memory,
		    b.key ^ 0x5500, &a));
	EXPECT(failed(a.tx).err, FI_EIO);
	EXPECT(fi_write(a.ep, a.memory, 8, a.desc, 0, 0, 1ULL << 40, &a), -FI_EKEYREJECTED);
	REQUIRE(is_filled(b.memory, 0, 0) && !b.memory[0]);
	has_ended();
	stop();
}

static void no_descriptor(void)
{
	start(NULL);
	/* Inline data needs no registration. */
	OK(fi_recv(b.ep, b.memory, MEMORY, b.desc, 0, &b));
	OK(fi_send(a.ep, a.memory, 64, NULL, 0, &a));
	done(b.rx, &b);
	done(a.tx, &a);
	EXPECT(fi_send(a.ep, a.memory, 100000, NULL, 0, &a), -FI_EINVAL);
	EXPECT(fi_read(a.ep, a.memory, 8, NULL, 0, (uint64_t)(uintptr_t)b.memory, b.key, &a),
	       -FI_EINVAL);
	stop();
}

static void flushed(void)
{
	enum { RECEIVES = 100 };
	bool seen[RECEIVES] = { false };
	struct fi_eq_cm_entry entry;
	int i;

	start(NULL);
	for (i = 0; i < RECEIVES; i++)
		OK(fi_recv(b.ep, b.memory, 64, b.desc, 0, &seen[i]));
	OK(fi_shutdown(a.ep, 0));
	event_of(&place, FI_SHUTDOWN, &entry, sizeof(entry));
	event_of(&place, FI_SHUTDOWN, &entry, sizeof(entry));
	for (i = 0; i < RECEIVES; i++) {
		struct fi_cq_err_entry error = failed(b.rx);

		EXPECT(error.err, FI_ECANCELED);
		REQUIRE(!*(bool *)error.op_context);
		*(bool *)error.op_context = true;
	}
	CHECK(stays_empty(b.rx), "once");
	EXPECT(fi_send(b.ep, b.memory, 8, b.desc, 0, &b), -FI_ENOTCONN);
	stop();
}

/*
 * Memory is mapped, registered, sent, closed and unmapped, and other memory is at
 * its address the next time: a registration that is kept must not be of the former.
 */
static void mapped_again(void)
{
	enum { LENGTH = 64 << 10, ROUNDS = 30 };
	void *at = NULL;
	int round;

	start(NULL);
	for (round = 0; round < ROUNDS; round++) {
		int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0);
		struct fid_mr *mr;

		at = mmap(at, LENGTH, PROT_READ | PROT_WRITE, flags, -1, 0);
		REQUIRE(at != MAP_FAILED);
		fill(at, LENGTH, (unsigned)round);
		OK(fi_mr_reg(place.domain, at, LENGTH, FI_SEND, 0, 0, 0, &mr, NULL));
		OK(fi_recv(b.ep, b.memory, MEMORY, b.desc, 0, &b));
		OK(fi_send(a.ep, at, LENGTH, fi_mr_desc(mr), 0, &a));
		done(b.rx, &b);
		done(a.tx, &a);
		REQUIRE(is_filled(b.memory, LENGTH, (unsigned)round));
		OK(fi_close(&mr->fid));
		REQUIRE(!munmap(at, LENGTH));
	}
	stop();
}

/* Two passive ends take their receives from one context. */
static void shared(void)
{
	struct wish wish = { .shared = true };
	struct fid_ep *srx;
	struct end c, d;
	int i;

	open_place(&place, &wish);
	OK(fi_srx_context(place.domain, place.info->rx_attr, &srx, NULL));
	connect_ends(&place, &wish, &a, &b, srx);
	connect_ends(&place, &wish, &c, &d, srx);
	for (i = 0; i < 50; i++) {
		OK(fi_recv(srx, b.memory + i * 64, 64, b.desc, 0, b.memory + i * 64));
	}
	for (i = 0; i < 50; i++) {
		struct end *from = i % 3 ? &a : &c;
		struct fid_cq *to = i % 3 ? b.rx : d.rx;
		struct fi_cq_data_entry entry;

		fill(from->memory, 64, (unsigned)i);
		OK(fi_send(from->ep, from->memory, 64, from->desc, 0, from));
		while (fi_cq_read(to, &entry, 1) == -FI_EAGAIN)
			;
		REQUIRE(is_filled(entry.op_context, 64, (unsigned)i));
		done(from->tx, from);
	}
	EXPECT(fi_recv(b.ep, b.memory, 64, b.desc, 0, &b), -FI_EINVAL);
	close_end(&c);
	close_end(&d);
	/* The closed endpoint has consumed nothing. */
	OK(fi_recv(srx, b.memory, 64, b.desc, 0, &b));
	OK(fi_send(a.ep, a.memory, 8, a.desc, 0, &a));
	done(b.rx, &b);
	close_end(&a);
	close_end(&b);
	OK(fi_close(&srx->fid));
	close_place(&place);
}

/* More requests than the initial size of the device's queues complete
 * together. */
static void crowded(void)
{
	enum { PAIRS = 6, EACH = 384 };
	static struct end active[PAIRS], passive[PAIRS];
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_DATA };
	struct fi_eq_cm_entry entry;
	struct fid_cq *cq;
	int i, j, flushed = 0;

	open_place(&place, NULL);
	OK(fi_cq_open(place.domain, &attr, &cq, NULL));
	for (i = 0; i < PAIRS; i++) {
		struct fi_info *mine = fi_dupinfo(place.info);

		open_end(&active[i], &place, mine, NULL, NULL);
		OK(fi_connect(active[i].ep, &place.address, NULL, 0));
		event_of(&place, FI_CONNREQ, &entry, sizeof(entry));
		passive[i].info = entry.info;
		OK(fi_endpoint(place.domain, entry.info, &passive[i].ep, NULL));
		OK(fi_ep_bind(passive[i].ep, &cq->fid, FI_TRANSMIT | FI_RECV));
		OK(fi_ep_bind(passive[i].ep, &place.eq->fid, 0));
		OK(fi_enable(passive[i].ep));
		for (j = 0; j < EACH; j++)
			OK(fi_recv(passive[i].ep, active[0].memory, 64, active[0].desc, 0, NULL));
		EXPECT(fi_recv(passive[i].ep, active[0].memory, 64, active[0].desc, 0, NULL),
		       -FI_EAGAIN);
		OK(fi_accept(passive[i].ep, NULL, 0));
		event_of(&place, FI_CONNECTED, &entry, sizeof(entry));
		event_of(&place, FI_CONNECTED, &entry, sizeof(entry));
		fi_freeinfo(mine);
		fi_freeinfo(passive[i].info);
	}
	for (i = 0; i < PAIRS; i++)
		OK(fi_shutdown(passive[i].ep, 0));
	while (flushed < PAIRS * EACH) {
		EXPECT(failed(cq).err, FI_ECANCELED);
		flushed++;
	}
	CHECK(stays_empty(cq), "once");
	for (i = 0; i < PAIRS; i++) {
		OK(fi_close(&passive[i].ep->fid));
		close_end(&active[i]);
	}
	OK(fi_close(&cq->fid));
	close_place(&place);
}

static void one_cycle(void)
{
	struct wish wish = { .memory = 4096 };

	start(&wish);
	OK(fi_recv(b.ep, b.memory, wish.memory, b.desc, 0, &b));
	OK(fi_send(a.ep, a.memory, 1000, a.desc, 0, &a));
	done(b.rx, &b);
	done(a.tx, &a);
	stop();
}

/* Everything is opened, connected, used and closed, time and again. */
static void cycles(void)
{
	enum { FIRST = 20, CYCLES = 1000, ALLOWED = 1 << 20 };
	int i, before;
	long resident;

	for (i = 0; i < FIRST; i++)
		one_cycle();
	before = ct_descriptors();
	resident = ct_resident();
	for (i = 0; i < CYCLES; i++)
		one_cycle();
	EXPECT(ct_descriptors(), before);
	resident = ct_resident() - resident;
	CHECK(resident < ALLOWED, "memory: %ld bytes more", resident);
}

static const struct ct_test tests[] = {
	{ "messages", messages, CT_MSG },
	{ "vectors", vectors, CT_MSG },
	{ "injected", injected, CT_MSG },
	{ "immediate", immediate, CT_MSG },
	{ "remote-memory", remote_memory, CT_MSG },
	{ "atomics", atomics, CT_MSG },
	{ "connection-data", connection_data, CT_MSG },
	{ "names", names, CT_MSG },
	{ "nobody-listens", nobody_listens, CT_MSG },
	{ "silent-sends", silent_sends, CT_MSG | CT_SLOW },
	{ "counted", counted, CT_MSG },
	{ "waiting", waiting, CT_MSG },
	{ "too-long", too_long, CT_MSG },
	{ "wrong-key", wrong_key, CT_MSG },
	{ "no-descriptor", no_descriptor, CT_MSG },
	{ "flushed", flushed, CT_MSG },
	{ "mapped-again", mapped_again, CT_MSG },
	{ "shared", shared, CT_MSG },
	{ "crowded", crowded, CT_MSG | CT_SLOW },
	{ "cycles", cycles, CT_MSG | CT_SLOW },
};

CT_MAIN(tests)
