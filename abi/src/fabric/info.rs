//! Attributes of `<rdma/fabric.h>`: `fi_info` and what it points to.

use crate::*;
use core::ffi::{c_char, c_int, c_void};

/// Address of a device on its bus, by `bus_type`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_bus_attr_detail {
    pub pci: fi_pci_attr,
}

/// The bus that a network device sits on, fi_nic(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_bus_attr {
    pub bus_type: fi_bus_type,
    pub attr: fi_bus_attr_detail,
}

/// Identity of a network device; each string may be absent, fi_nic(3).
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

/// Attributes of a domain: progress, threading, limits and capabilities, fi_domain(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_domain_attr {
    /// An open domain to use, or null.
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    /// How the application's threads may use objects of the domain.
    pub threading: fi_threading,
    /// Who makes progress for connection management and other control operations.
    pub control_progress: fi_progress,
    /// Who makes progress for data transfers; also called `data_progress`.
    pub progress: fi_progress,
    pub resource_mgmt: fi_resource_mgmt,
    pub av_type: fi_av_type,
    /// Requirements of memory registration: `FI_MR_*` bits.
    pub mr_mode: c_int,
    /// Size of a registration key in bytes.
    pub mr_key_size: usize,
    /// Size of a message's immediate data in bytes; 0: none.
    pub cq_data_size: usize,
    /// Number of completion queues up to which performance is best; more may be possible.
    pub cq_cnt: usize,
    /// Number of endpoints up to which performance is best; more may be possible.
    pub ep_cnt: usize,
    /// Number of transmit contexts up to which performance is best; more may be possible.
    pub tx_ctx_cnt: usize,
    /// Number of receive contexts up to which performance is best; more may be possible.
    pub rx_ctx_cnt: usize,
    /// Largest number of transmit contexts of one scalable endpoint.
    pub max_ep_tx_ctx: usize,
    /// Largest number of receive contexts of one scalable endpoint.
    pub max_ep_rx_ctx: usize,
    /// Largest number of endpoints that share a transmit context; 0: sharing is not supported.
    pub max_ep_stx_ctx: usize,
    /// Largest number of endpoints that share a receive context; 0: sharing is not supported.
    pub max_ep_srx_ctx: usize,
    /// Number of counters up to which performance is best; more may be possible.
    pub cntr_cnt: usize,
    /// Largest number of buffers of one registration.
    pub mr_iov_limit: usize,
    /// Capabilities of the domain, such as `FI_LOCAL_COMM`.
    pub caps: u64,
    /// Mode bits of the domain.
    pub mode: u64,
    /// Default authorization key of the domain's objects; `auth_key_size` bytes.
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    /// Largest size in bytes of the `err_data` of a completion error.
    pub max_err_data: usize,
    /// Number of registrations up to which performance is best.
    pub mr_cnt: usize,
    /// Default traffic class of the domain's endpoints.
    pub tclass: u32,
    /// Largest number of authorization keys of one endpoint.
    pub max_ep_auth_key: usize,
    /// Highest group number of `fi_group_addr`.
    pub max_group_id: u32,
    /// Value after which a counter wraps to 0.
    pub max_cntr_value: u64,
    /// Value after which an error count wraps to 0.
    pub max_err_cntr_value: u64,
    /// Largest number of accelerator contexts.
    pub max_xpu_ctx_cnt: usize,
}

/// Attributes of an endpoint: type, protocol and size limits in bytes, fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ep_attr {
    pub type_: fi_ep_type,
    /// The wire protocol, one of `FI_PROTO_*`; peers need the same one.
    pub protocol: u32,
    /// Version of the protocol, which the provider defines.
    pub protocol_version: u32,
    /// Size of the largest message in bytes.
    pub max_msg_size: usize,
    /// Number of bytes that the provider needs before a message, in mode `FI_MSG_PREFIX`.
    pub msg_prefix_size: usize,
    /// Size in bytes of the largest transfer that keeps read-after-write order.
    pub max_order_raw_size: usize,
    /// Size in bytes of the largest transfer that keeps write-after-read order.
    pub max_order_war_size: usize,
    /// Size in bytes of the largest transfer that keeps write-after-write order.
    pub max_order_waw_size: usize,
    /// Mask of the significant bits of a tag, or one of `FI_TAG_*`.
    pub mem_tag_format: u64,
    /// Number of transmit contexts, or `FI_SHARED_CONTEXT`.
    pub tx_ctx_cnt: usize,
    /// Number of receive contexts, or `FI_SHARED_CONTEXT`.
    pub rx_ctx_cnt: usize,
    /// Size of `auth_key` in bytes, or `FI_AV_AUTH_KEY`.
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    /// Accelerator context of the endpoint, or null.
    pub xpu_ctx: *mut fid_xpu_ctx,
}

