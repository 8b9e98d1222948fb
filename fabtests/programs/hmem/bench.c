/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "memory.h"

const size_t sizes[SIZES] = { 0, 1, 8, 100, 4096, 5000, 16384, 70000, LARGEST };

bool demands_desc;
enum fi_hmem_iface interface = FI_HMEM_CUDA;

void with_descriptors(struct fi_info *hints)
{
	hints->domain_attr->mr_mode |= FI_MR_HMEM;
}

static void without_descriptors(struct fi_info *hints)
{
	hints->domain_attr->mr_mode &= ~FI_MR_HMEM;
}

int register_as(struct ct_peer *peer, void *data, size_t len, uint64_t access, int device,
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

void put(struct bench *bench, struct buffer *buffer, size_t len, unsigned seed)
{
	ct_fill(bench->scratch, len, seed);
	if (buffer->is_device)
		ct_device()->poke((uintptr_t)buffer->data, bench->scratch, len);
	else
		memcpy(buffer->data, bench->scratch, len);
}

void *content(struct bench *bench, struct buffer *buffer, size_t len)
{
	if (!buffer->is_device)
		return buffer->data;
	ct_device()->peek((uintptr_t)buffer->data, bench->scratch, len);
	return bench->scratch;
}

bool holds(struct bench *bench, struct buffer *buffer, size_t len, unsigned seed)
{
	return ct_holds(content(bench, buffer, len), len, seed);
}

void setup(struct bench *bench, struct ct_spec spec, bool near, bool far)
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

void teardown(struct bench *bench)
{
	close_buffer(&bench->near);
	close_buffer(&bench->far);
	ct_close_pair(&bench->pair);
	free(bench->scratch);
	REQUIRE(!ct_device()->waits());
}

bool is_inject(enum ct_send_form form)
{
	return form == CT_INJECT || form == CT_INJECTDATA;
}

void pass(struct bench *bench, bool tagged, enum ct_send_form send, enum ct_recv_form recv,
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

uint64_t word(struct bench *bench, struct buffer *buffer)
{
	uint64_t value;

	memcpy(&value, content(bench, buffer, 8), 8);
	return value;
}

void set(struct buffer *buffer, size_t at, uint64_t value)
{
	if (buffer->is_device)
		ct_device()->poke((uintptr_t)buffer->data + at, &value, 8);
	else
		memcpy(buffer->data + at, &value, 8);
}

/* Passes a message of the host's memory to a peer that has one of its own. */
void pass_host(struct ct_peer *from, fi_addr_t to, struct ct_peer *at)
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
