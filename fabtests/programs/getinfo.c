/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* fi_getinfo: requests by hints, results, copies. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "pattern.h"
#include "peer.h"

/* fi_getinfo with hints changed by the function; frees the hints. */
static int query(const char *node, const char *service, uint64_t flags,
		 void (*change)(struct fi_info *), struct fi_info **info)
{
	struct ct_spec spec = { .hint = change };
	struct fi_info *hints = ct_hints(&spec);
	int ret;

	*info = NULL;
	ret = fi_getinfo(CT_API_VERSION, node, service, flags, hints, info);
	fi_freeinfo(hints);
	return ret;
}

/* True if there is a result and all of them pass. */
static bool all(struct fi_info *info, bool (*passes)(const struct fi_info *))
{
	for (struct fi_info *i = info; i; i = i->next)
		if (!passes(i))
			return false;
	return info != NULL;
}

static bool is_whole(const struct fi_info *i)
{
	return i->tx_attr && i->rx_attr && i->ep_attr && i->domain_attr &&
	       i->fabric_attr && i->fabric_attr->prov_name &&
	       i->fabric_attr->name && i->domain_attr->name && i->caps;
}

static void without_hints(void)
{
	struct fi_info *info = NULL;

	OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, NULL, &info));
	CHECK(all(info, is_whole), "whole");
	fi_freeinfo(info);
}

/* The name is contained, alone or as a layer of a composed one ("a;b"). */
static bool is_provider(const struct fi_info *i)
{
	const char *name = i->fabric_attr->prov_name;
	size_t len = ct_opt.provider ? strlen(ct_opt.provider) : 0;

	for (const char *at = name; len; at++) {
		at = strstr(at, ct_opt.provider);
		if (!at)
			return false;
		if ((at == name || at[-1] == ';') &&
		    (at[len] == ';' || at[len] == '\0'))
			return true;
	}
	return true;
}

static void provider(void)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;

	OK(query(NULL, NULL, 0, NULL, &info));
	CHECK(all(info, is_provider), "only-the-one-named");
	fi_freeinfo(info);
	hints->fabric_attr->prov_name = strdup("no_such_provider");
	info = (void *)1;
	CHECK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &info) ==
	      -FI_ENODATA, "unknown");
	CHECK(info == NULL, "unknown-null");
	fi_freeinfo(hints);
}

static bool asked_type(const struct fi_info *i)
{
	return i->ep_attr->type == ct_opt.type;
}

static void endpoint_type(void)
{
	struct fi_info *info;

	OK(query(NULL, NULL, 0, NULL, &info));
	CHECK(all(info, asked_type), "as-asked");
	fi_freeinfo(info);
}

/* Requested capabilities are present, and no others are needed. */
static void want_tagged(struct fi_info *hints)
{
	hints->caps = FI_TAGGED;
}

static void want_send_only(struct fi_info *hints)
{
	hints->caps = FI_MSG | FI_SEND;
}

static void want_impossible(struct fi_info *hints)
{
	hints->caps = 1ULL << 7;	/* no capability has this bit */
}

static void want_multicast(struct fi_info *hints)
{
	hints->caps = FI_MSG | FI_MULTICAST;
}

static void want_nothing(struct fi_info *hints)
{
	hints->caps = 0;
}

static bool has_tagged(const struct fi_info *i)
{
	return i->caps & FI_TAGGED && i->tx_attr->caps & FI_TAGGED;
}

static bool sends(const struct fi_info *i)
{
	return i->caps & FI_MSG && i->caps & FI_SEND;
}

static bool has_caps(const struct fi_info *i)
{
	return i->caps != 0;
}

