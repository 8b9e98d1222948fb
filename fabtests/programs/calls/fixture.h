/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Objects for the rows of the table of calls, opened on first use. */
#ifndef CALLS_FIXTURE_H
#define CALLS_FIXTURE_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "peer.h"
#include "transfer.h"
#include "wait.h"

/* The specification of peer() and pair(); a row may change it before. */
extern struct ct_spec spec;

/* A domain with its queues and, for RDM, a vector; no endpoint. */
struct ct_peer *peer(void);
struct fi_info *info(void);
struct fid_fabric *fabric(void);
struct fid_domain *domain(void);
struct fid_eq *eq(void);
struct fid_cq *cq(void);
struct fid_av *av(void);
struct fid_cntr *cntr(void);
struct fid_mr *mr(void);
struct fid_ep *srx(void);
struct fid_poll *pollset(void);
struct fid_wait *waitset(void);

/* Endpoints of that domain: bound to nothing, bound to everything, enabled. */
struct fid_ep *new_ep(void);
struct fid_ep *bound_ep(void);
struct fid_ep *ep(void);

/* A passive endpoint that has its event queue, and one that listens. */
struct fid_pep *new_pep(void);
struct fid_pep *listener(void);

/* Two endpoints that know each other or are connected. */
struct ct_pair *pair(void);

/* fi_bind for any object, also if it has no wrapper. */
int bind_to(struct fid *object, struct fid *other, uint64_t flags);

/* An address that is not this host's, and one of the other family. */
struct sockaddr_in *foreign(void);
struct sockaddr_in6 *other_family(void);

/* The address of another endpoint of this process. */
struct sockaddr_in *taken(void);

/* An address of the loopback interface, for which the system chooses the port.
 */
struct sockaddr_in *free_address(void);

/* An address for vectors, of the provider's format, and its size. */
void *somewhere(void);
size_t somewhere_size(void);

/* Leaves out rows about internet addresses if the provider has others. */
int internet(void);

/* For calls that take some. */
extern char memory[1 << 17];
extern struct fi_context2 context[8];

#endif
