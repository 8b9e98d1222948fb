/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * An external provider that offers one endpoint and opens one fabric, which
 * can do nothing. Compiled as lib<name>-fi.so with
 *
 *   -DNAME="..." -DVERSION=FI_VERSION(x, y) [-DWRITTEN_FOR=FI_VERSION(x, y)]
 */
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#ifndef WRITTEN_FOR
#define WRITTEN_FOR FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION)
#endif

static struct fi_provider provider;

static int fake_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
			const struct fi_info *hints, struct fi_info **info)
{
	struct fi_info *one;

	(void) version;
	(void) node;
	(void) service;
	(void) flags;
	if (hints && hints->ep_attr && hints->ep_attr->type == FI_EP_DGRAM)
		return -FI_ENODATA;
	if (hints && hints->fabric_attr && hints->fabric_attr->name &&
	    !strcmp(hints->fabric_attr->name, "refuse")) {
		FI_INFO(&provider, FI_LOG_FABRIC, "the fabric refuse is never there\n");
		return -FI_ENODATA;
	}

	one = fi_allocinfo();
	if (!one)
		return -FI_ENOMEM;
	one->caps = FI_MSG;
	one->addr_format = FI_SOCKADDR_IN;
	one->ep_attr->type = FI_EP_RDM;
	one->domain_attr->name = strdup(NAME "-domain");
	one->fabric_attr->name = strdup(NAME "-fabric");
	/* A layer enters the provider below it. */
	if (!strncmp(NAME, "ofi_", 4))
		one->fabric_attr->prov_name = strdup("tcp");
	*info = one;
	return 0;
}

static int fake_close(struct fid *fid)
{
	free(fid);
	return 0;
}

static struct fi_ops fake_ops = {
	.size = sizeof(struct fi_ops),
	.close = fake_close,
};

static int fake_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	(void) attr;
	*fabric = calloc(1, sizeof(**fabric));
	if (!*fabric)
		return -FI_ENOMEM;
	(*fabric)->fid.fclass = FI_CLASS_FABRIC;
	(*fabric)->fid.context = context;
	(*fabric)->fid.ops = &fake_ops;
	return 0;
}

static void fake_cleanup(void)
{
	FI_WARN(&provider, FI_LOG_FABRIC, "%s is cleaned up\n", NAME);
}

static struct fi_provider provider = {
	.version = VERSION,
	.fi_version = WRITTEN_FOR,
	.name = NAME,
	.getinfo = fake_getinfo,
	.fabric = fake_fabric,
	.cleanup = fake_cleanup,
};

FI_EXT_INI
{
	int number = 7;
	size_t size = 8;
	int truth = 9;

	fi_param_define(&provider, "number", FI_PARAM_INT, "a number, %d or so", number);
	fi_param_define(&provider, "size", FI_PARAM_SIZE_T, "a size");
	fi_param_define(&provider, "truth", FI_PARAM_BOOL, "a truth");
	fi_param_get_int(&provider, "number", &number);
	fi_param_get_int(&provider, "number", &number);
	fi_param_get_size_t(&provider, "size", &size);
	fi_param_get_bool(&provider, "truth", &truth);
	FI_INFO(&provider, FI_LOG_CORE, "number %d size %zu truth %d ratio %.2f\n", number, size,
		truth, 0.25);
	return &provider;
}
