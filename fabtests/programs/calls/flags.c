/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Flags of single operations, options, and other things that a provider may
 * refuse. */
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_ext.h>

#include "row.h"

static struct ct_peer *a(void)
{
	return &pair()->a;
}

static struct ct_peer *b(void)
{
	return &pair()->b;
}

/* A message from one side to the other with the flags in each call; its
 * length. */
static ssize_t passed(uint64_t send_flags, uint64_t recv_flags)
{
	static char from[64] = "ping", to[64];
	struct iovec in = { to, sizeof(to) }, out = { from, sizeof(from) };
	struct fi_msg receive = {
		.msg_iov = &in, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = context,
	};
	struct fi_msg message = {
		.msg_iov = &out, .iov_count = 1, .addr = a()->to,
		.context = context + 1, .data = 7,
	};
	ssize_t ret = fi_recvmsg(b()->ep, &receive, recv_flags);

	if (ret)
		return ret;
	ret = CT_POST(a(), fi_sendmsg(a()->ep, &message, send_flags));
	if (ret)
		return ret;
	ct_done(b(), &b()->rx, context);
	ct_done(a(), &a()->tx, context + 1);
	return strcmp(from, to) ? -FI_EOTHER : 0;
}

static ssize_t passed_tagged(uint64_t send_flags, uint64_t recv_flags)
{
	static char from[64] = "ping", to[64];
	struct iovec in = { to, sizeof(to) }, out = { from, sizeof(from) };
	struct fi_msg_tagged receive = {
		.msg_iov = &in, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.tag = 5, .context = context,
	};
	struct fi_msg_tagged message = {
		.msg_iov = &out, .iov_count = 1, .tag = 5,
		.context = context + 1, .data = 7,
	};
	ssize_t ret;

	spec.caps |= FI_TAGGED;
	message.addr = a()->to;
	ret = fi_trecvmsg(b()->ep, &receive, recv_flags);
	if (ret)
		return ret;
	ret = CT_POST(a(), fi_tsendmsg(a()->ep, &message, send_flags));
	if (ret)
		return ret;
	ct_done(b(), &b()->rx, context);
	ct_done(a(), &a()->tx, context + 1);
	return strcmp(from, to) ? -FI_EOTHER : 0;
}

/* The memory of two peers with RMA and atomics. */
static uint64_t target;
static struct fid_mr *region;

static struct fi_rma_iov remote(void)
{
	OK(fi_mr_reg(b()->domain, &target, sizeof(target),
		     FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 5, 0, &region, NULL));
	return (struct fi_rma_iov) {
		ct_mr_mode(b()) & FI_MR_VIRT_ADDR ? (uintptr_t)&target : 0,
		sizeof(target), fi_mr_key(region),
	};
}

static ssize_t accessed(bool read, uint64_t flags)
{
	static uint64_t local = 42;
	struct iovec iov = { &local, sizeof(local) };
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .iov_count = 1, .rma_iov_count = 1,
		.context = context,
	};
	struct fi_rma_iov iov_there = remote();
	ssize_t ret;

	msg.addr = a()->to;
	msg.rma_iov = &iov_there;
	if (read) {
		target = 42;
		local = 0;
	}
	ret = CT_POST(a(), read ? fi_readmsg(a()->ep, &msg, flags) :
				  fi_writemsg(a()->ep, &msg, flags));
	if (ret)
		return ret;
	ct_done(a(), &a()->tx, context);
	UNTIL(b(), target == 42);
	return local == 42 ? 0 : -FI_EOTHER;
}

static ssize_t summed(size_t count, uint64_t flags)
{
	static uint64_t local = 42;
	struct fi_ioc ioc = { &local, count };
	struct fi_rma_ioc there = { .count = count };
	struct fi_msg_atomic msg = {
		.msg_iov = &ioc, .iov_count = 1, .rma_iov = &there,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM,
		.context = context,
	};
	struct fi_rma_iov place;
	ssize_t ret;

	spec.caps |= FI_ATOMIC;
	place = remote();
	there.addr = place.addr;
	there.key = place.key;
	msg.addr = a()->to;
	ret = CT_POST(a(), fi_atomicmsg(a()->ep, &msg, flags));
	if (ret)
		return ret;
	ct_done(a(), &a()->tx, context);
	if (count)
		UNTIL(b(), target == 42);
	return 0;
}

