/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * fi_getinfo: thousands of requests, generated from numbers. Every result is
 * found again by a request with all or one of its attributes.
 *
 * CT_SEED=<number> selects other requests. With CT_PRINT=<first>,<end> the
 * program makes these requests and prints the results, one line each, for
 * fabtests/clients/hints, which compares those of two libraries.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "hints.h"

#define REQUESTS 1500

static bool same_text(const char *one, const char *other)
{
	return one == other || (one && other && !strcmp(one, other));
}

/* An endpoint of the same kind. */
static bool is_same_kind(const struct fi_info *one, const struct fi_info *other)
{
	return one->ep_attr->type == other->ep_attr->type &&
	       one->ep_attr->protocol == other->ep_attr->protocol &&
	       same_text(one->fabric_attr->prov_name, other->fabric_attr->prov_name);
}

static bool has_same_domain(const struct fi_info *asked, const struct fi_info *found)
{
	return is_same_kind(asked, found) &&
	       same_text(asked->domain_attr->name, found->domain_attr->name);
}

static bool has_same_fabric(const struct fi_info *asked, const struct fi_info *found)
{
	return is_same_kind(asked, found) &&
	       same_text(asked->fabric_attr->name, found->fabric_attr->name);
}

/* On the same interface, unless its address is of none: that has the provider's name. */
static bool is_there(const struct fi_info *asked, const struct fi_info *found)
{
	const char *provider = asked->fabric_attr->prov_name;
	size_t length = strcspn(provider, ";");

	if (strlen(asked->domain_attr->name) == length &&
	    !strncmp(asked->domain_attr->name, provider, length))
		return is_same_kind(asked, found);
	return has_same_domain(asked, found);
}

static bool is_same_address(const void *one, size_t length, const void *other, size_t other_length)
{
	return length == other_length && (!length || !memcmp(one, other, length));
}

static bool has_same_source(const struct fi_info *asked, const struct fi_info *found)
{
	return is_same_kind(asked, found) &&
	       is_same_address(asked->src_addr, asked->src_addrlen, found->src_addr,
			       found->src_addrlen);
}

/* The result of a request with a complete entry is that entry, with nothing
 * missing. */
static bool is_same(const struct fi_info *asked, const struct fi_info *found)
{
	return has_same_domain(asked, found) && has_same_fabric(asked, found) &&
	       !(asked->caps & ~found->caps) && asked->ep_attr->rx_ctx_cnt == found->ep_attr->rx_ctx_cnt &&
	       asked->addr_format == found->addr_format && has_same_source(asked, found) &&
	       (!asked->dest_addr || is_same_address(asked->dest_addr, asked->dest_addrlen,
						     found->dest_addr, found->dest_addrlen));
}

static void take_whole(struct fi_info *hints, const struct fi_info *given)
{
	(void)hints, (void)given;
}

/* Clears the hints except for the fixed part, and the modes that the
 * application supports. */
static void clear(struct fi_info *hints)
{
	int mr_mode = hints->domain_attr->mr_mode;
	char *provider = hints->fabric_attr->prov_name;

	free(hints->src_addr);
	free(hints->dest_addr);
	hints->src_addr = hints->dest_addr = NULL;
	hints->src_addrlen = hints->dest_addrlen = 0;
	hints->caps = 0;
	hints->addr_format = 0;
	hints->handle = NULL;
	memset(hints->tx_attr, 0, sizeof(*hints->tx_attr));
	memset(hints->rx_attr, 0, sizeof(*hints->rx_attr));
	memset(hints->ep_attr, 0, sizeof(*hints->ep_attr));
	free(hints->domain_attr->name);
	memset(hints->domain_attr, 0, sizeof(*hints->domain_attr));
	free(hints->fabric_attr->name);
	memset(hints->fabric_attr, 0, sizeof(*hints->fabric_attr));
	hints->domain_attr->mr_mode = mr_mode;
	/* Only a request that names it gets that one. */
	if (provider && !strcmp(provider, "loopback"))
		hints->fabric_attr->prov_name = provider;
	else
		free(provider);
}

static void take_caps(struct fi_info *hints, const struct fi_info *given)
{
	clear(hints);
	hints->caps = given->caps;
}