static void capabilities(void)
{
	struct fi_info *info;
	int ret = query(NULL, NULL, 0, want_tagged, &info);

	if (!ret)
		CHECK(all(info, has_tagged), "tagged");
	else
		CHECK(ret == -FI_ENODATA, "tagged");
	fi_freeinfo(info);
	OK(query(NULL, NULL, 0, want_send_only, &info));
	CHECK(all(info, sends), "send-only");
	fi_freeinfo(info);
	CHECK(query(NULL, NULL, 0, want_impossible, &info) == -FI_ENODATA,
	      "unknown-bit");
	CHECK(query(NULL, NULL, 0, want_multicast, &info) == -FI_ENODATA,
	      "not-offered");
	OK(query(NULL, NULL, 0, want_nothing, &info));
	CHECK(all(info, has_caps), "none-asked");
	fi_freeinfo(info);
}

/* Attributes in results are at least as large as requested. */
static void want_sizes(struct fi_info *hints)
{
	hints->tx_attr->inject_size = 64;
	hints->tx_attr->iov_limit = 4;
	hints->rx_attr->iov_limit = 2;
	hints->tx_attr->size = 100;
	hints->rx_attr->size = 100;
	hints->ep_attr->max_msg_size = 1 << 20;
}

static bool has_sizes(const struct fi_info *i)
{
	return i->tx_attr->inject_size >= 64 && i->tx_attr->iov_limit >= 4 &&
	       i->rx_attr->iov_limit >= 2 && i->tx_attr->size >= 100 &&
	       i->rx_attr->size >= 100 && i->ep_attr->max_msg_size >= 1 << 20;
}

static void too_much_inject(struct fi_info *hints)
{
	hints->tx_attr->inject_size = (size_t)1 << 40;
}

static void too_many_pieces(struct fi_info *hints)
{
	hints->tx_attr->iov_limit = 1 << 20;
}

static void too_many_contexts(struct fi_info *hints)
{
	hints->ep_attr->tx_ctx_cnt = 1 << 20;
}

static void sizes(void)
{
	struct fi_info *info;

	OK(query(NULL, NULL, 0, want_sizes, &info));
	CHECK(all(info, has_sizes), "enough");
	fi_freeinfo(info);
	CHECK(query(NULL, NULL, 0, too_much_inject, &info) == -FI_ENODATA,
	      "inject-size");
	CHECK(query(NULL, NULL, 0, too_many_pieces, &info) == -FI_ENODATA,
	      "iov-limit");
	CHECK(query(NULL, NULL, 0, too_many_contexts, &info) == -FI_ENODATA,
	      "contexts");
}

/* Every other attribute that hints can rule out. */
static void wrong_protocol(struct fi_info *hints)
{
	hints->ep_attr->protocol = 0x12345678;
}

static void wrong_format(struct fi_info *hints)
{
	hints->addr_format = FI_SOCKADDR_IB;
}

static void wrong_type(struct fi_info *hints)
{
	hints->ep_attr->type = 99;
}

static void wrong_domain(struct fi_info *hints)
{
	hints->domain_attr->name = strdup("no_such_domain");
}

static void wrong_fabric(struct fi_info *hints)
{
	hints->fabric_attr->name = strdup("no_such_fabric");
}

static void wrong_op_flags(struct fi_info *hints)
{
	hints->tx_attr->op_flags = FI_MULTICAST;
}

static void wrong_order(struct fi_info *hints)
{
	hints->tx_attr->msg_order = 1ULL << 20;
}

static void wrong_cq_data(struct fi_info *hints)
{
	hints->domain_attr->cq_data_size = 64;
}

static void wrong_threading(struct fi_info *hints)
{
	hints->domain_attr->threading = 99;
}

static void wrong_progress(struct fi_info *hints)
{
	hints->domain_attr->progress = 99;
}

static void refused(void)
{
	static const struct {
		const char *name;
		void (*change)(struct fi_info *);
	} cases[] = {
		{ "protocol", wrong_protocol },
		{ "addr-format", wrong_format },
		{ "type", wrong_type },
		{ "domain", wrong_domain },
		{ "fabric", wrong_fabric },
		{ "op-flags", wrong_op_flags },
		{ "order", wrong_order },
		{ "cq-data-size", wrong_cq_data },
		{ "threading", wrong_threading },
		{ "progress", wrong_progress },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fi_info *info;

		CHECK(query(NULL, NULL, 0, cases[i].change, &info) ==
		      -FI_ENODATA, "%s", cases[i].name);
		fi_freeinfo(info);
	}
}

