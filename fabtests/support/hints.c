/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "hints.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define ARRAY(list) (sizeof(list) / sizeof((list)[0]))
#define ONE_OF(random, list) ((list)[ct_below((random), ARRAY(list))])

enum part { INFO, TX, RX, EP, DOMAIN, FABRIC };

enum kind { COUNT, CAPS, MODE, FLAGS, ORDER, CHOICE, MR_MODE, TAGS, VERSION };

/* One number in struct fi_info, and its kind. */
struct field {
	const char *name;
	enum part part;
	size_t offset, size;
	enum kind kind;
	unsigned int choices;		/* CHOICE: values from 0 to this one */
};

#define FIELD(part, structure, member, ...)				\
	{ #part "." #member, part, offsetof(struct structure, member),	\
	  sizeof(((struct structure *)0)->member), __VA_ARGS__ }

static const struct field fields[] = {
	FIELD(INFO, fi_info, caps, CAPS, 0),
	FIELD(INFO, fi_info, mode, MODE, 0),
	FIELD(INFO, fi_info, addr_format, CHOICE, 20),
	FIELD(TX, fi_tx_attr, caps, CAPS, 0),
	FIELD(TX, fi_tx_attr, mode, MODE, 0),
	FIELD(TX, fi_tx_attr, op_flags, FLAGS, 0),
	FIELD(TX, fi_tx_attr, msg_order, ORDER, 0),
	FIELD(TX, fi_tx_attr, comp_order, ORDER, 0),
	FIELD(TX, fi_tx_attr, inject_size, COUNT, 0),
	FIELD(TX, fi_tx_attr, size, COUNT, 0),
	FIELD(TX, fi_tx_attr, iov_limit, COUNT, 0),
	FIELD(TX, fi_tx_attr, rma_iov_limit, COUNT, 0),
	FIELD(TX, fi_tx_attr, tclass, COUNT, 0),
	FIELD(RX, fi_rx_attr, caps, CAPS, 0),
	FIELD(RX, fi_rx_attr, mode, MODE, 0),
	FIELD(RX, fi_rx_attr, op_flags, FLAGS, 0),
	FIELD(RX, fi_rx_attr, msg_order, ORDER, 0),
	FIELD(RX, fi_rx_attr, comp_order, ORDER, 0),
	FIELD(RX, fi_rx_attr, size, COUNT, 0),
	FIELD(RX, fi_rx_attr, iov_limit, COUNT, 0),
	FIELD(EP, fi_ep_attr, type, CHOICE, 5),
	FIELD(EP, fi_ep_attr, protocol, CHOICE, 40),
	FIELD(EP, fi_ep_attr, protocol_version, COUNT, 0),
	FIELD(EP, fi_ep_attr, max_msg_size, COUNT, 0),
	FIELD(EP, fi_ep_attr, msg_prefix_size, COUNT, 0),
	FIELD(EP, fi_ep_attr, max_order_raw_size, COUNT, 0),
	FIELD(EP, fi_ep_attr, max_order_war_size, COUNT, 0),
	FIELD(EP, fi_ep_attr, max_order_waw_size, COUNT, 0),
	FIELD(EP, fi_ep_attr, mem_tag_format, TAGS, 0),
	FIELD(EP, fi_ep_attr, tx_ctx_cnt, COUNT, 0),
	FIELD(EP, fi_ep_attr, rx_ctx_cnt, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, threading, CHOICE, 8),
	FIELD(DOMAIN, fi_domain_attr, progress, CHOICE, 5),
	FIELD(DOMAIN, fi_domain_attr, control_progress, CHOICE, 5),
	FIELD(DOMAIN, fi_domain_attr, resource_mgmt, CHOICE, 4),
	FIELD(DOMAIN, fi_domain_attr, av_type, CHOICE, 3),
	FIELD(DOMAIN, fi_domain_attr, mr_mode, MR_MODE, 0),
	FIELD(DOMAIN, fi_domain_attr, mr_key_size, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, cq_data_size, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, cq_cnt, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, ep_cnt, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, tx_ctx_cnt, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, rx_ctx_cnt, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, max_ep_tx_ctx, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, max_ep_rx_ctx, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, max_ep_stx_ctx, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, max_ep_srx_ctx, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, cntr_cnt, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, mr_iov_limit, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, caps, CAPS, 0),
	FIELD(DOMAIN, fi_domain_attr, mode, MODE, 0),
	FIELD(DOMAIN, fi_domain_attr, max_err_data, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, mr_cnt, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, tclass, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, max_ep_auth_key, COUNT, 0),
	FIELD(DOMAIN, fi_domain_attr, max_group_id, COUNT, 0),
	FIELD(FABRIC, fi_fabric_attr, prov_version, VERSION, 0),
	FIELD(FABRIC, fi_fabric_attr, api_version, VERSION, 0),
};

