/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Authorization keys: only endpoints with the same key communicate. */
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "connect.h"
#include "memory.h"
#include "pattern.h"
#include "transfer.h"
#include "wait.h"

static struct fi_context2 tx_context, rx_context;

/* The keys that the next hints ask for; NULL: none. */
static struct {
	const char *domain, *ep;
} wanted;

static void put(const char *key, uint8_t **place, size_t *size)
{
	if (!key)
		return;
	*place = (uint8_t *)strdup(key);
	REQUIRE(*place);
	*size = strlen(key);
}

static void with_keys(struct fi_info *hints)
{
	put(wanted.domain, &hints->domain_attr->auth_key,
	    &hints->domain_attr->auth_key_size);
	put(wanted.ep, &hints->ep_attr->auth_key,
	    &hints->ep_attr->auth_key_size);
}

static const struct ct_spec spec = {
	.caps = FI_MSG | FI_RMA, .hint = with_keys,
};

static struct fi_info *info_with(const char *domain, const char *ep)
{
	wanted.domain = domain;
	wanted.ep = ep;
	return ct_getinfo(&spec);
}

/* Two domains of one fabric; a accepts the connection. */
struct bench {
	struct ct_peer a, b;
	struct fid_pep *pep;
	unsigned char name[CT_NAME];
};

static void open_b(struct bench *bench, const char *domain, const char *ep)
{
	ct_open_domain(&bench->b, &spec, info_with(domain, ep),
		       bench->a.fabric, NULL);
	bench->a.partner = &bench->b;
	bench->b.partner = &bench->a;
	ct_open_ep(&bench->b, bench->b.info);
	if (bench->b.av)
		bench->b.to = ct_insert(&bench->b, bench->name);
}

static void open_a(struct bench *bench, const char *domain, const char *ep)
{
	struct ct_peer *a = &bench->a;

	memset(bench, 0, sizeof(*bench));
	ct_open_domain(a, &spec, info_with(domain, ep), NULL, NULL);
	if (ct_opt.type == FI_EP_MSG) {
		bench->pep = ct_listen(a);
		ct_name(&bench->pep->fid, bench->name, sizeof(bench->name));
	} else {
		ct_open_ep(a, a->info);
		ct_name(&a->ep->fid, bench->name, sizeof(bench->name));
	}
}

static void close_bench(struct bench *bench)
{
	if (bench->pep)
		OK(fi_close(&bench->pep->fid));
	ct_close_peer(&bench->b);
	ct_close_peer(&bench->a);
}

