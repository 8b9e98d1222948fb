/* Written by `make headers` from the abi crate. Change abi/, not this file. */

/*
 * Objects, attributes and the entry points of the library: fabric(7), fi_getinfo(3),
 * fi_fabric(3).
 */
#ifndef RDMA_FABRIC_H
#define RDMA_FABRIC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <rdma/fi_errno.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What programs mark their own declarations with. */
#if defined(__GNUC__)
#define FI_FORMAT_PRINTF(string, first) __attribute__((format(printf, string, first)))
#define FI_DEPRECATED_FUNC	__attribute__((deprecated))
#define FI_DEPRECATED_FIELD	__attribute__((deprecated))
#else
#define FI_FORMAT_PRINTF(string, first)
#define FI_DEPRECATED_FUNC
#define FI_DEPRECATED_FIELD
#endif

/* Versions of the interface: major in the upper, minor in the lower 16 bits, fi_version(3). */
#define FI_VERSION(major, minor)	(((major) << 16) | (minor))
#define FI_MAJOR(version)		((version) >> 16)
#define FI_MINOR(version)		((version) & 0xffff)
#define FI_VERSION_GE(a, b)		((a) >= (b))
#define FI_VERSION_LT(a, b)		((a) < (b))

/*
 * Whether a table of operations has a slot: the provider may have been built when the table was
 * shorter, or may have left the slot empty.
 */
#define FI_CHECK_OP(ops, table, slot) \
	((ops)->size > offsetof(table, slot) && (ops)->slot != NULL)

struct fi_eq_attr;
struct fi_info;
struct fi_wait_attr;
struct fid;
struct fid_domain;
struct fid_ep;
struct fid_eq;
struct fid_fabric;
struct fid_pep;
struct fid_wait;
struct fid_xpu_ctx;

/* Version of the interface that these declarations describe. */
#define FI_MAJOR_VERSION	2
#define FI_MINOR_VERSION	6
#define FI_REVISION_VERSION	0

/* Capabilities and operations, fi_getinfo(3). */
#define FI_MSG			(1ULL << 1)
#define FI_RMA			(1ULL << 2)
#define FI_TAGGED		(1ULL << 3)
#define FI_ATOMIC		(1ULL << 4)
#define FI_ATOMICS		(1ULL << 4)
#define FI_MULTICAST		(1ULL << 5)
#define FI_COLLECTIVE		(1ULL << 6)

/* Directions, as capabilities, access rights and completion flags. */
#define FI_READ			(1ULL << 8)
#define FI_WRITE		(1ULL << 9)
#define FI_RECV			(1ULL << 10)
#define FI_SEND			(1ULL << 11)
#define FI_TRANSMIT		(1ULL << 11)
#define FI_REMOTE_READ		(1ULL << 12)
#define FI_REMOTE_WRITE		(1ULL << 13)

/* Operation flags, fi_endpoint(3). */
#define FI_MULTI_RECV		(1ULL << 16)
#define FI_REMOTE_CQ_DATA	(1ULL << 17)
#define FI_MORE			(1ULL << 18)
#define FI_PEEK			(1ULL << 19)
#define FI_TRIGGER		(1ULL << 20)
#define FI_FENCE		(1ULL << 21)
#define FI_COMPLETION		(1ULL << 24)
#define FI_EVENT		(1ULL << 24)
#define FI_INJECT		(1ULL << 25)
#define FI_INJECT_COMPLETE	(1ULL << 26)
#define FI_TRANSMIT_COMPLETE	(1ULL << 27)
#define FI_DELIVERY_COMPLETE	(1ULL << 28)
#define FI_AFFINITY		(1ULL << 29)
#define FI_COMMIT_COMPLETE	(1ULL << 30)
#define FI_MATCH_COMPLETE	(1ULL << 31)
#define FI_CLAIM		(1ULL << 59)
#define FI_DISCARD		(1ULL << 58)
#define FI_AUTH_KEY		(1ULL << 57)

/* Flags of calls other than transfers. */
#define FI_RESCAN		(1ULL << 35)
#define FI_PEER_TRANSFER	(1ULL << 36)
#define FI_AV_USER_ID		(1ULL << 41)
#define FI_FIREWALL_ADDR	(1ULL << 42)
#define FI_PEER			(1ULL << 43)
#define FI_SELECTIVE_COMPLETION	(1ULL << 59)

