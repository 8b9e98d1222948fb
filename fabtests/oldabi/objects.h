/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * The objects of a transfer in the headers of libfabric 1.0. Tables of
 * operations have been extended at their ends since; only the members that are
 * called here are named.
 */
#ifndef OBJECTS_H
#define OBJECTS_H

#include <sys/types.h>

#include "layouts.h"

typedef uint64_t fi_addr_t;

struct fi_fid_ops {
	size_t size;
	int (*close)(struct fid *fid);
	int (*bind)(struct fid *fid, struct fid *bound, uint64_t flags);
	int (*control)(struct fid *fid, int command, void *argument);
};

struct fid_domain {
	struct fid fid;
	struct fi_ops_domain *ops;
};

struct fid_cq {
	struct fid fid;
	struct fi_ops_cq *ops;
};

struct fid_av {
	struct fid fid;
	struct fi_ops_av *ops;
};

struct fid_ep {
	struct fid fid;
	void *ops;
	struct fi_ops_cm *cm;
	struct fi_ops_msg *msg;
};

struct fi_cq_attr {
	size_t size;
	uint64_t flags;
	int format, wait_obj, signaling_vector, wait_cond;
	void *wait_set;
};

struct fi_cq_msg_entry {
	void *op_context;
	uint64_t flags;
	size_t len;
};

struct fi_av_attr {
	int type, rx_ctx_bits;
	size_t count, ep_per_node;
	const char *name;
	void *map_addr;
	uint64_t flags;
};

struct fi_ops_fabric {
	size_t size;
	int (*domain)(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
		      void *context);
};

struct fi_ops_domain {
	size_t size;
	int (*av_open)(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
		       void *context);
	int (*cq_open)(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
		       void *context);
	int (*endpoint)(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
			void *context);
};

struct fi_ops_cq {
	size_t size;
	ssize_t (*read)(struct fid_cq *cq, void *buf, size_t count);
};

struct fi_ops_av {
	size_t size;
	int (*insert)(struct fid_av *av, const void *addr, size_t count, fi_addr_t *fi_addr,
		      uint64_t flags, void *context);
};

struct fi_ops_cm {
	size_t size;
	int (*setname)(struct fid *fid, void *addr, size_t addrlen);
	int (*getname)(struct fid *fid, void *addr, size_t *addrlen);
};

struct fi_ops_msg {
	size_t size;
	ssize_t (*recv)(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
			void *context);
	void *recvv, *recvmsg;
	ssize_t (*send)(struct fid_ep *ep, const void *buf, size_t len, void *desc,
			fi_addr_t dest_addr, void *context);
};

enum { FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE };
enum { FI_CQ_FORMAT_UNSPEC, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG };
enum { FI_ENABLE = 6 };

#define FI_RECV (1ULL << 10)
#define FI_SEND (1ULL << 11)
#define FI_ADDR_UNSPEC UINT64_MAX
#define FI_EAGAIN 11

#endif
