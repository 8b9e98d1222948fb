/* Written by `make headers` from the abi crate. Change abi/, not this file. */

/*
 * Objects that one provider shares with another, fi_peer(3).
 */
#ifndef RDMA_PROVIDERS_FI_PEER_H
#define RDMA_PROVIDERS_FI_PEER_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_ext.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fi_av_attr;
struct fi_cq_err_entry;
struct fi_cq_tagged_entry;
struct fi_info;
struct fi_ops_av_set_owner;
struct fi_peer_av_set;
struct fi_peer_rx_entry;
struct fid;
struct fid_domain;
struct fid_ep;
struct fid_eq;
struct fid_peer_av;
struct fid_peer_cntr;
struct fid_peer_cq;
struct fid_peer_srx;
struct iovec;

/* Named by `fi_peer_av_set_context` only; never defined. */
struct fi_peer_av_set;

/* Functions of the owner of a shared address vector, for its peers, fi_peer(3). */
struct fi_ops_av_owner {
	size_t size;
	int (*query)(struct fid_peer_av *av, struct fi_av_attr *attr);
	fi_addr_t (*ep_addr)(struct fid_peer_av *av, struct fid_ep *ep);
};

/* An address vector shared between providers, fi_peer(3). */
struct fid_peer_av {
	struct fid fid;
	struct fi_ops_av_owner *owner_ops;
};

/* Passes the owner's address vector to a peer, fi_peer(3). */
struct fi_peer_av_context {
	size_t size;
	struct fid_peer_av *av;
};

/* Passes the owner's address vector set to a peer, fi_peer(3). */
struct fi_peer_av_set_context {
	size_t size;
	struct fi_peer_av_set *av_set;
};

/* Functions of the owner of a shared counter, for its peers, fi_peer(3). */
struct fi_ops_cntr_owner {
	size_t size;
	void (*inc)(struct fid_peer_cntr *cntr);
	void (*incerr)(struct fid_peer_cntr *cntr);
};

/* A counter shared between providers, fi_peer(3). */
struct fid_peer_cntr {
	struct fid fid;
	struct fi_ops_cntr_owner *owner_ops;
};

/* Passes the owner's counter to a peer, fi_peer(3). */
struct fi_peer_cntr_context {
	size_t size;
	struct fid_peer_cntr *cntr;
};

/* Functions of the owner of a shared completion queue, for its peers, fi_peer(3). */
struct fi_ops_cq_owner {
	size_t size;
	ssize_t (*write)(struct fid_peer_cq *cq, void *context, uint64_t flags, size_t len,
			 void *buf, uint64_t data, uint64_t tag, fi_addr_t src);
	ssize_t (*writeerr)(struct fid_peer_cq *cq, const struct fi_cq_err_entry *err_entry);
};

/* A completion queue shared between providers, fi_peer(3). */
struct fid_peer_cq {
	struct fid fid;
	struct fi_ops_cq_owner *owner_ops;
};

/* Passes the owner's completion queue to a peer, fi_peer(3). */
struct fi_peer_cq_context {
	size_t size;
	struct fid_peer_cq *cq;
};

/* Passes the owner's domain to a peer, fi_peer(3). */
struct fi_peer_domain_context {
	size_t size;
	struct fid_domain *domain;
};

/* Passes the owner's event queue to a peer, fi_peer(3). */
struct fi_peer_eq_context {
	size_t size;
	struct fid_eq *eq;
};

/* The message for which a peer requests a matching receive, fi_peer(3). */
struct fi_peer_match_attr {
	fi_addr_t addr;
	size_t msg_size;
	uint64_t tag;
};

/* Functions of the owner of a shared receive context, for its peers, fi_peer(3). */
struct fi_ops_srx_owner {
	size_t size;
	int (*get_msg)(struct fid_peer_srx *srx, struct fi_peer_match_attr *attr,
		       struct fi_peer_rx_entry **entry);
	int (*get_tag)(struct fid_peer_srx *srx, struct fi_peer_match_attr *attr,
		       struct fi_peer_rx_entry **entry);
	int (*queue_msg)(struct fi_peer_rx_entry *entry);
	int (*queue_tag)(struct fi_peer_rx_entry *entry);
	void (*foreach_unspec_addr)(struct fid_peer_srx *srx,
				    fi_addr_t (*get_addr)(struct fi_peer_rx_entry*));
	void (*free_entry)(struct fi_peer_rx_entry *entry);
};

/* Functions of a peer, for the owner of a shared receive context, fi_peer(3). */
struct fi_ops_srx_peer {
	size_t size;
	int (*start_msg)(struct fi_peer_rx_entry *entry);
	int (*start_tag)(struct fi_peer_rx_entry *entry);
	int (*discard_msg)(struct fi_peer_rx_entry *entry);
	int (*discard_tag)(struct fi_peer_rx_entry *entry);
};

/* A receive context shared between providers, fi_peer(3). */
struct fid_peer_srx {
	struct fid_ep ep_fid;
	struct fi_ops_srx_owner *owner_ops;
	struct fi_ops_srx_peer *peer_ops;
};

/* A receive or an unexpected message of a shared receive context, fi_peer(3). */
struct fi_peer_rx_entry {
	struct fid_peer_srx *srx;
	fi_addr_t addr;
	size_t msg_size;
	uint64_t tag;
	uint64_t cq_data;
	uint64_t flags;
	void *context;
	size_t count;
	void **desc;
	void *peer_context;
	void *owner_context;
	struct iovec *iov;
};

/* Passes the owner's shared receive context to a peer, fi_peer(3). */
struct fi_peer_srx_context {
	size_t size;
	struct fid_peer_srx *srx;
};

/* Completion of transfers that a provider has delegated to a peer, fi_peer(3). */
struct fi_ops_transfer_peer {
	size_t size;
	ssize_t (*complete)(struct fid_ep *ep, struct fi_cq_tagged_entry *entry,
			    fi_addr_t src_addr);
	ssize_t (*comperr)(struct fid_ep *ep, struct fi_cq_err_entry *err_entry);
};

/* Passes the endpoint that initiates transfers to a peer, fi_peer(3). */
struct fi_peer_transfer_context {
	size_t size;
	struct fi_info *info;
	struct fid_ep *ep;
	struct fi_ops_transfer_peer *peer_ops;
};

/* An address vector set shared between providers, fi_peer(3). */
struct fid_peer_av_set {
	struct fid fid;
	struct fi_ops_av_set_owner *owner_ops;
};

/* Functions of the owner of a shared address vector set, for its peers, fi_peer(3). */
struct fi_ops_av_set_owner {
	size_t size;
	int (*members)(struct fid_peer_av_set *av_set, fi_addr_t *addr, size_t *count);
};

#ifdef __cplusplus
}
#endif

#endif /* RDMA_PROVIDERS_FI_PEER_H */