/* Capabilities that refine the ones above, fi_getinfo(3). */
#define FI_XPU			(1ULL << 44)
#define FI_TAGGED_DIRECTED_RECV	(1ULL << 45)
#define FI_TAGGED_MULTI_RECV	(1ULL << 46)
#define FI_HMEM			(1ULL << 47)
#define FI_EXACT_DIRECTED_RECV	(1ULL << 48)
#define FI_RMA_PMEM		(1ULL << 49)
#define FI_SOURCE_ERR		(1ULL << 50)
#define FI_LOCAL_COMM		(1ULL << 51)
#define FI_REMOTE_COMM		(1ULL << 52)
#define FI_SHARED_AV		(1ULL << 53)
#define FI_RMA_EVENT		(1ULL << 56)
#define FI_SOURCE		(1ULL << 57)
#define FI_NAMED_RX_CTX		(1ULL << 58)
#define FI_DIRECTED_RECV	(1ULL << 59)

/* Mode bits: what the application does for the provider, fi_getinfo(3). */
#define FI_CONTEXT2		(1ULL << 52)
#define FI_LOCAL_MR		(1ULL << 55)
#define FI_RX_CQ_DATA		(1ULL << 56)
#define FI_ASYNC_IOV		(1ULL << 57)
#define FI_MSG_PREFIX		(1ULL << 58)
#define FI_CONTEXT		(1ULL << 59)

/* Flags of fi_getinfo(3). */
#define FI_NUMERICHOST		(1ULL << 55)
#define FI_PROV_ATTR_ONLY	(1ULL << 54)

/* Memory registration modes, fi_mr(3). */
#define FI_MR_UNSPEC		0
#define FI_MR_BASIC		(1 << 0)
#define FI_MR_SCALABLE		(1 << 1)
#define FI_MR_LOCAL		(1 << 2)
#define FI_MR_RAW		(1 << 3)
#define FI_MR_VIRT_ADDR		(1 << 4)
#define FI_MR_ALLOCATED		(1 << 5)
#define FI_MR_PROV_KEY		(1 << 6)
#define FI_MR_MMU_NOTIFY	(1 << 7)
#define FI_MR_RMA_EVENT		(1 << 8)
#define FI_MR_ENDPOINT		(1 << 9)
#define FI_MR_HMEM		(1 << 10)
#define FI_MR_COLLECTIVE	(1 << 11)
#define FI_MR_XPU_DESC		(1 << 12)

/*
 * Message and completion order, fi_endpoint(3). `FI_ORDER_RAW`: a read after a write is processed
 * after it.
 */
#define FI_ORDER_NONE		0ULL
#define FI_ORDER_RAR		(1ULL << 0)
#define FI_ORDER_RAW		(1ULL << 1)
#define FI_ORDER_RAS		(1ULL << 2)
#define FI_ORDER_WAR		(1ULL << 3)
#define FI_ORDER_WAW		(1ULL << 4)
#define FI_ORDER_WAS		(1ULL << 5)
#define FI_ORDER_SAR		(1ULL << 6)
#define FI_ORDER_SAW		(1ULL << 7)
#define FI_ORDER_SAS		(1ULL << 8)
#define FI_ORDER_STRICT		0x1ffULL
#define FI_ORDER_RMA_RAR	(1ULL << 32)
#define FI_ORDER_RMA_RAW	(1ULL << 33)
#define FI_ORDER_RMA_WAR	(1ULL << 34)
#define FI_ORDER_RMA_WAW	(1ULL << 35)
#define FI_ORDER_ATOMIC_RAR	(1ULL << 36)
#define FI_ORDER_ATOMIC_RAW	(1ULL << 37)
#define FI_ORDER_ATOMIC_WAR	(1ULL << 38)
#define FI_ORDER_ATOMIC_WAW	(1ULL << 39)
#define FI_ORDER_DATA		(1ULL << 16)

/*
 * Special values: no address, no key, a context that is shared, a key that is taken from the
 * address vector.
 */
#define FI_ADDR_UNSPEC		UINT64_MAX
#define FI_ADDR_NOTAVAIL	UINT64_MAX
#define FI_KEY_NOTAVAIL		UINT64_MAX
#define FI_SHARED_CONTEXT	SIZE_MAX
#define FI_AV_AUTH_KEY		SIZE_MAX

/* Names of the 1.x interface that have no effect. */
#define FI_VARIABLE_MSG		0ULL
#define FI_NOTIFY_FLAGS_ONLY	0ULL
#define FI_RESTRICTED_COMP	0ULL
#define FI_EP_SOCK_STREAM	FI_EP_UNSPEC

