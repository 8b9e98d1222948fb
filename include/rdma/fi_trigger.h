/* Written by `make headers` from the abi crate. Change abi/, not this file. */

/*
 * Triggered operations, fi_trigger(3).
 */
#ifndef RDMA_FI_TRIGGER_H
#define RDMA_FI_TRIGGER_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fi_context2;
struct fi_msg;
struct fi_msg_atomic;
struct fi_msg_compare;
struct fi_msg_fetch;
struct fi_msg_rma;
struct fi_msg_tagged;
struct fid_cntr;
struct fid_ep;

/* Deferred operations, fi_trigger(3). */
enum fi_op_type {
	FI_OP_RECV,
	FI_OP_SEND,
	FI_OP_TRECV,
	FI_OP_TSEND,
	FI_OP_READ,
	FI_OP_WRITE,
	FI_OP_ATOMIC,
	FI_OP_FETCH_ATOMIC,
	FI_OP_COMPARE_ATOMIC,
	FI_OP_CNTR_SET,
	FI_OP_CNTR_ADD,
};

/* Events that trigger an operation, fi_trigger(3). */
enum fi_trigger_event {
	FI_TRIGGER_THRESHOLD,
	FI_TRIGGER_XPU,
};

/* A deferred send or receive, fi_trigger(3). */
struct fi_op_msg {
	struct fid_ep *ep;
	struct fi_msg msg;
	uint64_t flags;
};

/* A deferred tagged send or receive, fi_trigger(3). */
struct fi_op_tagged {
	struct fid_ep *ep;
	struct fi_msg_tagged msg;
	uint64_t flags;
};

/* A deferred remote read or write, fi_trigger(3). */
struct fi_op_rma {
	struct fid_ep *ep;
	struct fi_msg_rma msg;
	uint64_t flags;
};

/* A deferred atomic operation, fi_trigger(3). */
struct fi_op_atomic {
	struct fid_ep *ep;
	struct fi_msg_atomic msg;
	uint64_t flags;
};

/* A deferred fetching operation, fi_trigger(3). */
struct fi_op_fetch_atomic {
	struct fid_ep *ep;
	struct fi_msg_atomic msg;
	struct fi_msg_fetch fetch;
	uint64_t flags;
};

/* A deferred compare operation, fi_trigger(3). */
struct fi_op_compare_atomic {
	struct fid_ep *ep;
	struct fi_msg_atomic msg;
	struct fi_msg_fetch fetch;
	struct fi_msg_compare compare;
	uint64_t flags;
};

/* A deferred counter update, fi_trigger(3). */
struct fi_op_cntr {
	struct fid_cntr *cntr;
	uint64_t value;
};

/* The deferred operation, by `op_type`. */
union fi_deferred_work_op {
	struct fi_op_msg *msg;
	struct fi_op_tagged *tagged;
	struct fi_op_rma *rma;
	struct fi_op_atomic *atomic;
	struct fi_op_fetch_atomic *fetch_atomic;
	struct fi_op_compare_atomic *compare_atomic;
	struct fi_op_cntr *cntr;
};

/* An operation that starts when a counter reaches its threshold, fi_trigger(3). */
struct fi_deferred_work {
	struct fi_context2 context;
	uint64_t threshold;
	struct fid_cntr *triggering_cntr;
	struct fid_cntr *completion_cntr;
	enum fi_op_type op_type;
	union fi_deferred_work_op op;
};

/* The counter value that triggers an operation, fi_trigger(3). */
struct fi_trigger_threshold {
	struct fid_cntr *cntr;
	size_t threshold;
};

/* A value of the type `datatype`. */
union fi_trigger_var_value {
	uint8_t val8;
	uint16_t val16;
	uint32_t val32;
	uint64_t val64;
	uint8_t *data;
};

/* A memory write that triggers an operation from an accelerator, fi_trigger(3). */
struct fi_trigger_var {
	enum fi_datatype datatype;
	int count;
	void *addr;
	union fi_trigger_var_value value;
};

/* The device that triggers an operation, by `iface`. */
union fi_trigger_xpu_device {
	uint64_t reserved;
	int cuda;
	int ze;
};

/* The memory writes by which an accelerator triggers an operation, fi_trigger(3). */
struct fi_trigger_xpu {
	int count;
	enum fi_hmem_iface iface;
	union fi_trigger_xpu_device device;
	struct fi_trigger_var *var;
};

/* The condition that triggers the operation, by `event_type`. */
union fi_triggered_context_trigger {
	struct fi_trigger_threshold threshold;
	struct fi_trigger_xpu xpu;
	void *internal[3];
};

/* The context of a triggered operation, fi_trigger(3). */
struct fi_triggered_context {
	enum fi_trigger_event event_type;
	union fi_triggered_context_trigger trigger;
};

/* The condition that triggers the operation, by `event_type`. */
union fi_triggered_context2_trigger {
	struct fi_trigger_threshold threshold;
	struct fi_trigger_xpu xpu;
	void *internal[7];
};

/* The context of a triggered operation in mode `FI_CONTEXT2`, fi_trigger(3). */
struct fi_triggered_context2 {
	enum fi_trigger_event event_type;
	union fi_triggered_context2_trigger trigger;
};

#ifdef __cplusplus
}
#endif

#endif /* RDMA_FI_TRIGGER_H */
