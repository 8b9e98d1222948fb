/* Written by `make headers` from the abi crate. Change abi/, not this file. */

/*
 * Calls for the code of accelerators, fi_xpu(3): on endpoints, counters and completion queues that
 * were exported to them. The compiler of such code (CUDA, HIP, SYCL) or one for the processor reads
 * this header.
 *
 * A call is carried out by the provider in fid_xpu.prov_id. No provider of this library has code for
 * accelerators: what would begin an operation or change an object returns -FI_ENOSYS, and counters
 * are at 0.
 */
#ifndef RDMA_FI_XPU_DEVICE_H
#define RDMA_FI_XPU_DEVICE_H

#include <rdma/fi_xpu.h>

#if defined(__CUDACC__) || (defined(__HIP_DEVICE_COMPILE__) && __HIP_DEVICE_COMPILE__)
#define FI_XPU_FUNC	__device__ static inline
#else
#define FI_XPU_FUNC	static inline
#endif

/* Messages, fi_msg(3). */
FI_XPU_FUNC int
fi_xpu_send(struct fid_xpu_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
	void *dest_addr, void *context, uint64_t flags, int scope)
{
	(void)ep;
	(void)buf;
	(void)len;
	(void)desc;
	(void)data;
	(void)dest_addr;
	(void)context;
	(void)flags;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int
fi_xpu_recv(struct fid_xpu_ep *ep, void *buf, size_t len, void *desc, void *src_addr,
	void *context, uint64_t flags, int scope)
{
	(void)ep;
	(void)buf;
	(void)len;
	(void)desc;
	(void)src_addr;
	(void)context;
	(void)flags;
	(void)scope;
	return -FI_ENOSYS;
}

/* Tagged messages, fi_tagged(3). */
FI_XPU_FUNC int
fi_xpu_tsend(struct fid_xpu_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
	void *dest_addr, uint64_t tag, void *context, uint64_t flags, int scope)
{
	(void)ep;
	(void)buf;
	(void)len;
	(void)desc;
	(void)data;
	(void)dest_addr;
	(void)tag;
	(void)context;
	(void)flags;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int
fi_xpu_trecv(struct fid_xpu_ep *ep, void *buf, size_t len, void *desc, void *src_addr,
	uint64_t tag, uint64_t ignore, void *context, uint64_t flags, int scope)
{
	(void)ep;
	(void)buf;
	(void)len;
	(void)desc;
	(void)src_addr;
	(void)tag;
	(void)ignore;
	(void)context;
	(void)flags;
	(void)scope;
	return -FI_ENOSYS;
}

/* Access to remote memory, fi_rma(3). */
FI_XPU_FUNC int
fi_xpu_write(struct fid_xpu_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
	void *dest_addr, uint64_t addr, uint64_t key, void *context, uint64_t flags, int scope)
{
	(void)ep;
	(void)buf;
	(void)len;
	(void)desc;
	(void)data;
	(void)dest_addr;
	(void)addr;
	(void)key;
	(void)context;
	(void)flags;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int
fi_xpu_read(struct fid_xpu_ep *ep, void *buf, size_t len, void *desc, void *src_addr,
	uint64_t addr, uint64_t key, void *context, uint64_t flags, int scope)
{
	(void)ep;
	(void)buf;
	(void)len;
	(void)desc;
	(void)src_addr;
	(void)addr;
	(void)key;
	(void)context;
	(void)flags;
	(void)scope;
	return -FI_ENOSYS;
}

/* Atomic operations, fi_atomic(3). */
FI_XPU_FUNC int
fi_xpu_atomic(struct fid_xpu_ep *ep, const void *buf, size_t count, void *desc, void *dest_addr,
	uint64_t addr, uint64_t key, int datatype, int op, void *context, uint64_t flags,
	int scope)
{
	(void)ep;
	(void)buf;
	(void)count;
	(void)desc;
	(void)dest_addr;
	(void)addr;
	(void)key;
	(void)datatype;
	(void)op;
	(void)context;
	(void)flags;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int
fi_xpu_fetch_atomic(struct fid_xpu_ep *ep, const void *buf, size_t count, void *desc,
	void *result, void *result_desc, void *dest_addr, uint64_t addr, uint64_t key,
	int datatype, int op, void *context, uint64_t flags, int scope)
{
	(void)ep;
	(void)buf;
	(void)count;
	(void)desc;
	(void)result;
	(void)result_desc;
	(void)dest_addr;
	(void)addr;
	(void)key;
	(void)datatype;
	(void)op;
	(void)context;
	(void)flags;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int
fi_xpu_compare_atomic(struct fid_xpu_ep *ep, const void *buf, size_t count, void *desc,
	const void *compare, void *compare_desc, void *result, void *result_desc,
	void *dest_addr, uint64_t addr, uint64_t key, int datatype, int op, void *context,
	uint64_t flags, int scope)
{
	(void)ep;
	(void)buf;
	(void)count;
	(void)desc;
	(void)compare;
	(void)compare_desc;
	(void)result;
	(void)result_desc;
	(void)dest_addr;
	(void)addr;
	(void)key;
	(void)datatype;
	(void)op;
	(void)context;
	(void)flags;
	(void)scope;
	return -FI_ENOSYS;
}

/* Counters, fi_cntr(3). */
FI_XPU_FUNC uint64_t
fi_xpu_cntr_read(struct fid_xpu_cntr *cntr, int scope)
{
	(void)cntr;
	(void)scope;
	return 0;
}

FI_XPU_FUNC uint64_t
fi_xpu_cntr_readerr(struct fid_xpu_cntr *cntr, int scope)
{
	(void)cntr;
	(void)scope;
	return 0;
}

FI_XPU_FUNC void
fi_xpu_cntr_wait(struct fid_xpu_cntr *cntr, uint64_t threshold, int timeout, int scope)
{
	(void)cntr;
	(void)threshold;
	(void)timeout;
	(void)scope;
}

FI_XPU_FUNC int
fi_xpu_cntr_add(struct fid_xpu_cntr *cntr, uint64_t value, int scope)
{
	(void)cntr;
	(void)value;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int
fi_xpu_cntr_set(struct fid_xpu_cntr *cntr, uint64_t value, int scope)
{
	(void)cntr;
	(void)value;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int
fi_xpu_cntr_adderr(struct fid_xpu_cntr *cntr, uint64_t value, int scope)
{
	(void)cntr;
	(void)value;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int
fi_xpu_cntr_seterr(struct fid_xpu_cntr *cntr, uint64_t value, int scope)
{
	(void)cntr;
	(void)value;
	(void)scope;
	return -FI_ENOSYS;
}

/* Completion queues, fi_cq(3). */
FI_XPU_FUNC int64_t
fi_xpu_cq_read(struct fid_xpu_cq *cq, void *buf, size_t count, int scope)
{
	(void)cq;
	(void)buf;
	(void)count;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int64_t
fi_xpu_cq_readfrom(struct fid_xpu_cq *cq, void *buf, size_t count, void *src_addr, int scope)
{
	(void)cq;
	(void)buf;
	(void)count;
	(void)src_addr;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int64_t
fi_xpu_cq_readerr(struct fid_xpu_cq *cq, void *buf, uint64_t flags, int scope)
{
	(void)cq;
	(void)buf;
	(void)flags;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int64_t
fi_xpu_cq_sread(struct fid_xpu_cq *cq, void *buf, size_t count, uint64_t threshold, int scope)
{
	(void)cq;
	(void)buf;
	(void)count;
	(void)threshold;
	(void)scope;
	return -FI_ENOSYS;
}

FI_XPU_FUNC int64_t
fi_xpu_cq_sreadfrom(struct fid_xpu_cq *cq, void *buf, size_t count, void *src_addr,
	uint64_t threshold, int scope)
{
	(void)cq;
	(void)buf;
	(void)count;
	(void)src_addr;
	(void)threshold;
	(void)scope;
	return -FI_ENOSYS;
}

#endif /* RDMA_FI_XPU_DEVICE_H */
