//! Declarations of `<rdma/fabric.h>`.

use crate::*;
use core::ffi::{c_char, c_int, c_uint, c_void};

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
    /// Limits kept from the 1.x interface.
    enum : c_uint {
        FI_DATATYPE_LAST = 14,
        FI_ATOMIC_OP_LAST = 19,
        FI_NAME_MAX = 64,
    }
}

c_enum! {
    pub enum fi_av_type: c_uint {
        FI_AV_UNSPEC,
        FI_AV_MAP,
        FI_AV_TABLE,
    }
}

c_enum! {
    pub enum fi_bus_type: c_uint {
        FI_BUS_UNKNOWN,
        FI_BUS_UNSPEC = 0,
        FI_BUS_PCI,
    }
}

c_enum! {
    pub enum fi_ep_type: c_uint {
        FI_EP_UNSPEC,
        FI_EP_MSG,
        FI_EP_DGRAM,
        FI_EP_RDM,
    }
}

c_enum! {
    pub enum fi_link_state: c_uint {
        FI_LINK_UNKNOWN,
        FI_LINK_DOWN,
        FI_LINK_UP,
    }
}

c_enum! {
    pub enum fi_param_type: c_uint {
        FI_PARAM_STRING,
        FI_PARAM_INT,
        FI_PARAM_BOOL,
        FI_PARAM_SIZE_T,
    }
}

c_enum! {
    pub enum fi_progress: c_uint {
        FI_PROGRESS_UNSPEC,
        FI_PROGRESS_AUTO,
        FI_PROGRESS_MANUAL,
        FI_PROGRESS_CONTROL_UNIFIED,
    }
}

c_enum! {
    pub enum fi_resource_mgmt: c_uint {
        FI_RM_UNSPEC,
        FI_RM_DISABLED,
        FI_RM_ENABLED,
    }
}

c_enum! {
    pub enum fi_threading: c_uint {
        FI_THREAD_UNSPEC,
        FI_THREAD_SAFE,
        FI_THREAD_FID,
        FI_THREAD_DOMAIN,
        FI_THREAD_COMPLETION,
        FI_THREAD_ENDPOINT,
    }
}