/* Modes that are not needed are cleared; needed ones would be left. */
static void modes(void)
{
	struct ct_spec spec = { .caps = FI_MSG | FI_RMA };
	struct fi_info *info = ct_getinfo(&spec);
	uint64_t offered = FI_CONTEXT | FI_CONTEXT2;
	int mr_offered = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
			 FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_RMA_EVENT;

	for (struct fi_info *i = info; i; i = i->next) {
		REQUIRE(!(i->mode & ~offered));
		REQUIRE(!(i->domain_attr->mr_mode & ~mr_offered));
	}
	fi_freeinfo(info);
}

static bool same_v4(const void *addr, size_t len, const char *node, int port)
{
	const struct sockaddr_in *sin = addr;
	struct in_addr want;

	inet_pton(AF_INET, node, &want);
	return addr && len == sizeof(*sin) && sin->sin_family == AF_INET &&
	       sin->sin_addr.s_addr == want.s_addr &&
	       ntohs(sin->sin_port) == port;
}

/* The following tests are about internet addresses. */
static void internet_only(void)
{
	struct ct_spec spec = { 0 };
	struct fi_info *info = ct_getinfo(&spec);
	bool is_text = info->addr_format == FI_ADDR_STR;

	fi_freeinfo(info);
	if (is_text)
		SKIP("addresses are text");
}

static void ask_v4(struct fi_info *hints)
{
	hints->addr_format = FI_SOCKADDR_IN;
}

/* A node and a service are a destination, or with FI_SOURCE the local address.
 */
static void addresses(void)
{
	struct fi_info *info;

	internet_only();
	OK(query("127.0.0.1", "7471", 0, ask_v4, &info));
	CHECK(same_v4(info->dest_addr, info->dest_addrlen, "127.0.0.1", 7471),
	      "destination");
	CHECK(info->addr_format == FI_SOCKADDR_IN, "format");
	fi_freeinfo(info);

	OK(query("127.0.0.1", "7471", FI_SOURCE, ask_v4, &info));
	CHECK(same_v4(info->src_addr, info->src_addrlen, "127.0.0.1", 7471),
	      "source");
	CHECK(!info->dest_addr, "no-destination");
	fi_freeinfo(info);

	OK(query("127.0.0.1", NULL, FI_SOURCE, ask_v4, &info));
	CHECK(same_v4(info->src_addr, info->src_addrlen, "127.0.0.1", 0),
	      "source-any-port");
	fi_freeinfo(info);

	OK(query(NULL, "7471", FI_SOURCE, ask_v4, &info));
	for (struct fi_info *i = info; i; i = i->next) {
		const struct sockaddr_in *sin = i->src_addr;

		REQUIRE(sin && ntohs(sin->sin_port) == 7471);
	}
	CHECK(true, "source-any-node");
	fi_freeinfo(info);

	OK(query("localhost", "80", 0, ask_v4, &info));
	CHECK(same_v4(info->dest_addr, info->dest_addrlen, "127.0.0.1", 80),
	      "by-name");
	fi_freeinfo(info);

	OK(query("127.0.0.1", "80", FI_NUMERICHOST, ask_v4, &info));
	CHECK(info != NULL, "numeric");
	fi_freeinfo(info);
	OK(query("localhost", "80", FI_NUMERICHOST, ask_v4, &info));
	CHECK(same_v4(info->dest_addr, info->dest_addrlen, "127.0.0.1", 80),
	      "name-for-a-number");
	fi_freeinfo(info);
	CHECK(query("no.such.host.invalid", "80", 0, ask_v4, &info) < 0,
	      "unknown-host");
	fi_freeinfo(info);
}

static void ask_v6(struct fi_info *hints)
{
	hints->addr_format = FI_SOCKADDR_IN6;
}

