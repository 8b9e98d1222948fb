/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Memory of a device (FI_HMEM): every call with such memory at either end and
 * at both, on the device of device.h, which no processor can touch.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_ext.h>

#include "check.h"
#include "device.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define LARGEST ((1 << 20) + 13)
#define TAG 0x1122334455667788ULL
#define ARRAY(array) (sizeof(array) / sizeof((array)[0]))

static const size_t sizes[] = { 0, 1, 8, 100, 4096, 5000, 16384, 70000, LARGEST };

/* A buffer, in the memory of the device or of the host. */
struct buffer {
	bool is_device;
	unsigned char *data;
	struct fid_mr *mr;
	void *desc;
	uint64_t key, addr;
};

/* Both ends, each with a buffer. */
struct bench {
	struct ct_pair pair;
	struct buffer near, far;
	void *scratch;
};

static bool demands_desc;
static enum fi_hmem_iface interface = FI_HMEM_CUDA;

static void with_descriptors(struct fi_info *hints)
{
	hints->domain_attr->mr_mode |= FI_MR_HMEM;
}

static void without_descriptors(struct fi_info *hints)
{
	hints->domain_attr->mr_mode &= ~FI_MR_HMEM;
}

static int register_as(struct ct_peer *peer, void *data, size_t len, uint64_t access, int device,
		       enum fi_hmem_iface iface, struct fid_mr **mr)
{
	struct iovec piece = { data, len };
	struct fi_mr_attr attr = {
		.mr_iov = &piece, .iov_count = 1, .access = access,
		.requested_key = ct_fresh_key(), .iface = iface, .device.cuda = device,
	};

	return fi_mr_regattr(peer->domain, &attr, 0, mr);
}

static void open_buffer(struct ct_peer *peer, struct buffer *buffer, bool is_device)
{
	uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	uint64_t address;

	buffer->is_device = is_device;
	if (is_device) {
		OK(ct_device()->alloc(&address, LARGEST));
		buffer->data = (void *)(uintptr_t)address;
	} else {
		buffer->data = calloc(1, LARGEST);
	}
	OK(register_as(peer, buffer->data, LARGEST, access, 0,
		       is_device ? interface : FI_HMEM_SYSTEM, &buffer->mr));
	ct_register_finish(peer, buffer->mr);
	buffer->desc = demands_desc ? fi_mr_desc(buffer->mr) : NULL;
	buffer->key = fi_mr_key(buffer->mr);
	buffer->addr = ct_mr_mode(peer) & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)buffer->data : 0;
}

static void close_buffer(struct buffer *buffer)
{
	OK(fi_close(&buffer->mr->fid));
	if (buffer->is_device)
		OK(ct_device()->free((uintptr_t)buffer->data));
	else
		free(buffer->data);
}

static void put(struct bench *bench, struct buffer *buffer, size_t len, unsigned seed)
{
	ct_fill(bench->scratch, len, seed);
	if (buffer->is_device)
		ct_device()->poke((uintptr_t)buffer->data, bench->scratch, len);
	else
		memcpy(buffer->data, bench->scratch, len);
}

static void *content(struct bench *bench, struct buffer *buffer, size_t len)
{
	if (!buffer->is_device)
		return buffer->data;
	ct_device()->peek((uintptr_t)buffer->data, bench->scratch, len);
	return bench->scratch;
}

static bool holds(struct bench *bench, struct buffer *buffer, size_t len, unsigned seed)
{
	return ct_holds(content(bench, buffer, len), len, seed);
}

static void setup(struct bench *bench, struct ct_spec spec, bool near, bool far)
{
	ct_device();
	spec.caps |= FI_HMEM;
	if (!spec.hint)
		spec.hint = demands_desc ? with_descriptors : without_descriptors;
	bench->scratch = malloc(LARGEST);
	ct_open_pair(&bench->pair, &spec);
	REQUIRE(!(ct_mr_mode(&bench->pair.a) & FI_MR_HMEM) == !demands_desc);
	open_buffer(&bench->pair.a, &bench->near, near);
	open_buffer(&bench->pair.b, &bench->far, far);
}

static void teardown(struct bench *bench)
{
	close_buffer(&bench->near);
	close_buffer(&bench->far);
	ct_close_pair(&bench->pair);
	free(bench->scratch);
	REQUIRE(!ct_device()->waits());
}

/* Calls the step with memory of the device at one end, at the other, and at both. */
static void at_either_end(struct ct_spec spec, void (*step)(struct bench *bench))
{
	for (int ends = 1; ends < 4; ends++) {
		struct bench bench = { 0 };

		setup(&bench, spec, ends & 1, ends & 2);
		step(&bench);
		teardown(&bench);
	}
}

static bool is_inject(enum ct_send_form form)
{
	return form == CT_INJECT || form == CT_INJECTDATA;
}