COMPARED(BOTH, "flags/none", passed(FI_COMPLETION, FI_COMPLETION))
COMPARED(BOTH, "flags/send-unknown",
    passed(FI_COMPLETION | UNKNOWN_FLAG, FI_COMPLETION))
COMPARED(BOTH, "flags/receive-unknown",
    passed(FI_COMPLETION, FI_COMPLETION | UNKNOWN_FLAG))
COMPARED(BOTH, "flags/send-of-receives",
    passed(FI_COMPLETION | FI_MULTI_RECV | FI_CLAIM, FI_COMPLETION))
COMPARED(BOTH, "flags/receive-of-sends",
    passed(FI_COMPLETION, FI_COMPLETION | FI_INJECT | FI_DELIVERY_COMPLETE))
COMPARED(BOTH, "flags/send-fence",
    passed(FI_COMPLETION | FI_FENCE, FI_COMPLETION))
COMPARED(BOTH, "flags/send-more",
    passed(FI_COMPLETION | FI_MORE, FI_COMPLETION | FI_MORE))
COMPARED(BOTH, "flags/send-match-complete",
    passed(FI_COMPLETION | FI_MATCH_COMPLETE, FI_COMPLETION))
COMPARED(BOTH, "flags/send-commit-complete",
    passed(FI_COMPLETION | FI_COMMIT_COMPLETE, FI_COMPLETION))
COMPARED(BOTH, "flags/send-delivery-complete",
    passed(FI_COMPLETION | FI_DELIVERY_COMPLETE, FI_COMPLETION))
COMPARED(BOTH, "flags/send-high-bits",
    passed(FI_COMPLETION | 1ULL << 61, FI_COMPLETION))
COMPARED(BOTH, "flags/receive-discard",
    passed(FI_COMPLETION, FI_COMPLETION | FI_DISCARD))
COMPARED(BOTH, "flags/tagged-none",
    passed_tagged(FI_COMPLETION, FI_COMPLETION))
COMPARED(BOTH, "flags/tagged-send-unknown",
    passed_tagged(FI_COMPLETION | UNKNOWN_FLAG, FI_COMPLETION))
COMPARED(BOTH, "flags/tagged-receive-unknown",
    passed_tagged(FI_COMPLETION, FI_COMPLETION | UNKNOWN_FLAG))
COMPARED(BOTH, "flags/tagged-receive-discard",
    passed_tagged(FI_COMPLETION, FI_COMPLETION | FI_DISCARD))
COMPARED(BOTH, "flags/tagged-receive-claim",
    passed_tagged(FI_COMPLETION, FI_COMPLETION | FI_CLAIM))
COMPARED(BOTH, "flags/write", accessed(false, FI_COMPLETION))
COMPARED(BOTH, "flags/write-unknown",
    accessed(false, FI_COMPLETION | UNKNOWN_FLAG))
COMPARED(BOTH, "flags/read", accessed(true, FI_COMPLETION))
COMPARED(BOTH, "flags/read-unknown",
    accessed(true, FI_COMPLETION | UNKNOWN_FLAG))
COMPARED(BOTH, "flags/read-inject", accessed(true, FI_COMPLETION | FI_INJECT))
COMPARED(BOTH, "flags/read-data",
    accessed(true, FI_COMPLETION | FI_REMOTE_CQ_DATA))
COMPARED(BOTH, "flags/write-fence", accessed(false, FI_COMPLETION | FI_FENCE))
COMPARED(BOTH, "flags/write-commit",
    accessed(false, FI_COMPLETION | FI_COMMIT_COMPLETE))
COMPARED(BOTH, "flags/atomic", summed(1, FI_COMPLETION))
COMPARED(BOTH, "flags/atomic-unknown", summed(1, FI_COMPLETION | UNKNOWN_FLAG))
COMPARED(BOTH, "flags/atomic-tagged", summed(1, FI_COMPLETION | FI_TAGGED))
COMPARED(BOTH, "flags/atomic-data",
    summed(1, FI_COMPLETION | FI_REMOTE_CQ_DATA))
COMPARED(BOTH, "flags/atomic-none-completes", summed(0, FI_COMPLETION))

