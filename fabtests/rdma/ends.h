/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Two connected endpoints of one process, over an RDMA device: memory is
 * registered, and every request brings its descriptor.
 */
#ifndef RDMA_ENDS_H
#define RDMA_ENDS_H

#include "check.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <sys/socket.h>

enum { MEMORY = 1 << 20 };

/* One end: an endpoint with queues of its own and registered memory. */
struct end {
	struct fi_info *info;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *tx, *rx;
	struct fid_cntr *sent, *received;
	struct fid_ep *srx;		/* not closed with the end */
	struct fid_mr *mr;
	unsigned char *memory;
	void *desc;
	uint64_t key;
};

struct wish {
	enum fi_wait_obj wait;		/* of the completion queues */
	bool selective;			/* FI_SELECTIVE_COMPLETION */
	bool counters;
	bool shared;			/* receives of the passive side are shared */
	size_t queue_size;		/* fi_cq_attr::size */
	size_t memory;			/* bytes of an end; 0: MEMORY */
};

/* A fabric with an event queue and a passive endpoint that listens. */
struct place {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_pep *pep;
	struct fid_domain *domain;	/* of both sides */
	struct sockaddr_storage address;
	size_t length;
};

struct fi_info *hints_for(enum fi_ep_type type, uint64_t caps);
void open_place(struct place *place, const struct wish *wish);
void close_place(struct place *place);

/* Opens an endpoint with everything that it needs; enabled. */
void open_end(struct end *end, struct place *place, struct fi_info *info,
	      const struct wish *wish, struct fid_ep *srx);
void close_end(struct end *end);

/* Connects a new active end with a new passive one. */
void connect_ends(struct place *place, const struct wish *wish,
		  struct end *active, struct end *passive, struct fid_ep *srx);

/* The next event, which has to be this one. */
size_t event_of(struct place *place, uint32_t kind, struct fi_eq_cm_entry *entry,
		size_t room);
/* The next event, which has to be an error. */
struct fi_eq_err_entry failed_event(struct place *place);

/* The next completion, which has to be a success with this context. */
struct fi_cq_data_entry done(struct fid_cq *cq, void *context);
/* The next completion, which has to be a failure. */
struct fi_cq_err_entry failed(struct fid_cq *cq);
/* Whether nothing arrives for a moment. */
bool stays_empty(struct fid_cq *cq);

/* A call that is repeated while there is no space. */
#define POST(call)							\
	do {								\
		double post_until_ = ct_now() + ct_patience();		\
		ssize_t post_rc_;					\
		while ((post_rc_ = (call)) == -FI_EAGAIN)		\
			REQUIRE(ct_now() < post_until_);		\
		EXPECT(post_rc_, 0);					\
	} while (0)

#endif
