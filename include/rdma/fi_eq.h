/* Written by `make headers` from the abi crate. Change abi/, not this file. */

/*
 * Event queues, completion queues, counters, wait and poll sets: fi_eq(3), fi_cq(3),
 * fi_cntr(3), fi_poll(3).
 */
#ifndef RDMA_FI_EQ_H
#define RDMA_FI_EQ_H

#include <poll.h>
#include <pthread.h>
#include <rdma/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fi_info;
struct fid;
struct fid_cntr;
struct fid_cq;
struct fid_eq;
struct fid_poll;
struct fid_wait;
struct fid_xpu_cntr;
struct fid_xpu_cq;
struct fid_xpu_ctx;
struct pollfd;

/* Formats of completions, fi_cq(3). */
enum fi_cq_format {
	FI_CQ_FORMAT_UNSPEC,
	FI_CQ_FORMAT_CONTEXT,
	FI_CQ_FORMAT_MSG,
	FI_CQ_FORMAT_DATA,
	FI_CQ_FORMAT_TAGGED,
};

/* Wait objects, fi_cq(3). */
enum fi_wait_obj {
	FI_WAIT_NONE,
	/* The provider chooses; only calls of the library can wait. */
	FI_WAIT_UNSPEC,
	FI_WAIT_SET,
	/* A descriptor that `FI_GETWAIT` returns. */
	FI_WAIT_FD,
	FI_WAIT_MUTEX_COND,
	/* Waiting calls poll and yield the processor. */
	FI_WAIT_YIELD,
	FI_WAIT_POLLFD,
};

/* Conditions that fi_cq_sread waits for, fi_cq(3). */
enum fi_cq_wait_cond {
	FI_CQ_COND_NONE,
	FI_CQ_COND_THRESHOLD,
};

/* Events that a counter counts, fi_cntr(3). */
enum fi_cntr_events {
	FI_CNTR_EVENTS_COMP,
	FI_CNTR_EVENTS_BYTES,
};

/* Events of an event queue, fi_eq(3). */
enum {
	FI_NOTIFY,
	FI_CONNREQ,
	FI_CONNECTED,
	FI_SHUTDOWN,
	FI_MR_COMPLETE,
	FI_AV_COMPLETE,
	FI_JOIN_COMPLETE,
};

/* Operations of a wait set, fi_poll(3). */
struct fi_ops_wait {
	size_t size;
	int (*wait)(struct fid_wait *waitset, int timeout);
};

/* A wait set, fi_poll(3). */
struct fid_wait {
	struct fid fid;
	struct fi_ops_wait *ops;
};

/* Attributes of a completion queue, fi_cq(3). */
struct fi_cq_attr {
	/* Number of completions for which the queue has space at least; 0: the provider chooses. */
	size_t size;
	uint64_t flags;
	enum fi_cq_format format;
	enum fi_wait_obj wait_obj;
	/* Interrupt affinity, with `FI_AFFINITY`. */
	int signaling_vector;
	enum fi_cq_wait_cond wait_cond;
	/* The wait set to join, with `FI_WAIT_SET`. */
	struct fid_wait *wait_set;
	struct fid_xpu_ctx *xpu_ctx;
};

/* An operation that failed, fi_cq(3). */
struct fi_cq_err_entry {
	/* Context of the operation. */
	void *op_context;
	uint64_t flags;
	size_t len;
	void *buf;
	uint64_t data;
	uint64_t tag;
	/* Number of bytes that did not fit, of a truncated message. */
	size_t olen;
	/* The error: a positive error number. */
	int err;
	/* The provider's error number, for fi_cq_strerror. */
	int prov_errno;
	/* Additional data of the provider; valid until the queue is read again, unless the caller provides a buffer. */
	void *err_data;
	/* Size of `err_data` in bytes; before the call, size of the caller's buffer. */
	size_t err_data_size;
	/* The peer, with `FI_SOURCE_ERR`. */
	fi_addr_t src_addr;
};