static void take_source(struct fi_info *hints, const struct fi_info *given)
{
	clear(hints);
	hints->addr_format = given->addr_format;
	hints->src_addrlen = given->src_addrlen;
	hints->src_addr = given->src_addrlen ? malloc(given->src_addrlen) : NULL;
	if (given->src_addrlen)
		memcpy(hints->src_addr, given->src_addr, given->src_addrlen);
}

static void take_format(struct fi_info *hints, const struct fi_info *given)
{
	clear(hints);
	hints->addr_format = given->addr_format;
}

static void take_tx(struct fi_info *hints, const struct fi_info *given)
{
	clear(hints);
	*hints->tx_attr = *given->tx_attr;
}

static void take_rx(struct fi_info *hints, const struct fi_info *given)
{
	clear(hints);
	*hints->rx_attr = *given->rx_attr;
}

static void take_ep(struct fi_info *hints, const struct fi_info *given)
{
	clear(hints);
	*hints->ep_attr = *given->ep_attr;
	hints->ep_attr->auth_key = NULL;
	hints->ep_attr->auth_key_size = 0;
}

static void take_domain(struct fi_info *hints, const struct fi_info *given)
{
	clear(hints);
	*hints->domain_attr = *given->domain_attr;
	hints->domain_attr->domain = NULL;
	hints->domain_attr->auth_key = NULL;
	hints->domain_attr->auth_key_size = 0;
	hints->domain_attr->name = given->domain_attr->name ? strdup(given->domain_attr->name)
							     : NULL;
}

static void take_fabric(struct fi_info *hints, const struct fi_info *given)
{
	clear(hints);
	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->name = strdup(given->fabric_attr->name);
	hints->fabric_attr->prov_name = strdup(given->fabric_attr->prov_name);
	hints->fabric_attr->prov_version = given->fabric_attr->prov_version;
	hints->fabric_attr->api_version = given->fabric_attr->api_version;
}