/* Endpoint types, fi_endpoint(3). */
enum fi_ep_type {
	FI_EP_UNSPEC,
	/* Connected; reliable, in order. */
	FI_EP_MSG,
	/* Connectionless; messages may be lost. */
	FI_EP_DGRAM,
	/* Connectionless; reliable. */
	FI_EP_RDM,
};

/* How the addresses of an address vector are chosen, fi_av(3). */
enum fi_av_type {
	FI_AV_UNSPEC,
	/* The provider chooses the addresses. */
	FI_AV_MAP,
	/* Addresses are indexes, in the order of insertion. */
	FI_AV_TABLE,
};

/* How an application's threads may use objects, fi_domain(3). */
enum fi_threading {
	FI_THREAD_UNSPEC,
	/* Any thread may use any object at any time. */
	FI_THREAD_SAFE,
	/* One thread at a time uses an object. */
	FI_THREAD_FID,
	/* One thread at a time uses a domain and the objects that were opened from it. */
	FI_THREAD_DOMAIN,
	/* One thread at a time uses an endpoint and the queues to which it reports completions. */
	FI_THREAD_COMPLETION,
	/* One thread at a time uses an endpoint; any thread may use a queue. */
	FI_THREAD_ENDPOINT,
};

/* Who makes progress for operations, fi_domain(3). */
enum fi_progress {
	FI_PROGRESS_UNSPEC,
	/* Operations make progress without calls by the application. */
	FI_PROGRESS_AUTO,
	/* Operations make progress while the application is in a call. */
	FI_PROGRESS_MANUAL,
	/* Control operations make progress with data transfers. */
	FI_PROGRESS_CONTROL_UNIFIED,
};

/* Whether the provider protects its queues from overrun, fi_domain(3). */
enum fi_resource_mgmt {
	FI_RM_UNSPEC,
	/* The application makes sure that no queue overruns. */
	FI_RM_DISABLED,
	/* The provider returns `-FI_EAGAIN` before a queue overruns. */
	FI_RM_ENABLED,
};

/* Kind of bus, fi_nic(3). */
enum fi_bus_type {
	FI_BUS_UNKNOWN,
	FI_BUS_UNSPEC = 0,
	FI_BUS_PCI,
};

/* State of a link, fi_nic(3). */
enum fi_link_state {
	FI_LINK_UNKNOWN,
	FI_LINK_DOWN,
	FI_LINK_UP,
};

/* Types of parameters, fi_provider(3). */
enum fi_param_type {
	FI_PARAM_STRING,
	FI_PARAM_INT,
	FI_PARAM_BOOL,
	FI_PARAM_SIZE_T,
};

/* Types that fi_tostr formats, fi_getinfo(3). */
enum fi_type {
	FI_TYPE_INFO,
	FI_TYPE_EP_TYPE,
	FI_TYPE_CAPS,
	FI_TYPE_OP_FLAGS,
	FI_TYPE_ADDR_FORMAT,
	FI_TYPE_TX_ATTR,
	FI_TYPE_RX_ATTR,
	FI_TYPE_EP_ATTR,
	FI_TYPE_DOMAIN_ATTR,
	FI_TYPE_FABRIC_ATTR,
	FI_TYPE_THREADING,
	FI_TYPE_PROGRESS,
	FI_TYPE_PROTOCOL,
	FI_TYPE_MSG_ORDER,
	FI_TYPE_MODE,
	FI_TYPE_AV_TYPE,
	FI_TYPE_ATOMIC_TYPE,
	FI_TYPE_ATOMIC_OP,
	FI_TYPE_VERSION,
	FI_TYPE_EQ_EVENT,
	FI_TYPE_CQ_EVENT_FLAGS,
	FI_TYPE_MR_MODE,
	FI_TYPE_OP_TYPE,
	FI_TYPE_FID,
	FI_TYPE_COLLECTIVE_OP,
	FI_TYPE_HMEM_IFACE,
	FI_TYPE_CQ_FORMAT,
	FI_TYPE_LOG_LEVEL,
	FI_TYPE_LOG_SUBSYS,
	FI_TYPE_AV_ATTR,
	FI_TYPE_CQ_ATTR,
	FI_TYPE_MR_ATTR,
	FI_TYPE_CNTR_ATTR,
	FI_TYPE_CQ_ERR_ENTRY,
	FI_TYPE_CQ_WAIT_COND,
	FI_TYPE_WAIT_OBJ,
};