/* Operations of a completion queue, fi_cq(3). */
struct fi_ops_cq {
	size_t size;
	ssize_t (*read)(struct fid_cq *cq, void *buf, size_t count);
	ssize_t (*readfrom)(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr);
	ssize_t (*readerr)(struct fid_cq *cq, struct fi_cq_err_entry *buf, uint64_t flags);
	ssize_t (*sread)(struct fid_cq *cq, void *buf, size_t count, const void *cond, int timeout);
	ssize_t (*sreadfrom)(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr,
			     const void *cond, int timeout);
	int (*signal)(struct fid_cq *cq);
	const char *(*strerror)(struct fid_cq *cq, int prov_errno, const void *err_data, char *buf,
				size_t len);
	int (*export_xpu)(struct fid_cq *cq, uint64_t flags, struct fid_xpu_cq *xpu_cq);
};

/* A completion queue, fi_cq(3). */
struct fid_cq {
	struct fid fid;
	struct fi_ops_cq *ops;
};

/* Attributes of a counter: its events and its wait object, fi_cntr(3). */
struct fi_cntr_attr {
	enum fi_cntr_events events;
	enum fi_wait_obj wait_obj;
	/* The wait set to join, with `FI_WAIT_SET`. */
	struct fid_wait *wait_set;
	uint64_t flags;
	struct fid_xpu_ctx *xpu_ctx;
};

/* Operations of a counter, fi_cntr(3). */
struct fi_ops_cntr {
	size_t size;
	uint64_t (*read)(struct fid_cntr *cntr);
	uint64_t (*readerr)(struct fid_cntr *cntr);
	int (*add)(struct fid_cntr *cntr, uint64_t value);
	int (*set)(struct fid_cntr *cntr, uint64_t value);
	int (*wait)(struct fid_cntr *cntr, uint64_t threshold, int timeout);
	int (*adderr)(struct fid_cntr *cntr, uint64_t value);
	int (*seterr)(struct fid_cntr *cntr, uint64_t value);
	int (*export_xpu)(struct fid_cntr *cntr, uint64_t flags, struct fid_xpu_cntr *xpu_cntr);
};

/* A counter, fi_cntr(3). */
struct fid_cntr {
	struct fid fid;
	struct fi_ops_cntr *ops;
};

/* Attributes of a poll set, fi_poll(3). */
struct fi_poll_attr {
	uint64_t flags;
};

/* Operations of a poll set, fi_poll(3). */
struct fi_ops_poll {
	size_t size;
	int (*poll)(struct fid_poll *pollset, void **context, int count);
	int (*poll_add)(struct fid_poll *pollset, struct fid *event_fid, uint64_t flags);
	int (*poll_del)(struct fid_poll *pollset, struct fid *event_fid, uint64_t flags);
};

/* A poll set, fi_poll(3). */
struct fid_poll {
	struct fid fid;
	struct fi_ops_poll *ops;
};

/* Attributes of an event queue, fi_eq(3). */
struct fi_eq_attr {
	/* Number of events for which the queue has space at least; 0: the provider chooses. */
	size_t size;
	uint64_t flags;
	enum fi_wait_obj wait_obj;
	int signaling_vector;
	/* The wait set to join, with `FI_WAIT_SET`. */
	struct fid_wait *wait_set;
};

/* A control operation that failed, fi_eq(3). */
struct fi_eq_err_entry {
	fid_t fid;
	void *context;
	uint64_t data;
	/* The error: a positive error number. */
	int err;
	/* The provider's error number, for fi_eq_strerror. */
	int prov_errno;
	void *err_data;
	size_t err_data_size;
};

/* Operations of an event queue, fi_eq(3). */
struct fi_ops_eq {
	size_t size;
	ssize_t (*read)(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags);
	ssize_t (*readerr)(struct fid_eq *eq, struct fi_eq_err_entry *buf, uint64_t flags);
	ssize_t (*write)(struct fid_eq *eq, uint32_t event, const void *buf, size_t len,
			 uint64_t flags);
	ssize_t (*sread)(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, int timeout,
			 uint64_t flags);
	const char *(*strerror)(struct fid_eq *eq, int prov_errno, const void *err_data, char *buf,
				size_t len);
};

