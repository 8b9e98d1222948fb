/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* An external hook, fi_hook(7): a fabric over the one that it finds in the
 * attributes, which says so and passes fi_close(3) on. */
#include <stdlib.h>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

static struct fi_provider provider;

struct over {
	struct fid_fabric fabric;
	struct fid_fabric *below;
};

static int over_close(struct fid *fid)
{
	struct over *over = (struct over *) fid;
	int ret = fi_close(&over->below->fid);

	FI_WARN(&provider, FI_LOG_FABRIC, "outer closes: %d\n", ret);
	if (!ret)
		free(over);
	return ret;
}

static struct fi_ops over_ops = {
	.size = sizeof(struct fi_ops),
	.close = over_close,
};

static int over_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	struct fi_provider *hooked = context;
	struct over *over = calloc(1, sizeof(*over));

	if (!over)
		return -FI_ENOMEM;
	over->below = attr->fabric;
	over->fabric = *attr->fabric;
	over->fabric.fid.ops = &over_ops;
	FI_WARN(&provider, FI_LOG_FABRIC, "outer is over %s\n", hooked->name);
	*fabric = &over->fabric;
	return 0;
}

static struct fi_provider provider = {
	.version = FI_VERSION(1, 0),
	.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
	.name = "ofi_hook_outer",
	.fabric = over_fabric,
};

FI_EXT_INI
{
	return &provider;
}
