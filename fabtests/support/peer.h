/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Endpoints with everything they need, alone or as a connected pair.
 *
 * A pair lives in one process: two endpoints, by default in two domains of
 * one fabric, that know each other (RDM) or are connected (MSG). Both sides
 * are driven by the calls that wait for one of them, so programs need no
 * threads and no second process unless that is what they test.
 */
#ifndef CT_PEER_H
#define CT_PEER_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "check.h"

/* The release whose semantics the programs request. */
#ifndef CT_API_VERSION
#define CT_API_VERSION FI_VERSION(2, 0)
#endif

/* One completion, successful or not, independent of the queue's format. */
struct ct_completion {
	void *context;
	uint64_t flags;			/* 0 if the format has none */
	size_t len;
	void *buf;
	uint64_t data;
	uint64_t tag;
	fi_addr_t src;			/* FI_ADDR_NOTAVAIL without FI_SOURCE */
	int err;			/* 0, or a positive error code */
	int prov_errno;
	size_t olen;
};

/* A completion queue and the completions that were read from it but not yet
 * requested. */
struct ct_cq {
	struct fid_cq *fid;
	enum fi_cq_format format;
	struct ct_completion *stash;
	size_t first, count, capacity;
};

/* Room for any address of an endpoint. */
#define CT_NAME 1024

/* Room for connection data. */
#define CT_CM_DATA 512

/* An event, with the data after the fixed part (connection data). */
struct ct_event {
	uint32_t type;
	bool failed;
	struct fi_eq_err_entry err;	/* valid if failed */
	fid_t fid;
	struct fi_info *info;		/* connection requests: the reader's to free */
	size_t data_len;
	unsigned char data[CT_CM_DATA];
};

struct ct_eq {
	struct fid_eq *fid;
	struct ct_event stash[16];
	size_t count;
};

/* The specification of an endpoint; all zero is a plain endpoint that sends
 * and receives. */
struct ct_spec {
	uint32_t version;		/* 0: CT_API_VERSION */
	uint64_t caps;			/* 0: FI_MSG */
	uint64_t tx_op_flags, rx_op_flags;
	enum fi_cq_format format;	/* 0: FI_CQ_FORMAT_TAGGED */
	enum fi_wait_obj wait;		/* of CQs and counters */
	size_t cq_size;			/* 0: the provider's choice */
	enum fi_av_type av_type;
	enum fi_threading threading;
	enum fi_progress progress;	/* 0: manual */
	bool selective_tx, selective_rx;
	bool one_cq;			/* transmit and receive on one queue */
	bool srx;			/* receive through a shared context */
	bool one_domain;		/* both endpoints of a pair */
	bool eq;			/* bind one, which MSG always does */
	uint64_t counters;		/* FI_SEND | FI_RECV | ...: one each */
	int events;			/* that these count; 0: completions */
	uint64_t av_flags;
	const char *av_name;		/* of a vector that processes share */
	int rx_ctx_bits;		/* of the vector */
	int wait_cond;			/* of CQs */
	void (*receives)(struct fi_rx_attr *attr);	/* of the shared context */
	uint64_t no_queue;		/* FI_TRANSMIT | FI_RECV: bind none for it */
	void (*hint)(struct fi_info *hints);	/* last word on the hints */
	void (*open)(struct fi_info *info);	/* before fi_domain */
	void (*change)(struct fi_info *info);	/* before fi_endpoint */
	void (*prepare)(struct fid_ep *ep);	/* just before fi_enable */
};

enum ct_counter {
	CT_CNTR_SEND, CT_CNTR_RECV, CT_CNTR_READ, CT_CNTR_WRITE,
	CT_CNTR_REMOTE_READ, CT_CNTR_REMOTE_WRITE, CT_CNTR_MAX,
};

/* The flags of fi_ep_bind for each of them. */
extern const uint64_t ct_counter_flags[CT_CNTR_MAX];

struct ct_peer {
	struct ct_spec spec;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct ct_eq eq;
	struct fid_av *av;		/* NULL for MSG */
	struct ct_cq tx, rx;		/* equal fids with one_cq */
	struct fid_cntr *cntr[CT_CNTR_MAX];
	struct fid_ep *srx;		/* NULL without a shared context */
	struct fid_ep *ep;
	fi_addr_t to;			/* the other side, as this side calls it */
	struct ct_peer *partner;	/* driven along with this one; may be NULL */
	bool owns_fabric, owns_domain;
};

struct ct_pair {
	struct ct_peer a, b;
	struct fid_pep *pep;		/* what b connected to (MSG) */
};

/* Hints for the selected provider and endpoint type; free with fi_freeinfo. */
struct fi_info *ct_hints(const struct ct_spec *spec);

/* fi_getinfo for a local endpoint; skips the test if there is none. */
struct fi_info *ct_getinfo(const struct ct_spec *spec);

/* Fabric, domain and queues for an info, which the peer then owns. A fabric or
 * a domain that is given is shared, not owned. */
void ct_open_domain(struct ct_peer *peer, const struct ct_spec *spec,
		    struct fi_info *info, struct fid_fabric *fabric,
		    struct fid_domain *domain);

/* The endpoint itself, bound and enabled, from the given info (that of a
 * connection request, or the peer's own). */
void ct_open_ep(struct ct_peer *peer, struct fi_info *info);

/* The same without fi_enable, for tests of calls before it. */
void ct_open_ep_disabled(struct ct_peer *peer, struct fi_info *info);

/* A single endpoint, enabled but not connected. */
void ct_open_single(struct ct_peer *peer, const struct ct_spec *spec);
void ct_close_peer(struct ct_peer *peer);

/* One more RDM endpoint that sends to an open one; returns how that one calls
 * the newcomer. They drive each other. */
fi_addr_t ct_open_third(struct ct_peer *third, struct ct_peer *target);

void ct_open_pair(struct ct_pair *pair, const struct ct_spec *spec);
void ct_close_pair(struct ct_pair *pair);

/* fi_getname into a buffer of the given size; the name's length. */
size_t ct_name(struct fid *fid, void *buf, size_t size);

/* Inserts one address and returns how the peer's AV calls it. */
fi_addr_t ct_insert(struct ct_peer *peer, const void *name);

/* Whether an endpoint of the provider is enabled only with a queue or a counter for
 * each direction: not in sockets and rxd. */
bool ct_needs_queues(void);

/* The endpoint that receives are posted to: the shared context if any. */
struct fid_ep *ct_rx_ep(const struct ct_peer *peer);

bool ct_has(const struct ct_peer *peer, uint64_t caps);

/* Memory registration mode of the peer's domain. */
int ct_mr_mode(const struct ct_peer *peer);

#endif
