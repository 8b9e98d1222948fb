/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Hints of fi_getinfo(3), one attribute at a time: a value that every provider
 * of messages supports, one beyond any limit, one without a meaning. */
#include <stdlib.h>
#include <string.h>

#include "row.h"

static struct fi_info *hints;

/* fi_getinfo with the hints as they are now. */
static int ask(void)
{
	struct fi_info *found = NULL;
	int ret = fi_getinfo(CT_API_VERSION, ct_opt.source, NULL,
			     ct_opt.source ? FI_SOURCE : 0, hints, &found);

	REQUIRE(!ret == !!found);
	fi_freeinfo(found);
	fi_freeinfo(hints);
	return ret;
}

/* The answer to the usual hints with one attribute changed. */
#define WITH(...)							\
	({								\
		hints = ct_hints(&spec);				\
		hints->__VA_ARGS__;					\
		ask();							\
	})

#define HINT(name, page, want, ...)					\
	ROW(BOTH, "getinfo/" name, page, want, WITH(__VA_ARGS__))
#define GIVEN(name, page, ...) HINT(name, page, 0, __VA_ARGS__)
#define NOT_GIVEN(name, page, ...) HINT(name, page, -FI_ENODATA, __VA_ARGS__)

/* struct fi_info */
GIVEN("caps/rma", "fi_getinfo(3)", caps |= FI_RMA)
GIVEN("caps/peer", "fi_peer(3)", caps |= FI_PEER)
GIVEN("caps/none", "fi_getinfo(3)", caps = 0)
NOT_GIVEN("caps/unknown", "fi_getinfo(3)", caps |= UNKNOWN_FLAG)
NOT_GIVEN("caps/multicast", "fi_getinfo(3)", caps |= FI_MULTICAST)
GIVEN("mode/none", "fi_getinfo(3)", mode = 0)
GIVEN("mode/all", "fi_getinfo(3)", mode = ~0ULL)
ROW(BOTH, "getinfo/addr-format/in", "fi_getinfo(3)", 0,
    (internet(), WITH(addr_format = FI_SOCKADDR_IN)))
ROW(BOTH, "getinfo/addr-format/any-socket", "fi_getinfo(3)", 0,
    (internet(), WITH(addr_format = FI_SOCKADDR)))
NOT_GIVEN("addr-format/ib", "fi_getinfo(3)", addr_format = FI_SOCKADDR_IB)
NOT_GIVEN("addr-format/unknown", "fi_getinfo(3)", addr_format = UNKNOWN_NUMBER)

/* struct fi_tx_attr */
GIVEN("tx/caps", "fi_endpoint(3)", tx_attr->caps = FI_MSG | FI_SEND)
NOT_GIVEN("tx/caps-unknown", "fi_endpoint(3)", tx_attr->caps = UNKNOWN_FLAG)
NOT_GIVEN("tx/caps-beyond", "fi_endpoint(3)", tx_attr->caps = FI_MULTICAST)
GIVEN("tx/mode-all", "fi_endpoint(3)", tx_attr->mode = ~0ULL)
GIVEN("tx/op-flags", "fi_endpoint(3)",
      tx_attr->op_flags = FI_COMPLETION | FI_INJECT_COMPLETE)
NOT_GIVEN("tx/op-flags-beyond", "fi_endpoint(3)",
	  tx_attr->op_flags = FI_MULTICAST)
NOT_GIVEN("tx/op-flags-unknown", "fi_endpoint(3)",
	  tx_attr->op_flags = UNKNOWN_FLAG)
GIVEN("tx/msg-order", "fi_endpoint(3)", tx_attr->msg_order = FI_ORDER_SAS)
NOT_GIVEN("tx/msg-order-unknown", "fi_endpoint(3)",
	  tx_attr->msg_order = UNKNOWN_FLAG)
GIVEN("tx/comp-order", "fi_endpoint(3)", tx_attr->comp_order = FI_ORDER_NONE)
NOT_GIVEN("tx/comp-order-unknown", "fi_endpoint(3)",
	  tx_attr->comp_order = UNKNOWN_FLAG)
GIVEN("tx/inject-size", "fi_endpoint(3)", tx_attr->inject_size = 64)
NOT_GIVEN("tx/inject-size-beyond", "fi_endpoint(3)",
	  tx_attr->inject_size = SIZE_MAX)
GIVEN("tx/size", "fi_endpoint(3)", tx_attr->size = 64)
NOT_GIVEN("tx/size-beyond", "fi_endpoint(3)", tx_attr->size = SIZE_MAX)
GIVEN("tx/iov-limit", "fi_endpoint(3)", tx_attr->iov_limit = 1)
NOT_GIVEN("tx/iov-limit-beyond", "fi_endpoint(3)",
	  tx_attr->iov_limit = SIZE_MAX)
