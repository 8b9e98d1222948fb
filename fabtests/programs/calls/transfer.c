/* SPDX-License-Identifier: BSD-2-Clause OR MIT */
/* Data transfers with wrong arguments, and the contents of completions. */
#include <string.h>

#include "row.h"

static struct ct_peer *a(void)
{
	return &pair()->a;
}

static struct ct_peer *b(void)
{
	return &pair()->b;
}

static const struct iovec *pieces(void)
{
	static struct iovec iov[64];

	for (int i = 0; i < 64; i++)
		iov[i] = (struct iovec) { memory + i, 1 };
	return iov;
}

static size_t inject_size(void)
{
	/* As small as possible, so that there is memory beyond it. */
	return a()->info->tx_attr->inject_size;
}

/* Lengths */
ROW(BOTH, "inject/beyond", "fi_msg(3)", REFUSED,
    fi_inject(a()->ep, memory, inject_size() + 1, a()->to))
ROW(BOTH, "inject/data-beyond", "fi_msg(3)", REFUSED,
    fi_injectdata(a()->ep, memory, inject_size() + 1, 7, a()->to))
ROW(BOTH, "inject/tagged-beyond", "fi_tagged(3)", REFUSED,
    (spec.caps |= FI_TAGGED,
     fi_tinject(a()->ep, memory, inject_size() + 1, a()->to, 1)))
ROW(BOTH, "inject/write-beyond", "fi_rma(3)", REFUSED,
    fi_inject_write(a()->ep, memory, inject_size() + 1, a()->to, 0, 1))
ROW(BOTH, "inject/atomic-beyond", "fi_atomic(3)", REFUSED,
    (spec.caps |= FI_ATOMIC,
     fi_inject_atomic(a()->ep, memory, inject_size() + 1, a()->to, 0, 1,
		      FI_UINT8, FI_SUM)))
ROW(BOTH, "inject/message-beyond", "fi_msg(3)", REFUSED, ({
	struct iovec iov = { memory, inject_size() + 1 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = a()->to,
		.context = context,
	};

	fi_sendmsg(a()->ep, &msg, FI_INJECT);
    }))
ROW(BOTH, "inject/limit", "fi_msg(3)", 0,
    CT_POST(a(), fi_inject(a()->ep, memory, inject_size(), a()->to)))
ROW(BOTH, "length/send-beyond", "fi_msg(3)", REFUSED,
    fi_send(a()->ep, memory, SIZE_MAX, NULL, a()->to, context))
ROW(BOTH, "length/tagged-send-beyond", "fi_tagged(3)", REFUSED,
    (spec.caps |= FI_TAGGED,
     fi_tsend(a()->ep, memory, SIZE_MAX, NULL, a()->to, 1, context)))
ROW(BOTH, "length/write-beyond", "fi_rma(3)", REFUSED,
    fi_write(a()->ep, memory, SIZE_MAX, NULL, a()->to, 0, 1, context))
ROW(BOTH, "length/read-beyond", "fi_rma(3)", REFUSED,
    fi_read(a()->ep, memory, SIZE_MAX, NULL, a()->to, 0, 1, context))

/* Vectors */
ROW(BOTH, "vector/send-beyond", "fi_msg(3)", REFUSED,
    fi_sendv(a()->ep, pieces(), NULL, a()->info->tx_attr->iov_limit + 1,
	     a()->to, context))
ROW(BOTH, "vector/receive-beyond", "fi_msg(3)", REFUSED,
    fi_recvv(a()->ep, pieces(), NULL, a()->info->rx_attr->iov_limit + 1,
	     FI_ADDR_UNSPEC, context))
ROW(BOTH, "vector/tagged-send-beyond", "fi_tagged(3)", REFUSED,
    (spec.caps |= FI_TAGGED,
     fi_tsendv(a()->ep, pieces(), NULL, a()->info->tx_attr->iov_limit + 1,
	       a()->to, 1, context)))
ROW(BOTH, "vector/write-beyond", "fi_rma(3)", REFUSED,
    fi_writev(a()->ep, pieces(), NULL, a()->info->tx_attr->iov_limit + 1,
	      a()->to, 0, 1, context))
ROW(BOTH, "vector/send-nothing", "fi_msg(3)", REFUSED,
    fi_sendv(a()->ep, NULL, NULL, 1, a()->to, context))