static const struct {
	const char *name;
	void (*take)(struct fi_info *hints, const struct fi_info *given);
	bool (*is_it)(const struct fi_info *asked, const struct fi_info *found);
} ways[] = {
	{ "whole", take_whole, is_same },
	{ "caps", take_caps, is_there },
	{ "src_addr", take_source, has_same_source },
	{ "addr_format", take_format, is_there },
	{ "tx_attr", take_tx, is_there },
	{ "rx_attr", take_rx, is_there },
	{ "ep_attr", take_ep, is_there },
	{ "domain_attr", take_domain, has_same_domain },
	{ "fabric_attr", take_fabric, has_same_fabric },
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* Whether an answer is found with this part of it. */
static bool is_found_again(const struct ct_request *request, const struct fi_info *given,
			   size_t way)
{
	struct fi_info *hints = fi_dupinfo(given), *found = NULL, *at = NULL;
	int ret;

	hints->next = NULL;
	ways[way].take(hints, given);
	ret = fi_getinfo(request->version, NULL, NULL, 0, hints, &found);
	for (at = found; !ret && at && !ways[way].is_it(given, at); at = at->next)
		;
	fi_freeinfo(hints);
	fi_freeinfo(found);
	return at != NULL;
}

static uint64_t seed(void)
{
	const char *text = getenv("CT_SEED");

	return text ? strtoull(text, NULL, 0) : 1;
}

static void given_back(void)
{
	size_t answers = 0, failures[WAYS] = { 0 };

	for (int i = 0; i < ct_times(REQUESTS); i++) {
		struct ct_request request;
		struct fi_info *found;

		ct_draw_request((seed() << 32) + i, ct_opt.provider, &request);
		if (!ct_ask(&request, &found))
			for (struct fi_info *at = found; at; at = at->next, answers++)
				for (size_t way = 0; way < WAYS; way++) {
					if (is_found_again(&request, at, way))
						continue;
					if (!failures[way]++)
						fprintf(stderr, "%d: %s is not found again by %s: %s\n%s",
							i, at->fabric_attr->prov_name,
							ways[way].name, request.text,
							fi_tostr(at, FI_TYPE_INFO));
				}
		fi_freeinfo(found);
		ct_free_request(&request);
	}
	CHECK(answers != 0, "answers");
	for (size_t way = 0; way < WAYS; way++)
		CHECK(!failures[way], "%s", ways[way].name);
}

/* Text as it is, other addresses by their length. */
static void print_address(const char *what, const void *addr, size_t length, uint32_t format)
{
	const char *text = addr;

	printf(" %s=", what);
	if (format != FI_ADDR_STR) {
		printf("%zu", length);
		return;
	}
	for (size_t i = 0; i < length && text[i]; i++)
		putchar(isgraph((unsigned char)text[i]) && text[i] != '|' ? text[i] : '?');
}

static void print_answer(const struct fi_info *i)
{
	printf("|%s type=%d rx_ctx_cnt=%zu protocol=%u caps=%#llx mode=%#llx format=%u domain=%s fabric=%s",
	       i->fabric_attr->prov_name, i->ep_attr->type, i->ep_attr->rx_ctx_cnt,
	       i->ep_attr->protocol, (unsigned long long)i->caps, (unsigned long long)i->mode,
	       i->addr_format, i->domain_attr->name, i->fabric_attr->name);
	print_address("src", i->src_addr, i->src_addrlen, i->addr_format);
	print_address("dest", i->dest_addr, i->dest_addrlen, i->addr_format);
	printf(" tx=%#llx,%#llx,%#llx,%#llx,%zu,%zu,%zu,%zu",
	       (unsigned long long)i->tx_attr->caps, (unsigned long long)i->tx_attr->mode,
	       (unsigned long long)i->tx_attr->op_flags, (unsigned long long)i->tx_attr->msg_order,
	       i->tx_attr->inject_size, i->tx_attr->size, i->tx_attr->iov_limit,
	       i->tx_attr->rma_iov_limit);
	printf(" rx=%#llx,%#llx,%#llx,%#llx,%zu,%zu",
	       (unsigned long long)i->rx_attr->caps, (unsigned long long)i->rx_attr->mode,
	       (unsigned long long)i->rx_attr->op_flags, (unsigned long long)i->rx_attr->msg_order,
	       i->rx_attr->size, i->rx_attr->iov_limit);
	printf(" ep=%zu,%zu,%zu,%zu,%#llx", i->ep_attr->max_msg_size,
	       i->ep_attr->max_order_raw_size, i->ep_attr->max_order_war_size,
	       i->ep_attr->max_order_waw_size, (unsigned long long)i->ep_attr->mem_tag_format);
	printf(" dom=%d,%d,%d,%d,%d,mr:%#x,key:%zu,data:%zu,cq:%zu,ep:%zu,%zu,%zu,%zu,%zu,%zu,%zu,cntr:%zu,iov:%zu,caps:%#llx",
	       i->domain_attr->threading, i->domain_attr->progress,
	       i->domain_attr->control_progress, i->domain_attr->resource_mgmt,
	       i->domain_attr->av_type, i->domain_attr->mr_mode, i->domain_attr->mr_key_size,
	       i->domain_attr->cq_data_size, i->domain_attr->cq_cnt, i->domain_attr->ep_cnt,
	       i->domain_attr->tx_ctx_cnt, i->domain_attr->rx_ctx_cnt,
	       i->domain_attr->max_ep_tx_ctx, i->domain_attr->max_ep_rx_ctx,
	       i->domain_attr->max_ep_stx_ctx, i->domain_attr->max_ep_srx_ctx,
	       i->domain_attr->cntr_cnt, i->domain_attr->mr_iov_limit,
	       (unsigned long long)i->domain_attr->caps);
}

static int print(const char *range)
{
	uint64_t first = 0, end = 0;

	if (sscanf(range, "%lu,%lu", &first, &end) != 2)
		return 2;
	for (uint64_t i = first; i < end; i++) {
		struct ct_request request;
		struct fi_info *found;
		int ret;

		ct_draw_request((seed() << 32) + i, getenv("CT_PROVIDER"), &request);
		/* After a crash the last line is the request that crashed. */
		printf("%lu|%s", i, request.text);
		fflush(stdout);
		ret = ct_ask(&request, &found);
		printf("|%d", ret);
		for (struct fi_info *at = ret ? NULL : found; at; at = at->next)
			print_answer(at);
		printf("\n");
		fi_freeinfo(ret ? NULL : found);
		ct_free_request(&request);
	}
	return 0;
}

static const struct ct_test tests[] = {
	{ "given-back", given_back, CT_BOTH | CT_SLOW },
};

int main(int argc, char **argv)
{
	const char *range = getenv("CT_PRINT");

	return range ? print(range) : ct_main(argc, argv, tests, 1);
}