GIVEN("tx/rma-iov-limit", "fi_endpoint(3)", tx_attr->rma_iov_limit = 1)
NOT_GIVEN("tx/rma-iov-limit-beyond", "fi_endpoint(3)",
	  tx_attr->rma_iov_limit = SIZE_MAX)
GIVEN("tx/tclass", "fi_endpoint(3)", tx_attr->tclass = FI_TC_LOW_LATENCY)

/* struct fi_rx_attr */
GIVEN("rx/caps", "fi_endpoint(3)", rx_attr->caps = FI_MSG | FI_RECV)
NOT_GIVEN("rx/caps-unknown", "fi_endpoint(3)", rx_attr->caps = UNKNOWN_FLAG)
GIVEN("rx/mode-all", "fi_endpoint(3)", rx_attr->mode = ~0ULL)
GIVEN("rx/op-flags", "fi_endpoint(3)", rx_attr->op_flags = FI_COMPLETION)
NOT_GIVEN("rx/op-flags-beyond", "fi_endpoint(3)",
	  rx_attr->op_flags = FI_MULTICAST)
NOT_GIVEN("rx/op-flags-unknown", "fi_endpoint(3)",
	  rx_attr->op_flags = UNKNOWN_FLAG)
GIVEN("rx/msg-order", "fi_endpoint(3)", rx_attr->msg_order = FI_ORDER_SAS)
NOT_GIVEN("rx/msg-order-unknown", "fi_endpoint(3)",
	  rx_attr->msg_order = UNKNOWN_FLAG)
GIVEN("rx/comp-order", "fi_endpoint(3)", rx_attr->comp_order = FI_ORDER_NONE)
NOT_GIVEN("rx/comp-order-unknown", "fi_endpoint(3)",
	  rx_attr->comp_order = UNKNOWN_FLAG)
GIVEN("rx/size", "fi_endpoint(3)", rx_attr->size = 64)
NOT_GIVEN("rx/size-beyond", "fi_endpoint(3)", rx_attr->size = SIZE_MAX)
GIVEN("rx/iov-limit", "fi_endpoint(3)", rx_attr->iov_limit = 1)
NOT_GIVEN("rx/iov-limit-beyond", "fi_endpoint(3)",
	  rx_attr->iov_limit = SIZE_MAX)

/* struct fi_ep_attr */
NOT_GIVEN("ep/type-datagram", "fi_endpoint(3)", ep_attr->type = FI_EP_DGRAM)
NOT_GIVEN("ep/type-unknown", "fi_endpoint(3)", ep_attr->type = UNKNOWN_NUMBER)
NOT_GIVEN("ep/protocol-other", "fi_endpoint(3)",
	  ep_attr->protocol = FI_PROTO_PSMX)
NOT_GIVEN("ep/protocol-unknown", "fi_endpoint(3)",
	  ep_attr->protocol = UNKNOWN_NUMBER)
NOT_GIVEN("ep/protocol-version-beyond", "fi_endpoint(3)",
	  ep_attr->protocol_version = UINT32_MAX)
GIVEN("ep/max-msg-size", "fi_endpoint(3)", ep_attr->max_msg_size = 1 << 20)
GIVEN("ep/max-msg-size-beyond", "fi_endpoint(3)",
	  ep_attr->max_msg_size = SIZE_MAX)
GIVEN("ep/msg-prefix-size-beyond", "fi_endpoint(3)",
	  ep_attr->msg_prefix_size = SIZE_MAX)
GIVEN("ep/mem-tag-format", "fi_endpoint(3)",
      ep_attr->mem_tag_format = 0xffffffff)
GIVEN("ep/mem-tag-format-mpi", "fi_endpoint(3)",
      ep_attr->mem_tag_format = FI_TAG_MPI)
GIVEN("ep/tx-ctx-cnt", "fi_endpoint(3)", ep_attr->tx_ctx_cnt = 1)
NOT_GIVEN("ep/tx-ctx-cnt-beyond", "fi_endpoint(3)",
	  ep_attr->tx_ctx_cnt = SIZE_MAX - 1)
GIVEN("ep/tx-ctx-cnt-shared", "fi_endpoint(3)",
	  ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT)
GIVEN("ep/rx-ctx-cnt", "fi_endpoint(3)", ep_attr->rx_ctx_cnt = 1)
NOT_GIVEN("ep/rx-ctx-cnt-beyond", "fi_endpoint(3)",
	  ep_attr->rx_ctx_cnt = SIZE_MAX - 1)
