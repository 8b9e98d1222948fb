/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * waits PROVIDER TYPE: which wait objects the provider's queues and counters can
 * be opened with, as lines "cq FI_WAIT_FD". TYPE is msg, rdm or dgram.
 */
#include <stdio.h>
#include <string.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

static const enum fi_wait_obj objects[] = {
	FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND,
	FI_WAIT_POLLFD, FI_WAIT_YIELD,
};

static void report(const char *what, enum fi_wait_obj object, int ret,
		   struct fid *fid)
{
	if (ret)
		return;
	printf("%s %s\n", what, fi_tostr(&object, FI_TYPE_WAIT_OBJ));
	fi_close(fid);
}

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;

	if (argc != 3 || !hints)
		return 2;
	hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	hints->ep_attr->type = !strcmp(argv[2], "msg") ? FI_EP_MSG :
			       !strcmp(argv[2], "rdm") ? FI_EP_RDM :
							 FI_EP_DGRAM;
	hints->fabric_attr->prov_name = argv[1];
	if (fi_getinfo(FI_VERSION(2, 0), NULL, NULL, 0, hints, &info))
		return 1;
	if (fi_fabric(info->fabric_attr, &fabric, NULL) ||
	    fi_domain(fabric, info, &domain, NULL))
		return 1;
	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
		struct fi_cq_attr cq = { .wait_obj = objects[i] };
		struct fi_cntr_attr cntr = { .wait_obj = objects[i] };
		struct fi_eq_attr eq = { .wait_obj = objects[i] };
		struct fid_cq *cq_fid;
		struct fid_cntr *cntr_fid;
		struct fid_eq *eq_fid;
		int ret;

		ret = fi_cq_open(domain, &cq, &cq_fid, NULL);
		report("cq", objects[i], ret, ret ? NULL : &cq_fid->fid);
		ret = fi_cntr_open(domain, &cntr, &cntr_fid, NULL);
		report("cntr", objects[i], ret, ret ? NULL : &cntr_fid->fid);
		ret = fi_eq_open(fabric, &eq, &eq_fid, NULL);
		report("eq", objects[i], ret, ret ? NULL : &eq_fid->fid);
	}
	fi_close(&domain->fid);
	fi_close(&fabric->fid);
	return 0;
}
