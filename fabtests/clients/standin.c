/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A provider in C with FI_PEER, as a library of its own (libstandin-fi.so), that stands in for a
 * vendor's: lnx links it, and owns its receives and its completion queue. Its endpoints have messages
 * and tagged messages, and reach those of the same process. At the end of the process it says how
 * many messages went through it.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_peer.h>
#include <rdma/providers/fi_prov.h>

#define NAME "standin"
#define CAPS (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_PEER | \
	      FI_AV_USER_ID | FI_LOCAL_COMM | FI_REMOTE_COMM)
#define MOST_EPS 1024		/* of a process; their addresses are positions in a table */
#define MOST_PEERS 256		/* of an address vector */
#define PIECES 4
#define INJECT 4096

struct message {
	struct message *next;
	uint32_t from;
	bool tagged;
	uint64_t tag, data, flags;
	size_t len;
	unsigned char bytes[];
};

struct vector {
	struct fid_av av;	/* first */
	struct {
		bool is_used;
		uint32_t ep;
		fi_addr_t user_id;
	} peers[MOST_PEERS];
	int count;
	struct endpoint *user;
};

struct queue {
	struct fid_cq cq;	/* first */
	struct fid_peer_cq *owner;
	struct endpoint *user;
};

struct receives {
	struct fid_ep ep;	/* first */
	struct fid_peer_srx *owner;
};

struct endpoint {
	struct fid_ep ep;	/* first */
	uint32_t number;
	struct vector *av;
	struct queue *cq;
	struct receives *rx;
	struct message *arrived, **end;	/* not yet seen by the owner of the receives */
};

/* For the table, and for what has arrived at each endpoint. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct endpoint *endpoints[MOST_EPS];
static unsigned long sent;

/* What the owner calls the sender. */
static fi_addr_t source(struct endpoint *ep, uint32_t from)
{
	for (int i = 0; i < ep->av->count; i++)
		if (ep->av->peers[i].is_used && ep->av->peers[i].ep == from)
			return ep->av->peers[i].user_id;
	return FI_ADDR_UNSPEC;
}

static void complete(struct endpoint *ep, const struct fi_peer_rx_entry *entry, uint64_t flags,
		     const struct message *message)
{
	struct fid_peer_cq *owner = ep->cq->owner;
	/* A part of a buffer for several messages, if it is one. */
	void *buf = entry->count ? entry->iov[0].iov_base : NULL;

	owner->owner_ops->write(owner, entry->context, flags, message->len, buf, message->data,
				message->tag, source(ep, message->from));
}

/* Receives a message into the entry's buffers, and gives the entry back. */
static int receive(struct fi_peer_rx_entry *entry, struct message *message, struct endpoint *ep)
{
	struct fid_peer_cq *owner = ep->cq->owner;
	uint64_t flags = FI_RECV | (message->tagged ? FI_TAGGED : FI_MSG) | message->flags;
	size_t done = 0;

	for (size_t i = 0; i < entry->count && done < message->len; i++) {
		size_t part = message->len - done;

		if (part > entry->iov[i].iov_len)
			part = entry->iov[i].iov_len;
		memcpy(entry->iov[i].iov_base, message->bytes + done, part);
		done += part;
	}
	if (done < message->len) {
		struct fi_cq_err_entry error = {
			.op_context = entry->context, .flags = flags, .len = done,
			.data = message->data, .tag = message->tag,
			.olen = message->len - done, .err = FI_ETRUNC, .prov_errno = FI_ETRUNC,
			.src_addr = source(ep, message->from),
		};

		owner->owner_ops->writeerr(owner, &error);
	} else if (entry->flags & FI_COMPLETION) {
		complete(ep, entry, flags, message);
	}
	entry->srx->owner_ops->free_entry(entry);
	free(message);
	return 0;
}

/* What an entry that waits with its owner needs later. */
struct waiting {
	struct endpoint *ep;
	struct message *message;
};