/* Address formats (`fi_info::addr_format`), fi_getinfo(3). */
enum {
	FI_FORMAT_UNSPEC,
	FI_SOCKADDR,
	FI_SOCKADDR_IN,
	FI_SOCKADDR_IN6,
	FI_SOCKADDR_IB,
	FI_ADDR_PSMX,
	FI_ADDR_GNI,
	FI_ADDR_BGQ,
	FI_ADDR_MLX,
	FI_ADDR_STR,
	FI_ADDR_PSMX2,
	FI_ADDR_IB_UD,
	FI_ADDR_EFA,
	FI_ADDR_PSMX3,
	FI_ADDR_OPX,
	FI_ADDR_CXI,
	FI_ADDR_UCX,
	FI_SOCKADDR_IP,
};

/* Wire protocols (`fi_ep_attr::protocol`), fi_endpoint(3). */
enum {
	FI_PROTO_UNSPEC,
	FI_PROTO_RDMA_CM_IB_RC,
	FI_PROTO_IWARP,
	FI_PROTO_IB_UD,
	FI_PROTO_PSMX,
	FI_PROTO_UDP,
	FI_PROTO_SOCK_TCP,
	FI_PROTO_MXM,
	FI_PROTO_IWARP_RDM,
	FI_PROTO_IB_RDM,
	FI_PROTO_GNI,
	FI_PROTO_RXM,
	FI_PROTO_RXD,
	FI_PROTO_MLX,
	FI_PROTO_NETWORKDIRECT,
	FI_PROTO_PSMX2,
	FI_PROTO_SHM,
	FI_PROTO_MRAIL,
	FI_PROTO_RSTREAM,
	FI_PROTO_RDMA_CM_IB_XRC,
	FI_PROTO_EFA,
	FI_PROTO_PSMX3,
	FI_PROTO_RXM_TCP,
	FI_PROTO_OPX,
	FI_PROTO_CXI,
	FI_PROTO_XNET,
	FI_PROTO_COLL,
	FI_PROTO_UCX,
	FI_PROTO_SM2,
	FI_PROTO_CXI_RNR,
	FI_PROTO_LPP,
	FI_PROTO_LNX,
};

/* Tag formats (`fi_ep_attr::mem_tag_format`), fi_endpoint(3). */
enum {
	FI_TAG_BITS,
	FI_TAG_MPI,
	FI_TAG_CCL,
	FI_TAG_MAX_FORMAT = 65536,
};

/* Traffic classes (`tclass`), fi_endpoint(3). */
enum {
	FI_TC_UNSPEC,
	FI_TC_DSCP = 256,
	FI_TC_BEST_EFFORT = 512,
	FI_TC_LABEL = 512,
	FI_TC_LOW_LATENCY,
	FI_TC_DEDICATED_ACCESS,
	FI_TC_BULK_DATA,
	FI_TC_SCAVENGER,
	FI_TC_NETWORK_CTRL,
};

/* Object classes (`fid::fclass`). */
enum {
	FI_CLASS_UNSPEC,
	FI_CLASS_FABRIC,
	FI_CLASS_DOMAIN,
	FI_CLASS_EP,
	FI_CLASS_SEP,
	FI_CLASS_RX_CTX,
	FI_CLASS_SRX_CTX,
	FI_CLASS_TX_CTX,
	FI_CLASS_STX_CTX,
	FI_CLASS_PEP,
	FI_CLASS_INTERFACE,
	FI_CLASS_AV,
	FI_CLASS_MR,
	FI_CLASS_EQ,
	FI_CLASS_CQ,
	FI_CLASS_CNTR,
	FI_CLASS_WAIT,
	FI_CLASS_POLL,
	FI_CLASS_CONNREQ,
	FI_CLASS_MC,
	FI_CLASS_NIC,
	FI_CLASS_AV_SET,
	FI_CLASS_MR_CACHE,
	FI_CLASS_MEM_MONITOR,
	FI_CLASS_PEER_CQ,
	FI_CLASS_PEER_SRX,
	FI_CLASS_LOG,
	FI_CLASS_PEER_AV,
	FI_CLASS_PEER_AV_SET,
	FI_CLASS_PEER_CNTR,
	FI_CLASS_PROFILE,
	FI_CLASS_XPU_CTX,
};