/* An event queue, fi_eq(3). */
struct fid_eq {
	struct fid fid;
	struct fi_ops_eq *ops;
};

/* Attributes of a wait set, fi_poll(3). */
struct fi_wait_attr {
	enum fi_wait_obj wait_obj;
	uint64_t flags;
};

/* A completion in `FI_CQ_FORMAT_DATA`, fi_cq(3). */
struct fi_cq_data_entry {
	/* Context of the operation. */
	void *op_context;
	/* Kind of the operation and its properties: `FI_SEND`, `FI_REMOTE_CQ_DATA`... */
	uint64_t flags;
	/* Number of bytes received. */
	size_t len;
	/* Location of the data, in a multi-receive buffer. */
	void *buf;
	/* Immediate data, with `FI_REMOTE_CQ_DATA`. */
	uint64_t data;
};

/* A completion in `FI_CQ_FORMAT_CONTEXT`, fi_cq(3). */
struct fi_cq_entry {
	/* Context of the operation. */
	void *op_context;
};

/* A completion in `FI_CQ_FORMAT_MSG`, fi_cq(3). */
struct fi_cq_msg_entry {
	/* Context of the operation. */
	void *op_context;
	/* Kind of the operation and its properties: `FI_SEND`, `FI_REMOTE_CQ_DATA`... */
	uint64_t flags;
	/* Number of bytes received. */
	size_t len;
};

/* A completion in `FI_CQ_FORMAT_TAGGED`, fi_cq(3). */
struct fi_cq_tagged_entry {
	/* Context of the operation. */
	void *op_context;
	/* Kind of the operation and its properties: `FI_SEND`, `FI_REMOTE_CQ_DATA`... */
	uint64_t flags;
	/* Number of bytes received. */
	size_t len;
	/* Location of the data, in a multi-receive buffer. */
	void *buf;
	/* Immediate data, with `FI_REMOTE_CQ_DATA`. */
	uint64_t data;
	/* Tag of the message. */
	uint64_t tag;
};

/* A connection event, followed by the peer's connection data, fi_eq(3). */
__extension__ struct fi_eq_cm_entry {
	fid_t fid;
	/* Attributes with which to answer a connection request; the reader frees them. */
	struct fi_info *info;
	uint8_t data[];
};

/* The completion of a control operation, fi_eq(3). */
struct fi_eq_entry {
	fid_t fid;
	void *context;
	uint64_t data;
};

/* Result of `FI_GETWAIT` for `FI_WAIT_MUTEX_COND`, fi_cq(3). */
struct fi_mutex_cond {
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
};

/* Result of `FI_GETWAIT` for `FI_WAIT_POLLFD`, fi_cq(3). */
struct fi_wait_pollfd {
	uint64_t change_index;
	size_t nfds;
	struct pollfd *fd;
};

/* Wait and poll sets, fi_poll(3). Deprecated since 2.0, all but fi_trywait. */
static inline int
fi_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	return fabric->ops->trywait(fabric, fids, count);
}

static inline int
fi_wait(struct fid_wait *waitset, int timeout)
{
	return waitset->ops->wait(waitset, timeout);
}

static inline int
fi_poll(struct fid_poll *pollset, void **context, int count)
{
	return pollset->ops->poll(pollset, context, count);
}

static inline int
fi_poll_add(struct fid_poll *pollset, struct fid *event_fid, uint64_t flags)
{
	return pollset->ops->poll_add(pollset, event_fid, flags);
}

static inline int
fi_poll_del(struct fid_poll *pollset, struct fid *event_fid, uint64_t flags)
{
	return pollset->ops->poll_del(pollset, event_fid, flags);
}

/* Event queues, fi_eq(3). */
static inline int
fi_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context)
{
	return fabric->ops->eq_open(fabric, attr, eq, context);
}

static inline ssize_t
fi_eq_read(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
	return eq->ops->read(eq, event, buf, len, flags);
}

