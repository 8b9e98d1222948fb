/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A program of the time of ABI 1.<ABI>: asks for endpoints with hints, copies
 * and frees what it gets, opens the fabric and sends a message. The structures that it makes
 * itself end where their pages end, with a page behind them that nobody can
 * touch, so that a library that takes them for newer ones does not survive.
 *
 *   caller <provider>
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "layouts.h"
#include "transfer.h"

/* The interface version of the last release with this ABI. */
static uint32_t interface_version(void)
{
	switch (ABI) {
	case 0: return FI_VERSION(1, 4);
	case 1: return FI_VERSION(1, 6);
	case 2: return FI_VERSION(1, 8);
	case 3: return FI_VERSION(1, 19);
	case 7: return FI_VERSION(1, 22);
	case 8: return FI_VERSION(2, 4);
	default: return FI_VERSION(2, 6);
	}
}

static int failures;

#define CHECK_SHOW(condition, format, value)                                   \
	do {                                                                   \
		if (!(condition)) {                                            \
			failures++;                                            \
			fprintf(stderr, "ABI 1.%d: not %s: " format "\n", ABI, \
				#condition, value);                            \
		}                                                              \
	} while (0)

#define CHECK(condition) CHECK_SHOW(condition, "%s", "line " STRING(__LINE__))

/* Returns zeroed memory, followed by an inaccessible page. */
static void *at_page_end(size_t size)
{
	size_t page = (size_t) sysconf(_SC_PAGESIZE);
	char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE)) {
		perror("mmap");
		exit(2);
	}
	return memory + page - size;
}

static struct fi_info *guarded_info(char *provider)
{
	struct fi_info *info = at_page_end(sizeof(*info));

	info->tx_attr = at_page_end(sizeof(*info->tx_attr));
	info->rx_attr = at_page_end(sizeof(*info->rx_attr));
	info->ep_attr = at_page_end(sizeof(*info->ep_attr));
	info->domain_attr = at_page_end(sizeof(*info->domain_attr));
	info->fabric_attr = at_page_end(sizeof(*info->fabric_attr));
	info->fabric_attr->prov_name = provider;
	return info;
}

/* All attributes there and empty, and ours to change and to free. */
static void check_allocation(void)
{
	struct fi_info *info = fi_dupinfo(NULL);

	CHECK(info && info->tx_attr && info->rx_attr && info->ep_attr && info->domain_attr &&
	      info->fabric_attr);
	if (!info)
		return;
	CHECK(info->caps == 0 && info->domain_attr->cq_cnt == 0 && info->tx_attr->size == 0);
	info->fabric_attr->prov_name = strdup("anything");
	info->domain_attr->name = strdup("anything");
	fi_freeinfo(info);
}

static int same_text(const char *a, const char *b)
{
	return a == b || (a && b && a != b && !strcmp(a, b));
}

static void check_copy(const struct fi_info *info)
{
	struct fi_info *copy = fi_dupinfo(info);

	CHECK(copy != NULL);
	if (!copy)
		return;
	CHECK(copy->next == NULL);
	CHECK(copy->caps == info->caps && copy->mode == info->mode);
	CHECK(copy->addr_format == info->addr_format && copy->src_addrlen == info->src_addrlen);
	CHECK(!info->src_addr || (copy->src_addr != info->src_addr &&
	      !memcmp(copy->src_addr, info->src_addr, info->src_addrlen)));
	CHECK(!memcmp(copy->tx_attr, info->tx_attr, sizeof(*info->tx_attr)));
	CHECK(!memcmp(copy->rx_attr, info->rx_attr, sizeof(*info->rx_attr)));
	CHECK(copy->ep_attr->max_msg_size == info->ep_attr->max_msg_size);
	CHECK(copy->ep_attr->rx_ctx_cnt == info->ep_attr->rx_ctx_cnt);
	CHECK(copy->domain_attr->mr_mode == info->domain_attr->mr_mode);
	CHECK(copy->domain_attr->max_ep_srx_ctx == info->domain_attr->max_ep_srx_ctx);
#if ABI >= 9
	CHECK(copy->domain_attr->max_err_cntr_value == info->domain_attr->max_err_cntr_value);
#endif
	CHECK(same_text(copy->domain_attr->name, info->domain_attr->name));
	CHECK(same_text(copy->fabric_attr->name, info->fabric_attr->name));
	CHECK(same_text(copy->fabric_attr->prov_name, info->fabric_attr->prov_name));
	CHECK(copy->fabric_attr->prov_version == info->fabric_attr->prov_version);
	fi_freeinfo(copy);
}