/* Commands of fi_control(3). */
enum {
	FI_GETFIDFLAG,
	FI_SETFIDFLAG,
	FI_GETOPSFLAG,
	FI_SETOPSFLAG,
	FI_ALIAS,
	FI_GETWAIT,
	FI_ENABLE,
	FI_BACKLOG,
	FI_GET_RAW_MR,
	FI_MAP_RAW_MR,
	FI_UNMAP_KEY,
	FI_QUEUE_WORK,
	FI_CANCEL_WORK,
	FI_FLUSH_WORK,
	FI_REFRESH,
	FI_DUP,
	FI_GETWAITOBJ,
	FI_GET_VAL,
	FI_SET_VAL,
	FI_EXPORT_FID,
	FI_GET_FD,
	FI_GET_MR_XPU_DESC,
};

/* Limits of the 1.x interface. */
enum {
	FI_DATATYPE_LAST = 14,
	FI_ATOMIC_OP_LAST = 19,
	FI_NAME_MAX = 64,
};

/* Operations on every object. */
struct fi_ops {
	size_t size;
	int (*close)(struct fid *fid);
	int (*bind)(struct fid *fid, struct fid *bfid, uint64_t flags);
	int (*control)(struct fid *fid, int command, void *arg);
	int (*ops_open)(struct fid *fid, const char *name, uint64_t flags, void **ops,
			void *context);
	int (*tostr)(const struct fid *fid, char *buf, size_t len);
	int (*ops_set)(struct fid *fid, const char *name, uint64_t flags, void *ops, void *context);
};

/*
 * The first member of every object: its class, the application's context and the operations that
 * all objects have.
 */
struct fid {
	/* Class of the object: `FI_CLASS_*`. */
	size_t fclass;
	/* The application's context of the object, an argument of the call that opened it. */
	void *context;
	struct fi_ops *ops;
};

/* A reference to any object. */
typedef struct fid *fid_t;

/* Attributes of the transmit side of an endpoint, fi_endpoint(3). */
struct fi_tx_attr {
	uint64_t caps;
	uint64_t mode;
	/* Default flags of operations. */
	uint64_t op_flags;
	/* Order in which the peer processes messages: `FI_ORDER_*`. */
	uint64_t msg_order;
	/* Order of completions: `FI_ORDER_*`. */
	uint64_t comp_order;
	/* Size in bytes of the largest message of the inject calls. */
	size_t inject_size;
	/* Largest number of outstanding operations, each of the largest kind. */
	size_t size;
	/* Largest number of local buffers of one operation. */
	size_t iov_limit;
	/* Largest number of remote buffers of one operation. */
	size_t rma_iov_limit;
	/* Traffic class, `FI_TC_*`. */
	uint32_t tclass;
};

/* Attributes of the receive side of an endpoint, fi_endpoint(3). */
struct fi_rx_attr {
	uint64_t caps;
	uint64_t mode;
	/* Default flags of operations. */
	uint64_t op_flags;
	/* Order in which messages are processed: `FI_ORDER_*`. */
	uint64_t msg_order;
	/* Order of completions: `FI_ORDER_*`. */
	uint64_t comp_order;
	/* Number of bytes of unexpected messages that are buffered; of the 1.x interface. */
	size_t total_buffered_recv;
	/* Largest number of posted receives. */
	size_t size;
	/* Largest number of buffers of one receive. */
	size_t iov_limit;
};

/* Attributes of an endpoint: type, protocol and size limits in bytes, fi_endpoint(3). */
struct fi_ep_attr {
	enum fi_ep_type type;
	/* The wire protocol, one of `FI_PROTO_*`; peers need the same one. */
	uint32_t protocol;
	/* Version of the protocol, which the provider defines. */
	uint32_t protocol_version;
	/* Size of the largest message in bytes. */
	size_t max_msg_size;
	/* Number of bytes that the provider needs before a message, in mode `FI_MSG_PREFIX`. */
	size_t msg_prefix_size;
	/* Size in bytes of the largest transfer that keeps read-after-write order. */
	size_t max_order_raw_size;
	/* Size in bytes of the largest transfer that keeps write-after-read order. */
	size_t max_order_war_size;
	/* Size in bytes of the largest transfer that keeps write-after-write order. */
	size_t max_order_waw_size;
	/* Mask of the significant bits of a tag, or one of `FI_TAG_*`. */
	uint64_t mem_tag_format;
	/* Number of transmit contexts, or `FI_SHARED_CONTEXT`. */
	size_t tx_ctx_cnt;
	/* Number of receive contexts, or `FI_SHARED_CONTEXT`. */
	size_t rx_ctx_cnt;
	/* Size of `auth_key` in bytes, or `FI_AV_AUTH_KEY`. */
	size_t auth_key_size;
	uint8_t *auth_key;
	/* Accelerator context of the endpoint, or null. */
	struct fid_xpu_ctx *xpu_ctx;
};

