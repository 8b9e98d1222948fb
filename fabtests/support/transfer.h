/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Every form of the message and RMA calls with one description. */
#ifndef CT_TRANSFER_H
#define CT_TRANSFER_H

#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "peer.h"

enum ct_send_form {
	CT_SEND,
	CT_SENDV,
	CT_SENDMSG,
	CT_SENDMSG_DATA,	/* with FI_REMOTE_CQ_DATA */
	CT_SENDMSG_INJECT,	/* with FI_INJECT */
	CT_SENDDATA,
	CT_INJECT,
	CT_INJECTDATA,
	CT_SEND_FORMS,
};

enum ct_recv_form { CT_RECV, CT_RECVV, CT_RECVMSG, CT_RECV_FORMS };

/* One message, as the sender or the receiver sees it. */
struct ct_message {
	bool tagged;
	void *buf;
	size_t len;
	size_t pieces;		/* vector forms: into how many iovecs; 0: one */
	void *desc;
	uint64_t tag, ignore;
	uint64_t data;		/* used by the forms that carry immediate data */
	uint64_t flags;		/* sendmsg and recvmsg forms only */
	fi_addr_t from;		/* receives; 0 counts as an address */
	void *context;
};

ssize_t ct_send(struct ct_peer *peer, enum ct_send_form form,
		const struct ct_message *message);
ssize_t ct_recv(struct ct_peer *peer, enum ct_recv_form form,
		const struct ct_message *message);

const char *ct_send_name(enum ct_send_form form);
const char *ct_recv_name(enum ct_recv_form form);
bool ct_send_has_data(enum ct_send_form form);
/* Whether the provider has what the form needs: not all have immediate data. */
bool ct_send_offered(const struct ct_peer *peer, enum ct_send_form form);
bool ct_send_completes(enum ct_send_form form);	/* by itself, without flags */

/* The longest message this form takes. */
size_t ct_send_limit(const struct ct_peer *peer, enum ct_send_form form);

/* Passes one empty message in each direction, so that the sides are connected.
 * Needs FI_MSG or FI_TAGGED; leaves nothing in queues, two more in counters. */
void ct_warm_up(struct ct_pair *pair);

enum ct_rma_form {
	CT_READ,
	CT_READV,
	CT_READMSG,
	CT_WRITE,
	CT_WRITEV,
	CT_WRITEMSG,
	CT_WRITEMSG_DATA,
	CT_WRITEMSG_INJECT,
	CT_WRITEDATA,
	CT_INJECT_WRITE,
	CT_INJECT_WRITEDATA,
	CT_RMA_FORMS,
};

struct ct_rma {
	void *buf;
	size_t len;
	size_t pieces;		/* local iovecs */
	size_t remote_pieces;	/* remote iovecs (msg forms) */
	void *desc;
	uint64_t addr, key;	/* the target */
	uint64_t data;
	uint64_t flags;		/* msg forms only */
	void *context;
};

ssize_t ct_rma(struct ct_peer *peer, enum ct_rma_form form,
	       const struct ct_rma *rma);
const char *ct_rma_name(enum ct_rma_form form);
bool ct_rma_is_read(enum ct_rma_form form);
bool ct_rma_has_data(enum ct_rma_form form);
bool ct_rma_offered(const struct ct_peer *peer, enum ct_rma_form form);
bool ct_rma_completes(enum ct_rma_form form);
size_t ct_rma_limit(const struct ct_peer *peer, enum ct_rma_form form);

#endif