static void pass(struct bench *bench, bool tagged, enum ct_send_form send, enum ct_recv_form recv,
		 size_t len, bool expected)
{
	static unsigned seed;
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;
	struct fi_context2 tx_context, rx_context;
	struct ct_completion done;
	struct ct_message tx = {
		.tagged = tagged, .buf = bench->near.data, .len = len, .pieces = 3,
		.desc = bench->near.desc, .tag = TAG, .data = 77, .context = &tx_context,
	}, rx = {
		.tagged = tagged, .buf = bench->far.data, .len = len, .pieces = 2,
		.desc = bench->far.desc, .tag = TAG, .from = FI_ADDR_UNSPEC, .context = &rx_context,
	};

	put(bench, &bench->near, len, ++seed);
	put(bench, &bench->far, len, ~seed);
	if (expected)
		POST(b, ct_recv(b, recv, &rx));
	POST(a, ct_send(a, send, &tx));
	if (!ct_send_completes(send) || send == CT_SENDMSG_INJECT)
		put(bench, &bench->near, len, ~seed);
	if (!expected)
		POST(b, ct_recv(b, recv, &rx));
	done = ct_done(b, &b->rx, &rx_context);
	REQUIRE(done.len == len);
	CHECK(holds(bench, &bench->far, len, seed), "%s-%s-%s-%zu-%s", tagged ? "tagged" : "message",
	      ct_send_name(send), ct_recv_name(recv), len, expected ? "expected" : "unexpected");
	if (ct_send_completes(send))
		ct_done(a, &a->tx, &tx_context);
}

static void pass_all(struct bench *bench)
{
	struct ct_peer *a = &bench->pair.a;
	bool tagged = ct_has(a, FI_TAGGED);

	for (int form = 0; form < CT_SEND_FORMS; form++) {
		enum ct_recv_form recv = form % CT_RECV_FORMS;

		if (!ct_send_offered(a, form) || (demands_desc && is_inject(form)))
			continue;
		for (size_t i = 0; i < ARRAY(sizes); i++) {
			if (sizes[i] > ct_send_limit(a, form))
				continue;
			pass(bench, tagged, form, recv, sizes[i], i % 2);
			pass(bench, tagged, form, recv, sizes[i], i % 2 == 0);
		}
	}
}

static void messages(void)
{
	demands_desc = true;
	at_either_end((struct ct_spec) { .caps = FI_MSG }, pass_all);
}

static void tagged(void)
{
	demands_desc = true;
	at_either_end((struct ct_spec) { .caps = FI_TAGGED }, pass_all);
}

/* Without FI_MR_HMEM the provider finds out by itself. */
static void detected(void)
{
	at_either_end((struct ct_spec) { .caps = FI_MSG }, pass_all);
}

static void shared_receives(void)
{
	demands_desc = true;
	at_either_end((struct ct_spec) { .caps = FI_MSG, .srx = true }, pass_all);
}

static void access_all(struct bench *bench)
{
	static unsigned seed;
	static struct fi_context2 context;
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;

	for (int form = 0; form < CT_RMA_FORMS; form++) {
		bool reads = ct_rma_is_read(form);

		if (demands_desc && (form == CT_INJECT_WRITE || form == CT_INJECT_WRITEDATA))
			continue;
		for (size_t i = 0; i < ARRAY(sizes); i++) {
			size_t len = sizes[i];
			struct ct_rma rma = {
				.buf = bench->near.data, .len = len, .pieces = 2, .remote_pieces = 2,
				.desc = bench->near.desc, .addr = bench->far.addr, .key = bench->far.key,
				.data = 99, .flags = reads || form == CT_WRITE ? 0 : FI_DELIVERY_COMPLETE,
				.context = &context,
			};

			if (len > ct_rma_limit(a, form))
				continue;
			seed++;
			put(bench, reads ? &bench->far : &bench->near, len, seed);
			put(bench, reads ? &bench->near : &bench->far, len, ~seed);
			POST(a, ct_rma(a, form, &rma));
			if (ct_rma_completes(form))
				ct_done(a, &a->tx, &context);
			if (ct_rma_has_data(form))
				REQUIRE(ct_next(b, &b->rx).data == 99);
			UNTIL(b, holds(bench, reads ? &bench->near : &bench->far, len, seed));
			CHECK(true, "%s-%zu", ct_rma_name(form), len);
		}
	}
}

static void rma(void)
{
	demands_desc = true;
	at_either_end((struct ct_spec) { .caps = FI_MSG | FI_RMA }, access_all);
}

static void rma_detected(void)
{
	at_either_end((struct ct_spec) { .caps = FI_MSG | FI_RMA }, access_all);
}

static uint64_t word(struct bench *bench, struct buffer *buffer)
{
	uint64_t value;

	memcpy(&value, content(bench, buffer, 8), 8);
	return value;
}

static void set(struct buffer *buffer, size_t at, uint64_t value)
{
	if (buffer->is_device)
		ct_device()->poke((uintptr_t)buffer->data + at, &value, 8);
	else
		memcpy(buffer->data + at, &value, 8);
}

static void count_all(struct bench *bench)
{
	struct ct_peer *a = &bench->pair.a, *b = &bench->pair.b;
	static struct fi_context2 context;
	unsigned char *operand = bench->near.data, *result = bench->near.data + 64;
	void *desc = bench->near.desc;

	set(&bench->far, 0, 40);
	set(&bench->near, 0, 2);
	POST(a, fi_atomic(a->ep, operand, 1, desc, a->to, bench->far.addr, bench->far.key, FI_UINT64,
			  FI_SUM, &context));
	ct_done(a, &a->tx, &context);
	UNTIL(b, word(bench, &bench->far) == 42);
	POST(a, fi_fetch_atomic(a->ep, operand, 1, desc, result, desc, a->to, bench->far.addr,
				bench->far.key, FI_UINT64, FI_SUM, &context));
	ct_done(a, &a->tx, &context);
	CHECK(word(bench, &bench->far) == 44, "fetch");
	set(&bench->near, 0, 7);
	set(&bench->near, 128, 44);
	POST(a, fi_compare_atomic(a->ep, operand, 1, desc, operand + 128, desc, result, desc, a->to,
				  bench->far.addr, bench->far.key, FI_UINT64, FI_CSWAP, &context));
	ct_done(a, &a->tx, &context);
	CHECK(word(bench, &bench->far) == 7, "compare");
	struct buffer old = { bench->near.is_device, result, NULL, NULL, 0, 0 };
	CHECK(word(bench, &old) == 44, "result");
}