static inline ssize_t
fi_eq_readerr(struct fid_eq *eq, struct fi_eq_err_entry *buf, uint64_t flags)
{
	return eq->ops->readerr(eq, buf, flags);
}

static inline ssize_t
fi_eq_write(struct fid_eq *eq, uint32_t event, const void *buf, size_t len, uint64_t flags)
{
	return eq->ops->write(eq, event, buf, len, flags);
}

static inline ssize_t
fi_eq_sread(struct fid_eq *eq, uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags)
{
	return eq->ops->sread(eq, event, buf, len, timeout, flags);
}

static inline const char *
fi_eq_strerror(struct fid_eq *eq, int prov_errno, const void *err_data, char *buf, size_t len)
{
	return eq->ops->strerror(eq, prov_errno, err_data, buf, len);
}

/* Completion queues, fi_cq(3). */
static inline ssize_t
fi_cq_read(struct fid_cq *cq, void *buf, size_t count)
{
	return cq->ops->read(cq, buf, count);
}

static inline ssize_t
fi_cq_readfrom(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr)
{
	return cq->ops->readfrom(cq, buf, count, src_addr);
}

/* The source is set first: providers older than the member do not write it. */
static inline ssize_t
fi_cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *buf, uint64_t flags)
{
	if (buf != NULL)
		buf->src_addr = FI_ADDR_NOTAVAIL;
	return cq->ops->readerr(cq, buf, flags);
}

static inline ssize_t
fi_cq_sread(struct fid_cq *cq, void *buf, size_t count, const void *cond, int timeout)
{
	return cq->ops->sread(cq, buf, count, cond, timeout);
}

static inline ssize_t
fi_cq_sreadfrom(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr, const void *cond,
		int timeout)
{
	return cq->ops->sreadfrom(cq, buf, count, src_addr, cond, timeout);
}

static inline int
fi_cq_signal(struct fid_cq *cq)
{
	return cq->ops->signal(cq);
}

static inline const char *
fi_cq_strerror(struct fid_cq *cq, int prov_errno, const void *err_data, char *buf, size_t len)
{
	return cq->ops->strerror(cq, prov_errno, err_data, buf, len);
}

static inline int
fi_cq_export_xpu(struct fid_cq *cq, uint64_t flags, struct fid_xpu_cq *xpu_cq)
{
	return cq->ops->export_xpu(cq, flags, xpu_cq);
}

/* Counters, fi_cntr(3). */
static inline uint64_t
fi_cntr_read(struct fid_cntr *cntr)
{
	return cntr->ops->read(cntr);
}

static inline uint64_t
fi_cntr_readerr(struct fid_cntr *cntr)
{
	return cntr->ops->readerr(cntr);
}

static inline int
fi_cntr_add(struct fid_cntr *cntr, uint64_t value)
{
	return cntr->ops->add(cntr, value);
}

static inline int
fi_cntr_adderr(struct fid_cntr *cntr, uint64_t value)
{
	if (!FI_CHECK_OP(cntr->ops, struct fi_ops_cntr, adderr))
		return -FI_ENOSYS;
	return cntr->ops->adderr(cntr, value);
}

static inline int
fi_cntr_set(struct fid_cntr *cntr, uint64_t value)
{
	return cntr->ops->set(cntr, value);
}

static inline int
fi_cntr_seterr(struct fid_cntr *cntr, uint64_t value)
{
	if (!FI_CHECK_OP(cntr->ops, struct fi_ops_cntr, seterr))
		return -FI_ENOSYS;
	return cntr->ops->seterr(cntr, value);
}

static inline int
fi_cntr_wait(struct fid_cntr *cntr, uint64_t threshold, int timeout)
{
	return cntr->ops->wait(cntr, threshold, timeout);
}

static inline int
fi_cntr_export_xpu(struct fid_cntr *cntr, uint64_t flags, struct fid_xpu_cntr *xpu_cntr)
{
	return cntr->ops->export_xpu(cntr, flags, xpu_cntr);
}

#ifdef __cplusplus
}
#endif

#endif /* RDMA_FI_EQ_H */