ROW(BOTH, "vector/receive-nothing", "fi_msg(3)", REFUSED,
    fi_recvv(a()->ep, NULL, NULL, 1, FI_ADDR_UNSPEC, context))
ROW(BOTH, "vector/remote-beyond", "fi_rma(3)", REFUSED, ({
	struct fi_rma_iov remote[64] = { { 0, 1, 1 } };
	struct fi_msg_rma msg = {
		.msg_iov = pieces(), .iov_count = 1, .addr = a()->to,
		.rma_iov = remote, .context = context,
		.rma_iov_count = a()->info->tx_attr->rma_iov_limit + 1,
	};

	fi_writemsg(a()->ep, &msg, 0);
    }))
ROW(BOTH, "vector/remote-shorter", "fi_rma(3)", REFUSED, ({
	struct fi_rma_iov remote = { 0, 1, 1 };
	struct iovec iov = { memory, 8 };
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = a()->to,
		.rma_iov = &remote, .rma_iov_count = 1, .context = context,
	};

	fi_writemsg(a()->ep, &msg, 0);
    }))

/* No message */
ROW(BOTH, "message/send-nothing", "fi_msg(3)", REFUSED,
    fi_sendmsg(a()->ep, NULL, 0))
ROW(BOTH, "message/receive-nothing", "fi_msg(3)", REFUSED,
    fi_recvmsg(a()->ep, NULL, 0))
ROW(BOTH, "message/tagged-send-nothing", "fi_tagged(3)", REFUSED,
    (spec.caps |= FI_TAGGED, fi_tsendmsg(a()->ep, NULL, 0)))
ROW(BOTH, "message/tagged-receive-nothing", "fi_tagged(3)", REFUSED,
    (spec.caps |= FI_TAGGED, fi_trecvmsg(a()->ep, NULL, 0)))
ROW(BOTH, "message/read-nothing", "fi_rma(3)", REFUSED,
    fi_readmsg(a()->ep, NULL, 0))
ROW(BOTH, "message/write-nothing", "fi_rma(3)", REFUSED,
    fi_writemsg(a()->ep, NULL, 0))

/* Peers that do not exist */
ROW(RDM, "peer/unknown", "fi_msg(3)", REFUSED,
    fi_send(a()->ep, memory, 8, NULL, 12345, context))
ROW(RDM, "peer/unspecified", "fi_msg(3)", REFUSED,
    fi_send(a()->ep, memory, 8, NULL, FI_ADDR_UNSPEC, context))
ROW(RDM, "peer/tagged-unknown", "fi_tagged(3)", REFUSED,
    (spec.caps |= FI_TAGGED,
     fi_tsend(a()->ep, memory, 8, NULL, 12345, 1, context)))
ROW(RDM, "peer/write-unknown", "fi_rma(3)", REFUSED,
    fi_write(a()->ep, memory, 8, NULL, 12345, 0, 1, context))
ROW(RDM, "peer/inject-unknown", "fi_msg(3)", REFUSED,
    fi_inject(a()->ep, memory, 8, 12345))
ROW(RDM, "peer/removed", "fi_msg(3)", REFUSED,
    (FIRST(fi_av_remove(a()->av, &a()->to, 1, 0)),
     fi_send(a()->ep, memory, 8, NULL, a()->to, context)))

/* Receives that take several messages */
static ssize_t receive_several(bool tagged, uint64_t flags)
{
	static const struct iovec iov = { memory, sizeof(memory) };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = context,
	};
	struct fi_msg_tagged with_tag = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = context,
	};

	return tagged ? fi_trecvmsg(b()->ep, &with_tag, flags) :
			fi_recvmsg(b()->ep, &msg, flags);
}

ROW(BOTH, "several/messages", "fi_msg(3)", 0,
    (spec.caps |= FI_MULTI_RECV, receive_several(false, FI_MULTI_RECV)))
/* It takes one. */
ROW(BOTH, "several/tagged-not-offered", CARRIED_OUT, 0,
    (spec.caps |= FI_TAGGED | FI_MULTI_RECV,
     receive_several(true, FI_MULTI_RECV)))