static void atomics(void)
{
	demands_desc = true;
	at_either_end((struct ct_spec) { .caps = FI_MSG | FI_ATOMIC }, count_all);
}

/* Pieces of both kinds in one list. */
static void mixed(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	static struct fi_context2 tx_context, rx_context;
	static unsigned char host[2][50000];

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	for (size_t len = 10; len <= sizeof(host[0]); len *= 17) {
		struct iovec out[2] = { { bench.near.data, len }, { host[0], len } };
		struct iovec in[2] = { { host[1], len / 2 }, { bench.far.data, 2 * len } };
		void *out_desc[2] = { bench.near.desc, NULL }, *in_desc[2] = { NULL, bench.far.desc };

		put(&bench, &bench.near, len, 1);
		ct_fill(host[0], len, 2);
		POST(b, fi_recvv(b->ep, in, in_desc, 2, FI_ADDR_UNSPEC, &rx_context));
		POST(a, fi_sendv(a->ep, out, out_desc, 2, a->to, &tx_context));
		REQUIRE(ct_done(b, &b->rx, &rx_context).len == 2 * len);
		ct_done(a, &a->tx, &tx_context);
		unsigned char *whole = malloc(2 * len);

		memcpy(whole, host[1], len / 2);
		ct_device()->peek((uintptr_t)bench.far.data, whole + len / 2, 2 * len - len / 2);
		CHECK(ct_holds(whole, len, 1) && ct_holds(whole + len, len, 2), "%zu", len);
		free(whole);
	}
	teardown(&bench);
}

/* A kernel that waits for the host on the default stream holds nothing up, and neither does
 * a copy that takes long return early. */
static void under_a_kernel(void)
{
	static volatile int flag;
	struct bench bench = { 0 };

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	ct_device()->kernel(&flag);
	ct_device()->delay(300);
	for (size_t i = 0; i < ARRAY(sizes); i++) {
		pass(&bench, false, CT_SEND, CT_RECV, sizes[i], true);
		pass(&bench, false, CT_SEND, CT_RECV, sizes[i], false);
	}
	flag = 1;
	ct_device()->delay(0);
	teardown(&bench);
}

/* ofi_rxd copies the bytes of each datagram by itself, and waits for the device. */
static void not_by_datagrams(void)
{
	if (ct_opt.provider && strstr(ct_opt.provider, "rxd"))
		SKIP("bytes are copied datagram by datagram");
}

/* A device that does not copy delays the messages to its memory, and no others. */
static void held(void)
{
	static struct fi_context2 tx_context[2], rx_context[2];
	static unsigned char host[2][64];

	demands_desc = true;
	for (size_t len = 64; len <= 70000; len *= 1000) {
		struct bench bench = { 0 };
		struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;

		setup(&bench, (struct ct_spec) { .caps = FI_MSG }, false, true);
		pass(&bench, false, CT_SEND, CT_RECV, len, true);
		put(&bench, &bench.near, len, 1);
		put(&bench, &bench.far, len, 2);
		ct_fill(host[0], 64, 3);
		memset(host[1], 0, 64);
		POST(b, fi_recv(b->ep, bench.far.data, len, bench.far.desc, FI_ADDR_UNSPEC,
				&rx_context[0]));
		POST(b, fi_recv(b->ep, host[1], 64, NULL, FI_ADDR_UNSPEC, &rx_context[1]));
		ct_device()->hold(true);
		POST(a, fi_send(a->ep, bench.near.data, len, NULL, a->to, &tx_context[0]));
		POST(a, fi_send(a->ep, host[0], 64, NULL, a->to, &tx_context[1]));
		ct_done(b, &b->rx, &rx_context[1]);
		CHECK(ct_holds(host[1], 64, 3), "%zu", len);
		ct_device()->hold(false);
		REQUIRE(ct_done(b, &b->rx, &rx_context[0]).len == len);
		CHECK(holds(&bench, &bench.far, len, 1), "device-%zu", len);
		ct_next(a, &a->tx);
		ct_next(a, &a->tx);
		teardown(&bench);
	}
}

/* The same at the sender: its lane goes on, with another peer. */
static void held_sends(void)
{
	static struct fi_context2 tx_context[2], rx_context[2];
	static unsigned char host[2][64];

	demands_desc = true;
	for (size_t len = 6000; len <= LARGEST; len *= 12) {
		struct bench bench = { 0 };
		struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b, third;
		fi_addr_t to_third;

		/* The receiver would copy by itself. */
		ct_device()->refuse_sharing(true);
		setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, false);
		to_third = ct_open_third(&third, a);
		pass(&bench, false, CT_SEND, CT_RECV, len, true);
		put(&bench, &bench.near, len, 1);
		put(&bench, &bench.far, len, 2);
		for (unsigned i = 0; i < 2; i++) {
			/* The first message is under way when there is a connection. */
			if (i) {
				POST(b, fi_recv(b->ep, bench.far.data, len, NULL, FI_ADDR_UNSPEC,
						&rx_context[0]));
				ct_device()->hold(true);
				POST(a, fi_send(a->ep, bench.near.data, len, bench.near.desc, a->to,
						&tx_context[0]));
				for (int turn = 0; turn < 100; turn++)
					ct_progress(a);
			}
			ct_fill(host[0], 64, i);
			POST(&third, fi_recv(third.ep, host[1], 64, NULL, FI_ADDR_UNSPEC, &rx_context[1]));
			POST(a, fi_send(a->ep, host[0], 64, NULL, to_third, &tx_context[1]));
			ct_done(&third, &third.rx, &rx_context[1]);
			ct_done(a, &a->tx, &tx_context[1]);
			CHECK(ct_holds(host[1], 64, i), "other-%zu-%u", len, i);
		}
		ct_device()->hold(false);
		REQUIRE(ct_done(b, &b->rx, &rx_context[0]).len == len);
		CHECK(holds(&bench, &bench.far, len, 1), "device-%zu", len);
		ct_done(a, &a->tx, &tx_context[0]);
		ct_close_peer(&third);
		teardown(&bench);
	}
}

