/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
#include "transfer.h"

#include "pattern.h"
#include "wait.h"

#define MAX_PIECES 16

/* A message cut into pieces, each with the descriptor of the whole. */
struct pieces {
	struct iovec iov[MAX_PIECES];
	void *desc[MAX_PIECES];
	size_t count;
};

static void cut(struct pieces *out, void *buf, size_t len, size_t count,
		void *desc)
{
	out->count = count ? count : 1;
	REQUIRE(out->count <= MAX_PIECES);
	ct_split(buf, len, out->iov, out->count);
	for (size_t i = 0; i < out->count; i++)
		out->desc[i] = desc;
}

static ssize_t send_untagged(struct ct_peer *peer, enum ct_send_form form,
			     const struct ct_message *m)
{
	struct pieces pieces;
	struct fi_msg msg = {
		.addr = peer->to, .context = m->context, .data = m->data,
	};

	switch (form) {
	case CT_SEND:
		return fi_send(peer->ep, m->buf, m->len, m->desc, peer->to,
			       m->context);
	case CT_SENDDATA:
		return fi_senddata(peer->ep, m->buf, m->len, m->desc, m->data,
				   peer->to, m->context);
	case CT_INJECT:
		return fi_inject(peer->ep, m->buf, m->len, peer->to);
	case CT_INJECTDATA:
		return fi_injectdata(peer->ep, m->buf, m->len, m->data,
				     peer->to);
	default:
		break;
	}
	cut(&pieces, m->buf, m->len, m->pieces, m->desc);
	if (form == CT_SENDV)
		return fi_sendv(peer->ep, pieces.iov, pieces.desc,
				pieces.count, peer->to, m->context);
	msg.msg_iov = pieces.iov;
	msg.desc = pieces.desc;
	msg.iov_count = pieces.count;
	return fi_sendmsg(peer->ep, &msg, m->flags |
			  (form == CT_SENDMSG_DATA ? FI_REMOTE_CQ_DATA : 0) |
			  (form == CT_SENDMSG_INJECT ? FI_INJECT : 0));
}

static ssize_t send_tagged(struct ct_peer *peer, enum ct_send_form form,
			   const struct ct_message *m)
{
	struct pieces pieces;
	struct fi_msg_tagged msg = {
		.addr = peer->to, .tag = m->tag, .context = m->context,
		.data = m->data,
	};

	switch (form) {
	case CT_SEND:
		return fi_tsend(peer->ep, m->buf, m->len, m->desc, peer->to,
				m->tag, m->context);
	case CT_SENDDATA:
		return fi_tsenddata(peer->ep, m->buf, m->len, m->desc, m->data,
				    peer->to, m->tag, m->context);
	case CT_INJECT:
		return fi_tinject(peer->ep, m->buf, m->len, peer->to, m->tag);
	case CT_INJECTDATA:
		return fi_tinjectdata(peer->ep, m->buf, m->len, m->data,
				      peer->to, m->tag);
	default:
		break;
	}
	cut(&pieces, m->buf, m->len, m->pieces, m->desc);
	if (form == CT_SENDV)
		return fi_tsendv(peer->ep, pieces.iov, pieces.desc,
				 pieces.count, peer->to, m->tag, m->context);
	msg.msg_iov = pieces.iov;
	msg.desc = pieces.desc;
	msg.iov_count = pieces.count;
	return fi_tsendmsg(peer->ep, &msg, m->flags |
			   (form == CT_SENDMSG_DATA ? FI_REMOTE_CQ_DATA : 0) |
			   (form == CT_SENDMSG_INJECT ? FI_INJECT : 0));
}

ssize_t ct_send(struct ct_peer *peer, enum ct_send_form form,
		const struct ct_message *message)
{
	return message->tagged ? send_tagged(peer, form, message)
			       : send_untagged(peer, form, message);
}

ssize_t ct_recv(struct ct_peer *peer, enum ct_recv_form form,
		const struct ct_message *m)
{
	struct fid_ep *ep = ct_rx_ep(peer);
	struct pieces pieces;

	if (form == CT_RECV)
		return m->tagged ?
		       fi_trecv(ep, m->buf, m->len, m->desc, m->from, m->tag,
				m->ignore, m->context) :
		       fi_recv(ep, m->buf, m->len, m->desc, m->from,
			       m->context);
	cut(&pieces, m->buf, m->len, m->pieces, m->desc);
	if (form == CT_RECVV)
		return m->tagged ?
		       fi_trecvv(ep, pieces.iov, pieces.desc, pieces.count,
				 m->from, m->tag, m->ignore, m->context) :
		       fi_recvv(ep, pieces.iov, pieces.desc, pieces.count,
				m->from, m->context);
	if (m->tagged) {
		struct fi_msg_tagged msg = {
			.msg_iov = pieces.iov, .desc = pieces.desc,
			.iov_count = pieces.count, .addr = m->from,
			.tag = m->tag, .ignore = m->ignore,
			.context = m->context,
		};

		return fi_trecvmsg(ep, &msg, m->flags);
	} else {
		struct fi_msg msg = {
			.msg_iov = pieces.iov, .desc = pieces.desc,
			.iov_count = pieces.count, .addr = m->from,
			.context = m->context,
		};

		return fi_recvmsg(ep, &msg, m->flags);
	}
}

const char *ct_send_name(enum ct_send_form form)
{
	static const char *const names[CT_SEND_FORMS] = {
		"send", "sendv", "sendmsg", "sendmsg-data", "sendmsg-inject",
		"senddata", "inject", "injectdata",
	};

	return names[form];
}

const char *ct_recv_name(enum ct_recv_form form)
{
	static const char *const names[CT_RECV_FORMS] = {
		"recv", "recvv", "recvmsg",
	};

	return names[form];
}