/* An address in an address vector; opaque to the application, fi_av(3). */
typedef uint64_t fi_addr_t;

/*
 * An element of the local vector of atomic and collective operations, whose length counts
 * elements, not bytes, fi_atomic(3).
 */
struct fi_ioc {
	void *addr;
	size_t count;
};

/* Attributes of a domain: progress, threading, limits and capabilities, fi_domain(3). */
struct fi_domain_attr {
	/* An open domain to use, or null. */
	struct fid_domain *domain;
	char *name;
	/* How the application's threads may use objects of the domain. */
	enum fi_threading threading;
	/* Who makes progress for connection management and other control operations. */
	enum fi_progress control_progress;
	/* Who makes progress for data transfers; also called `data_progress`. */
	__extension__ union {
		enum fi_progress data_progress;
		enum fi_progress progress;
	};
	enum fi_resource_mgmt resource_mgmt;
	enum fi_av_type av_type;
	/* Requirements of memory registration: `FI_MR_*` bits. */
	int mr_mode;
	/* Size of a registration key in bytes. */
	size_t mr_key_size;
	/* Size of a message's immediate data in bytes; 0: none. */
	size_t cq_data_size;
	/* Number of completion queues up to which performance is best; more may be possible. */
	size_t cq_cnt;
	/* Number of endpoints up to which performance is best; more may be possible. */
	size_t ep_cnt;
	/* Number of transmit contexts up to which performance is best; more may be possible. */
	size_t tx_ctx_cnt;
	/* Number of receive contexts up to which performance is best; more may be possible. */
	size_t rx_ctx_cnt;
	/* Largest number of transmit contexts of one scalable endpoint. */
	size_t max_ep_tx_ctx;
	/* Largest number of receive contexts of one scalable endpoint. */
	size_t max_ep_rx_ctx;
	/* Largest number of endpoints that share a transmit context; 0: sharing is not supported. */
	size_t max_ep_stx_ctx;
	/* Largest number of endpoints that share a receive context; 0: sharing is not supported. */
	size_t max_ep_srx_ctx;
	/* Number of counters up to which performance is best; more may be possible. */
	size_t cntr_cnt;
	/* Largest number of buffers of one registration. */
	size_t mr_iov_limit;
	/* Capabilities of the domain, such as `FI_LOCAL_COMM`. */
	uint64_t caps;
	/* Mode bits of the domain. */
	uint64_t mode;
	/* Default authorization key of the domain's objects; `auth_key_size` bytes. */
	uint8_t *auth_key;
	size_t auth_key_size;
	/* Largest size in bytes of the `err_data` of a completion error. */
	size_t max_err_data;
	/* Number of registrations up to which performance is best. */
	size_t mr_cnt;
	/* Default traffic class of the domain's endpoints. */
	uint32_t tclass;
	/* Largest number of authorization keys of one endpoint. */
	size_t max_ep_auth_key;
	/* Highest group number of `fi_group_addr`. */
	uint32_t max_group_id;
	/* Value after which a counter wraps to 0. */
	uint64_t max_cntr_value;
	/* Value after which an error count wraps to 0. */
	uint64_t max_err_cntr_value;
	/* Largest number of accelerator contexts. */
	size_t max_xpu_ctx_cnt;
};

/* Operations of a fabric, fi_fabric(3). */
struct fi_ops_fabric {
	size_t size;
	int (*domain)(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
		      void *context);
	int (*passive_ep)(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep,
			  void *context);
	int (*eq_open)(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq,
		       void *context);
	int (*wait_open)(struct fid_fabric *fabric, struct fi_wait_attr *attr,
			 struct fid_wait **waitset);
	int (*trywait)(struct fid_fabric *fabric, struct fid **fids, int count);
	int (*domain2)(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
		       uint64_t flags, void *context);
};

/* A fabric, fi_fabric(3). */
struct fid_fabric {
	struct fid fid;
	struct fi_ops_fabric *ops;
	uint32_t api_version;
};

