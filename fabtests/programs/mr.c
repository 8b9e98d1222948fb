/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Memory regions: registration calls, keys, and the limits of remote access. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

#define SIZE 4096

static struct fi_context2 context;

static void setup(struct ct_pair *pair)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };

	ct_open_pair(pair, &spec);
	ct_warm_up(pair);
}

static struct ct_completion attempt(struct ct_peer *from, enum ct_rma_form form,
				    struct ct_memory *local, size_t len,
				    uint64_t addr, uint64_t key)
{
	struct ct_rma rma = {
		.buf = local->data, .len = len, .desc = local->desc,
		.addr = addr, .key = key, .context = &context,
		.flags = form == CT_WRITEMSG ? FI_DELIVERY_COMPLETE : 0,
	};

	POST(from, ct_rma(from, form, &rma));
	return ct_next(from, &from->tx);
}

/* Each permission allows its own kind of access and no other. */
static void permissions(void)
{
	static const struct {
		const char *name;
		uint64_t access;
	} cases[] = {
		{ "read", FI_REMOTE_READ },
		{ "write", FI_REMOTE_WRITE },
		{ "both", FI_REMOTE_READ | FI_REMOTE_WRITE },
		{ "local", FI_SEND | FI_RECV | FI_READ | FI_WRITE },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int write = 0; write < 2; write++) {
			bool allowed = cases[i].access &
				(write ? FI_REMOTE_WRITE : FI_REMOTE_READ);
			struct ct_memory local, remote = { 0 };
			struct ct_completion done;
			struct ct_pair pair;
			unsigned char *data = calloc(1, SIZE);

			REQUIRE(data);
			setup(&pair);
			ct_memory_open(&pair.a, &local, SIZE,
				       FI_READ | FI_WRITE);
			ct_register(&pair.b, &remote, data, SIZE,
				    cases[i].access);
			ct_fill(local.data, SIZE, 1);
			ct_fill(data, SIZE, 2);
			done = attempt(&pair.a, write ? CT_WRITEMSG : CT_READ,
				       &local, SIZE, remote.addr, remote.key);
			CHECK(!done.err == allowed, "%s-%s", cases[i].name,
			      write ? "written" : "read");
			CHECK(ct_holds(data, SIZE, allowed && write ? 1 : 2),
			      "%s-%s-target", cases[i].name,
			      write ? "written" : "read");
			if (!write && !allowed)
				CHECK(ct_holds(local.data, SIZE, 1),
				      "%s-read-result", cases[i].name);
			ct_memory_close(&local);
			ct_memory_close(&remote);
			ct_close_pair(&pair);
		}
	}
}

/* Ranges that leave the region by any amount in any direction are refused. */
static void bounds(void)
{
	static const struct {
		const char *name;
		uint64_t offset;
		size_t len;
		bool inside;
	} cases[] = {
		{ "whole", 0, SIZE, true },
		{ "first-byte", 0, 1, true },
		{ "last-byte", SIZE - 1, 1, true },
		{ "one-too-long", 0, SIZE + 1, false },
		{ "one-beyond", SIZE, 1, false },
		{ "across-the-end", SIZE - 10, 20, false },
		{ "before", (uint64_t)-1, 1, false },
		{ "across-the-start", (uint64_t)-10, 20, false },
		{ "far", 1ULL << 40, 1, false },
		{ "wraps", (uint64_t)-SIZE, SIZE + 8, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int write = 0; write < 2; write++) {
			struct ct_memory local, remote;
			struct ct_completion done;
			struct ct_pair pair;

			setup(&pair);
			ct_memory_open(&pair.a, &local, 2 * SIZE,
				       FI_READ | FI_WRITE);
			ct_memory_open(&pair.b, &remote, SIZE,
				       FI_REMOTE_READ | FI_REMOTE_WRITE);
			ct_fill(remote.data, SIZE, 2);
			done = attempt(&pair.a, write ? CT_WRITEMSG : CT_READ,
				       &local, cases[i].len,
				       remote.addr + cases[i].offset,
				       remote.key);
			CHECK(!done.err == cases[i].inside, "%s-%s",
			      cases[i].name, write ? "write" : "read");
			if (!cases[i].inside)
				REQUIRE(ct_holds(remote.data, SIZE, 2));
			ct_memory_close(&local);
			ct_memory_close(&remote);
			ct_close_pair(&pair);
		}
	}
}