static int start(struct fi_peer_rx_entry *entry)
{
	struct waiting *waiting = entry->peer_context, of = *waiting;

	free(waiting);
	return receive(entry, of.message, of.ep);
}

static int discard(struct fi_peer_rx_entry *entry)
{
	struct waiting *waiting = entry->peer_context;

	free(waiting->message);
	free(waiting);
	return 0;
}

static struct fi_ops_srx_peer srx_peer = {
	.size = sizeof(srx_peer), .start_msg = start, .start_tag = start,
	.discard_msg = discard, .discard_tag = discard,
};

static void offer(struct endpoint *ep, struct message *message)
{
	struct fid_peer_srx *owner = ep->rx->owner;
	struct fi_peer_match_attr attr = {
		.addr = source(ep, message->from), .msg_size = message->len, .tag = message->tag,
	};
	struct fi_peer_rx_entry *entry;
	struct waiting *waiting;
	int ret;

	ret = message->tagged ? owner->owner_ops->get_tag(owner, &attr, &entry)
			      : owner->owner_ops->get_msg(owner, &attr, &entry);
	if (!ret) {
		receive(entry, message, ep);
		return;
	}
	if (ret != -FI_ENOENT || !(waiting = malloc(sizeof(*waiting))))
		abort();
	*waiting = (struct waiting) { ep, message };
	entry->peer_context = waiting;
	if (message->flags & FI_REMOTE_CQ_DATA) {
		entry->cq_data = message->data;
		entry->flags |= FI_REMOTE_CQ_DATA;
	}
	if (message->tagged ? owner->owner_ops->queue_tag(entry)
			    : owner->owner_ops->queue_msg(entry))
		abort();
}

/* The owner drives the endpoint, under its lock. */
static ssize_t read_queue(struct fid_cq *cq, void *buf, size_t count)
{
	struct endpoint *ep = ((struct queue *)cq)->user;
	struct message *next;

	(void)buf;
	(void)count;
	for (;;) {
		pthread_mutex_lock(&lock);
		next = ep ? ep->arrived : NULL;
		if (next && !(ep->arrived = next->next))
			ep->end = &ep->arrived;
		pthread_mutex_unlock(&lock);
		if (!next)
			return -FI_EAGAIN;
		offer(ep, next);
	}
}

static ssize_t post(struct fid_ep *fid, const struct iovec *iov, size_t count, fi_addr_t to,
		    bool tagged, uint64_t tag, uint64_t data, void *context, uint64_t flags)
{
	struct endpoint *ep = (struct endpoint *)fid, *peer;
	struct message *message;
	size_t len = 0, done = 0;

	if (to >= (fi_addr_t)ep->av->count || !ep->av->peers[to].is_used)
		return -FI_EINVAL;
	for (size_t i = 0; i < count; i++)
		len += iov[i].iov_len;
	message = calloc(1, sizeof(*message) + len);
	if (!message)
		return -FI_ENOMEM;
	message->from = ep->number;
	message->tagged = tagged;
	message->tag = tagged ? tag : 0;
	message->flags = flags & FI_REMOTE_CQ_DATA;
	message->data = message->flags ? data : 0;
	message->len = len;
	for (size_t i = 0; i < count; done += iov[i++].iov_len)
		memcpy(message->bytes + done, iov[i].iov_base, iov[i].iov_len);
	pthread_mutex_lock(&lock);
	peer = endpoints[ep->av->peers[to].ep];
	if (peer) {
		*peer->end = message;
		peer->end = &message->next;
		sent++;
	}
	pthread_mutex_unlock(&lock);
	if (!peer) {
		free(message);
		return -FI_EHOSTUNREACH;
	}
	if (flags & FI_COMPLETION) {
		struct fid_peer_cq *owner = ep->cq->owner;

		owner->owner_ops->write(owner, context, FI_SEND | (tagged ? FI_TAGGED : FI_MSG), 0,
					NULL, 0, 0, FI_ADDR_NOTAVAIL);
	}
	return 0;
}