static void addresses_v6(void)
{
	const struct sockaddr_in6 *sin6;
	struct fi_info *info;
	int ret = query("::1", "7471", 0, ask_v6, &info);

	if (ret == -FI_ENODATA)
		SKIP("no IPv6");
	OK(ret);
	sin6 = info->dest_addr;
	REQUIRE(info->addr_format == FI_SOCKADDR_IN6);
	REQUIRE(sin6 && info->dest_addrlen == sizeof(*sin6));
	REQUIRE(sin6->sin6_family == AF_INET6);
	REQUIRE(ntohs(sin6->sin6_port) == 7471);
	REQUIRE(!memcmp(&sin6->sin6_addr, &in6addr_loopback, 16));
	fi_freeinfo(info);
}

static struct sockaddr_in hinted = { .sin_family = AF_INET };

static void give_source(struct fi_info *hints)
{
	hints->addr_format = FI_SOCKADDR_IN;
	hints->src_addr = malloc(sizeof(hinted));
	memcpy(hints->src_addr, &hinted, sizeof(hinted));
	hints->src_addrlen = sizeof(hinted);
}

static void give_destination(struct fi_info *hints)
{
	hints->addr_format = FI_SOCKADDR_IN;
	hints->dest_addr = malloc(sizeof(hinted));
	memcpy(hints->dest_addr, &hinted, sizeof(hinted));
	hints->dest_addrlen = sizeof(hinted);
}

/* The same in hints. */
static void hinted_addresses(void)
{
	struct fi_info *info;

	internet_only();
	inet_pton(AF_INET, "127.0.0.1", &hinted.sin_addr);
	hinted.sin_port = htons(7999);
	OK(query(NULL, NULL, 0, give_source, &info));
	CHECK(same_v4(info->src_addr, info->src_addrlen, "127.0.0.1", 7999),
	      "source");
	fi_freeinfo(info);
	OK(query(NULL, NULL, 0, give_destination, &info));
	CHECK(same_v4(info->dest_addr, info->dest_addrlen, "127.0.0.1", 7999),
	      "destination");
	CHECK(info->src_addr != NULL, "route");
	fi_freeinfo(info);
}

/* A result is a valid request, and is its own result. */
static void round_trip(void)
{
	struct ct_spec spec = { 0 };
	struct fi_info *info = ct_getinfo(&spec);

	for (struct fi_info *i = info; i; i = i->next) {
		struct fi_info *again = NULL, *hints = fi_dupinfo(i);

		REQUIRE(hints);
		OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &again));
		REQUIRE(!strcmp(again->domain_attr->name,
				i->domain_attr->name));
		REQUIRE(!strcmp(again->fabric_attr->name,
				i->fabric_attr->name));
		REQUIRE((again->caps & i->caps) == i->caps);
		fi_freeinfo(again);
		fi_freeinfo(hints);
	}
	fi_freeinfo(info);
}

/* The same for one address of another's choosing: the source is forgotten. */
static void round_trip_any_address(void)
{
	struct ct_spec spec = { 0 };
	struct fi_info *info = ct_getinfo(&spec), *hints, *again = NULL;
	bool has_source = info->src_addr;
	char domain[256];

	snprintf(domain, sizeof(domain), "%s", info->domain_attr->name);
	hints = fi_dupinfo(info);
	fi_freeinfo(info);
	free(hints->src_addr);
	hints->src_addr = NULL;
	hints->src_addrlen = 0;
	OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &again));
	REQUIRE(!has_source || again->src_addr);
	REQUIRE(!strcmp(again->domain_attr->name, domain));
	fi_freeinfo(again);
	fi_freeinfo(hints);
}

/* One entry per provider, for its name and version only. */
static void provider_attributes(void)
{
	struct fi_info *info = NULL;
	bool found = !ct_opt.provider;

	OK(fi_getinfo(CT_API_VERSION, NULL, NULL, FI_PROV_ATTR_ONLY, NULL,
		      &info));
	for (struct fi_info *i = info; i; i = i->next) {
		const char *name = i->fabric_attr->prov_name;

		REQUIRE(name && *name && i->fabric_attr->prov_version);
		found |= ct_opt.provider && !strcmp(name, ct_opt.provider);
		for (struct fi_info *j = info; j != i; j = j->next)
			REQUIRE(strcmp(name, j->fabric_attr->prov_name));
	}
	CHECK(found, "listed");
	fi_freeinfo(info);
}