/* Keys that name no region, or one that is gone, or one of another process's
 * choosing. */
static void keys(void)
{
	static const char *const names[] = { "unknown", "closed", "zero" };

	for (int what = 0; what < 3; what++) {
		struct ct_memory local, remote;
		struct ct_completion done;
		struct ct_pair pair;
		uint64_t key, addr;

		setup(&pair);
		ct_memory_open(&pair.a, &local, SIZE, FI_READ | FI_WRITE);
		ct_memory_open(&pair.b, &remote, SIZE,
			       FI_REMOTE_READ | FI_REMOTE_WRITE);
		key = remote.key;
		addr = remote.addr;
		if (what == 0)
			key ^= 0x5555;
		else if (what == 2)
			key = 0;
		else
			ct_memory_close(&remote);
		done = attempt(&pair.a, CT_READ, &local, SIZE, addr, key);
		CHECK(done.err > 0, "%s", names[what]);
		CHECK(done.context == &context, "%s-context", names[what]);
		if (what != 1)
			ct_memory_close(&remote);
		ct_memory_close(&local);
		ct_close_pair(&pair);
	}
}

/* After a refused access the two sides can continue: immediately, or after the
 * connection has been re-established (RDM). */
static void after_refusal(void)
{
	static struct fi_context2 tx_context, rx_context;
	struct ct_memory local, remote;
	struct ct_completion done;
	double until = ct_now() + ct_patience();
	struct ct_pair pair;

	setup(&pair);
	ct_memory_open(&pair.a, &local, SIZE, FI_READ | FI_WRITE);
	ct_memory_open(&pair.b, &remote, SIZE, FI_REMOTE_READ);
	done = attempt(&pair.a, CT_READ, &local, SIZE, remote.addr,
		       remote.key ^ 0x77);
	REQUIRE(done.err > 0);
	/* A message that finds the connection on its way out may fail once. */
	POST(&pair.b, fi_recv(pair.b.ep, NULL, 0, NULL, FI_ADDR_UNSPEC,
			      &rx_context));
	do {
		REQUIRE(ct_now() < until);
		POST(&pair.a, fi_send(pair.a.ep, NULL, 0, NULL, pair.a.to,
				      &tx_context));
		done = ct_next(&pair.a, &pair.a.tx);
	} while (done.err);
	ct_done(&pair.b, &pair.b.rx, &rx_context);
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

/* The key that was asked for is the key, unless the provider chooses. */
static void requested_key(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	static unsigned char data[2][64];
	struct fid_mr *mr[2];
	struct ct_peer peer;
	int ret;

	ct_open_single(&peer, &spec);
	if (ct_mr_mode(&peer) & FI_MR_PROV_KEY)
		SKIP("the provider chooses keys");
	OK(fi_mr_reg(peer.domain, data[0], 64, FI_REMOTE_READ, 0, 0xc0ffee, 0,
		     &mr[0], NULL));
	ct_register_finish(&peer, mr[0]);
	CHECK(fi_mr_key(mr[0]) == 0xc0ffee, "kept");
	ret = fi_mr_reg(peer.domain, data[1], 64, FI_REMOTE_READ, 0, 0xc0ffee,
			0, &mr[1], NULL);
	CHECK(ret == -FI_ENOKEY, "taken");
	OK(fi_close(&mr[0]->fid));
	OK(fi_mr_reg(peer.domain, data[1], 64, FI_REMOTE_READ, 0, 0xc0ffee, 0,
		     &mr[1], NULL));
	CHECK(fi_mr_key(mr[1]) == 0xc0ffee, "free-again");
	OK(fi_close(&mr[1]->fid));
	ct_close_peer(&peer);
}

static void want_provider_keys(struct fi_info *hints)
{
	/* Only this mode and those that belong to it, so that it has an
	 * effect. */
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY;
}

/* Keys of the provider's choosing are distinct and not in sequence, whatever
 * key was asked for. */
static void choose_keys(struct fid_domain *domain, struct ct_peer *peer)
{
	enum { COUNT = 64 };
	static unsigned char data[64];
	struct fid_mr *mr[COUNT];
	uint64_t key[COUNT];
	int steps = 0;

	for (int i = 0; i < COUNT; i++) {
		OK(fi_mr_reg(domain, data, sizeof(data), FI_REMOTE_READ, 0, 5,
			     0, &mr[i], NULL));
		if (peer)
			ct_register_finish(peer, mr[i]);
		key[i] = fi_mr_key(mr[i]);
		for (int j = 0; j < i; j++)
			REQUIRE(key[j] != key[i]);
		if (i)
			steps += key[i] - key[i - 1] < 0x10000;
	}
	CHECK(steps < COUNT / 4, "not-guessable");
	for (int i = 0; i < COUNT; i++)
		OK(fi_close(&mr[i]->fid));
}

static void provider_keys(void)
{
	struct ct_spec spec = {
		.caps = FI_MSG | FI_RMA, .hint = want_provider_keys,
	};
	struct ct_peer peer;

	ct_open_single(&peer, &spec);
	if (!(ct_mr_mode(&peer) & FI_MR_PROV_KEY)) {
		ct_close_peer(&peer);
		SKIP("the application chooses keys");
	}
	choose_keys(peer.domain, &peer);
	ct_close_peer(&peer);
}

/* fi_mr_regattr and fi_mr_regv register like fi_mr_reg. */
static void calls(void)
{
	struct ct_memory local, remote;
	struct ct_completion done;
	struct ct_pair pair;
	uint64_t base;

	for (int call = 0; call < 2; call++) {
		struct iovec iov;
		struct fi_mr_attr attr = {
			.mr_iov = &iov, .iov_count = 1,
			.access = FI_REMOTE_READ,
		};

		setup(&pair);
		ct_memory_open(&pair.a, &local, SIZE, FI_READ);
		remote = (struct ct_memory) { .data = malloc(SIZE) };
		REQUIRE(remote.data);
		ct_fill(remote.data, SIZE, 3);
		iov.iov_base = remote.data;
		iov.iov_len = SIZE;
		attr.requested_key = ct_fresh_key();
		if (call)
			OK(fi_mr_regattr(pair.b.domain, &attr, 0, &remote.mr));
		else
			OK(fi_mr_regv(pair.b.domain, &iov, 1, FI_REMOTE_READ,
				      0, attr.requested_key, 0, &remote.mr,
				      NULL));
		ct_register_finish(&pair.b, remote.mr);
		base = ct_mr_mode(&pair.b) & FI_MR_VIRT_ADDR ?
		       (uintptr_t)remote.data : 0;
		done = attempt(&pair.a, CT_READ, &local, SIZE, base,
			       fi_mr_key(remote.mr));
		REQUIRE(!done.err);
		CHECK(ct_holds(local.data, SIZE, 3), call ? "regattr" : "regv");
		ct_memory_close(&local);
		ct_memory_close(&remote);
		ct_close_pair(&pair);
	}
}

/* Several pieces of memory as one region. */
static void pieces(void)
{
	struct ct_memory local;
	struct ct_pair pair;
	struct fid_mr *mr;
	struct iovec iov[2];
	unsigned char *data;
	uint64_t base;

	setup(&pair);
	if (pair.b.info->domain_attr->mr_iov_limit < 2)
		SKIP("mr_iov_limit is 1");
	data = calloc(4, SIZE);
	REQUIRE(data);
	iov[0] = (struct iovec) { data, SIZE };
	iov[1] = (struct iovec) { data + 3 * SIZE, SIZE };
	ct_fill(data, 4 * SIZE, 8);
	ct_memory_open(&pair.a, &local, 2 * SIZE, FI_READ);
	OK(fi_mr_regv(pair.b.domain, iov, 2, FI_REMOTE_READ, 0, ct_fresh_key(),
		      0, &mr, NULL));
	ct_register_finish(&pair.b, mr);
	base = ct_mr_mode(&pair.b) & FI_MR_VIRT_ADDR ? (uintptr_t)data : 0;
	REQUIRE(!attempt(&pair.a, CT_READ, &local, 2 * SIZE, base,
			 fi_mr_key(mr)).err);
	REQUIRE(!memcmp(local.data, data, SIZE));
	REQUIRE(!memcmp(local.data + SIZE, data + 3 * SIZE, SIZE));
	OK(fi_close(&mr->fid));
	free(data);
	ct_memory_close(&local);
	ct_close_pair(&pair);
}

static void arguments(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct ct_peer peer;
	struct fid_mr *mr;
	static unsigned char data[64];
	struct iovec iov = { data, sizeof(data) };
	size_t limit;

	ct_open_single(&peer, &spec);
	limit = peer.info->domain_attr->mr_iov_limit;
	CHECK(fi_mr_reg(peer.domain, data, 64, FI_REMOTE_READ, 1,
			ct_fresh_key(), 0, &mr, NULL) == 0, "offset-ignored");
	OK(fi_close(&mr->fid));
	CHECK(fi_mr_regv(peer.domain, &iov, 0, FI_REMOTE_READ, 0,
			 ct_fresh_key(), 0, &mr, NULL) < 0, "no-pieces");
	if (limit < 64) {
		struct iovec many[64];

		for (int i = 0; i < 64; i++)
			many[i] = iov;
		CHECK(fi_mr_regv(peer.domain, many, limit + 1, FI_REMOTE_READ,
				 0, ct_fresh_key(), 0, &mr, NULL) < 0,
		      "too-many-pieces");
	}
	ct_close_peer(&peer);
}

/* The raw form of a key works like plain keys. */
static void raw_key(void)
{
	struct ct_memory local, remote;
	struct ct_completion done;
	struct ct_pair pair;
	uint8_t raw[256];
	uint64_t base = 1, key = 0;
	size_t size = 0;
	int ret;

	setup(&pair);
	ct_memory_open(&pair.a, &local, SIZE, FI_READ);
	ct_memory_open(&pair.b, &remote, SIZE, FI_REMOTE_READ);
	ret = fi_mr_raw_attr(remote.mr, &base, raw, &size, 0);
	if (ret == -FI_ENOSYS)
		SKIP("no raw keys");
	EXPECT(ret, -FI_ETOOSMALL);
	CHECK(size == pair.b.info->domain_attr->mr_key_size, "size");
	REQUIRE(size <= sizeof(raw));
	OK(fi_mr_raw_attr(remote.mr, &base, raw, &size, 0));
	CHECK(base == remote.addr, "base");
	OK(fi_mr_map_raw(pair.a.domain, base, raw, size, &key, 0));
	done = attempt(&pair.a, CT_READ, &local, SIZE, base, key);
	CHECK(!done.err, "usable");
	OK(fi_mr_unmap_key(pair.a.domain, key));
	ct_memory_close(&local);
	ct_memory_close(&remote);
	ct_close_pair(&pair);
}

static void refresh(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct ct_memory memory;
	struct ct_peer peer;
	struct iovec iov;
	int ret;

	ct_open_single(&peer, &spec);
	ct_memory_open(&peer, &memory, SIZE, FI_REMOTE_READ);
	iov = (struct iovec) { memory.data, SIZE };
	ret = fi_mr_refresh(memory.mr, &iov, 1, 0);
	CHECK(ret == 0 || (ret == -FI_ENOSYS &&
			   !(ct_mr_mode(&peer) & FI_MR_MMU_NOTIFY)), "range");
	ret = fi_mr_refresh(memory.mr, NULL, 0, 0);
	CHECK(ret == 0 || (ret == -FI_ENOSYS &&
			   !(ct_mr_mode(&peer) & FI_MR_MMU_NOTIFY)), "whole");
	ct_memory_close(&memory);
	ct_close_peer(&peer);
}

/* Many regions at the same time, each with its own key. */
static void many(void)
{
	enum { COUNT = 2000 };
	static struct ct_memory regions[COUNT];
	struct ct_memory local;
	struct ct_pair pair;

	setup(&pair);
	ct_memory_open(&pair.a, &local, 16, FI_READ);
	for (int i = 0; i < COUNT; i++) {
		ct_memory_open(&pair.b, &regions[i], 16, FI_REMOTE_READ);
		ct_fill(regions[i].data, 16, (unsigned)i);
	}
	for (int i = 0; i < COUNT; i += 13) {
		REQUIRE(!attempt(&pair.a, CT_READ, &local, 16, regions[i].addr,
				 regions[i].key).err);
		REQUIRE(ct_holds(local.data, 16, (unsigned)i));
	}
	for (int i = 0; i < COUNT; i++)
		ct_memory_close(&regions[i]);
	ct_memory_close(&local);
	ct_close_pair(&pair);
}

/* Old memory registration modes are returned as they were requested. */
static void basic(struct fi_info *hints)
{
	hints->domain_attr->mr_mode = 1 << 0;	/* FI_MR_BASIC */
}

static void scalable(struct fi_info *hints)
{
	hints->domain_attr->mr_mode = 1 << 1;	/* FI_MR_SCALABLE */
}

static void old_modes(void)
{
	for (int i = 0; i < 2; i++) {
		struct ct_spec spec = {
			.caps = FI_MSG | FI_RMA, .hint = i ? scalable : basic,
		};
		struct fi_info *hints = ct_hints(&spec), *info = NULL;
		static unsigned char data[64];
		struct ct_peer peer;
		struct fid_mr *mr;
		int ret;

		ret = fi_getinfo(FI_VERSION(1, 4), ct_opt.source, NULL,
				 ct_opt.source ? FI_SOURCE : 0, hints, &info);
		fi_freeinfo(hints);
		if (ret == -FI_ENODATA)
			continue;
		OK(ret);
		CHECK(info->domain_attr->mr_mode == 1 << i,
		      i ? "scalable" : "basic");
		ct_open_domain(&peer, &spec, info, NULL, NULL);
		OK(fi_mr_reg(peer.domain, data, sizeof(data), FI_REMOTE_READ, 0, 5,
			     0, &mr, NULL));
		if (i)
			CHECK(fi_mr_key(mr) == 5, "scalable-key");
		else
			choose_keys(peer.domain, NULL);
		OK(fi_close(&mr->fid));
		ct_close_peer(&peer);
	}
}

static void domain_busy(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	static unsigned char data[64];
	struct ct_peer peer;
	struct fid_mr *mr;

	ct_open_domain(&peer, &spec, ct_getinfo(&spec), NULL, NULL);
	OK(fi_mr_reg(peer.domain, data, sizeof(data), FI_REMOTE_READ, 0,
		     ct_fresh_key(), 0, &mr, NULL));
	EXPECT(fi_close(&peer.domain->fid), -FI_EBUSY);
	OK(fi_close(&mr->fid));
	ct_close_peer(&peer);
}

static const struct ct_test tests[] = {
	{ "permissions", permissions, CT_BOTH },
	{ "bounds", bounds, CT_BOTH },
	{ "keys", keys, CT_BOTH },
	{ "after-refusal", after_refusal, CT_RDM },
	{ "requested-key", requested_key, CT_BOTH },
	{ "provider-keys", provider_keys, CT_BOTH },
	{ "calls", calls, CT_BOTH },
	{ "pieces", pieces, CT_BOTH },
	{ "arguments", arguments, CT_BOTH },
	{ "raw-key", raw_key, CT_BOTH },
	{ "refresh", refresh, CT_BOTH },
	{ "many", many, CT_BOTH },
	{ "old-modes", old_modes, CT_BOTH },
	{ "domain-busy", domain_busy, CT_BOTH },
};

CT_MAIN(tests)
