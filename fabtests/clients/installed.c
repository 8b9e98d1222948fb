/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * A small application, valid as C11 and as C++17, to try an installation
 * with: one endpoint sends a tagged message to itself and reads it back.
 */
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(long result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s\n", what, fi_strerror((int) -result));
		exit(1);
	}
}

static struct fi_info *choose(void)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;

	if (!hints)
		exit(1);
	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("tcp");
	check(fi_getinfo(FI_VERSION(2, 0), NULL, NULL, 0, hints, &info), "fi_getinfo");
	fi_freeinfo(hints);
	return info;
}

/* Waits for a number of completions without error. */
static void wait_for(struct fid_cq *cq, int wanted)
{
	struct fi_cq_tagged_entry entry;

	while (wanted) {
		ssize_t got = fi_cq_read(cq, &entry, 1);

		if (got == -FI_EAGAIN)
			continue;
		check(got, "fi_cq_read");
		wanted -= (int) got;
	}
}

int main(void)
{
	struct fi_info *info = choose();
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fi_cq_attr cq_attr;
	struct fi_av_attr av_attr;
	struct fi_context2 contexts[2];
	char name[256], out[64] = "to myself", in[64] = "";
	size_t size = sizeof(name);
	fi_addr_t self;
	long ret;

	memset(&cq_attr, 0, sizeof(cq_attr));
	memset(&av_attr, 0, sizeof(av_attr));
	cq_attr.format = FI_CQ_FORMAT_TAGGED;
	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
	check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
	check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
	check(fi_enable(ep), "fi_enable");
	check(fi_getname(&ep->fid, name, &size), "fi_getname");
	check(fi_av_insert(av, name, 1, &self, 0, NULL) - 1, "fi_av_insert");

	check(fi_trecv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 42, 0, &contexts[0]), "fi_trecv");
	while ((ret = fi_tsend(ep, out, sizeof(out), NULL, self, 42, &contexts[1])) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	check(ret, "fi_tsend");
	wait_for(cq, 2);
	printf("%s, libfabric %u.%u, provider %s\n", in, FI_MAJOR(fi_version()),
	       FI_MINOR(fi_version()), info->fabric_attr->prov_name);

	check(fi_close(&ep->fid), "fi_close");
	check(fi_close(&av->fid), "fi_close");
	check(fi_close(&cq->fid), "fi_close");
	check(fi_close(&domain->fid), "fi_close");
	check(fi_close(&fabric->fid), "fi_close");
	fi_freeinfo(info);
	return strcmp(in, out) != 0;
}
