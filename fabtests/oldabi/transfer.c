/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* One message from an endpoint to itself, with the calls of libfabric 1.0. */
#include <string.h>
#include <time.h>

#include "objects.h"
#include "transfer.h"

#define STEP(call)                                                             \
	do {                                                                   \
		long result_ = (long) (call);                                  \
		if (result_ < 0) {                                             \
			*failed_step = #call;                                  \
			return (int) result_;                                  \
		}                                                              \
	} while (0)

static int close_object(void *object)
{
	struct fid *fid = object;

	return ((struct fi_fid_ops *) fid->ops)->close(fid);
}

static int bind_object(void *object, void *bound, uint64_t flags)
{
	struct fid *fid = object;

	return ((struct fi_fid_ops *) fid->ops)->bind(fid, bound, flags);
}

/* Both completions, within ten seconds. */
static int wait_for_both(struct fid_cq *cq, const void *sent, const void *received, size_t length)
{
	struct fi_cq_msg_entry entry;
	time_t end = time(NULL) + 10;
	int seen = 0;

	while (seen != 3) {
		ssize_t ret = cq->ops->read(cq, &entry, 1);

		if (ret == -FI_EAGAIN && time(NULL) < end)
			continue;
		if (ret < 0)
			return (int) ret;
		if (entry.op_context == sent && entry.flags & FI_SEND)
			seen |= 1;
		else if (entry.op_context == received && entry.flags & FI_RECV &&
			 entry.len == length)
			seen |= 2;
		else
			return -1;
	}
	return 0;
}

int transfer_to_self(struct fid_fabric *fabric, struct fi_info *info,
		     void *(*at_page_end)(size_t size), const char **failed_step)
{
	struct fi_ops_fabric *fabric_ops = fabric->ops;
	struct fi_cq_attr *cq_attr = at_page_end(sizeof(*cq_attr));
	struct fi_av_attr *av_attr = at_page_end(sizeof(*av_attr));
	/* Some providers keep a list entry in the context. */
	void *send_context[8], *recv_context[8];
	char out[] = "to whom it may concern", in[sizeof(out)], name[256];
	size_t name_length = sizeof(name);
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	fi_addr_t self;

	memset(in, 0, sizeof(in));
	cq_attr->format = FI_CQ_FORMAT_MSG;
	av_attr->type = info->domain_attr->av_type;
	STEP(fabric_ops->domain(fabric, info, &domain, NULL));
	STEP(domain->ops->cq_open(domain, cq_attr, &cq, NULL));
	STEP(domain->ops->av_open(domain, av_attr, &av, NULL));
	STEP(domain->ops->endpoint(domain, info, &ep, NULL));
	STEP(bind_object(ep, cq, FI_SEND | FI_RECV));
	STEP(bind_object(ep, av, 0));
	STEP(((struct fi_fid_ops *) ep->fid.ops)->control(&ep->fid, FI_ENABLE, NULL));
	STEP(ep->cm->getname(&ep->fid, name, &name_length));
	STEP(av->ops->insert(av, name, 1, &self, 0, NULL) == 1 ? 0 : -1);
	STEP(ep->msg->recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, recv_context));
	for (;;) {
		ssize_t ret = ep->msg->send(ep, out, sizeof(out), NULL, self, send_context);
		struct fi_cq_msg_entry none;

		if (ret != -FI_EAGAIN) {
			STEP(ret);
			break;
		}
		/* There is no completion, but progress is made. */
		STEP(cq->ops->read(cq, &none, 1) == -FI_EAGAIN ? 0 : -1);
	}
	STEP(wait_for_both(cq, send_context, recv_context, sizeof(out)));
	STEP(memcmp(in, out, sizeof(out)) ? -1 : 0);
	STEP(close_object(ep));
	STEP(close_object(av));
	STEP(close_object(cq));
	STEP(close_object(domain));
	return 0;
}