static const uint64_t counts[] = {
	1, 1, 2, 3, 4, 5, 8, 13, 64, 100, 256, 1000, 1024, 4096, 16360, 16384, 16385,
	65536, 1 << 20, INT32_MAX, 1ULL << 32, SIZE_MAX / 2, SIZE_MAX - 1, SIZE_MAX,
};

static const uint64_t caps[] = {
	FI_MSG, FI_TAGGED, FI_RMA, FI_ATOMIC, FI_SEND, FI_RECV, FI_READ, FI_WRITE,
	FI_REMOTE_READ, FI_REMOTE_WRITE, FI_MULTI_RECV, FI_SOURCE, FI_SOURCE_ERR,
	FI_DIRECTED_RECV, FI_RMA_EVENT, FI_RMA_PMEM, FI_LOCAL_COMM, FI_REMOTE_COMM,
	FI_SHARED_AV, FI_AV_USER_ID, FI_PEER, FI_FENCE,
	FI_MSG | FI_TAGGED | FI_RMA, FI_MSG | FI_RMA | FI_ATOMIC,
	FI_TAGGED | FI_RMA | FI_REMOTE_READ, FI_MSG | FI_SEND,
	FI_LOCAL_COMM | FI_REMOTE_COMM,
};
/* Those that few providers have, if any. */
static const uint64_t rare_caps[] = {
	FI_TRIGGER, FI_HMEM, FI_COLLECTIVE, FI_MULTICAST, FI_NAMED_RX_CTX,
	FI_VARIABLE_MSG, 1ULL << 40, FI_XPU,
};

static const uint64_t modes[] = {
	0, FI_CONTEXT, FI_CONTEXT2, FI_RX_CQ_DATA, FI_CONTEXT | FI_CONTEXT2, ~0ULL,
};

static const uint64_t flags[] = {
	FI_COMPLETION, FI_INJECT, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
	FI_DELIVERY_COMPLETE, FI_COMMIT_COMPLETE, FI_MULTI_RECV, FI_MULTICAST, 1ULL << 13,
};

static const uint64_t orders[] = {
	FI_ORDER_SAS, FI_ORDER_RAW, FI_ORDER_WAR, FI_ORDER_RAR, FI_ORDER_WAW, FI_ORDER_RAS,
	FI_ORDER_WAS, FI_ORDER_SAR, FI_ORDER_SAW, 0x1ff, FI_ORDER_RMA_RAR, FI_ORDER_RMA_WAR,
	FI_ORDER_ATOMIC_WAW, FI_ORDER_ATOMIC_WAR, FI_ORDER_STRICT, FI_ORDER_DATA, 1ULL << 44,
};

static const uint64_t mr_modes[] = {
	0, FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY, FI_MR_ENDPOINT,
	FI_MR_RMA_EVENT, FI_MR_RAW, FI_MR_MMU_NOTIFY, FI_MR_HMEM, FI_MR_COLLECTIVE,
	1, 2, 3, FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
	FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
	FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
	FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT | FI_MR_ENDPOINT | FI_MR_HMEM | FI_MR_COLLECTIVE,
};

/* The bits that alternate: the format of providers that take any tag. */
#define ANY_TAG 0xaaaaaaaaaaaaaaaaULL

static const uint64_t tags[] = {
	ANY_TAG, FI_TAG_MPI, FI_TAG_CCL, 0xff, 0xffffffff, 1, ~0ULL, ANY_TAG >> 1,
};

static const uint32_t versions[] = {
	FI_VERSION(2, 5), FI_VERSION(2, 5), FI_VERSION(2, 0), FI_VERSION(1, 20),
	FI_VERSION(1, 9), FI_VERSION(1, 5), FI_VERSION(1, 4), FI_VERSION(1, 0),
};

static uint64_t draw_value(struct ct_random *random, const struct field *field)
{
	switch (field->kind) {
	case COUNT:
		return ONE_OF(random, counts);
	case CAPS:
		if (ct_once_in(random, 10))
			return ONE_OF(random, rare_caps);
		if (ct_once_in(random, 2))
			return ONE_OF(random, caps);
		return ONE_OF(random, caps) | ONE_OF(random, caps);
	case MODE:
		return ONE_OF(random, modes);
	case FLAGS:
		return ONE_OF(random, flags);
	case ORDER:
		return ONE_OF(random, orders);
	case CHOICE:
		return ct_below(random, field->choices + 1);
	case MR_MODE:
		return ONE_OF(random, mr_modes);
	case TAGS:
		return ONE_OF(random, tags);
	case VERSION:
		return ONE_OF(random, versions);
	}
	return 0;
}