/// Attributes of a fabric: its name and its provider, fi_fabric(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_fabric_attr {
    /// An open fabric to use, or null.
    pub fabric: *mut fid_fabric,
    pub name: *mut c_char,
    /// Name of the provider, or names of layered providers separated by semicolons.
    pub prov_name: *mut c_char,
    /// The provider's own version, packed as by `FI_VERSION`.
    pub prov_version: u32,
    /// Interface version that the application requested.
    pub api_version: u32,
}

/// Attributes of an endpoint and its objects, an element of a list: an argument of fi_getinfo as
/// hints, and its result, fi_getinfo(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_info {
    /// The next element, which is less preferred, or null.
    pub next: *mut fi_info,
    /// Capabilities of the endpoint.
    pub caps: u64,
    /// Mode bits: requirements that the application has to meet.
    pub mode: u64,
    /// Format of all addresses.
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    /// Address of the endpoint, `src_addrlen` bytes, or null.
    pub src_addr: *mut c_void,
    /// Address of the peer, `dest_addrlen` bytes, or null.
    pub dest_addr: *mut c_void,
    /// A connection request to answer, or another object from which to open the endpoint.
    pub handle: fid_t,
    pub tx_attr: *mut fi_tx_attr,
    pub rx_attr: *mut fi_rx_attr,
    pub ep_attr: *mut fi_ep_attr,
    pub domain_attr: *mut fi_domain_attr,
    pub fabric_attr: *mut fi_fabric_attr,
    /// The network device, or null.
    pub nic: *mut fid_nic,
}

/// State of a network device's link, fi_nic(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_link_attr {
    pub address: *mut c_char,
    /// Size of the largest packet in bytes.
    pub mtu: usize,
    /// Speed in bits per second.
    pub speed: usize,
    pub state: fi_link_state,
    pub network_type: *mut c_char,
}

/// Address of a device on the PCI bus, fi_nic(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_pci_attr {
    pub domain_id: u16,
    pub bus_id: u8,
    pub device_id: u8,
    pub function_id: u8,
}

/// Attributes of the receive side of an endpoint, fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_rx_attr {
    pub caps: u64,
    pub mode: u64,
    /// Default flags of operations.
    pub op_flags: u64,
    /// Order in which messages are processed: `FI_ORDER_*`.
    pub msg_order: u64,
    /// Order of completions: `FI_ORDER_*`.
    pub comp_order: u64,
    /// Number of bytes of unexpected messages that are buffered; of the 1.x interface.
    pub total_buffered_recv: usize,
    /// Largest number of posted receives.
    pub size: usize,
    /// Largest number of buffers of one receive.
    pub iov_limit: usize,
}

/// Attributes of the transmit side of an endpoint, fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_tx_attr {
    pub caps: u64,
    pub mode: u64,
    /// Default flags of operations.
    pub op_flags: u64,
    /// Order in which the peer processes messages: `FI_ORDER_*`.
    pub msg_order: u64,
    /// Order of completions: `FI_ORDER_*`.
    pub comp_order: u64,
    /// Size in bytes of the largest message of the inject calls.
    pub inject_size: usize,
    /// Largest number of outstanding operations, each of the largest kind.
    pub size: usize,
    /// Largest number of local buffers of one operation.
    pub iov_limit: usize,
    /// Largest number of remote buffers of one operation.
    pub rma_iov_limit: usize,
    /// Traffic class, `FI_TC_*`.
    pub tclass: u32,
}

/// A network device in a result of fi_getinfo, fi_nic(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_nic {
    pub fid: fid,
    pub device_attr: *mut fi_device_attr,
    pub bus_attr: *mut fi_bus_attr,
    pub link_attr: *mut fi_link_attr,
    pub prov_attr: *mut c_void,
}

zero_is_valid!(
    fi_bus_attr,
    fi_device_attr,
    fi_domain_attr,
    fi_ep_attr,
    fi_fabric_attr,
    fi_info,
    fi_link_attr,
    fi_pci_attr,
    fi_rx_attr,
    fi_tx_attr,
    fid_nic,
    fi_bus_attr_detail
);

opaque_debug!(fi_bus_attr_detail);