GIVEN("ep/rx-ctx-cnt-shared", "fi_endpoint(3)",
      ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT)

/* struct fi_domain_attr; counts and sizes that are only reported exclude
 * nothing */
NOT_GIVEN("domain/name-unknown", "fi_domain(3)",
	  domain_attr->name = strdup("no_such_domain"))
GIVEN("domain/threading-safe", "fi_domain(3)",
      domain_attr->threading = FI_THREAD_SAFE)
GIVEN("domain/threading-domain", "fi_domain(3)",
      domain_attr->threading = FI_THREAD_DOMAIN)
GIVEN("domain/threading-completion", "fi_domain(3)",
      domain_attr->threading = FI_THREAD_COMPLETION)
NOT_GIVEN("domain/threading-unknown", "fi_domain(3)",
	  domain_attr->threading = UNKNOWN_NUMBER)
GIVEN("domain/progress-auto", "fi_domain(3)",
      domain_attr->progress = FI_PROGRESS_AUTO)
GIVEN("domain/progress-manual", "fi_domain(3)",
      domain_attr->progress = FI_PROGRESS_MANUAL)
GIVEN("domain/progress-control-unified", "fi_domain(3)",
      domain_attr->progress = FI_PROGRESS_CONTROL_UNIFIED)
NOT_GIVEN("domain/progress-unknown", "fi_domain(3)",
	  domain_attr->progress = UNKNOWN_NUMBER)
GIVEN("domain/resource-mgmt-enabled", "fi_domain(3)",
      domain_attr->resource_mgmt = FI_RM_ENABLED)
GIVEN("domain/resource-mgmt-disabled", "fi_domain(3)",
      domain_attr->resource_mgmt = FI_RM_DISABLED)
NOT_GIVEN("domain/resource-mgmt-unknown", "fi_domain(3)",
	  domain_attr->resource_mgmt = UNKNOWN_NUMBER)
GIVEN("domain/av-type-map", "fi_domain(3)", domain_attr->av_type = FI_AV_MAP)
GIVEN("domain/av-type-table", "fi_domain(3)",
      domain_attr->av_type = FI_AV_TABLE)
GIVEN("domain/av-type-unknown", "fi_domain(3)",
	  domain_attr->av_type = UNKNOWN_NUMBER)
GIVEN("domain/mr-mode-none", "fi_domain(3)", domain_attr->mr_mode = 0)
GIVEN("domain/mr-mode-all", "fi_mr(3)",
      domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR |
			     FI_MR_ALLOCATED | FI_MR_PROV_KEY |
			     FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT |
			     FI_MR_ENDPOINT | FI_MR_HMEM | FI_MR_COLLECTIVE)
GIVEN("domain/mr-key-size", "fi_domain(3)", domain_attr->mr_key_size = 8)
GIVEN("domain/mr-key-size-beyond", "fi_domain(3)",
	  domain_attr->mr_key_size = SIZE_MAX)
GIVEN("domain/cq-data-size", "fi_domain(3)", domain_attr->cq_data_size = 8)
NOT_GIVEN("domain/cq-data-size-beyond", "fi_domain(3)",
	  domain_attr->cq_data_size = SIZE_MAX)
GIVEN("domain/cq-cnt", "fi_domain(3)", domain_attr->cq_cnt = 8)
GIVEN("domain/cq-cnt-beyond", "fi_getinfo(3)",
	  domain_attr->cq_cnt = SIZE_MAX)
GIVEN("domain/ep-cnt", "fi_domain(3)", domain_attr->ep_cnt = 8)
GIVEN("domain/ep-cnt-beyond", "fi_getinfo(3)",
	  domain_attr->ep_cnt = SIZE_MAX)
GIVEN("domain/tx-ctx-cnt", "fi_domain(3)", domain_attr->tx_ctx_cnt = 1)
GIVEN("domain/tx-ctx-cnt-beyond", "fi_getinfo(3)",
	  domain_attr->tx_ctx_cnt = SIZE_MAX)
GIVEN("domain/rx-ctx-cnt", "fi_domain(3)", domain_attr->rx_ctx_cnt = 1)
GIVEN("domain/rx-ctx-cnt-beyond", "fi_getinfo(3)",
	  domain_attr->rx_ctx_cnt = SIZE_MAX)
