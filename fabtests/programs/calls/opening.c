/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/*
 * Fabrics, domains and other objects that are opened with a struct fi_info.
 * One that was changed to something that fi_getinfo(3) would not offer is
 * refused.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "row.h"

static struct fid_fabric *opened_fabric;
static struct fid_domain *opened_domain;
static struct fid_ep *opened_ep;
static struct fid_stx *opened_stx;
static struct fid_pep *opened_pep;

/* The usual info with one attribute changed. */
#define CHANGED(...)							\
	({								\
		struct fi_info *changed = fi_dupinfo(info());		\
									\
		REQUIRE(changed);					\
		changed->__VA_ARGS__;					\
		changed;						\
	})

static int open_domain(struct fi_info *changed)
{
	return fi_domain(fabric(), changed, &opened_domain, NULL);
}

static int open_ep(struct fi_info *changed)
{
	return fi_endpoint(domain(), changed, &opened_ep, NULL);
}

static int open_pep(struct fi_info *changed)
{
	return fi_passive_ep(fabric(), changed, &opened_pep, NULL);
}

/* All three calls refuse. */
#define NOWHERE(name, ...)						\
	ROW(BOTH, "fi_domain/" name, "fi_domain(3)", REFUSED,		\
	    open_domain(CHANGED(__VA_ARGS__)))				\
	ROW(BOTH, "fi_endpoint/" name, "fi_endpoint(3)", REFUSED,	\
	    open_ep(CHANGED(__VA_ARGS__)))				\
	ROW(MSG, "fi_passive_ep/" name, "fi_endpoint(3)", REFUSED,	\
	    open_pep(CHANGED(__VA_ARGS__)))

NOWHERE("caps-unknown", caps |= UNKNOWN_FLAG)
NOWHERE("caps-not-offered", caps |= FI_MULTICAST)
NOWHERE("tx-caps-unknown", tx_attr->caps |= UNKNOWN_FLAG)
NOWHERE("rx-caps-unknown", rx_attr->caps |= UNKNOWN_FLAG)
NOWHERE("tx-size", tx_attr->size = SIZE_MAX)
NOWHERE("rx-size", rx_attr->size = SIZE_MAX)
NOWHERE("inject-size", tx_attr->inject_size = SIZE_MAX)
NOWHERE("tx-iov-limit", tx_attr->iov_limit = SIZE_MAX)
NOWHERE("rx-iov-limit", rx_attr->iov_limit = SIZE_MAX)
NOWHERE("rma-iov-limit", tx_attr->rma_iov_limit = SIZE_MAX)
NOWHERE("tx-op-flags", tx_attr->op_flags = FI_MULTICAST)
NOWHERE("rx-op-flags", rx_attr->op_flags = FI_MULTICAST)
NOWHERE("tx-order", tx_attr->msg_order |= UNKNOWN_FLAG)
NOWHERE("rx-order", rx_attr->msg_order |= UNKNOWN_FLAG)
NOWHERE("tx-completion-order", tx_attr->comp_order |= UNKNOWN_FLAG)
NOWHERE("type-datagram", ep_attr->type = FI_EP_DGRAM)
NOWHERE("type-unknown", ep_attr->type = UNKNOWN_NUMBER)
NOWHERE("protocol", ep_attr->protocol = UNKNOWN_NUMBER)
NOWHERE("protocol-version", ep_attr->protocol_version = UINT32_MAX)
NOWHERE("tx-ctx-cnt", ep_attr->tx_ctx_cnt = 1000)
NOWHERE("rx-ctx-cnt", ep_attr->rx_ctx_cnt = 1000)
NOWHERE("threading", domain_attr->threading = UNKNOWN_NUMBER)
NOWHERE("progress", domain_attr->progress = UNKNOWN_NUMBER)
NOWHERE("resource-mgmt", domain_attr->resource_mgmt = UNKNOWN_NUMBER)
NOWHERE("cq-data-size", domain_attr->cq_data_size = SIZE_MAX)
NOWHERE("addr-format", addr_format = FI_SOCKADDR_IB)
NOWHERE("addr-format-unknown", addr_format = UNKNOWN_NUMBER)

/* An info that is unchanged, or changed within the offered limits, is
 * accepted. */
#define SOMEWHERE(name, ...)						\
	ROW(BOTH, "fi_domain/" name, "fi_domain(3)", 0,			\
	    open_domain(CHANGED(__VA_ARGS__)))				\
	ROW(BOTH, "fi_endpoint/" name, "fi_endpoint(3)", 0,		\
	    open_ep(CHANGED(__VA_ARGS__)))				\
	ROW(MSG, "fi_passive_ep/" name, "fi_endpoint(3)", 0,		\
	    open_pep(CHANGED(__VA_ARGS__)))