/* fi_recvmsg that peeks at untagged messages */
static ssize_t looked(uint64_t flags)
{
	struct iovec iov = { memory, 64 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = context,
	};

	return fi_recvmsg(b()->ep, &msg, flags);
}

COMPARED(BOTH, "peek/untagged", looked(FI_PEEK))
COMPARED(BOTH, "peek/untagged-claim", looked(FI_CLAIM))

static ssize_t looked_tagged(uint64_t flags)
{
	struct iovec iov = { memory, 64 };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.tag = 5, .context = context,
	};

	spec.caps |= FI_TAGGED;
	return fi_trecvmsg(b()->ep, &msg, flags);
}

COMPARED(BOTH, "peek/tagged", looked_tagged(FI_PEEK))
COMPARED(BOTH, "peek/tagged-claim-nothing", looked_tagged(FI_CLAIM))
COMPARED(BOTH, "peek/tagged-discard-alone", looked_tagged(FI_DISCARD))

/* Queries of atomic operations */
static int query(enum fi_datatype datatype, enum fi_op op, uint64_t flags)
{
	struct fi_atomic_attr attr = { 0 };

	spec.caps |= FI_ATOMIC;
	return fi_query_atomic(domain(), datatype, op, &attr, flags);
}

COMPARED(BOTH, "query/sum", query(FI_UINT64, FI_SUM, 0))
COMPARED(BOTH, "query/fetch-sum", query(FI_UINT64, FI_SUM, FI_FETCH_ATOMIC))
COMPARED(BOTH, "query/cswap-with-no-flag", query(FI_UINT64, FI_CSWAP, 0))
COMPARED(BOTH, "query/cswap", query(FI_UINT64, FI_CSWAP, FI_COMPARE_ATOMIC))
COMPARED(BOTH, "query/sum-compare",
    query(FI_UINT64, FI_SUM, FI_COMPARE_ATOMIC))
COMPARED(BOTH, "query/read-with-no-flag", query(FI_UINT64, FI_ATOMIC_READ, 0))
COMPARED(BOTH, "query/unknown-flag", query(FI_UINT64, FI_SUM, UNKNOWN_FLAG))
COMPARED(BOTH, "query/both-flags",
    query(FI_UINT64, FI_SUM, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC))
COMPARED(BOTH, "query/tagged", query(FI_UINT64, FI_SUM, FI_TAGGED))
COMPARED(BOTH, "query/int128", query(FI_INT128, FI_SUM, 0))
COMPARED(BOTH, "query/long-double", query(FI_LONG_DOUBLE, FI_SUM, 0))
COMPARED(BOTH, "query/complex-min", query(FI_FLOAT_COMPLEX, FI_MIN, 0))
COMPARED(BOTH, "query/difference", query(FI_UINT64, FI_DIFF, 0))

/* Every option of fi_endpoint(3), read and written */
static int option(int name, size_t len)
{
	size_t value[4] = { 0 };

	return fi_getopt(&bound_ep()->fid, FI_OPT_ENDPOINT, name, value, &len);
}

static int set_option(int name, size_t value, size_t len)
{
	size_t values[4] = { value };

	return fi_setopt(&bound_ep()->fid, FI_OPT_ENDPOINT, name, values, len);
}

#define OPTION(name, which, len)					\
	COMPARED(BOTH, "option/get-" name, option(which, len))		\
	COMPARED(BOTH, "option/set-" name, set_option(which, 1, len))	\
	COMPARED(BOTH, "option/clear-" name, set_option(which, 0, len))