static void *part_of(struct fi_info *info, enum part part)
{
	void *parts[] = { info, info->tx_attr, info->rx_attr, info->ep_attr,
			  info->domain_attr, info->fabric_attr };

	return parts[part];
}

static void say(struct ct_request *request, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct ct_request *request, const char *format, ...)
{
	size_t used = strlen(request->text);
	va_list list;

	va_start(list, format);
	vsnprintf(request->text + used, sizeof(request->text) - used, format, list);
	va_end(list);
}

static void set_field(struct ct_request *request, const struct field *field, uint64_t value)
{
	char *at = (char *)part_of(request->hints, field->part) + field->offset;

	/* The low bytes: both in the order of this processor. */
	memcpy(at, &value, field->size);
	say(request, " %s=%#llx", field->name, (unsigned long long)value);
}

static void set_name(struct ct_request *request, const char *what, char **to, const char *name)
{
	free(*to);
	*to = strdup(name);
	say(request, " %s=%s", what, name);
}

/* The interface of this number, among those that have an address. */
static const char *interface_name(uint64_t number, char *name, char *network, size_t size)
{
	struct ifaddrs *all, *at;
	size_t count = 0;

	name[0] = network[0] = '\0';
	if (getifaddrs(&all))
		return name;
	for (at = all; at; at = at->ifa_next)
		count += at->ifa_addr && at->ifa_addr->sa_family == AF_INET;
	number = count ? number % count : 0;
	for (at = all; at; at = at->ifa_next) {
		struct sockaddr_in *addr = (void *)at->ifa_addr, *mask = (void *)at->ifa_netmask;
		struct in_addr net;

		if (!addr || addr->sin_family != AF_INET || number--)
			continue;
		snprintf(name, size, "%s", at->ifa_name);
		net.s_addr = addr->sin_addr.s_addr & mask->sin_addr.s_addr;
		snprintf(network, size, "%s/%d", inet_ntoa(net),
			 __builtin_popcount(mask->sin_addr.s_addr));
		break;
	}
	freeifaddrs(all);
	return name;
}

static void draw_names(struct ct_random *random, struct ct_request *request)
{
	char name[IF_NAMESIZE + 32], network[IF_NAMESIZE + 32];
	static const char *const domains[] = { "tcp", "shm", "loopback", "no_such_domain" };
	bool is_domain = ct_once_in(random, 2);

	interface_name(ct_below(random, 16), name, network, sizeof(name));
	if (ct_once_in(random, 3)) {
		const char *other = ONE_OF(random, domains);

		snprintf(name, sizeof(name), "%s", other);
		snprintf(network, sizeof(network), "%s", other);
	}
	if (is_domain)
		set_name(request, "DOMAIN.name", &request->hints->domain_attr->name, name);
	else
		set_name(request, "FABRIC.name", &request->hints->fabric_attr->name, network);
}

/* Bytes of an address, and its format: an internet address, unless the hints
 * already have a text. An address together with one of another kind is
 * meaningless. */
static void *draw_address(struct ct_random *random, const struct fi_info *hints, size_t *length,
			  uint32_t *format, char *text, size_t size)
{
	static const char *const internet[] = { "127.0.0.1", "127.0.0.2", "0.0.0.0", "192.0.2.9" };
	static const char *const strings[] = { "fi_shm://7", "fi_ns://7", "fi_shm://7:1:2", "x" };
	bool is_first = !hints->src_addr && !hints->dest_addr;
	uint16_t port = ct_once_in(random, 2) ? 0 : 7471;

	if (is_first ? ct_once_in(random, 4) : hints->addr_format == FI_ADDR_STR) {
		const char *string = ONE_OF(random, strings);

		*format = FI_ADDR_STR;
		*length = strlen(string) + 1;
		snprintf(text, size, "%s", string);
		return strdup(string);
	}
	if (ct_once_in(random, 4)) {
		struct sockaddr_in6 *six = calloc(1, sizeof(*six));
		bool any = ct_once_in(random, 2);

		six->sin6_family = AF_INET6;
		six->sin6_port = htons(port);
		six->sin6_addr = any ? in6addr_any : in6addr_loopback;
		*format = FI_SOCKADDR_IN6;
		*length = sizeof(*six);
		snprintf(text, size, "[%s]:%d", any ? "::" : "::1", port);
		return six;
	}
	struct sockaddr_in *four = calloc(1, sizeof(*four));
	const char *node = ONE_OF(random, internet);

	four->sin_family = AF_INET;
	four->sin_port = htons(port);
	inet_pton(AF_INET, node, &four->sin_addr);
	*format = FI_SOCKADDR_IN;
	*length = sizeof(*four);
	snprintf(text, size, "%s:%d", node, port);
	return four;
}