SOMEWHERE("unchanged", next = NULL)
SOMEWHERE("fewer-caps", caps = FI_MSG)
SOMEWHERE("smaller", tx_attr->size = 16)
SOMEWHERE("default-sizes", rx_attr->size = 0)
SOMEWHERE("modes", mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA)
SOMEWHERE("table", domain_attr->av_type = FI_AV_TABLE)
SOMEWHERE("any-av-type", domain_attr->av_type = UNKNOWN_NUMBER)
SOMEWHERE("longest-message", ep_attr->max_msg_size = SIZE_MAX)
SOMEWHERE("longest-key", domain_attr->mr_key_size = SIZE_MAX)

ROW(RDM, "fi_endpoint/other-type", "fi_endpoint(3)", 0,
    open_ep(CHANGED(ep_attr->type = FI_EP_RDM)))
ROW(BOTH, "fi_domain/no-info", "fi_domain(3)", -FI_EINVAL,
    open_domain(NULL))
ROW(BOTH, "fi_endpoint/no-info", "fi_endpoint(3)", -FI_EINVAL, open_ep(NULL))
ROW(MSG, "fi_passive_ep/no-info", "fi_endpoint(3)", -FI_EINVAL,
    open_pep(NULL))
ROW(BOTH, "fi_domain/no-place", "fi_domain(3)", -FI_EINVAL,
    fi_domain(fabric(), info(), NULL, NULL))
ROW(BOTH, "fi_endpoint/no-place", "fi_endpoint(3)", -FI_EINVAL,
    fi_endpoint(domain(), info(), NULL, NULL))
ROW(MSG, "fi_passive_ep/no-place", "fi_endpoint(3)", -FI_EINVAL,
    fi_passive_ep(fabric(), info(), NULL, NULL))
ROW(BOTH, "fi_domain2/unknown-flag", "fi_domain(3)", REFUSED,
    fi_domain2(fabric(), info(), &opened_domain, UNKNOWN_FLAG, NULL))
ROW(BOTH, "fi_endpoint2/unknown-flag", "fi_endpoint(3)", REFUSED,
    fi_endpoint2(domain(), info(), &opened_ep, UNKNOWN_FLAG, NULL))
ROW(RDM, "fi_passive_ep/datagrams", "fi_endpoint(3)", REFUSED,
    open_pep(info()))
ROW(BOTH, "fi_endpoint/source-not-here", "fi_endpoint(3)",
    REFUSED, ({
	struct fi_info *changed = fi_dupinfo(info());

	free(changed->src_addr);
	changed->src_addr = malloc(sizeof(*foreign()));
	memcpy(changed->src_addr, foreign(), sizeof(*foreign()));
	changed->src_addrlen = sizeof(*foreign());
	/* An endpoint that connects finds out when it does, at the latest. */
	ct_opt.type == FI_EP_MSG ? open_pep(changed) : open_ep(changed);
    }))

/* fi_fabric */
static int open_fabric(const char *provider, const char *name)
{
	struct fi_fabric_attr attr = {
		.prov_name = (char *)provider, .name = (char *)name,
	};

	return fi_fabric(&attr, &opened_fabric, NULL);
}

ROW(BOTH, "fi_fabric/no-attributes", "fi_fabric(3)", -FI_EINVAL,
    fi_fabric(NULL, &opened_fabric, NULL))
ROW(BOTH, "fi_fabric/no-provider", "fi_fabric(3)", -FI_EINVAL,
    open_fabric(NULL, info()->fabric_attr->name))
ROW(BOTH, "fi_fabric/no-name", "fi_fabric(3)", -FI_EINVAL,
    open_fabric(info()->fabric_attr->prov_name, NULL))
ROW(BOTH, "fi_fabric/unknown-provider", "fi_fabric(3)", -FI_ENODEV,
    open_fabric("no_such_provider", info()->fabric_attr->name))
ROW(BOTH, "fi_fabric/busy-domain", "fi_fabric(3)", -FI_EBUSY,
    (domain(), fi_close(&fabric()->fid)))
ROW(BOTH, "fi_fabric/busy-eq", "fi_fabric(3)", -FI_EBUSY, ({
	struct fid_eq *queue;
	struct fi_eq_attr attr = { 0 };

	OK(open_fabric(info()->fabric_attr->prov_name,
		       info()->fabric_attr->name));
	OK(fi_eq_open(opened_fabric, &attr, &queue, NULL));
	fi_close(&opened_fabric->fid);
    }))
ROW(BOTH, "fi_fabric/unknown-command", "fi_control(3)", REFUSED,
    fi_control(&fabric()->fid, UNKNOWN_NUMBER, memory))
ROW(BOTH, "fi_fabric/bind", "fi_fabric(3)", REFUSED,
    bind_to(&fabric()->fid, &eq()->fid, 0))
ROW(BOTH, "fi_fabric/open-unknown-ops", "fi_fabric(3)", REFUSED, ({
	void *ops;

	fi_open_ops(&fabric()->fid, "no such interface", 0, &ops, NULL);
    }))
ROW(BOTH, "fi_fabric/set-unknown-ops", "fi_fabric(3)", -FI_ENOSYS,
    fi_set_ops(&fabric()->fid, "no such interface", 0, memory, NULL))

/* fi_domain: uses of a domain */
ROW(BOTH, "fi_domain/bind-cq", "fi_domain(3)", REFUSED,
    fi_domain_bind(domain(), &cq()->fid, 0))