/* Domains and fabrics are found by their names in upper and lower case. */
static void names_in_any_case(void)
{
	struct ct_spec spec = { 0 };
	struct fi_info *first, *hints = ct_hints(&spec), *info = NULL;
	char domain[256], fabric[256];

	/* An interface's own address: others have no name that can be looked for. */
	if (ct_opt.source)
		ct_opt.source = "127.0.0.1";
	first = ct_getinfo(&spec);
	snprintf(domain, sizeof(domain), "%s", first->domain_attr->name);
	snprintf(fabric, sizeof(fabric), "%s", first->fabric_attr->name);
	for (char *at = domain; *at; at++)
		*at = (char)((at - domain) & 1 ? tolower(*at) : toupper(*at));
	for (char *at = fabric; *at; at++)
		*at = (char)toupper(*at);
	hints->domain_attr->name = domain;
	OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &info));
	CHECK(!strcmp(info->domain_attr->name, first->domain_attr->name), "domain");
	fi_freeinfo(info);
	hints->fabric_attr->name = fabric;
	OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, hints, &info));
	CHECK(!strcmp(info->fabric_attr->name, first->fabric_attr->name), "fabric");
	fi_freeinfo(info);
	hints->domain_attr->name = NULL;
	hints->fabric_attr->name = NULL;
	fi_freeinfo(hints);
	fi_freeinfo(first);
}

/* A copy owns everything it refers to. */
static void copies(void)
{
	struct ct_spec spec = { 0 };
	struct fi_info *info = ct_getinfo(&spec), *copy, *blank;
	char name[256];

	copy = fi_dupinfo(info);
	REQUIRE(copy && !copy->next);
	REQUIRE(copy->tx_attr != info->tx_attr);
	REQUIRE(copy->domain_attr->name != info->domain_attr->name);
	if (info->src_addr) {
		REQUIRE(copy->src_addr != info->src_addr);
		REQUIRE(!memcmp(copy->src_addr, info->src_addr,
				info->src_addrlen));
	}
	REQUIRE(!memcmp(copy->tx_attr, info->tx_attr, sizeof(*copy->tx_attr)));
	snprintf(name, sizeof(name), "%s", info->fabric_attr->prov_name);
	fi_freeinfo(info);
	CHECK(!strcmp(copy->fabric_attr->prov_name, name), "outlives");
	fi_freeinfo(copy);

	blank = fi_allocinfo();
	REQUIRE(blank && blank->tx_attr && blank->rx_attr && blank->ep_attr &&
		blank->domain_attr && blank->fabric_attr);
	CHECK(!blank->caps && !blank->mode && !blank->src_addr &&
	      !blank->fabric_attr->prov_name, "blank");
	copy = fi_dupinfo(blank);
	CHECK(copy != NULL, "copy-of-blank");
	fi_freeinfo(copy);
	fi_freeinfo(blank);
	copy = fi_dupinfo(NULL);
	CHECK(copy != NULL, "copy-of-nothing");
	fi_freeinfo(copy);
	fi_freeinfo(NULL);
}

static void versions(void)
{
	struct ct_spec spec = { 0 };
	struct fi_info *hints = ct_hints(&spec), *info = NULL;
	uint32_t lib = fi_version();

	CHECK(fi_getinfo(FI_VERSION(FI_MAJOR(lib) + 1, 0), NULL, NULL, 0,
			 hints, &info) == -FI_ENOSYS, "too-new");
	OK(fi_getinfo(lib, NULL, NULL, 0, hints, &info));
	CHECK(info->fabric_attr->api_version == lib, "its-own");
	fi_freeinfo(info);
	hints->domain_attr->mr_mode = 0;
	OK(fi_getinfo(FI_VERSION(1, 5), NULL, NULL, 0, hints, &info));
	CHECK(info->fabric_attr->api_version == FI_VERSION(1, 5), "older");
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* FI_PROVIDER selects and excludes by name. */
static void environment(void)
{
	struct fi_info *info = NULL;

	if (!ct_opt.provider)
		SKIP("no provider named");
	setenv("FI_PROVIDER", ct_opt.provider, 1);
	OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, NULL, &info));
	CHECK(all(info, is_provider), "selected");
	fi_freeinfo(info);
}