/* The two get a connection and pass a message. */
static void talk(struct bench *bench)
{
	struct ct_peer *a = &bench->a, *b = &bench->b;
	unsigned char name[CT_NAME];

	if (bench->pep) {
		ct_connect(b, a, bench->name);
	} else {
		ct_name(&b->ep->fid, name, sizeof(name));
		a->to = ct_insert(a, name);
	}
	POST(a, fi_recv(a->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(b, fi_send(b->ep, NULL, 0, NULL, b->to, &tx_context));
	ct_done(a, &a->rx, &rx_context);
	ct_done(b, &b->tx, &tx_context);
}

/* b tries to reach a, fails, learns why, and leaves no trace. */
static void is_refused(struct bench *bench)
{
	struct ct_peer *a = &bench->a, *b = &bench->b;

	if (bench->pep) {
		struct ct_event event;

		OK(fi_connect(b->ep, bench->name, NULL, 0));
		event = ct_any_event(b);
		REQUIRE(event.failed);
		REQUIRE(event.err.err == FI_EKEYREJECTED);
		REQUIRE(event.err.fid == &b->ep->fid);
		REQUIRE(ct_no_event(a));
		return;
	}
	POST(a, fi_recv(a->ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(b, fi_send(b->ep, NULL, 0, NULL, b->to, &tx_context));
	REQUIRE(ct_error(b, &b->tx).err == FI_EKEYREJECTED);
	REQUIRE(ct_stays_empty(a, &a->rx));
}

static bool has_key(const uint8_t *key, size_t size, const char *want)
{
	return size == strlen(want) && key && !memcmp(key, want, size);
}

static void check_info(const struct fi_info *info, const char *what)
{
	const struct fi_domain_attr *domain = info->domain_attr;
	const struct fi_ep_attr *ep = info->ep_attr;

	CHECK(has_key(domain->auth_key, domain->auth_key_size, "a domain's"),
	      "%s/domain", what);
	CHECK(has_key(ep->auth_key, ep->auth_key_size, "an endpoint's own"),
	      "%s/endpoint", what);
}

/* Keys in hints are returned in every entry and in copies. */
static void round_trip(void)
{
	struct fi_info *info = info_with("a domain's", "an endpoint's own");
	struct fi_info *copy, *again = NULL, *plain;

	for (struct fi_info *entry = info; entry; entry = entry->next) {
		REQUIRE(has_key(entry->ep_attr->auth_key,
				entry->ep_attr->auth_key_size,
				"an endpoint's own"));
	}
	check_info(info, "found");
	copy = fi_dupinfo(info);
	REQUIRE(copy && copy->ep_attr->auth_key != info->ep_attr->auth_key);
	check_info(copy, "copied");
	OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, info, &again));
	check_info(again, "as-hints");
	plain = info_with(NULL, NULL);
	REQUIRE(!plain->ep_attr->auth_key && !plain->ep_attr->auth_key_size);
	REQUIRE(!plain->domain_attr->auth_key &&
		!plain->domain_attr->auth_key_size);
	fi_freeinfo(plain);
	fi_freeinfo(again);
	fi_freeinfo(copy);
	fi_freeinfo(info);
}

/* A size without a key is refused. */
static void size_alone(void)
{
	struct fi_info *info = info_with(NULL, NULL);
	struct fid_domain *domain = NULL;
	struct fid_fabric *fabric;
	struct fid_ep *ep = NULL;
	struct fid_pep *pep = NULL;

	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	info->domain_attr->auth_key_size = 8;
	EXPECT(fi_domain(fabric, info, &domain, NULL), -FI_EINVAL);
	info->domain_attr->auth_key_size = FI_AV_AUTH_KEY;
	EXPECT(fi_domain(fabric, info, &domain, NULL), -FI_EINVAL);
	info->domain_attr->auth_key_size = 0;
	OK(fi_domain(fabric, info, &domain, NULL));
	info->ep_attr->auth_key_size = 8;
	EXPECT(fi_endpoint(domain, info, &ep, NULL), -FI_EINVAL);
	if (ct_opt.type == FI_EP_MSG)
		EXPECT(fi_passive_ep(fabric, info, &pep, NULL), -FI_EINVAL);
	info->ep_attr->auth_key_size = 0;
	OK(fi_close(&domain->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
}

static void keys_of_endpoints(void)
{
	struct bench bench;

	open_a(&bench, NULL, "secret");
	open_b(&bench, NULL, "secret");
	talk(&bench);
	close_bench(&bench);
}

static void keys_of_domains(void)
{
	struct bench bench;

	open_a(&bench, "secret", NULL);
	open_b(&bench, "secret", NULL);
	talk(&bench);
	close_bench(&bench);
}

/* It counts before the domain's. */
static void endpoint_before_domain(void)
{
	struct bench bench;

	open_a(&bench, "the domain's", "secret");
	open_b(&bench, "another one", "secret");
	talk(&bench);
	close_bench(&bench);
	open_a(&bench, "the domain's", "secret");
	open_b(&bench, "the domain's", "public");
	is_refused(&bench);
	close_bench(&bench);
}

static void another_key(void)
{
	struct bench bench;

	open_a(&bench, NULL, "secret");
	open_b(&bench, NULL, "secrer");
	is_refused(&bench);
	close_bench(&bench);
}

static void no_key(void)
{
	struct bench bench;

	open_a(&bench, NULL, "secret");
	open_b(&bench, NULL, NULL);
	is_refused(&bench);
	close_bench(&bench);
}

/* Nor does one with a key make do with less. */
static void peer_without_key(void)
{
	struct bench bench;

	open_a(&bench, NULL, NULL);
	open_b(&bench, NULL, "secret");
	is_refused(&bench);
	close_bench(&bench);
}

/* If the application gives no key, the user's is used, on both sides. */
static void key_of_a_file(void)
{
	char path[] = "/tmp/ct-key-XXXXXX";
	struct bench bench;
	int fd = mkstemp(path);

	REQUIRE(fd >= 0 && write(fd, "secret\n", 7) == 7);
	close(fd);
	/* Read at the first call. */
	setenv("FI_TCP_AUTH_KEY_FILE", path, 1);
	open_a(&bench, NULL, NULL);
	open_b(&bench, NULL, NULL);
	talk(&bench);
	close_bench(&bench);
	open_a(&bench, NULL, NULL);
	open_b(&bench, NULL, "secret");
	talk(&bench);
	close_bench(&bench);
	open_a(&bench, "public", NULL);
	open_b(&bench, NULL, NULL);
	is_refused(&bench);
	close_bench(&bench);
	unlink(path);
}

/* A request that was made with one key is refused by an endpoint with another.
 */
static void request_with_another_key(void)
{
	struct ct_event request, event;
	struct bench bench;
	struct ct_peer *a = &bench.a, *b = &bench.b;
	struct fid_ep *ep = NULL;

	open_a(&bench, NULL, "secret");
	open_b(&bench, NULL, "secret");
	OK(fi_connect(b->ep, bench.name, NULL, 0));
	ct_wait_request(a, &request);
	REQUIRE(has_key(request.info->ep_attr->auth_key,
			request.info->ep_attr->auth_key_size, "secret"));
	request.info->ep_attr->auth_key[0] = 'S';
	EXPECT(fi_endpoint(a->domain, request.info, &ep, NULL),
	       -FI_EKEYREJECTED);
	request.info->ep_attr->auth_key_size = 0;
	EXPECT(fi_endpoint(a->domain, request.info, &ep, NULL),
	       -FI_EKEYREJECTED);
	request.info->ep_attr->auth_key_size = strlen("secret");
	/* It waits for an answer all the same. */
	OK(fi_reject(bench.pep, request.info->handle, NULL, 0));
	event = ct_any_event(b);
	REQUIRE(event.failed && event.err.err == FI_ECONNREFUSED);
	fi_freeinfo(request.info);
	close_bench(&bench);
}

/* Endpoints of one domain have keys of their own. */
static void two_keys_in_a_domain(void)
{
	struct bench bench;
	struct ct_peer *a = &bench.a, other;
	struct fi_info *info;
	unsigned char name[CT_NAME];

	open_a(&bench, "domain", "one");
	info = info_with("domain", "two");
	ct_open_domain(&other, &spec, fi_dupinfo(info), a->fabric, a->domain);
	ct_open_ep(&other, other.info);
	fi_freeinfo(info);
	open_b(&bench, NULL, "two");
	is_refused(&bench);
	ct_name(&other.ep->fid, name, sizeof(name));
	bench.b.to = ct_insert(&bench.b, name);
	other.partner = &bench.b;
	bench.b.partner = &other;
	POST(&other, fi_recv(other.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, &rx_context));
	POST(&bench.b, fi_send(bench.b.ep, NULL, 0, NULL, bench.b.to, &tx_context));
	ct_done(&other, &other.rx, &rx_context);
	ct_done(&bench.b, &bench.b.tx, &tx_context);
	bench.b.partner = a;
	ct_close_peer(&other);
	close_bench(&bench);
}

static struct fid_mr *region(struct ct_peer *peer, void *buf, size_t len,
			     const char *key)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct fi_mr_attr attr = {
		.mr_iov = &iov, .iov_count = 1,
		.access = FI_REMOTE_READ | FI_REMOTE_WRITE,
		.requested_key = ct_fresh_key(),
		.auth_key = (uint8_t *)key,
		.auth_key_size = key ? strlen(key) : 0,
	};
	struct fid_mr *mr;

	OK(fi_mr_regattr(peer->domain, &attr, 0, &mr));
	ct_register_finish(peer, mr);
	return mr;
}

/* A region is for peers that proved its key: its own, or the domain's. */
static void regions(const char *domain, const char *mine, const char *key,
		    bool permitted)
{
	unsigned char in[8] = { 0 }, out[8] = "12345678";
	struct ct_completion done;
	struct ct_memory local;
	struct bench bench;
	struct ct_peer *a = &bench.a, *b = &bench.b;
	struct fid_mr *mr;
	uint64_t addr;

	open_a(&bench, domain, mine);
	open_b(&bench, NULL, mine);
	talk(&bench);
	mr = region(a, in, sizeof(in), key);
	addr = ct_mr_mode(a) & FI_MR_VIRT_ADDR ? (uintptr_t)in : 0;
	ct_memory_open(b, &local, sizeof(out), FI_WRITE);
	memcpy(local.data, out, sizeof(out));
	/* Done means done at the target, so that the fate of both shows. */
	{
		struct iovec iov = { local.data, sizeof(out) };
		struct fi_rma_iov rma = { addr, sizeof(out), fi_mr_key(mr) };
		struct fi_msg_rma msg = {
			.msg_iov = &iov, .iov_count = 1, .desc = &local.desc,
			.addr = b->to, .rma_iov = &rma, .rma_iov_count = 1,
			.context = &tx_context,
		};

		POST(b, fi_writemsg(b->ep, &msg,
				    FI_DELIVERY_COMPLETE | FI_COMPLETION));
	}
	done = ct_next(b, &b->tx);
	REQUIRE(done.context == &tx_context);
	REQUIRE(!done.err == permitted);
	REQUIRE(!memcmp(in, out, sizeof(in)) == permitted);
	OK(fi_close(&mr->fid));
	ct_memory_close(&local);
	close_bench(&bench);
}

static void regions_with_keys(void)
{
	regions(NULL, "secret", "secret", true);
	CHECK(true, "same");
	regions(NULL, "secret", "other", false);
	CHECK(true, "other");
	regions(NULL, NULL, "secret", false);
	CHECK(true, "peer-without");
	regions("domain", "secret", "secret", true);
	CHECK(true, "before-domain");
	regions("domain", "secret", NULL, false);
	CHECK(true, "domain");
	regions("secret", "secret", NULL, true);
	CHECK(true, "same-as-domain");
}

static void region_size_alone(void)
{
	unsigned char memory[8];
	struct iovec iov = { .iov_base = memory, .iov_len = sizeof(memory) };
	struct fi_mr_attr attr = {
		.mr_iov = &iov, .iov_count = 1, .access = FI_REMOTE_READ,
		.requested_key = ct_fresh_key(), .auth_key_size = 8,
	};
	struct bench bench;
	struct fid_mr *mr = NULL;

	open_a(&bench, NULL, "secret");
	open_b(&bench, NULL, "secret");
	/* It is no key: the region has that of its domain. */
	OK(fi_mr_regattr(bench.a.domain, &attr, 0, &mr));
	OK(fi_close(&mr->fid));
	close_bench(&bench);
}

static const struct ct_test tests[] = {
	{ "round-trip", round_trip, CT_BOTH },
	{ "size-alone", size_alone, CT_BOTH },
	{ "keys-of-endpoints", keys_of_endpoints, CT_BOTH },
	{ "keys-of-domains", keys_of_domains, CT_BOTH },
	{ "endpoint-before-domain", endpoint_before_domain, CT_BOTH },
	{ "another-key", another_key, CT_BOTH },
	{ "no-key", no_key, CT_BOTH },
	{ "peer-without-key", peer_without_key, CT_BOTH },
	{ "key-of-a-file", key_of_a_file, CT_BOTH },
	{ "request-with-another-key", request_with_another_key, CT_MSG },
	{ "two-keys-in-a-domain", two_keys_in_a_domain, CT_RDM },
	{ "regions-with-keys", regions_with_keys, CT_BOTH },
	{ "region-size-alone", region_size_alone, CT_BOTH },
};

CT_MAIN(tests)