ROW(BOTH, "several/place-of-empty-message", "fi_cq(3)", 0, ({
	struct ct_completion done[2];

	spec.caps |= FI_MULTI_RECV;
	spec.format = FI_CQ_FORMAT_DATA;
	OK(receive_several(false, FI_MULTI_RECV));
	POST(a(), fi_send(a()->ep, memory, 64, NULL, a()->to, context + 1));
	POST(a(), fi_send(a()->ep, NULL, 0, NULL, a()->to, context + 1));
	done[0] = ct_done(b(), &b()->rx, context);
	done[1] = ct_done(b(), &b()->rx, context);
	REQUIRE(done[0].buf == memory && done[1].len == 0);
	done[1].buf < (void *)(memory + 64) ||
		done[1].buf > (void *)(memory + sizeof(memory));
    }))

/* fi_cancel */
ROW(BOTH, "cancel/receive", "fi_endpoint(3)", FI_ECANCELED,
    (FIRST(fi_recv(b()->ep, memory, 8, NULL, FI_ADDR_UNSPEC, context)),
     FIRST(fi_cancel(&b()->ep->fid, context)), ct_error(b(), &b()->rx).err))

/* Remote memory that does not exist */
static int failed_read(uint64_t key)
{
	POST(a(), fi_read(a()->ep, memory, 8, NULL, a()->to, 0, key, context));
	return ct_error(a(), &a()->tx).err > 0 ? 0 : -1;
}

ROW(BOTH, "remote/unknown-key", "fi_rma(3)", 0, failed_read(12345))

/* Atomic operations */
static uint64_t immediate_of_atomic(void)
{
	static uint64_t target;
	struct fi_ioc operand = { memory, 1 };
	struct fi_rma_ioc remote = { 0, 1, 5 };
	struct fi_msg_atomic msg = {
		.msg_iov = &operand, .iov_count = 1, .rma_iov = &remote,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM,
		.context = context, .data = 7,
	};
	struct fid_mr *region;

	spec.caps |= FI_ATOMIC;
	OK(fi_mr_reg(b()->domain, &target, sizeof(target), FI_REMOTE_WRITE, 0,
		     5, 0, &region, NULL));
	msg.addr = a()->to;
	if (ct_mr_mode(b()) & FI_MR_VIRT_ADDR)
		remote.addr = (uintptr_t)&target;
	POST(a(), fi_atomicmsg(a()->ep, &msg, FI_REMOTE_CQ_DATA));
	return ct_next(b(), &b()->rx).flags;
}

ROW(BOTH, "atomic/immediate-data", "fi_cq(3)",
    FI_ATOMIC | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, immediate_of_atomic())
static ssize_t atomic(size_t count, enum fi_datatype datatype, enum fi_op op)
{
	spec.caps |= FI_ATOMIC;
	return fi_atomic(a()->ep, memory, count, NULL, a()->to, 0, 1, datatype,
			 op, context);
}

static int valid(enum fi_datatype datatype, enum fi_op op)
{
	size_t count;

	spec.caps |= FI_ATOMIC;
	return fi_atomicvalid(a()->ep, datatype, op, &count);
}

ROW(BOTH, "atomic/unknown-operation", "fi_atomic(3)", -FI_EOPNOTSUPP,
    atomic(1, FI_UINT64, UNKNOWN_NUMBER))
ROW(BOTH, "atomic/unknown-datatype", "fi_atomic(3)", -FI_EOPNOTSUPP,
    atomic(1, UNKNOWN_NUMBER, FI_SUM))
ROW(BOTH, "atomic/bits-of-a-float", "fi_atomic(3)", -FI_EOPNOTSUPP,
    atomic(1, FI_FLOAT, FI_BXOR))
ROW(BOTH, "atomic/fetching-operation", "fi_atomic(3)", -FI_EOPNOTSUPP,
    atomic(1, FI_UINT64, FI_CSWAP))
ROW(BOTH, "atomic/none", CARRIED_OUT, 0, atomic(0, FI_UINT64, FI_SUM))
ROW(BOTH, "atomic/too-many", "fi_atomic(3)", REFUSED,
    atomic(SIZE_MAX / 8, FI_UINT64, FI_SUM))
ROW(BOTH, "atomic/valid", "fi_atomic(3)", 0, valid(FI_UINT64, FI_SUM))
ROW(BOTH, "atomic/valid-unknown", "fi_atomic(3)", -FI_EOPNOTSUPP,
    valid(FI_UINT64, UNKNOWN_NUMBER))