/* Attributes of a fabric: its name and its provider, fi_fabric(3). */
struct fi_fabric_attr {
	/* An open fabric to use, or null. */
	struct fid_fabric *fabric;
	char *name;
	/* Name of the provider, or names of layered providers separated by semicolons. */
	char *prov_name;
	/* The provider's own version, packed as by `FI_VERSION`. */
	uint32_t prov_version;
	/* Interface version that the application requested. */
	uint32_t api_version;
};

/* Identity of a network device; each string may be absent, fi_nic(3). */
struct fi_device_attr {
	char *name;
	char *device_id;
	char *device_version;
	char *vendor_id;
	char *driver;
	char *firmware;
};

/* Address of a device on the PCI bus, fi_nic(3). */
struct fi_pci_attr {
	uint16_t domain_id;
	uint8_t bus_id;
	uint8_t device_id;
	uint8_t function_id;
};

/* Address of a device on its bus, by `bus_type`. */
union fi_bus_attr_detail {
	struct fi_pci_attr pci;
};

/* The bus that a network device sits on, fi_nic(3). */
struct fi_bus_attr {
	enum fi_bus_type bus_type;
	union fi_bus_attr_detail attr;
};

/* State of a network device's link, fi_nic(3). */
struct fi_link_attr {
	char *address;
	/* Size of the largest packet in bytes. */
	size_t mtu;
	/* Speed in bits per second. */
	size_t speed;
	enum fi_link_state state;
	char *network_type;
};

/* A network device in a result of fi_getinfo, fi_nic(3). */
struct fid_nic {
	struct fid fid;
	struct fi_device_attr *device_attr;
	struct fi_bus_attr *bus_attr;
	struct fi_link_attr *link_attr;
	void *prov_attr;
};

/*
 * Attributes of an endpoint and its objects, an element of a list: an argument of fi_getinfo as
 * hints, and its result, fi_getinfo(3).
 */
struct fi_info {
	/* The next element, which is less preferred, or null. */
	struct fi_info *next;
	/* Capabilities of the endpoint. */
	uint64_t caps;
	/* Mode bits: requirements that the application has to meet. */
	uint64_t mode;
	/* Format of all addresses. */
	uint32_t addr_format;
	size_t src_addrlen;
	size_t dest_addrlen;
	/* Address of the endpoint, `src_addrlen` bytes, or null. */
	void *src_addr;
	/* Address of the peer, `dest_addrlen` bytes, or null. */
	void *dest_addr;
	/* A connection request to answer, or another object from which to open the endpoint. */
	fid_t handle;
	struct fi_tx_attr *tx_attr;
	struct fi_rx_attr *rx_attr;
	struct fi_ep_attr *ep_attr;
	struct fi_domain_attr *domain_attr;
	struct fi_fabric_attr *fabric_attr;
	/* The network device, or null. */
	struct fid_nic *nic;
};

/* A parameter that a user can set, as fi_getparams lists it, fi_provider(3). */
struct fi_param {
	const char *name;
	enum fi_param_type type;
	const char *help_string;
	const char *value;
};

/*
 * Memory that the application provides with an operation in mode `FI_CONTEXT`, for the provider's
 * use only, fi_getinfo(3).
 */
struct fi_context {
	void *internal[4];
};

/*
 * Argument of the `FI_ALIAS` command: location of the second handle, and its default operation
 * flags, fi_endpoint(3).
 */
struct fi_alias {
	struct fid **fid;
	uint64_t flags;
};

/* The larger memory of mode `FI_CONTEXT2`, fi_getinfo(3). */
struct fi_context2 {
	void *internal[8];
};

/*
 * Argument of `FI_GET_VAL` and `FI_SET_VAL`: a variable of the provider and its value,
 * fi_control(3).
 */
struct fi_fid_var {
	int name;
	void *val;
};

/* Argument of `FI_MAP_RAW_MR`: a raw key, and the 64-bit key that it is mapped to, fi_mr(3). */
struct fi_mr_map_raw {
	uint64_t flags;
	uint64_t base_addr;
	uint8_t *raw_key;
	size_t key_size;
	uint64_t *key;
};

/* Argument of `FI_GET_RAW_MR`: location of a region's base address and raw key, fi_mr(3). */
struct fi_mr_raw_attr {
	uint64_t flags;
	uint64_t *base_addr;
	uint8_t *raw_key;
	size_t *key_size;
};

/*
 * Argument of `FI_GET_MR_XPU_DESC`: location of a region's descriptor for accelerator code,
 * fi_xpu(3).
 */
