/* Written by `make headers` from the abi crate. Change abi/, not this file. */

/*
 * Fabric objects that accelerator code uses, fi_xpu(3).
 */
#ifndef RDMA_FI_XPU_H
#define RDMA_FI_XPU_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fid;
struct fid_xpu_ctx;

/* Flag of `fi_xpu_ops::alloc`: the memory can be exported as a dma-buf. */
#define FI_XPU_ALLOC_DMABUF	1ULL

/*
 * Flags of `fi_xpu_ops::import`: the address is that of device registers; the result is for device
 * code.
 */
#define FI_XPU_IMPORT_IOMEMORY	1ULL
#define FI_XPU_IMPORT_DEVICEMAP	2ULL

/* Objects that an accelerator context can export. */
#define FI_XPU_CAP_EP		1ULL
#define FI_XPU_CAP_CQ		2ULL
#define FI_XPU_CAP_CNTR		4ULL

/* Execution scopes of fi_xpu(3). */
enum {
	FI_XPU_WORK_ITEM,
	FI_XPU_SUBGROUP,
	FI_XPU_WORK_GROUP,
	FI_XPU_DEVICE,
};

/* Providers with device-side code, fi_xpu(3). */
enum fi_xpu_provider {
	FI_XPU_PROV_EFA = 1,
};

/* Objects that an accelerator context can export, and their sizes in bytes, fi_xpu(3). */
struct fi_xpu_ctx_attr {
	uint64_t caps;
	size_t av_addr_size;
	size_t mr_desc_size;
};

/* Operations of an accelerator context, fi_xpu(3). */
struct fi_ops_xpu_ctx {
	size_t size;
	int (*query)(struct fid_xpu_ctx *ctx, struct fi_xpu_ctx_attr *attr);
};

/* An accelerator context, fi_xpu(3). */
struct fid_xpu_ctx {
	struct fid fid;
	struct fi_ops_xpu_ctx *ops;
};

/* The first member of every object in accelerator memory, fi_xpu(3). */
struct fid_xpu {
	uint32_t fclass;
	uint32_t prov_id;
	uint64_t prov_ctx;
};

/* A completion queue in accelerator memory, fi_xpu(3). */
struct fid_xpu_cq {
	struct fid_xpu fid;
};

/* An endpoint in accelerator memory, fi_xpu(3). */
struct fid_xpu_ep {
	struct fid_xpu fid;
};

/* A counter in accelerator memory, fi_xpu(3). */
struct fid_xpu_cntr {
	struct fid_xpu fid;
};

/*
 * Functions by which a provider allocates accelerator memory and maps host memory into the
 * accelerator, fi_xpu(3).
 */
struct fi_xpu_ops {
	size_t size;
	int (*alloc)(uint64_t device, uint64_t size, uint64_t align, uint64_t flags, void **addr,
		     int *fd, uint64_t *offset);
	int (*import)(uint64_t device, void *addr, uint64_t size, uint64_t flags,
		      void **device_addr);
	void (*free)(uint64_t device, void *addr);
};

/* The accelerator of a context, fi_xpu(3). */
struct fi_xpu_attr {
	enum fi_hmem_iface iface;
	uint64_t device;
	struct fi_xpu_ops *ops;
};

static inline int
fi_xpu_ctx_query(struct fid_xpu_ctx *ctx, struct fi_xpu_ctx_attr *attr)
{
	return ctx->ops->query(ctx, attr);
}

static inline int
fi_xpu_ctx(struct fid_domain *domain, struct fi_xpu_attr *attr, struct fid_xpu_ctx **ctx,
	   void *context)
{
	return domain->ops->xpu_ctx(domain, attr, ctx, context);
}

#ifdef __cplusplus
}
#endif

#endif /* RDMA_FI_XPU_H */