c_enum! {
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

pub const FI_ADDR_NOTAVAIL: fi_addr_t = u64::MAX;
pub const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;
pub const FI_AFFINITY: u64 = 1 << 29;
pub const FI_ASYNC_IOV: u64 = 1 << 57;
pub const FI_ATOMIC: u64 = 16;
pub const FI_ATOMICS: u64 = 16;
pub const FI_AUTH_KEY: u64 = 1 << 57;
pub const FI_AV_AUTH_KEY: usize = usize::MAX;
pub const FI_AV_USER_ID: u64 = 1 << 41;
pub const FI_CLAIM: u64 = 1 << 59;
pub const FI_COLLECTIVE: u64 = 64;
pub const FI_COMMIT_COMPLETE: u64 = 1 << 30;
pub const FI_COMPLETION: u64 = 1 << 24;
pub const FI_CONTEXT: u64 = 1 << 59;
pub const FI_CONTEXT2: u64 = 1 << 52;
pub const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub const FI_DIRECTED_RECV: u64 = 1 << 59;
pub const FI_DISCARD: u64 = 1 << 58;
pub const FI_EP_SOCK_STREAM: fi_ep_type = 0;
pub const FI_EVENT: u64 = 1 << 24;
pub const FI_EXACT_DIRECTED_RECV: u64 = 1 << 48;
pub const FI_FENCE: u64 = 1 << 21;
pub const FI_FIREWALL_ADDR: u64 = 1 << 42;
pub const FI_HMEM: u64 = 1 << 47;
pub const FI_INJECT: u64 = 1 << 25;
pub const FI_INJECT_COMPLETE: u64 = 1 << 26;
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;
pub const FI_LOCAL_COMM: u64 = 1 << 51;
pub const FI_LOCAL_MR: u64 = 1 << 55;
pub const FI_MAJOR_VERSION: u32 = 2;
pub const FI_MATCH_COMPLETE: u64 = 1 << 31;
pub const FI_MINOR_VERSION: u32 = 6;
pub const FI_MORE: u64 = 1 << 18;
pub const FI_MR_ALLOCATED: c_int = 1 << 5;
pub const FI_MR_BASIC: c_int = 1;
pub const FI_MR_COLLECTIVE: c_int = 1 << 11;
pub const FI_MR_ENDPOINT: c_int = 1 << 9;
pub const FI_MR_HMEM: c_int = 1 << 10;
pub const FI_MR_LOCAL: c_int = 1 << 2;
pub const FI_MR_MMU_NOTIFY: c_int = 1 << 7;
pub const FI_MR_PROV_KEY: c_int = 1 << 6;
pub const FI_MR_RAW: c_int = 1 << 3;
pub const FI_MR_RMA_EVENT: c_int = 1 << 8;
pub const FI_MR_SCALABLE: c_int = 2;
pub const FI_MR_UNSPEC: c_int = 0;
pub const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub const FI_MR_XPU_DESC: c_int = 1 << 12;
pub const FI_MSG: u64 = 2;
pub const FI_MSG_PREFIX: u64 = 1 << 58;
pub const FI_MULTICAST: u64 = 32;
pub const FI_MULTI_RECV: u64 = 1 << 16;
pub const FI_NAMED_RX_CTX: u64 = 1 << 58;
pub const FI_NOTIFY_FLAGS_ONLY: u64 = 0;
pub const FI_NUMERICHOST: u64 = 1 << 55;
pub const FI_ORDER_ATOMIC_RAR: u64 = 1 << 36;
pub const FI_ORDER_ATOMIC_RAW: u64 = 1 << 37;
pub const FI_ORDER_ATOMIC_WAR: u64 = 1 << 38;
pub const FI_ORDER_ATOMIC_WAW: u64 = 1 << 39;
pub const FI_ORDER_DATA: u64 = 1 << 16;
pub const FI_ORDER_NONE: u64 = 0;
pub const FI_ORDER_RAR: u64 = 1;
pub const FI_ORDER_RAS: u64 = 4;
pub const FI_ORDER_RAW: u64 = 2;
pub const FI_ORDER_RMA_RAR: u64 = 1 << 32;
pub const FI_ORDER_RMA_RAW: u64 = 1 << 33;
pub const FI_ORDER_RMA_WAR: u64 = 1 << 34;
pub const FI_ORDER_RMA_WAW: u64 = 1 << 35;
pub const FI_ORDER_SAR: u64 = 64;
pub const FI_ORDER_SAS: u64 = 1 << 8;
pub const FI_ORDER_SAW: u64 = 128;
pub const FI_ORDER_STRICT: u64 = 511;
pub const FI_ORDER_WAR: u64 = 8;
pub const FI_ORDER_WAS: u64 = 32;
pub const FI_ORDER_WAW: u64 = 16;
pub const FI_PEEK: u64 = 1 << 19;
pub const FI_PEER: u64 = 1 << 43;
pub const FI_PEER_TRANSFER: u64 = 1 << 36;
pub const FI_PROV_ATTR_ONLY: u64 = 1 << 54;
pub const FI_READ: u64 = 1 << 8;
pub const FI_RECV: u64 = 1 << 10;
pub const FI_REMOTE_COMM: u64 = 1 << 52;
pub const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub const FI_REMOTE_READ: u64 = 1 << 12;
pub const FI_REMOTE_WRITE: u64 = 1 << 13;
pub const FI_RESCAN: u64 = 1 << 35;
pub const FI_RESTRICTED_COMP: u64 = 0;
pub const FI_REVISION_VERSION: u32 = 0;
pub const FI_RMA: u64 = 4;
pub const FI_RMA_EVENT: u64 = 1 << 56;
pub const FI_RMA_PMEM: u64 = 1 << 49;
pub const FI_RX_CQ_DATA: u64 = 1 << 56;
pub const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;
pub const FI_SEND: u64 = 1 << 11;
pub const FI_SHARED_AV: u64 = 1 << 53;
pub const FI_SHARED_CONTEXT: usize = usize::MAX;
pub const FI_SOURCE: u64 = 1 << 57;
pub const FI_SOURCE_ERR: u64 = 1 << 50;
pub const FI_TAGGED: u64 = 8;
pub const FI_TAGGED_DIRECTED_RECV: u64 = 1 << 45;
pub const FI_TAGGED_MULTI_RECV: u64 = 1 << 46;
pub const FI_TRANSMIT: u64 = 1 << 11;
pub const FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
pub const FI_TRIGGER: u64 = 1 << 20;
pub const FI_VARIABLE_MSG: u64 = 0;
pub const FI_WRITE: u64 = 1 << 9;
pub const FI_XPU: u64 = 1 << 44;

pub type fi_addr_t = u64;
pub type fid_t = *mut fid;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_alias {
    pub fid: *mut *mut fid,
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_bus_attr_detail {
    pub pci: fi_pci_attr,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_bus_attr {
    pub bus_type: fi_bus_type,
    pub attr: fi_bus_attr_detail,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_context {
    pub internal: [*mut c_void; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_context2 {
    pub internal: [*mut c_void; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_device_attr {
    pub name: *mut c_char,
    pub device_id: *mut c_char,
    pub device_version: *mut c_char,
    pub vendor_id: *mut c_char,
    pub driver: *mut c_char,
    pub firmware: *mut c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_domain_attr {
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    pub threading: fi_threading,
    pub control_progress: fi_progress,
    pub progress: fi_progress,
    pub resource_mgmt: fi_resource_mgmt,
    pub av_type: fi_av_type,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
    pub max_ep_auth_key: usize,
    pub max_group_id: u32,
    pub max_cntr_value: u64,
    pub max_err_cntr_value: u64,
    pub max_xpu_ctx_cnt: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ep_attr {
    pub type_: fi_ep_type,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
    pub max_order_raw_size: usize,
    pub max_order_war_size: usize,
    pub max_order_waw_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub xpu_ctx: *mut fid_xpu_ctx,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_fabric_attr {
    pub fabric: *mut fid_fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_fid_var {
    pub name: c_int,
    pub val: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_info {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: fid_t,
    pub tx_attr: *mut fi_tx_attr,
    pub rx_attr: *mut fi_rx_attr,
    pub ep_attr: *mut fi_ep_attr,
    pub domain_attr: *mut fi_domain_attr,
    pub fabric_attr: *mut fi_fabric_attr,
    pub nic: *mut fid_nic,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_link_attr {
    pub address: *mut c_char,
    pub mtu: usize,
    pub speed: usize,
    pub state: fi_link_state,
    pub network_type: *mut c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_map_raw {
    pub flags: u64,
    pub base_addr: u64,
    pub raw_key: *mut u8,
    pub key_size: usize,
    pub key: *mut u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_raw_attr {
    pub flags: u64,
    pub base_addr: *mut u64,
    pub raw_key: *mut u8,
    pub key_size: *mut usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_xpu_desc {
    pub buf: *mut c_void,
    pub len: *mut usize,
    pub flags: u64,
    pub ctx: *mut fid_xpu_ctx,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops {
    pub size: usize,
    pub close: Option<unsafe extern "C" fn(*mut fid) -> c_int>,
    pub bind: Option<unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int>,
    pub control: Option<unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int>,
    pub ops_open: Option<
        unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
    >,
    pub tostr: Option<unsafe extern "C" fn(*const fid, *mut c_char, usize) -> c_int>,
    pub ops_set: Option<
        unsafe extern "C" fn(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
    >,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_fabric {
    pub size: usize,
    pub domain: Option<
        unsafe extern "C" fn(
            *mut fid_fabric,
            *mut fi_info,
            *mut *mut fid_domain,
            *mut c_void,
        ) -> c_int,
    >,
    pub passive_ep: Option<
        unsafe extern "C" fn(
            *mut fid_fabric,
            *mut fi_info,
            *mut *mut fid_pep,
            *mut c_void,
        ) -> c_int,
    >,
    pub eq_open: Option<
        unsafe extern "C" fn(
            *mut fid_fabric,
            *mut fi_eq_attr,
            *mut *mut fid_eq,
            *mut c_void,
        ) -> c_int,
    >,
    pub wait_open: Option<
        unsafe extern "C" fn(*mut fid_fabric, *mut fi_wait_attr, *mut *mut fid_wait) -> c_int,
    >,
    pub trywait: Option<unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int>,
    pub domain2: Option<
        unsafe extern "C" fn(
            *mut fid_fabric,
            *mut fi_info,
            *mut *mut fid_domain,
            u64,
            *mut c_void,
        ) -> c_int,
    >,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_param {
    pub name: *const c_char,
    pub type_: fi_param_type,
    pub help_string: *const c_char,
    pub value: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_pci_attr {
    pub domain_id: u16,
    pub bus_id: u8,
    pub device_id: u8,
    pub function_id: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_recv_context {
    pub ep: *mut fid_ep,
    pub context: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_rx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_tx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *mut fi_ops,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *mut fi_ops_fabric,
    pub api_version: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_nic {
    pub fid: fid,
    pub device_attr: *mut fi_device_attr,
    pub bus_attr: *mut fi_bus_attr,
    pub link_attr: *mut fi_link_attr,
    pub prov_attr: *mut c_void,
}

zero_is_valid! {fi_alias, fi_bus_attr, fi_context, fi_context2, fi_device_attr, fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_fid_var, fi_info, fi_ioc, fi_link_attr, fi_mr_map_raw, fi_mr_raw_attr, fi_mr_xpu_desc, fi_ops, fi_ops_fabric, fi_param, fi_pci_attr, fi_recv_context, fi_rx_attr, fi_tx_attr, fid, fid_fabric, fid_nic, fi_bus_attr_detail}

opaque_debug! {fi_bus_attr_detail}

/// Packs a version as the interface passes it: major in the upper, minor in the lower 16 bits.
#[allow(non_snake_case)]
pub const fn FI_VERSION(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

/// The major part of a packed version.
#[allow(non_snake_case)]
pub const fn FI_MAJOR(version: u32) -> u32 {
    version >> 16
}

/// The minor part of a packed version.
#[allow(non_snake_case)]
pub const fn FI_MINOR(version: u32) -> u32 {
    version & 0xffff
}

/// Whether packed version `a` is `b` or later.
#[allow(non_snake_case)]
pub const fn FI_VERSION_GE(a: u32, b: u32) -> bool {
    a >= b
}

/// Whether packed version `a` is older than `b`.
#[allow(non_snake_case)]
pub const fn FI_VERSION_LT(a: u32, b: u32) -> bool {
    a < b
}