static ssize_t sendmsg_tagged(struct fid_ep *ep, const struct fi_msg_tagged *m, uint64_t flags)
{
	return post(ep, m->msg_iov, m->iov_count, m->addr, true, m->tag, m->data, m->context, flags);
}

static ssize_t sendmsg_plain(struct fid_ep *ep, const struct fi_msg *m, uint64_t flags)
{
	return post(ep, m->msg_iov, m->iov_count, m->addr, false, 0, m->data, m->context, flags);
}

static int set_name(struct fid *fid, void *addr, size_t *len)
{
	struct endpoint *ep = (struct endpoint *)fid;
	size_t room = *len;

	*len = sizeof(ep->number);
	memcpy(addr, &ep->number, room < *len ? room : *len);
	return room < *len ? -FI_ETOOSMALL : 0;
}

static fi_addr_t known_source(struct fi_peer_rx_entry *entry)
{
	struct waiting *waiting = entry->peer_context;

	return source(waiting->ep, waiting->message->from);
}

static int insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *numbers,
		  uint64_t flags, void *context)
{
	struct vector *av = (struct vector *)fid;
	size_t i;

	(void)context;
	for (i = 0; i < count && av->count < MOST_PEERS; i++) {
		uint32_t ep;

		memcpy(&ep, (const char *)addr + i * sizeof(ep), sizeof(ep));
		av->peers[av->count].ep = ep % MOST_EPS;
		av->peers[av->count].user_id = flags & FI_AV_USER_ID ? numbers[i]
								     : (fi_addr_t)av->count;
		av->peers[av->count].is_used = true;
		numbers[i] = (fi_addr_t)av->count++;
	}
	if (av->user && av->user->rx) {
		struct fid_peer_srx *owner = av->user->rx->owner;

		owner->owner_ops->foreach_unspec_addr(owner, known_source);
	}
	return (int)i;
}

static int remove_peers(struct fid_av *fid, fi_addr_t *numbers, size_t count, uint64_t flags)
{
	struct vector *av = (struct vector *)fid;

	(void)flags;
	for (size_t i = 0; i < count; i++)
		av->peers[numbers[i]].is_used = false;
	return 0;
}

static int free_object(struct fid *fid)
{
	free(fid);
	return 0;
}

static int close_endpoint(struct fid *fid)
{
	struct endpoint *ep = (struct endpoint *)fid;

	pthread_mutex_lock(&lock);
	endpoints[ep->number] = NULL;
	pthread_mutex_unlock(&lock);
	for (struct message *next; (next = ep->arrived); free(next))
		ep->arrived = next->next;
	if (ep->cq)
		ep->cq->user = NULL;
	if (ep->av)
		ep->av->user = NULL;
	free(ep);
	return 0;
}

static int bind_endpoint(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct endpoint *ep = (struct endpoint *)fid;

	(void)flags;
	switch (other->fclass) {
	case FI_CLASS_AV:
		ep->av = (struct vector *)other;
		ep->av->user = ep;
		return 0;
	case FI_CLASS_CQ:
		ep->cq = (struct queue *)other;
		ep->cq->user = ep;
		return 0;
	case FI_CLASS_SRX_CTX:
		ep->rx = (struct receives *)other;
		return 0;
	}
	return -FI_ENOSYS;
}

static int control_endpoint(struct fid *fid, int command, void *arg)
{
	struct endpoint *ep = (struct endpoint *)fid;

	(void)arg;
	if (command != FI_ENABLE)
		return -FI_ENOSYS;
	return ep->av && ep->cq && ep->rx ? 0 : -FI_EOPBADSTATE;
}

