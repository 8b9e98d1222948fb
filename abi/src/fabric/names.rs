//! Enumerations of `<rdma/fabric.h>`.

use core::ffi::{c_int, c_uint};

c_enum! {
    /// Address formats (`fi_info::addr_format`), fi_getinfo(3).
    enum : u32 {
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
    }
}

c_enum! {
    /// Wire protocols (`fi_ep_attr::protocol`), fi_endpoint(3).
    enum : u32 {
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
    }
}

c_enum! {
    /// Tag formats (`fi_ep_attr::mem_tag_format`), fi_endpoint(3).
    enum : u64 {
        FI_TAG_BITS,
        FI_TAG_MPI,
        FI_TAG_CCL,
        FI_TAG_MAX_FORMAT = 0x10000,
    }
}

c_enum! {
    /// Traffic classes (`tclass`), fi_endpoint(3).
    enum : u32 {
        FI_TC_UNSPEC,
        FI_TC_DSCP = 256,
        FI_TC_BEST_EFFORT = 512,
        FI_TC_LABEL = 512,
        FI_TC_LOW_LATENCY,
        FI_TC_DEDICATED_ACCESS,
        FI_TC_BULK_DATA,
        FI_TC_SCAVENGER,
        FI_TC_NETWORK_CTRL,
    }
}

c_enum! {
    /// Object classes (`fid::fclass`).
    enum : usize {
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
    }
}

c_enum! {
    /// Commands of fi_control(3).
    enum : c_int {
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
    }
}

c_enum! {
    /// Limits of the 1.x interface.
    enum : c_uint {
        FI_DATATYPE_LAST = 14,
        FI_ATOMIC_OP_LAST = 19,
        FI_NAME_MAX = 64,
    }
}

c_enum! {
    /// How the addresses of an address vector are chosen, fi_av(3).
    pub enum fi_av_type: c_uint {
        FI_AV_UNSPEC,
        /// The provider chooses the addresses.
        FI_AV_MAP,
        /// Addresses are indexes, in the order of insertion.
        FI_AV_TABLE,
    }
}

c_enum! {
    /// Kind of bus, fi_nic(3).
    pub enum fi_bus_type: c_uint {
        FI_BUS_UNKNOWN,
        FI_BUS_UNSPEC = 0,
        FI_BUS_PCI,
    }
}

c_enum! {
    /// Endpoint types, fi_endpoint(3).
    pub enum fi_ep_type: c_uint {
        FI_EP_UNSPEC,
        /// Connected; reliable, in order.
        FI_EP_MSG,
        /// Connectionless; messages may be lost.
        FI_EP_DGRAM,
        /// Connectionless; reliable.
        FI_EP_RDM,
    }
}

c_enum! {
    /// State of a link, fi_nic(3).
    pub enum fi_link_state: c_uint {
        FI_LINK_UNKNOWN,
        FI_LINK_DOWN,
        FI_LINK_UP,
    }
}

c_enum! {
    /// Types of parameters, fi_provider(3).
    pub enum fi_param_type: c_uint {
        FI_PARAM_STRING,
        FI_PARAM_INT,
        FI_PARAM_BOOL,
        FI_PARAM_SIZE_T,
    }
}

c_enum! {
    /// Who makes progress for operations, fi_domain(3).
    pub enum fi_progress: c_uint {
        FI_PROGRESS_UNSPEC,
        /// Operations make progress without calls by the application.
        FI_PROGRESS_AUTO,
        /// Operations make progress while the application is in a call.
        FI_PROGRESS_MANUAL,
        /// Control operations make progress with data transfers.
        FI_PROGRESS_CONTROL_UNIFIED,
    }
}

c_enum! {
    /// Whether the provider protects its queues from overrun, fi_domain(3).
    pub enum fi_resource_mgmt: c_uint {
        FI_RM_UNSPEC,
        /// The application makes sure that no queue overruns.
        FI_RM_DISABLED,
        /// The provider returns `-FI_EAGAIN` before a queue overruns.
        FI_RM_ENABLED,
    }
}

c_enum! {
    /// How an application's threads may use objects, fi_domain(3).
    pub enum fi_threading: c_uint {
        FI_THREAD_UNSPEC,
        /// Any thread may use any object at any time.
        FI_THREAD_SAFE,
        /// One thread at a time uses an object.
        FI_THREAD_FID,
        /// One thread at a time uses a domain and the objects that were opened from it.
        FI_THREAD_DOMAIN,
        /// One thread at a time uses an endpoint and the queues to which it reports completions.
        FI_THREAD_COMPLETION,
        /// One thread at a time uses an endpoint; any thread may use a queue.
        FI_THREAD_ENDPOINT,
    }
}

c_enum! {
    /// Types that fi_tostr formats, fi_getinfo(3).
    pub enum fi_type: c_uint {
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
    }
}