static void check_result(const struct fi_info *info, const char *provider)
{
	size_t length = strlen(provider);

	CHECK_SHOW(info->caps & FI_MSG, "caps %#llx", (unsigned long long) info->caps);
	CHECK_SHOW(info->ep_attr->type == FI_EP_RDM, "type %d", info->ep_attr->type);
	CHECK(info->ep_attr->max_msg_size > 0);
	CHECK(info->tx_attr->size > 0 && info->rx_attr->size > 0 && info->tx_attr->iov_limit > 0);
	CHECK(info->domain_attr->name && info->fabric_attr->name);
	CHECK_SHOW(!strncmp(info->fabric_attr->prov_name, provider, length), "provider %s",
	      info->fabric_attr->prov_name);
	CHECK(info->domain_attr->cq_cnt > 0 && info->domain_attr->ep_cnt > 0);
	/* Before interface 1.5 the mode was one of two, and not a set of bits. */
	if (interface_version() < FI_VERSION(1, 5))
		CHECK_SHOW(info->domain_attr->mr_mode == FI_MR_BASIC ||
			   info->domain_attr->mr_mode == FI_MR_SCALABLE,
			   "mr_mode %#x", info->domain_attr->mr_mode);
#if ABI >= 1
	CHECK_SHOW(info->fabric_attr->api_version == interface_version(), "%#x",
	      info->fabric_attr->api_version);
#endif
}

static void check_fabric(struct fi_info *info)
{
	const char *failed_step = "";
	struct fi_fabric_attr *attr = at_page_end(sizeof(*attr));
	struct fid_fabric *fabric = NULL;
	int context, ret;

	*attr = *info->fabric_attr;
	ret = fi_fabric(attr, &fabric, &context);
	CHECK_SHOW(ret == 0, "%s", fi_strerror(-ret));
	if (ret)
		return;
	CHECK(fabric->fid.fclass == FI_CLASS_FABRIC);
	CHECK(fabric->fid.context == &context);
	CHECK_SHOW(fabric->api_version == (ABI ? interface_version() : FI_VERSION(1, 0)), "%#x",
	      fabric->api_version);
	ret = transfer_to_self(fabric, info, at_page_end, &failed_step);
	CHECK_SHOW(ret == 0, "%s", failed_step);
	ret = fabric->fid.ops->close(&fabric->fid);
	CHECK_SHOW(ret == 0, "%s", fi_strerror(-ret));
}

int main(int argc, char **argv)
{
	struct fi_info *hints, *info = NULL, *each;
	char *provider = argc > 1 ? argv[1] : "tcp";
	int ret, results = 0;

	check_allocation();

	hints = guarded_info(provider);
	hints->caps = FI_MSG;
	hints->mode = FI_CONTEXT | FI_LOCAL_MR;
	hints->ep_attr->type = FI_EP_RDM;
	check_copy(hints);

	ret = fi_getinfo(interface_version(), NULL, NULL, 0, hints, &info);
	CHECK_SHOW(ret == 0, "%s", fi_strerror(-ret));
	for (each = info; each; each = each->next) {
		check_result(each, provider);
		check_copy(each);
		results++;
	}
	if (info)
		check_fabric(info);
	fi_freeinfo(info);

	hints->fabric_attr->prov_name = "nobody";
	info = (void *) hints;
	ret = fi_getinfo(interface_version(), NULL, NULL, 0, hints, &info);
	CHECK_SHOW(ret == -61 && info == NULL, "%d", ret);

	printf("ABI 1.%d: %d results, %d failures\n", ABI, results, failures);
	return failures != 0;
}