OPTION("min-multi-recv", FI_OPT_MIN_MULTI_RECV, 8)
OPTION("cm-data-size", FI_OPT_CM_DATA_SIZE, 8)
OPTION("buffered-min", FI_OPT_BUFFERED_MIN, 8)
OPTION("buffered-limit", FI_OPT_BUFFERED_LIMIT, 8)
OPTION("hmem-p2p", FI_OPT_FI_HMEM_P2P, 4)
OPTION("xpu-trigger", FI_OPT_XPU_TRIGGER, 16)
OPTION("cuda-api", FI_OPT_CUDA_API_PERMITTED, 1)
OPTION("shared-memory", FI_OPT_SHARED_MEMORY_PERMITTED, 1)
OPTION("max-msg-size", FI_OPT_MAX_MSG_SIZE, 8)
OPTION("max-tagged-size", FI_OPT_MAX_TAGGED_SIZE, 8)
OPTION("max-rma-size", FI_OPT_MAX_RMA_SIZE, 8)
OPTION("max-atomic-size", FI_OPT_MAX_ATOMIC_SIZE, 8)
OPTION("inject-msg-size", FI_OPT_INJECT_MSG_SIZE, 8)
OPTION("inject-tagged-size", FI_OPT_INJECT_TAGGED_SIZE, 8)
OPTION("inject-rma-size", FI_OPT_INJECT_RMA_SIZE, 8)
OPTION("inject-atomic-size", FI_OPT_INJECT_ATOMIC_SIZE, 8)
COMPARED(BOTH, "option/set-enabled", ({
	size_t value = 64;

	fi_setopt(&ep()->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value,
		  sizeof(value));
    }))
COMPARED(BOTH, "option/set-longer", ({
	size_t value[2] = { 64 };

	fi_setopt(&ep()->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, value,
		  sizeof(value));
    }))
COMPARED(BOTH, "option/srx-get", ({
	size_t value, len = sizeof(value);

	fi_getopt(&srx()->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value,
		  &len);
    }))
COMPARED(BOTH, "option/srx-set", ({
	size_t value = 64;

	fi_setopt(&srx()->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value,
		  sizeof(value));
    }))

/* Remains of old interfaces */
COMPARED(BOTH, "size-left/receive", fi_rx_size_left(ep()) > 0 ? 0 : -1)
COMPARED(BOTH, "size-left/transmit", fi_tx_size_left(ep()) > 0 ? 0 : -1)
COMPARED(BOTH, "context/transmit", ({
	struct fid_ep *tx;

	fi_tx_context(ep(), 0, info()->tx_attr, &tx, NULL);
    }))
COMPARED(BOTH, "context/receive", ({
	struct fid_ep *rx;

	fi_rx_context(ep(), 0, info()->rx_attr, &rx, NULL);
    }))
COMPARED(BOTH, "srx/no-attributes", ({
	struct fid_ep *rx;

	fi_srx_context(domain(), NULL, &rx, NULL);
    }))
COMPARED(BOTH, "srx/bind-counter", bind_to(&srx()->fid, &cntr()->fid, FI_RECV))
COMPARED(BOTH, "srx/bind-cq", bind_to(&srx()->fid, &cq()->fid, FI_RECV))
COMPARED(BOTH, "srx/bind-cq-no-flag", bind_to(&srx()->fid, &cq()->fid, 0))
COMPARED(BOTH, "srx/bind-cq-twice",
    (FIRST(bind_to(&srx()->fid, &cq()->fid, FI_RECV)),
     bind_to(&srx()->fid, &cq()->fid, FI_RECV)))
COMPARED(BOTH, "srx/enable", fi_control(&srx()->fid, FI_ENABLE, NULL))

/* fi_getinfo as a whole */
static int found(uint32_t version, const char *node, const char *service,
		 uint64_t flags)
{
	struct fi_info *hints = ct_hints(&spec), *list = NULL;
	int ret = fi_getinfo(version, node, service, flags, hints, &list);

	fi_freeinfo(hints);
	fi_freeinfo(list);
	return ret;
}

COMPARED(BOTH, "getinfo/unknown-flag",
    found(CT_API_VERSION, NULL, NULL, UNKNOWN_FLAG))
COMPARED(BOTH, "getinfo/source-of-nothing",
    found(CT_API_VERSION, NULL, NULL, FI_SOURCE))
COMPARED(BOTH, "getinfo/newer-version",
    found(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION + 50), NULL, NULL, 0))
COMPARED(BOTH, "getinfo/no-hints", ({
	struct fi_info *list = NULL;

	fi_getinfo(CT_API_VERSION, NULL, NULL, 0, NULL, &list);
    }))
COMPARED(BOTH, "getinfo/attributes-only",
    found(CT_API_VERSION, NULL, NULL, FI_PROV_ATTR_ONLY))
COMPARED(BOTH, "getinfo/service-alone", found(CT_API_VERSION, NULL, "7471", 0))
COMPARED(BOTH, "getinfo/service-of-source",
    found(CT_API_VERSION, NULL, "7471", FI_SOURCE))