/* Old values that a device does not copy yet hold nothing else up. */
static void held_results(void)
{
	static struct fi_context2 tx_context[2], rx_context;
	static unsigned char host[2][64];
	static uint64_t operand = 2;
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG | FI_ATOMIC }, true, false);
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	set(&bench.far, 0, 40);
	set(&bench.near, 0, 0);
	ct_device()->hold(true);
	POST(a, fi_fetch_atomic(a->ep, &operand, 1, NULL, bench.near.data, bench.near.desc, a->to,
				bench.far.addr, bench.far.key, FI_UINT64, FI_SUM, &tx_context[0]));
	UNTIL(b, word(&bench, &bench.far) == 42);
	ct_fill(host[0], 64, 3);
	POST(b, fi_recv(b->ep, host[1], 64, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(a, fi_send(a->ep, host[0], 64, NULL, a->to, &tx_context[1]));
	ct_done(b, &b->rx, &rx_context);
	ct_done(a, &a->tx, &tx_context[1]);
	REQUIRE(ct_holds(host[1], 64, 3));
	ct_device()->hold(false);
	ct_done(a, &a->tx, &tx_context[0]);
	CHECK(word(&bench, &bench.near) == 40, "result");
	teardown(&bench);
}

/* A message of another one's length is in error, and what is beyond the buffer stays. */
static void truncated(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	static struct fi_context2 tx_context, rx_context;

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	for (size_t len = 8; len <= 80000; len *= 100) {
		put(&bench, &bench.near, len, 1);
		put(&bench, &bench.far, len, 2);
		POST(b, fi_recv(b->ep, bench.far.data, len / 2, bench.far.desc, FI_ADDR_UNSPEC,
				&rx_context));
		POST(a, fi_send(a->ep, bench.near.data, len, bench.near.desc, a->to, &tx_context));
		REQUIRE(ct_error(b, &b->rx).err == FI_ETRUNC);
		ct_next(a, &a->tx);
		unsigned char *after = content(&bench, &bench.far, len), *before = malloc(len);

		ct_fill(before, len, 2);
		CHECK(!memcmp(after + len / 2, before + len / 2, len / 2), "%zu", len);
		free(before);
	}
	teardown(&bench);
}

/* Memory that is not what the program says. */
static void misused(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a;
	static struct fi_context2 context;
	static char host[64];
	struct fid_mr *mr;

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, false);
	EXPECT(fi_send(a->ep, bench.near.data, 8, NULL, a->to, &context), -FI_EINVAL);
	EXPECT(fi_recv(a->ep, bench.near.data, 8, NULL, a->to, &context), -FI_EINVAL);
	EXPECT(fi_inject(a->ep, bench.near.data, 8, a->to), -FI_EINVAL);
	EXPECT(register_as(a, bench.near.data, 8, FI_SEND, 1, FI_HMEM_CUDA, &mr), -FI_EINVAL);
	EXPECT(register_as(a, bench.near.data, 8, FI_SEND, 99, FI_HMEM_CUDA, &mr), -FI_EINVAL);
	EXPECT(register_as(a, host, 8, FI_SEND, 0, FI_HMEM_CUDA, &mr), -FI_EINVAL);
	EXPECT(register_as(a, host, 8, FI_SEND, 0, FI_HMEM_NEURON, &mr), -FI_ENOSYS);
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	teardown(&bench);
}

/* With the hook, descriptors are not missed where they were promised (fi_hook(7)). */
static void hooked(void)
{
	struct bench bench = { 0 };

	setenv("FI_HOOK", "hmem", 1);
	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	bench.near.desc = bench.far.desc = NULL;
	for (size_t i = 0; i < ARRAY(sizes); i++)
		pass(&bench, false, CT_SEND, CT_RECV, sizes[i], true);
	teardown(&bench);
}

/* A copy that fails is the error of its operation, and of no other. */
static void failing(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	static struct fi_context2 tx_context, rx_context;

	demands_desc = true;
	for (int late = 0; late < 2; late++) {
		setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, false);
		pass(&bench, false, CT_SEND, CT_RECV, 100, true);
		ct_device()->fail(1, late);
		EXPECT(fi_send(a->ep, bench.near.data, 64, bench.near.desc, a->to, &tx_context), -FI_EIO);
		pass(&bench, false, CT_SEND, CT_RECV, 100, true);
		teardown(&bench);
		setup(&bench, (struct ct_spec) { .caps = FI_MSG }, false, true);
		for (size_t len = 64; len <= 64000; len *= 1000) {
			pass(&bench, false, CT_SEND, CT_RECV, len, true);
			ct_device()->fail(1, late);
			POST(b, fi_recv(b->ep, bench.far.data, len, bench.far.desc, FI_ADDR_UNSPEC,
					&rx_context));
			POST(a, fi_send(a->ep, bench.near.data, len, NULL, a->to, &tx_context));
			REQUIRE(ct_error(b, &b->rx).err == FI_EIO);
			ct_next(a, &a->tx);
			pass(&bench, false, CT_SEND, CT_RECV, len, true);
		}
		teardown(&bench);
	}
}