struct fi_mr_xpu_desc {
	void *buf;
	size_t *len;
	uint64_t flags;
	struct fid_xpu_ctx *ctx;
};

/* Contents of a receive's `fi_context` in mode `FI_BUFFERED_RECV` of the 1.x interface. */
struct fi_recv_context {
	struct fid_ep *ep;
	void *context;
};

/* Entry points, fi_getinfo(3), fi_fabric(3), fi_version(3). */
/* Returns the newest version of the interface that the library supports, fi_version(3). */
extern uint32_t fi_version(void);
/* Lists the endpoints that match the hints, fi_getinfo(3). */
extern int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		      const struct fi_info *hints, struct fi_info **info);
/* Frees a list that fi_getinfo or fi_dupinfo returned, fi_getinfo(3). */
extern void fi_freeinfo(struct fi_info *info);
/* Returns a deep copy of one element of a list, or an empty element for NULL; fi_getinfo(3). */
extern struct fi_info *fi_dupinfo(const struct fi_info *info);
/* Opens a fabric, fi_fabric(3). */
extern int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
/* Opens a fabric with flags, fi_fabric(3). */
extern int fi_fabric2(struct fi_info *info, struct fid_fabric **fabric, uint64_t flags,
		      void *context);
/* Opens an object of the library itself by its name, fi_provider(3). */
extern int fi_open(uint32_t version, const char *name, void *attr, size_t attr_len, uint64_t flags,
		   struct fid **fid, void *context);

/* Text for structures and values, fi_getinfo(3). */
/*
 * Returns a text for a structure or value in a buffer of the process, valid until the next
 * call, fi_getinfo(3).
 */
extern char *fi_tostr(const void *data, enum fi_type datatype);
/* Formats a structure or value into the caller's buffer, fi_getinfo(3). */
extern char *fi_tostr_r(char *buf, size_t len, const void *data, enum fi_type datatype);

/* Parameters that a user can set, fi_provider(3). */
/* Lists the parameters that a user can set, fi_provider(3). */
extern int fi_getparams(struct fi_param **params, int *count);
/* Frees the result of fi_getparams, fi_provider(3). */
extern void fi_freeparams(struct fi_param *params);

/* An empty fi_info with all attribute structures, for hints; free it with fi_freeinfo. */
static inline struct fi_info *
fi_allocinfo(void)
{
	return fi_dupinfo(NULL);
}

/* Closes any object. -FI_EBUSY while others depend on it. */
static inline int
fi_close(struct fid *fid)
{
	return fid->ops->close(fid);
}

/* Commands to any object, fi_control(3). */
static inline int
fi_control(struct fid *fid, int command, void *arg)
{
	return fid->ops->control(fid, command, arg);
}

/* A second handle to an object, with default operation flags of its own. */
static inline int
fi_alias(struct fid *fid, struct fid **alias_fid, uint64_t flags)
{
	struct fi_alias request;

	request.fid = alias_fid;
	request.flags = flags;
	return fi_control(fid, FI_ALIAS, &request);
}

/* Variables of a provider, fi_control(3). */
static inline int
fi_get_val(struct fid *fid, int name, void *val)
{
	struct fi_fid_var request;

	request.name = name;
	request.val = val;
	return fi_control(fid, FI_GET_VAL, &request);
}

static inline int
fi_set_val(struct fid *fid, int name, void *val)
{
	struct fi_fid_var request;

	request.name = name;
	request.val = val;
	return fi_control(fid, FI_SET_VAL, &request);
}

/* Operations of a provider beyond this interface, by name, fi_open_ops(3). */
static inline int
fi_open_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	return fid->ops->ops_open(fid, name, flags, ops, context);
}

static inline int
fi_set_ops(struct fid *fid, const char *name, uint64_t flags, void *ops, void *context)
{
	if (!FI_CHECK_OP(fid->ops, struct fi_ops, ops_set))
		return -FI_ENOSYS;
	return fid->ops->ops_set(fid, name, flags, ops, context);
}

/* Traffic classes from and to differentiated services code points, fi_endpoint(3). */
static inline uint32_t
fi_tc_dscp_set(uint8_t dscp)
{
	return FI_TC_DSCP | (uint32_t)dscp;
}

static inline uint8_t
fi_tc_dscp_get(uint32_t tclass)
{
	return (tclass & FI_TC_DSCP) ? (uint8_t)tclass : 0;
}

#ifdef __cplusplus
}
#endif

#endif /* RDMA_FABRIC_H */