static struct fi_ops plain_ops = { .size = sizeof(plain_ops), .close = free_object };
static struct fi_ops endpoint_ops = {
	.size = sizeof(endpoint_ops), .close = close_endpoint, .bind = bind_endpoint,
	.control = control_endpoint,
};
static struct fi_ops_ep ep_ops = { .size = sizeof(ep_ops) };
static struct fi_ops_cm cm_ops = { .size = sizeof(cm_ops), .getname = set_name };
static struct fi_ops_msg msg_ops = { .size = sizeof(msg_ops), .sendmsg = sendmsg_plain };
static struct fi_ops_tagged tagged_ops = {
	.size = sizeof(tagged_ops), .sendmsg = sendmsg_tagged,
};
static struct fi_ops_cq cq_ops = { .size = sizeof(cq_ops), .read = read_queue };
static struct fi_ops_av av_ops = {
	.size = sizeof(av_ops), .insert = insert, .remove = remove_peers,
};

static int open_av(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **out,
		   void *context)
{
	struct vector *av = calloc(1, sizeof(*av));

	(void)domain;
	(void)attr;
	if (!av)
		return -FI_ENOMEM;
	av->av.fid = (struct fid) { FI_CLASS_AV, context, &plain_ops };
	av->av.ops = &av_ops;
	*out = &av->av;
	return 0;
}

static int open_cq(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **out,
		   void *context)
{
	struct fi_peer_cq_context *of = context;
	struct queue *cq;

	(void)domain;
	if (!(attr->flags & FI_PEER) || attr->wait_obj != FI_WAIT_NONE)
		return -FI_ENOSYS;
	if (!(cq = calloc(1, sizeof(*cq))))
		return -FI_ENOMEM;
	cq->cq.fid = (struct fid) { FI_CLASS_CQ, NULL, &plain_ops };
	cq->cq.ops = &cq_ops;
	cq->owner = of->cq;
	*out = &cq->cq;
	return 0;
}

static int open_receives(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **out,
			 void *context)
{
	struct fi_peer_srx_context *of = context;
	struct receives *rx;

	(void)domain;
	if (!(attr->op_flags & FI_PEER))
		return -FI_ENOSYS;
	if (!(rx = calloc(1, sizeof(*rx))))
		return -FI_ENOMEM;
	rx->ep.fid = (struct fid) { FI_CLASS_SRX_CTX, NULL, &plain_ops };
	rx->ep.ops = &ep_ops;
	rx->owner = of->srx;
	rx->owner->peer_ops = &srx_peer;
	*out = &rx->ep;
	return 0;
}

static int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **out,
			 void *context)
{
	struct endpoint *ep = calloc(1, sizeof(*ep));
	int ret = -FI_ENOMEM;

	(void)domain;
	(void)info;
	if (!ep)
		return ret;
	ep->ep.fid = (struct fid) { FI_CLASS_EP, context, &endpoint_ops };
	ep->ep.ops = &ep_ops;
	ep->ep.cm = &cm_ops;
	ep->ep.msg = &msg_ops;
	ep->ep.tagged = &tagged_ops;
	ep->end = &ep->arrived;
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < MOST_EPS && ret; i++) {
		if (endpoints[i])
			continue;
		endpoints[i] = ep;
		ep->number = i;
		ret = 0;
	}
	pthread_mutex_unlock(&lock);
	if (ret)
		free(ep);
	else
		*out = &ep->ep;
	return ret;
}

static int open_counter(struct fid_domain *domain, struct fi_cntr_attr *attr,
			struct fid_cntr **cntr, void *context)
{
	(void)domain;
	(void)attr;
	(void)cntr;
	(void)context;
	return -FI_ENOSYS;
}

static int query_atomic(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op op,
			struct fi_atomic_attr *attr, uint64_t flags)
{
	(void)domain;
	(void)datatype;
	(void)op;
	(void)attr;
	(void)flags;
	return -FI_EOPNOTSUPP;
}

/* Nobody accesses memory: a region is its key. */
static int register_memory(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
			   struct fid_mr **out)
{
	struct fid_mr *mr = calloc(1, sizeof(*mr));

	(void)fid;
	(void)flags;
	if (!mr)
		return -FI_ENOMEM;
	mr->fid = (struct fid) { FI_CLASS_MR, attr->context, &plain_ops };
	mr->key = attr->requested_key;
	*out = mr;
	return 0;
}