/* A peer's read of memory that its device does not read is in error. */
static void failing_reads(void)
{
	static struct fi_context2 context;

	not_by_datagrams();
	demands_desc = true;
	for (size_t len = 64; len <= 64000; len *= 10) {
		struct bench bench = { 0 };
		struct ct_peer *a = &bench.pair.a;

		setup(&bench, (struct ct_spec) { .caps = FI_MSG | FI_RMA }, false, true);
		put(&bench, &bench.far, len, 1);
		put(&bench, &bench.near, len, 2);
		POST(a, fi_read(a->ep, bench.near.data, len, bench.near.desc, a->to, bench.far.addr,
				bench.far.key, &context));
		ct_done(a, &a->tx, &context);
		CHECK(holds(&bench, &bench.near, len, 1), "%zu", len);
		ct_device()->fail(1, false);
		POST(a, fi_read(a->ep, bench.near.data, len, bench.near.desc, a->to, bench.far.addr,
				bench.far.key, &context));
		CHECK(ct_error(a, &a->tx).err != 0, "failing-%zu", len);
		teardown(&bench);
	}
}

static void after_a_reset(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	static struct fi_context2 tx_context, rx_context;

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, false, true);
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	POST(b, fi_recv(b->ep, bench.far.data, 100, bench.far.desc, FI_ADDR_UNSPEC, &rx_context));
	ct_device()->reset();
	POST(a, fi_send(a->ep, bench.near.data, 100, NULL, a->to, &tx_context));
	REQUIRE(ct_error(b, &b->rx).err == FI_EIO);
	ct_done(a, &a->tx, &tx_context);
	/* Memory of the host goes on. */
	static char host[2][100];
	ct_fill(host[0], 100, 3);
	POST(b, fi_recv(b->ep, host[1], 100, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(a, fi_send(a->ep, host[0], 100, NULL, a->to, &tx_context));
	ct_done(b, &b->rx, &rx_context);
	ct_done(a, &a->tx, &tx_context);
	REQUIRE(ct_holds(host[1], 100, 3));
	teardown(&bench);
}

/* Passes a message of the host's memory to a peer that has one of its own. */
static void pass_host(struct ct_peer *from, fi_addr_t to, struct ct_peer *at)
{
	static struct fi_context2 tx_context, rx_context;
	static char host[2][100];

	ct_fill(host[0], 100, 3);
	memset(host[1], 0, 100);
	POST(at, fi_recv(at->ep, host[1], 100, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(from, fi_send(from->ep, host[0], 100, NULL, to, &tx_context));
	ct_done(at, &at->rx, &rx_context);
	ct_done(from, &from->tx, &tx_context);
	REQUIRE(ct_holds(host[1], 100, 3));
}

/* A device that is reset while it copies what was received: that is an error, and all else goes on. */
static void reset_receiving(void)
{
	for (size_t len = 100; len <= 100000; len *= 1000) {
		struct bench bench = { 0 };
		struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
		static struct fi_context2 tx_context, rx_context;

		demands_desc = true;
		setup(&bench, (struct ct_spec) { .caps = FI_MSG }, false, true);
		pass(&bench, false, CT_SEND, CT_RECV, len, true);
		POST(b, fi_recv(b->ep, bench.far.data, len, bench.far.desc, FI_ADDR_UNSPEC, &rx_context));
		ct_device()->hold(true);
		POST(a, fi_send(a->ep, bench.near.data, len, NULL, a->to, &tx_context));
		for (int turn = 0; turn < 100; turn++) {
			ct_progress(a);
			ct_progress(b);
		}
		ct_device()->reset();
		ct_device()->hold(false);
		CHECK(ct_error(b, &b->rx).err == FI_EIO, "%zu", len);
		ct_done(a, &a->tx, &tx_context);
		pass_host(a, a->to, b);
		/* It is new again. */
		teardown(&bench);
		ct_device()->renew();
	}
}

/* The same while it copies what is sent. Nothing is lost but this message, and perhaps its connection. */
static void reset_sending(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b, third;
	static struct fi_context2 tx_context, rx_context;
	fi_addr_t to_third;

	demands_desc = true;
	ct_device()->refuse_sharing(true);
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, false);
	to_third = ct_open_third(&third, a);
	pass_host(a, to_third, &third);
	pass(&bench, false, CT_SEND, CT_RECV, LARGEST, true);
	POST(b, fi_recv(b->ep, bench.far.data, LARGEST, NULL, FI_ADDR_UNSPEC, &rx_context));
	ct_device()->hold(true);
	POST(a, fi_send(a->ep, bench.near.data, LARGEST, bench.near.desc, a->to, &tx_context));
	for (int turn = 0; turn < 100; turn++) {
		ct_progress(a);
		ct_progress(b);
	}
	ct_device()->reset();
	ct_device()->hold(false);
	REQUIRE(ct_error(a, &a->tx).err != 0);
	pass_host(a, to_third, &third);
	ct_close_peer(&third);
	teardown(&bench);
}

/* And while peers access its memory, and memory is accessed from it: by a call or by an answer, and never
 * as if it had been copied. */
static void reset_accessing(void)
{
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	static struct fi_context2 context;
	struct ct_rma rma;
	ssize_t posted;

	not_by_datagrams();
	demands_desc = true;
	for (int device_is_far = 0; device_is_far < 2; device_is_far++) {
		for (int reads = 0; reads < 2; reads++) {
			setup(&bench, (struct ct_spec) { .caps = FI_MSG | FI_RMA }, !device_is_far,
			      device_is_far);
			pass(&bench, false, CT_SEND, CT_RECV, 100, true);
			ct_device()->reset();
			rma = (struct ct_rma) {
				.buf = bench.near.data, .len = 70000, .desc = bench.near.desc,
				.addr = bench.far.addr, .key = bench.far.key, .context = &context,
				.flags = reads ? 0 : FI_DELIVERY_COMPLETE,
			};
			do {
				posted = ct_rma(a, reads ? CT_READMSG : CT_WRITEMSG, &rma);
				ct_progress(a);
				ct_progress(b);
			} while (posted == -FI_EAGAIN);
			CHECK(posted || ct_error(a, &a->tx).err, "%s-%s", device_is_far ? "far" : "near",
			      reads ? "read" : "write");
			teardown(&bench);
			ct_device()->renew();
		}
	}
}

/* Nor are a peer's atomic operations on it. A connection may end with one that is refused. */
static void reset_counting(void)
{
	static struct fi_context2 context;
	static uint64_t operand = 2, old;
	struct bench bench = { 0 };
	struct ct_peer *a = &bench.pair.a, *b = &bench.pair.b;
	ssize_t posted;

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG | FI_ATOMIC }, false, true);
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	ct_device()->reset();
	do {
		posted = fi_fetch_atomic(a->ep, &operand, 1, NULL, &old, NULL, a->to, bench.far.addr,
					 bench.far.key, FI_UINT64, FI_SUM, &context);
		ct_progress(a);
		ct_progress(b);
	} while (posted == -FI_EAGAIN);
	REQUIRE(!posted && ct_error(a, &a->tx).err);
	if (ct_opt.type == FI_EP_RDM)
		pass_host(a, a->to, b);
	teardown(&bench);
}