static void draw_ends(struct ct_random *random, struct ct_request *request)
{
	struct fi_info *hints = request->hints;
	bool is_source = ct_once_in(random, 2);
	uint32_t format;
	char text[64];
	size_t length;
	void *bytes = draw_address(random, hints, &length, &format, text, sizeof(text));

	if (is_source) {
		free(hints->src_addr);
		hints->src_addr = bytes;
		hints->src_addrlen = length;
	} else {
		free(hints->dest_addr);
		hints->dest_addr = bytes;
		hints->dest_addrlen = length;
	}
	hints->addr_format = format;
	say(request, " %s=%s", is_source ? "src_addr" : "dest_addr", text);
}

static void draw_node(struct ct_random *random, struct ct_request *request)
{
	static const char *const nodes[] = { NULL, "127.0.0.1", "127.0.0.1", "localhost", "::1",
					     "fi_shm://8", "192.0.2.9" };
	static const char *const services[] = { NULL, NULL, "7471" };

	request->node = ONE_OF(random, nodes);
	request->service = ONE_OF(random, services);
	if (ct_once_in(random, 2) && (request->node || request->service))
		request->flags |= FI_SOURCE;
	if (ct_once_in(random, 4))
		request->flags |= FI_NUMERICHOST;
	say(request, " node=%s service=%s flags=%#llx", request->node ? request->node : "-",
	    request->service ? request->service : "-", (unsigned long long)request->flags);
}

static void draw_something(struct ct_random *random, struct ct_request *request)
{
	switch (ct_below(random, 12)) {
	case 0:
		draw_names(random, request);
		break;
	case 1:
		draw_ends(random, request);
		break;
	default: {
		const struct field *field = &ONE_OF(random, fields);
		bool has_address = request->hints->src_addr || request->hints->dest_addr;

		/* An address without its format is none. */
		if (has_address && !strcmp(field->name, "INFO.addr_format"))
			break;
		set_field(request, field, draw_value(random, field));
	}
	}
}

void ct_draw_request(uint64_t number, const char *provider, struct ct_request *request)
{
	static const uint32_t types[] = { FI_EP_UNSPEC, FI_EP_RDM, FI_EP_MSG };
	static const uint64_t usual_caps[] = { 0, FI_MSG, FI_TAGGED, FI_MSG | FI_RMA,
					       FI_MSG | FI_RMA | FI_ATOMIC };
	struct ct_random random = { .state = number };
	struct fi_info *hints = fi_allocinfo();

	/* Neighbouring numbers give unrelated requests. */
	random.state = ct_bits(&random);
	memset(request, 0, sizeof(*request));
	request->hints = hints;
	request->version = ct_once_in(&random, 2) ? FI_VERSION(2, 5) : ONE_OF(&random, versions);
	hints->mode = ct_once_in(&random, 4) ? 0 : ~0ULL;
	hints->ep_attr->type = ONE_OF(&random, types);
	hints->caps = ONE_OF(&random, usual_caps);
	if (request->version >= FI_VERSION(1, 5) && ct_once_in(&random, 2))
		hints->domain_attr->mr_mode = mr_modes[ARRAY(mr_modes) - 1 - ct_below(&random, 3)];
	say(request, "version=%u.%u mode=%#llx type=%d caps=%#llx mr_mode=%#x",
	    FI_MAJOR(request->version), FI_MINOR(request->version),
	    (unsigned long long)hints->mode, hints->ep_attr->type,
	    (unsigned long long)hints->caps, hints->domain_attr->mr_mode);
	if (provider)
		set_name(request, "prov_name", &hints->fabric_attr->prov_name, provider);
	if (ct_once_in(&random, 4))
		draw_node(&random, request);
	for (uint64_t more = ct_below(&random, 4); ; more--) {
		draw_something(&random, request);
		if (!more)
			break;
	}
}

void ct_free_request(struct ct_request *request)
{
	fi_freeinfo(request->hints);
	request->hints = NULL;
}

int ct_ask(const struct ct_request *request, struct fi_info **found)
{
	*found = NULL;
	return fi_getinfo(request->version, request->node, request->service, request->flags,
			  request->hints, found);
}