static struct fi_ops_domain domain_ops = {
	.size = sizeof(domain_ops), .av_open = open_av, .cq_open = open_cq,
	.endpoint = open_endpoint, .cntr_open = open_counter, .srx_ctx = open_receives,
	.query_atomic = query_atomic,
};
static struct fi_ops_mr mr_ops = { .size = sizeof(mr_ops), .regattr = register_memory };

static int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **out,
		       void *context)
{
	struct fid_domain *domain = calloc(1, sizeof(*domain));

	(void)fabric;
	(void)info;
	if (!domain)
		return -FI_ENOMEM;
	domain->fid = (struct fid) { FI_CLASS_DOMAIN, context, &plain_ops };
	domain->ops = &domain_ops;
	domain->mr = &mr_ops;
	*out = domain;
	return 0;
}

static struct fi_ops_fabric fabric_ops = { .size = sizeof(fabric_ops), .domain = open_domain };
static struct fi_provider provider;

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
	struct fid_fabric *fabric = calloc(1, sizeof(*fabric));

	if (!fabric)
		return -FI_ENOMEM;
	fabric->fid = (struct fid) { FI_CLASS_FABRIC, context, &plain_ops };
	fabric->ops = &fabric_ops;
	fabric->api_version = attr->api_version;
	*out = fabric;
	return 0;
}

static int get_info(uint32_t version, const char *node, const char *service, uint64_t flags,
		    const struct fi_info *hints, struct fi_info **out)
{
	struct fi_info *info;

	(void)version;
	(void)node;
	(void)service;
	(void)flags;
	if (hints && (hints->caps & ~CAPS || (hints->ep_attr && hints->ep_attr->type != FI_EP_RDM &&
					      hints->ep_attr->type != FI_EP_UNSPEC)))
		return -FI_ENODATA;
	info = fi_allocinfo();
	if (!info)
		return -FI_ENOMEM;
	info->caps = CAPS;
	info->addr_format = FI_FORMAT_UNSPEC;
	*info->tx_attr = (struct fi_tx_attr) {
		.caps = FI_MSG | FI_TAGGED | FI_SEND, .msg_order = FI_ORDER_SAS,
		.inject_size = INJECT, .size = 256, .iov_limit = PIECES,
	};
	*info->rx_attr = (struct fi_rx_attr) {
		.caps = FI_MSG | FI_TAGGED | FI_RECV | FI_SOURCE | FI_DIRECTED_RECV,
		.msg_order = FI_ORDER_SAS, .size = 256, .iov_limit = PIECES,
	};
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->max_msg_size = 1 << 30;
	info->ep_attr->tx_ctx_cnt = 1;
	info->ep_attr->rx_ctx_cnt = 1;
	info->domain_attr->name = strdup(NAME);
	info->domain_attr->threading = FI_THREAD_SAFE;
	info->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	info->domain_attr->resource_mgmt = FI_RM_ENABLED;
	info->domain_attr->av_type = FI_AV_TABLE;
	info->domain_attr->mr_key_size = 8;
	info->domain_attr->mr_iov_limit = 1;
	info->domain_attr->cq_data_size = 8;
	info->domain_attr->cq_cnt = 1024;
	info->domain_attr->ep_cnt = MOST_EPS;
	info->fabric_attr->name = strdup(NAME);
	info->fabric_attr->prov_name = strdup(NAME);
	*out = info;
	return 0;
}

static void clean_up(void)
{
}

__attribute__((destructor)) static void tell(void)
{
	fprintf(stderr, "standin: %lu messages\n", sent);
}

static struct fi_provider provider = {
	.version = FI_VERSION(1, 0), .fi_version = FI_VERSION(2, 0), .name = NAME,
	.getinfo = get_info, .fabric = open_fabric, .cleanup = clean_up,
};

FI_EXT_INI
{
	return &provider;
}