static unsigned own_copies;

static ssize_t copy_from(void *to, size_t size, enum fi_hmem_iface iface, uint64_t device,
			 const struct iovec *iov, size_t count, uint64_t offset)
{
	REQUIRE(iface == FI_HMEM_ROCR && device == 5 && count == 1);
	own_copies++;
	ct_device()->peek((uintptr_t)iov->iov_base + offset, to, size);
	return (ssize_t)size;
}

static ssize_t copy_to(enum fi_hmem_iface iface, uint64_t device, const struct iovec *iov,
		       size_t count, uint64_t offset, const void *from, size_t size)
{
	REQUIRE(iface == FI_HMEM_ROCR && device == 5 && count == 1);
	own_copies++;
	ct_device()->poke((uintptr_t)iov->iov_base + offset, from, size);
	return (ssize_t)size;
}

/* The program's own functions, for an interface that nobody else has. */
static void own_functions(void)
{
	struct fi_hmem_override_ops ops = {
		.size = sizeof(ops), .copy_from_hmem_iov = copy_from, .copy_to_hmem_iov = copy_to,
	}, lacking = { .size = sizeof(ops) };
	struct bench bench = { 0 };
	struct ct_peer *peers[2] = { &bench.pair.a, &bench.pair.b };
	struct fid_mr *mr[2];
	void *desc[2];
	static struct fi_context2 tx_context, rx_context;

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	REQUIRE(fi_set_ops(&peers[0]->domain->fid, FI_SET_OPS_HMEM_OVERRIDE, 0, &lacking, NULL) ==
		-FI_EINVAL);
	EXPECT(fi_set_ops(&peers[0]->domain->fid, "other", 0, &ops, NULL), -FI_ENOSYS);
	for (int i = 0; i < 2; i++) {
		struct buffer *buffer = i ? &bench.far : &bench.near;

		OK(fi_set_ops(&peers[i]->domain->fid, FI_SET_OPS_HMEM_OVERRIDE, 0, &ops, NULL));
		OK(register_as(peers[i], buffer->data, LARGEST, FI_SEND | FI_RECV, 5, FI_HMEM_ROCR, &mr[i]));
		desc[i] = fi_mr_desc(mr[i]);
	}
	unsigned before = ct_device()->copies();
	for (size_t i = 0; i < ARRAY(sizes); i++) {
		put(&bench, &bench.near, sizes[i], (unsigned)i);
		put(&bench, &bench.far, sizes[i], 99);
		POST(peers[1], fi_recv(peers[1]->ep, bench.far.data, sizes[i], desc[1], FI_ADDR_UNSPEC,
				       &rx_context));
		POST(peers[0], fi_send(peers[0]->ep, bench.near.data, sizes[i], desc[0], peers[0]->to,
				       &tx_context));
		ct_done(peers[1], &peers[1]->rx, &rx_context);
		ct_done(peers[0], &peers[0]->tx, &tx_context);
		CHECK(holds(&bench, &bench.far, sizes[i], (unsigned)i), "%zu", sizes[i]);
	}
	REQUIRE(own_copies && ct_device()->copies() == before);
	OK(fi_close(&mr[0]->fid));
	OK(fi_close(&mr[1]->fid));
	teardown(&bench);
}