GIVEN("domain/max-ep-tx-ctx", "fi_domain(3)", domain_attr->max_ep_tx_ctx = 1)
GIVEN("domain/max-ep-tx-ctx-beyond", "fi_getinfo(3)",
	  domain_attr->max_ep_tx_ctx = SIZE_MAX)
GIVEN("domain/max-ep-rx-ctx", "fi_domain(3)", domain_attr->max_ep_rx_ctx = 1)
GIVEN("domain/max-ep-rx-ctx-beyond", "fi_getinfo(3)",
	  domain_attr->max_ep_rx_ctx = SIZE_MAX)
GIVEN("domain/max-ep-stx-ctx-beyond", "fi_getinfo(3)",
	  domain_attr->max_ep_stx_ctx = SIZE_MAX)
GIVEN("domain/max-ep-srx-ctx", "fi_domain(3)", domain_attr->max_ep_srx_ctx = 1)
GIVEN("domain/max-ep-srx-ctx-beyond", "fi_getinfo(3)",
	  domain_attr->max_ep_srx_ctx = SIZE_MAX)
GIVEN("domain/cntr-cnt", "fi_domain(3)", domain_attr->cntr_cnt = 8)
NOT_GIVEN("domain/cntr-cnt-beyond", "fi_getinfo(3)",
	  domain_attr->cntr_cnt = SIZE_MAX)
GIVEN("domain/mr-iov-limit", "fi_domain(3)", domain_attr->mr_iov_limit = 1)
NOT_GIVEN("domain/mr-iov-limit-beyond", "fi_getinfo(3)",
	  domain_attr->mr_iov_limit = SIZE_MAX)
GIVEN("domain/caps", "fi_domain(3)", domain_attr->caps = FI_LOCAL_COMM)
NOT_GIVEN("domain/caps-unknown", "fi_domain(3)",
	  domain_attr->caps = UNKNOWN_FLAG)
GIVEN("domain/mode-all", "fi_domain(3)", domain_attr->mode = ~0ULL)
NOT_GIVEN("domain/max-err-data-beyond", "fi_domain(3)",
	  domain_attr->max_err_data = SIZE_MAX)
GIVEN("domain/mr-cnt", "fi_domain(3)", domain_attr->mr_cnt = 8)
NOT_GIVEN("domain/mr-cnt-beyond", "fi_getinfo(3)",
	  domain_attr->mr_cnt = SIZE_MAX)
GIVEN("domain/tclass", "fi_domain(3)", domain_attr->tclass = FI_TC_BULK_DATA)
NOT_GIVEN("domain/max-ep-auth-key-beyond", "fi_domain(3)",
	  domain_attr->max_ep_auth_key = SIZE_MAX)
GIVEN("domain/max-group-id-beyond", "fi_domain(3)",
	  domain_attr->max_group_id = UINT32_MAX)

/* struct fi_fabric_attr */
NOT_GIVEN("fabric/name-unknown", "fi_fabric(3)",
	  fabric_attr->name = strdup("no_such_fabric"))
ROW(BOTH, "getinfo/fabric/prov-name-unknown", "fi_fabric(3)", -FI_ENODATA,
    ({
	hints = ct_hints(&spec);
	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = strdup("no_such_provider");
	ask();
    }))
NOT_GIVEN("fabric/prov-version-beyond", "fi_fabric(3)",
	  fabric_attr->prov_version = UINT32_MAX)

/* The call's own arguments. */
static int getinfo(uint32_t version, const char *node, const char *service,
		   uint64_t flags)
{
	struct fi_info *found = NULL;
	int ret;

	hints = ct_hints(&spec);
	ret = fi_getinfo(version, node, service, flags, hints, &found);
	REQUIRE(!ret == !!found);
	return ret;
}

ROW(BOTH, "getinfo/version-too-new", "fi_getinfo(3)", -FI_ENOSYS,
    getinfo(FI_VERSION(99, 0), NULL, NULL, 0))
ROW(BOTH, "getinfo/node-unknown", "fi_getinfo(3)", REFUSED,
    (internet(), getinfo(CT_API_VERSION, "no.such.host.invalid", "1", 0)))
ROW(BOTH, "getinfo/service-unknown", "fi_getinfo(3)", REFUSED,
    (internet(), getinfo(CT_API_VERSION, "127.0.0.1", "no such service", 0)))
ROW(BOTH, "getinfo/numeric-host", "fi_getinfo(3)", 0,
    (internet(), getinfo(CT_API_VERSION, "localhost", "1", FI_NUMERICHOST)))
ROW(BOTH, "getinfo/nothing-asked", "fi_getinfo(3)", 0,
    getinfo(CT_API_VERSION, NULL, NULL, 0))
