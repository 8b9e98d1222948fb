/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Memory of a device (FI_HMEM): every call with such memory at either end and
 * at both, on the device of device.h, which no processor can touch.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_ext.h>

#include "hmem/bench.h"

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

static void pass_all(struct bench *bench)
{
	struct ct_peer *a = &bench->pair.a;
	bool tagged = ct_has(a, FI_TAGGED);

	for (int form = 0; form < CT_SEND_FORMS; form++) {
		enum ct_recv_form recv = form % CT_RECV_FORMS;

		if (!ct_send_offered(a, form) || (demands_desc && is_inject(form)))
			continue;
		for (size_t i = 0; i < SIZES; i++) {
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
		for (size_t i = 0; i < SIZES; i++) {
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
	for (size_t i = 0; i < SIZES; i++)
		pass(&bench, false, CT_SEND, CT_RECV, sizes[i], true);
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

		int ret = fi_set_ops(&peers[i]->domain->fid, FI_SET_OPS_HMEM_OVERRIDE, 0, &ops, NULL);

		if (ret == -FI_EOPNOTSUPP)
			SKIP("not offered");
		OK(ret);
		OK(register_as(peers[i], buffer->data, LARGEST, FI_SEND | FI_RECV, 5, FI_HMEM_ROCR, &mr[i]));
		desc[i] = fi_mr_desc(mr[i]);
	}
	unsigned before = ct_device()->copies();
	for (size_t i = 0; i < SIZES; i++) {
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

/* Or less of it. */
static void gdrcopy_limit(void)
{
	struct bench bench = { 0 };
	unsigned (*count)(void), before;

	if (!ct_opt.provider || strcmp(ct_opt.provider, "shm"))
		SKIP("an option of shm");
	setenv("FI_SHM_MAX_GDRCOPY_SIZE", "100", 1);
	*(void **)&count = dlsym(ct_device_as("hmem-libgdrapi.so.2.so"), "standin_gdr_copies");
	demands_desc = true;
	setup(&bench, (struct ct_spec) { .caps = FI_MSG }, true, true);
	before = count();
	pass(&bench, false, CT_SEND, CT_RECV, 101, true);
	REQUIRE(count() == before);
	pass(&bench, false, CT_SEND, CT_RECV, 100, true);
	REQUIRE(count() > before);
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
	{ "reset_midway", reset_midway, CT_BOTH },
	{ "reset_accessing", reset_accessing, CT_BOTH },
	{ "reset_counting", reset_counting, CT_BOTH },
	{ "own_functions", own_functions, CT_BOTH },
	{ "collective", collective, CT_RDM },
	{ "options", options, CT_BOTH },
	{ "without_a_driver", without_a_driver, CT_BOTH },
	{ "gdrcopy", gdrcopy, CT_BOTH },
	{ "gdrcopy_limit", gdrcopy_limit, CT_BOTH },
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