static void options(void)
{
	struct bench bench = { 0 };
	bool no = false, yes = true;

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	for (int mode = FI_HMEM_P2P_ENABLED; mode <= FI_HMEM_P2P_DISABLED; mode++)
		EXPECT(fi_setopt(&bench.pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &mode,
				 sizeof(mode)),
		       mode == FI_HMEM_P2P_REQUIRED ? -FI_EOPNOTSUPP : 0);
	EXPECT(fi_setopt(&bench.pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CUDA_API_PERMITTED, &yes,
			 sizeof(yes)), 0);
	EXPECT(fi_setopt(&bench.pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CUDA_API_PERMITTED, &no,
			 sizeof(no)), -FI_EOPNOTSUPP);
	teardown(&bench);
}

/* A group of both ends, and two operations of it. */
static void collective(void)
{
	static struct fi_context2 context;
	struct ct_peer *peers[2];
	struct fid_av_set *sets[2];
	struct fid_mc *groups[2];
	struct bench bench = { 0 };
	struct buffer *buffers[2] = { &bench.near, &bench.far };
	char name[2][256] = { 0 };

	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG | FI_TAGGED | FI_COLLECTIVE, .eq = true,
					 .one_cq = true }, true, true);
	peers[0] = &bench.pair.a;
	peers[1] = &bench.pair.b;
	for (int i = 0; i < 2; i++)
		ct_name(&peers[i]->ep->fid, name[i], sizeof(name[i]));
	for (int i = 0; i < 2; i++) {
		struct fi_av_set_attr attr = {
			.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL,
		};
		fi_addr_t group;

		OK(fi_av_set(peers[i]->av, &attr, &sets[i], NULL));
		for (int j = 0; j < 2; j++)
			OK(fi_av_set_insert(sets[i], ct_insert(peers[i], name[j])));
		OK(fi_av_set_addr(sets[i], &group));
		OK(fi_join_collective(peers[i]->ep, group, sets[i], 0, &groups[i], NULL));
	}
	for (int i = 0; i < 2; i++)
		ct_event_of(peers[i], FI_JOIN_COMPLETE);
	for (size_t count = 1; count < 20000; count *= 60) {
		size_t half = LARGEST / 2 / 8 * 8;

		for (int i = 0; i < 2; i++) {
			set(buffers[i], 0, 20 + (unsigned)i);
			set(buffers[i], (count - 1) * 8, 20 + (unsigned)i);
			OK(fi_allreduce(peers[i]->ep, buffers[i]->data, count, buffers[i]->desc,
					buffers[i]->data + half, buffers[i]->desc, fi_mc_addr(groups[i]),
					FI_UINT64, FI_SUM, 0, &context));
		}
		for (int i = 0; i < 2; i++)
			ct_done(peers[i], &peers[i]->tx, &context);
		for (int i = 0; i < 2; i++) {
			uint64_t first, last;

			ct_device()->peek((uintptr_t)buffers[i]->data + half, &first, 8);
			ct_device()->peek((uintptr_t)buffers[i]->data + half + (count - 1) * 8, &last, 8);
			CHECK(first == 41 && last == 41, "allreduce-%zu", count);
		}
	}
	for (int i = 0; i < 2; i++) {
		OK(fi_close(&groups[i]->fid));
		OK(fi_close(&sets[i]->fid));
	}
	teardown(&bench);
}

