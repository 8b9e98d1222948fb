/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The structures of fi_getinfo for a program that was built against the
 * headers of ABI version 1.<ABI>. Later versions appended fields.
 */
#ifndef LAYOUTS_H
#define LAYOUTS_H

#include <stddef.h>
#include <stdint.h>

#ifndef ABI
#error "compile with -DABI=0, 1, 2, 3, 7, 8 or 9"
#endif

struct fid;

struct fi_tx_attr {
	uint64_t caps, mode, op_flags, msg_order, comp_order;
	size_t inject_size, size, iov_limit, rma_iov_limit;
#if ABI >= 3
	uint32_t tclass;
#endif
};

struct fi_rx_attr {
	uint64_t caps, mode, op_flags, msg_order, comp_order;
	size_t total_buffered_recv, size, iov_limit;
};

struct fi_ep_attr {
	int type;
	uint32_t protocol, protocol_version;
	size_t max_msg_size, msg_prefix_size;
	size_t max_order_raw_size, max_order_war_size, max_order_waw_size;
	uint64_t mem_tag_format;
	size_t tx_ctx_cnt, rx_ctx_cnt;
#if ABI >= 1
	size_t auth_key_size;
	uint8_t *auth_key;
#endif
};

struct fi_domain_attr {
	struct fid_domain *domain;
	char *name;
	int threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode;
	size_t mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt;
	size_t max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx;
#if ABI >= 1
	size_t cntr_cnt, mr_iov_limit;
	uint64_t caps, mode;
	uint8_t *auth_key;
	size_t auth_key_size, max_err_data, mr_cnt;
#endif
#if ABI >= 3
	uint32_t tclass;
#endif
#if ABI >= 7
	size_t max_ep_auth_key;
#endif
#if ABI >= 8
	uint32_t max_group_id;
#endif
#if ABI >= 9
	uint64_t max_cntr_value, max_err_cntr_value;
#endif
};

struct fi_fabric_attr {
	struct fid_fabric *fabric;
	char *name, *prov_name;
	uint32_t prov_version;
#if ABI >= 1
	uint32_t api_version;
#endif
};

struct fi_info {
	struct fi_info *next;
	uint64_t caps, mode;
	uint32_t addr_format;
	size_t src_addrlen, dest_addrlen;
	void *src_addr, *dest_addr;
	struct fid *handle;
	struct fi_tx_attr *tx_attr;
	struct fi_rx_attr *rx_attr;
	struct fi_ep_attr *ep_attr;
	struct fi_domain_attr *domain_attr;
	struct fi_fabric_attr *fabric_attr;
#if ABI >= 2
	struct fid_nic *nic;
#endif
};

/* The beginning of every object. */
struct fi_ops {
	size_t size;
	int (*close)(struct fid *);
};

struct fid {
	size_t fclass;
	void *context;
	struct fi_ops *ops;
};

struct fid_fabric {
	struct fid fid;
	void *ops;
	uint32_t api_version;
};

#define FI_VERSION(major, minor) (((uint32_t) (major) << 16) | (minor))

enum { FI_EP_UNSPEC, FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM };
enum { FI_MR_UNSPEC, FI_MR_BASIC, FI_MR_SCALABLE };
enum { FI_CLASS_FABRIC = 1 };

#define FI_MSG (1ULL << 1)
#define FI_CONTEXT (1ULL << 59)
#define FI_LOCAL_MR (1ULL << 55)

#define STRING_(x) #x
#define STRING(x) STRING_(x)

/* fi_fabric changed only with ABI 1.1. */
#if ABI == 0
#define FABRIC_ABI 0
#else
#define FABRIC_ABI 1
#endif

__asm__(".symver fi_getinfo, fi_getinfo@FABRIC_1." STRING(ABI));
__asm__(".symver fi_dupinfo, fi_dupinfo@FABRIC_1." STRING(ABI));
__asm__(".symver fi_freeinfo, fi_freeinfo@FABRIC_1." STRING(ABI));
#if ABI == 0
__asm__(".symver fi_fabric, fi_fabric@FABRIC_1.0");
#endif

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
	       struct fi_info *hints, struct fi_info **info);
struct fi_info *fi_dupinfo(const struct fi_info *info);
void fi_freeinfo(struct fi_info *info);
int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
const char *fi_strerror(int errnum);

#endif