static void environment_excludes(void)
{
	struct fi_info *info = NULL;
	char value[64];
	int ret;

	if (!ct_opt.provider)
		SKIP("no provider named");
	snprintf(value, sizeof(value), "^%s", ct_opt.provider);
	setenv("FI_PROVIDER", value, 1);
	ret = fi_getinfo(CT_API_VERSION, NULL, NULL, 0, NULL, &info);
	REQUIRE(!ret || ret == -FI_ENODATA);
	for (struct fi_info *i = info; i; i = i->next)
		REQUIRE(strcmp(i->fabric_attr->prov_name, ct_opt.provider));
	fi_freeinfo(info);
}

/* Of the providers that exist everywhere, sockets is the last one. */
static void sockets_last(void)
{
	static const char *const others[] = { "tcp", "shm", "tcp;ofi_rxm" };
	struct fi_info *info = NULL;
	bool seen = false;

	OK(fi_getinfo(CT_API_VERSION, NULL, NULL, 0, NULL, &info));
	for (struct fi_info *i = info; i; i = i->next) {
		const char *name = i->fabric_attr->prov_name;

		if (!strcmp(name, "sockets")) {
			CHECK(seen || i->ep_attr->type != FI_EP_MSG, "its first");
			seen = true;
		}
		for (size_t j = 0; j < sizeof(others) / sizeof(*others); j++)
			CHECK(!seen || strcmp(name, others[j]), "others");
	}
	CHECK(seen, "offered");
	fi_freeinfo(info);
}

static void fabrics(void)
{
	struct ct_spec spec = { 0 };
	struct fi_info *info = ct_getinfo(&spec);
	struct fi_fabric_attr attr = *info->fabric_attr;
	struct fid_fabric *one, *two;
	int marker;

	OK(fi_fabric(info->fabric_attr, &one, &marker));
	OK(fi_fabric(info->fabric_attr, &two, NULL));
	CHECK(one->fid.context == &marker, "context");
	CHECK(one->api_version == CT_API_VERSION, "api-version");
	OK(fi_close(&two->fid));
	OK(fi_close(&one->fid));
	attr.prov_name = (char *)"no_such_provider";
	CHECK(fi_fabric(&attr, &one, NULL) < 0, "unknown-provider");
	attr.prov_name = NULL;
	CHECK(fi_fabric(&attr, &one, NULL) < 0, "no-provider");
	fi_freeinfo(info);
}

static const struct ct_test tests[] = {
	{ "without-hints", without_hints, CT_BOTH },
	{ "provider", provider, CT_BOTH },
	{ "endpoint-type", endpoint_type, CT_BOTH },
	{ "capabilities", capabilities, CT_BOTH },
	{ "sizes", sizes, CT_BOTH },
	{ "refused", refused, CT_BOTH },
	{ "modes", modes, CT_BOTH },
	{ "addresses", addresses, CT_BOTH },
	{ "addresses-v6", addresses_v6, CT_BOTH },
	{ "hinted-addresses", hinted_addresses, CT_BOTH },
	{ "round-trip", round_trip, CT_BOTH },
	{ "round-trip-any-address", round_trip_any_address, CT_BOTH },
	{ "provider-attributes", provider_attributes, CT_BOTH },
	{ "names-in-any-case", names_in_any_case, CT_BOTH },
	{ "copies", copies, CT_BOTH },
	{ "versions", versions, CT_BOTH },
	{ "environment", environment, CT_BOTH },
	{ "environment-excludes", environment_excludes, CT_BOTH },
	{ "sockets-last", sockets_last, CT_BOTH },
	{ "fabrics", fabrics, CT_BOTH },
};

CT_MAIN(tests)