/* Without a driver there is memory of the host, and nothing else. */
static void without_a_driver(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_HMEM, .hint = with_descriptors };
	struct ct_pair pair;
	struct fid_mr *mr;
	static struct fi_context2 tx_context, rx_context;
	static char host[2][100];

	setenv("CT_DEVICE_REFUSES", "1", 1);
	ct_device();
	ct_open_pair(&pair, &spec);
	EXPECT(register_as(&pair.a, host, 8, FI_SEND, 0, FI_HMEM_CUDA, &mr), -FI_ENOSYS);
	OK(register_as(&pair.a, host, 8, FI_SEND, 0, FI_HMEM_SYSTEM, &mr));
	ct_fill(host[0], 100, 3);
	POST(&pair.b, fi_recv(pair.b.ep, host[1], 100, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(&pair.a, fi_send(pair.a.ep, host[0], 100, NULL, pair.a.to, &tx_context));
	ct_done(&pair.b, &pair.b.rx, &rx_context);
	ct_done(&pair.a, &pair.a.tx, &tx_context);
	REQUIRE(ct_holds(host[1], 100, 3));
	OK(fi_close(&mr->fid));
	ct_close_pair(&pair);
}

/* The same device by the interface of another one. */
static void as_rocr(void)
{
	setenv("FI_HMEM", "rocr", 1);
	ct_device_as("hmem-libhsa-runtime64.so");
	interface = FI_HMEM_ROCR;
}

static void rocr_messages(void)
{
	as_rocr();
	messages();
}

static void rocr_rma(void)
{
	as_rocr();
	rma_detected();
}

static void rocr_atomics(void)
{
	as_rocr();
	atomics();
}

static void rocr_mixed(void)
{
	as_rocr();
	mixed();
}

static void rocr_under_a_kernel(void)
{
	as_rocr();
	under_a_kernel();
}

static void rocr_held(void)
{
	as_rocr();
	held();
}

static void rocr_held_sends(void)
{
	as_rocr();
	held_sends();
}

static void rocr_failing(void)
{
	as_rocr();
	failing();
}

/* Short messages go through the mapping of GDRCopy's, and wait for no stream; others do not. */
static void gdrcopy(void)
{
	void *library = ct_device_as("hmem-libgdrapi.so.2.so");
	unsigned (*count)(void), (*pinned)(void), before;
	void (*refuse)(bool);
	struct bench bench = { 0 };

	*(void **)&count = dlsym(library, "standin_gdr_copies");
	*(void **)&pinned = dlsym(library, "standin_gdr_pinned");
	*(void **)&refuse = dlsym(library, "standin_gdr_refuse");
	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	REQUIRE(pinned() >= 2);
	REQUIRE(ct_device()->synchronous((uintptr_t)bench.near.data));
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	before = count();
	ct_device()->hold(true);
	for (size_t len = 1; len <= 3000; len = 3 * len + 1)
		pass(&bench, false, CT_SEND, CT_RECV, len, true);
	ct_device()->hold(false);
	REQUIRE(count() > before);
	before = ct_device()->copies();
	pass(&bench, false, CT_SEND, CT_RECV, 70000, true);
	REQUIRE(ct_device()->copies() > before);
	teardown(&bench);
	REQUIRE(!pinned());
	/* Memory that is not mapped is copied by the driver. */
	refuse(true);
	before = count();
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	REQUIRE(count() == before);
	teardown(&bench);
}

/* A program may want none of it. */
static void without_gdrcopy(void)
{
	struct bench bench = { 0 };
	unsigned (*pinned)(void);

	setenv("FI_HMEM_CUDA_USE_GDRCOPY", "0", 1);
	*(void **)&pinned = dlsym(ct_device_as("hmem-libgdrapi.so.2.so"), "standin_gdr_pinned");
	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	REQUIRE(!pinned());
	teardown(&bench);
}

static void as_ze(void)
{
	setenv("FI_HMEM", "ze", 1);
	ct_device_as("hmem-libze_loader.so");
	interface = FI_HMEM_ZE;
}

static void ze_messages(void)
{
	as_ze();
	messages();
}

static void ze_rma(void)
{
	as_ze();
	rma_detected();
}

static void ze_atomics(void)
{
	as_ze();
	atomics();
}

static void ze_mixed(void)
{
	as_ze();
	mixed();
}

static void ze_under_a_kernel(void)
{
	as_ze();
	under_a_kernel();
}

static void ze_held(void)
{
	as_ze();
	held();
}

static void ze_held_sends(void)
{
	as_ze();
	held_sends();
}

static void ze_failing(void)
{
	as_ze();
	failing();
}

static const struct ct_test tests[] = {
	{ "messages", messages, CT_BOTH | CT_SLOW },
	{ "tagged", tagged, CT_RDM | CT_SLOW },
	{ "detected", detected, CT_BOTH | CT_SLOW },
	{ "shared_receives", shared_receives, CT_BOTH | CT_SLOW },
	{ "rma", rma, CT_BOTH | CT_SLOW },
	{ "rma_detected", rma_detected, CT_BOTH | CT_SLOW },
	{ "atomics", atomics, CT_BOTH },
	{ "mixed", mixed, CT_BOTH },
	{ "under_a_kernel", under_a_kernel, CT_BOTH },
	{ "held", held, CT_BOTH },
	{ "held_sends", held_sends, CT_RDM },
	{ "held_results", held_results, CT_BOTH },
	{ "truncated", truncated, CT_BOTH },
	{ "misused", misused, CT_BOTH },
	{ "hooked", hooked, CT_BOTH },
	{ "failing", failing, CT_BOTH },
	{ "failing_reads", failing_reads, CT_BOTH },
	{ "after_a_reset", after_a_reset, CT_BOTH },
	{ "reset_receiving", reset_receiving, CT_BOTH },
	{ "reset_sending", reset_sending, CT_RDM },
	{ "reset_accessing", reset_accessing, CT_BOTH },
	{ "reset_counting", reset_counting, CT_BOTH },
	{ "own_functions", own_functions, CT_BOTH },
	{ "collective", collective, CT_RDM },
	{ "options", options, CT_BOTH },
	{ "without_a_driver", without_a_driver, CT_BOTH },
	{ "gdrcopy", gdrcopy, CT_BOTH },
	{ "without_gdrcopy", without_gdrcopy, CT_BOTH },
	{ "rocr_messages", rocr_messages, CT_BOTH | CT_SLOW },
	{ "rocr_rma", rocr_rma, CT_BOTH | CT_SLOW },
	{ "rocr_atomics", rocr_atomics, CT_BOTH },
	{ "rocr_mixed", rocr_mixed, CT_BOTH },
	{ "rocr_under_a_kernel", rocr_under_a_kernel, CT_BOTH },
	{ "rocr_held", rocr_held, CT_BOTH },
	{ "rocr_held_sends", rocr_held_sends, CT_RDM },
	{ "rocr_failing", rocr_failing, CT_BOTH },
	{ "ze_messages", ze_messages, CT_BOTH | CT_SLOW },
	{ "ze_rma", ze_rma, CT_BOTH | CT_SLOW },
	{ "ze_atomics", ze_atomics, CT_BOTH },
	{ "ze_mixed", ze_mixed, CT_BOTH },
	{ "ze_under_a_kernel", ze_under_a_kernel, CT_BOTH },
	{ "ze_held", ze_held, CT_BOTH },
	{ "ze_held_sends", ze_held_sends, CT_RDM },
	{ "ze_failing", ze_failing, CT_BOTH },
};

CT_MAIN(tests)