bool ct_send_has_data(enum ct_send_form form)
{
	return form == CT_SENDDATA || form == CT_INJECTDATA ||
	       form == CT_SENDMSG_DATA;
}

bool ct_send_offered(const struct ct_peer *peer, enum ct_send_form form)
{
	return !ct_send_has_data(form) || peer->info->domain_attr->cq_data_size;
}

bool ct_send_completes(enum ct_send_form form)
{
	return form != CT_INJECT && form != CT_INJECTDATA;
}

size_t ct_send_limit(const struct ct_peer *peer, enum ct_send_form form)
{
	if (form == CT_INJECT || form == CT_INJECTDATA ||
	    form == CT_SENDMSG_INJECT)
		return peer->info->tx_attr->inject_size;
	return peer->info->ep_attr->max_msg_size;
}

static void pass_empty(struct ct_peer *from, struct ct_peer *to)
{
	static struct fi_context2 tx_context, rx_context;
	struct ct_message m = {
		.tagged = !ct_has(from, FI_MSG), .from = FI_ADDR_UNSPEC,
	};

	m.context = &rx_context;
	m.flags = FI_COMPLETION;
	POST(to, ct_recv(to, CT_RECVMSG, &m));
	m.context = &tx_context;
	m.flags = FI_COMPLETION;
	POST(from, ct_send(from, CT_SENDMSG, &m));
	ct_done(from, &from->tx, &tx_context);
	ct_done(to, &to->rx, &rx_context);
}

void ct_warm_up(struct ct_pair *pair)
{
	pass_empty(&pair->a, &pair->b);
	pass_empty(&pair->b, &pair->a);
}

ssize_t ct_rma(struct ct_peer *peer, enum ct_rma_form form,
	       const struct ct_rma *r)
{
	struct fi_rma_iov remote[MAX_PIECES];
	struct iovec ranges[MAX_PIECES];
	struct pieces pieces;
	struct fi_msg_rma msg = {
		.addr = peer->to, .context = r->context, .data = r->data,
		.rma_iov = remote,
		.rma_iov_count = r->remote_pieces ? r->remote_pieces : 1,
	};

	switch (form) {
	case CT_READ:
		return fi_read(peer->ep, r->buf, r->len, r->desc, peer->to,
			       r->addr, r->key, r->context);
	case CT_WRITE:
		return fi_write(peer->ep, r->buf, r->len, r->desc, peer->to,
				r->addr, r->key, r->context);
	case CT_WRITEDATA:
		return fi_writedata(peer->ep, r->buf, r->len, r->desc, r->data,
				    peer->to, r->addr, r->key, r->context);
	case CT_INJECT_WRITE:
		return fi_inject_write(peer->ep, r->buf, r->len, peer->to,
				       r->addr, r->key);
	case CT_INJECT_WRITEDATA:
		return fi_inject_writedata(peer->ep, r->buf, r->len, r->data,
					   peer->to, r->addr, r->key);
	default:
		break;
	}
	cut(&pieces, r->buf, r->len, r->pieces, r->desc);
	if (form == CT_READV)
		return fi_readv(peer->ep, pieces.iov, pieces.desc,
				pieces.count, peer->to, r->addr, r->key,
				r->context);
	if (form == CT_WRITEV)
		return fi_writev(peer->ep, pieces.iov, pieces.desc,
				 pieces.count, peer->to, r->addr, r->key,
				 r->context);
	/* The target range is cut at other places than the local one. */
	REQUIRE(msg.rma_iov_count <= MAX_PIECES);
	ct_split((void *)(uintptr_t)r->addr, r->len, ranges, msg.rma_iov_count);
	for (size_t i = 0; i < msg.rma_iov_count; i++)
		remote[i] = (struct fi_rma_iov) {
			.addr = (uint64_t)(uintptr_t)ranges[i].iov_base,
			.len = ranges[i].iov_len,
			.key = r->key,
		};
	msg.msg_iov = pieces.iov;
	msg.desc = pieces.desc;
	msg.iov_count = pieces.count;
	if (form == CT_READMSG)
		return fi_readmsg(peer->ep, &msg, r->flags);
	return fi_writemsg(peer->ep, &msg, r->flags |
			   (form == CT_WRITEMSG_DATA ? FI_REMOTE_CQ_DATA : 0) |
			   (form == CT_WRITEMSG_INJECT ? FI_INJECT : 0));
}

const char *ct_rma_name(enum ct_rma_form form)
{
	static const char *const names[CT_RMA_FORMS] = {
		"read", "readv", "readmsg", "write", "writev", "writemsg",
		"writemsg-data", "writemsg-inject", "writedata",
		"inject-write", "inject-writedata",
	};

	return names[form];
}

bool ct_rma_is_read(enum ct_rma_form form)
{
	return form == CT_READ || form == CT_READV || form == CT_READMSG;
}

bool ct_rma_has_data(enum ct_rma_form form)
{
	return form == CT_WRITEDATA || form == CT_INJECT_WRITEDATA ||
	       form == CT_WRITEMSG_DATA;
}

bool ct_rma_offered(const struct ct_peer *peer, enum ct_rma_form form)
{
	return !ct_rma_has_data(form) || peer->info->domain_attr->cq_data_size;
}

bool ct_rma_completes(enum ct_rma_form form)
{
	return form != CT_INJECT_WRITE && form != CT_INJECT_WRITEDATA;
}

size_t ct_rma_limit(const struct ct_peer *peer, enum ct_rma_form form)
{
	if (form == CT_INJECT_WRITE || form == CT_INJECT_WRITEDATA ||
	    form == CT_WRITEMSG_INJECT)
		return peer->info->tx_attr->inject_size;
	return peer->info->ep_attr->max_msg_size;
}