ROW(BOTH, "fi_domain/bind-nothing", "fi_domain(3)", REFUSED,
    fi_domain_bind(domain(), NULL, 0))
ROW(BOTH, "fi_domain/bind-unknown-flag", "fi_domain(3)", REFUSED,
    fi_domain_bind(domain(), &eq()->fid, UNKNOWN_FLAG))
ROW(BOTH, "fi_domain/bind-eq", "fi_domain(3)", 0,
    fi_domain_bind(domain(), &eq()->fid, 0))
ROW(BOTH, "fi_domain/unknown-command", "fi_control(3)", REFUSED,
    fi_control(&domain()->fid, UNKNOWN_NUMBER, memory))
ROW(BOTH, "fi_domain/open-unknown-ops", "fi_domain(3)", REFUSED, ({
	void *ops;

	fi_open_ops(&domain()->fid, "no such interface", 0, &ops, NULL);
    }))
ROW(BOTH, "fi_domain/set-unknown-ops", "fi_domain(3)", -FI_ENOSYS,
    fi_set_ops(&domain()->fid, "no such interface", 0, memory, NULL))
ROW(BOTH, "fi_domain/stx-context", "fi_endpoint(3)", 0, ({
	int ret = fi_stx_context(domain(), info()->tx_attr, &opened_stx, NULL);

	ret ? ret : fi_close(&opened_stx->fid);
    }))
ROW(BOTH, "fi_domain/stx-context-without-attributes", "fi_endpoint(3)", 0, ({
	int ret = fi_stx_context(domain(), NULL, &opened_stx, NULL);

	ret ? ret : fi_close(&opened_stx->fid);
    }))
ROW(BOTH, "fi_domain/stx-context-bind-eq", "fi_endpoint(3)", REFUSED, ({
	int ret = fi_stx_context(domain(), NULL, &opened_stx, NULL);

	if (!ret) {
		ret = opened_stx->fid.ops->bind(&opened_stx->fid, &eq()->fid, 0);
		OK(fi_close(&opened_stx->fid));
	}
	ret;
    }))
COMPARED(BOTH, "fi_domain/scalable-endpoint",
    fi_scalable_ep(domain(), info(), &opened_ep, NULL))
ROW(BOTH, "fi_domain/query-unknown-operation", "fi_atomic(3)",
    -FI_EOPNOTSUPP, ({
	struct fi_atomic_attr attr;

	fi_query_atomic(domain(), FI_UINT64, UNKNOWN_NUMBER, &attr, 0);
    }))
ROW(BOTH, "fi_domain/query-unknown-datatype", "fi_atomic(3)",
    -FI_EOPNOTSUPP, ({
	struct fi_atomic_attr attr;

	fi_query_atomic(domain(), UNKNOWN_NUMBER, FI_SUM, &attr, 0);
    }))
ROW(BOTH, "fi_domain/query-fetching-cswap", "fi_atomic(3)",
    -FI_EOPNOTSUPP, ({
	struct fi_atomic_attr attr;

	fi_query_atomic(domain(), FI_UINT64, FI_CSWAP, &attr,
			FI_FETCH_ATOMIC);
    }))

/* A domain of its own with one thing open in it. */
static int close_with(int (*open)(struct fid_domain *domain))
{
	OK(open_domain(info()));
	OK(open(opened_domain));
	return fi_close(&opened_domain->fid);
}

static int with_ep(struct fid_domain *in)
{
	return fi_endpoint(in, info(), &opened_ep, NULL);
}

static int with_cq(struct fid_domain *in)
{
	static struct fid_cq *queue;
	struct fi_cq_attr attr = { .size = 4 };

	return fi_cq_open(in, &attr, &queue, NULL);
}

static int with_av(struct fid_domain *in)
{
	static struct fid_av *vector;
	struct fi_av_attr attr = { 0 };

	return fi_av_open(in, &attr, &vector, NULL);
}

static int with_cntr(struct fid_domain *in)
{
	static struct fid_cntr *counter;
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_NONE };

	return fi_cntr_open(in, &attr, &counter, NULL);
}

static int with_mr(struct fid_domain *in)
{
	static struct fid_mr *region;

	return fi_mr_reg(in, memory, sizeof(memory), FI_REMOTE_READ, 0, 1, 0,
			 &region, NULL);
}

static int with_srx(struct fid_domain *in)
{
	return fi_srx_context(in, info()->rx_attr, &opened_ep, NULL);
}

static int with_pollset(struct fid_domain *in)
{
	static struct fid_poll *set;
	struct fi_poll_attr attr = { 0 };

	return fi_poll_open(in, &attr, &set);
}

#define BUSY(what)							\
	ROW(BOTH, "fi_domain/busy-" #what, "fi_domain(3)", -FI_EBUSY,	\
	    close_with(with_##what))
BUSY(ep)
BUSY(cq)
BUSY(av)
BUSY(cntr)
BUSY(mr)
BUSY(srx)
BUSY(pollset)
