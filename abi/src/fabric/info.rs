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

/// What a domain is or shall be: progress, threading, limits and capabilities, fi_domain(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_domain_attr {
    /// An open domain to use, or null.
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    /// How the application's threads share objects of the domain.
    pub threading: fi_threading,
    /// Who drives connection management and other control operations on.
    pub control_progress: fi_progress,
    /// Who drives transfers on; also called `data_progress`.
    pub progress: fi_progress,
    pub resource_mgmt: fi_resource_mgmt,
    pub av_type: fi_av_type,
    /// What registered memory needs: `FI_MR_*` bits.
    pub mr_mode: c_int,
    /// Bytes of a registration key.
    pub mr_key_size: usize,
    /// Bytes of immediate data that a message carries; 0: none.
    pub cq_data_size: usize,
    /// Completion queues that perform best at most; more may be possible.
    pub cq_cnt: usize,
    /// Endpoints that perform best at most; more may be possible.
    pub ep_cnt: usize,
    /// Transmit contexts that perform best at most; more may be possible.
    pub tx_ctx_cnt: usize,
    /// Receive contexts that perform best at most; more may be possible.
    pub rx_ctx_cnt: usize,
    /// Transmit contexts of one scalable endpoint at most.
    pub max_ep_tx_ctx: usize,
    /// Receive contexts of one scalable endpoint at most.
    pub max_ep_rx_ctx: usize,
    /// Endpoints that may share a transmit context at most; 0: no sharing.
    pub max_ep_stx_ctx: usize,
    /// Endpoints that may share a receive context at most; 0: no sharing.
    pub max_ep_srx_ctx: usize,
    /// Counters that perform best at most; more may be possible.
    pub cntr_cnt: usize,
    /// Buffers of one registration at most.
    pub mr_iov_limit: usize,
    /// Capabilities that belong to the domain, such as `FI_LOCAL_COMM`.
    pub caps: u64,
    /// Modes that belong to the domain.
    pub mode: u64,
    /// Authorization key of all objects that name none; `auth_key_size` bytes.
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    /// Bytes of `err_data` that completion errors come with at most.
    pub max_err_data: usize,
    /// Registrations that perform best at most.
    pub mr_cnt: usize,
    /// Traffic class of endpoints that name none.
    pub tclass: u32,
    /// Authorization keys of one endpoint at most.
    pub max_ep_auth_key: usize,
    /// Highest group number of `fi_group_addr`.
    pub max_group_id: u32,
    /// Value after which a counter wraps to 0.
    pub max_cntr_value: u64,
    /// Value after which an error count wraps to 0.
    pub max_err_cntr_value: u64,
    /// Accelerator contexts at most.
    pub max_xpu_ctx_cnt: usize,
}

/// What an endpoint is or shall be: type, protocol and size limits in bytes, fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ep_attr {
    pub type_: fi_ep_type,
    /// One of `FI_PROTO_*`; peers need the same.
    pub protocol: u32,
    /// Version of the protocol, provider's choice.
    pub protocol_version: u32,
    /// Largest message, in bytes.
    pub max_msg_size: usize,
    /// Bytes that the provider needs in front of a message, in mode `FI_MSG_PREFIX`.
    pub msg_prefix_size: usize,
    /// Largest transfer that keeps read-after-write order, in bytes.
    pub max_order_raw_size: usize,
    /// Largest transfer that keeps write-after-read order, in bytes.
    pub max_order_war_size: usize,
    /// Largest transfer that keeps write-after-write order, in bytes.
    pub max_order_waw_size: usize,
    /// Which bits of a tag matter, or one of `FI_TAG_*`.
    pub mem_tag_format: u64,
    /// Transmit contexts, or `FI_SHARED_CONTEXT`.
    pub tx_ctx_cnt: usize,
    /// Receive contexts, or `FI_SHARED_CONTEXT`.
    pub rx_ctx_cnt: usize,
    /// Bytes of `auth_key`, or `FI_AV_AUTH_KEY`.
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    /// Accelerator context that the endpoint belongs to, or null.
    pub xpu_ctx: *mut fid_xpu_ctx,
}

/// Which fabric, of which provider, fi_fabric(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_fabric_attr {
    /// An open fabric to use, or null.
    pub fabric: *mut fid_fabric,
    pub name: *mut c_char,
    /// Provider, or layers of providers with semicolons between.
    pub prov_name: *mut c_char,
    /// The provider's own version, as `FI_VERSION` packs it.
    pub prov_version: u32,
    /// Interface version that the application asked for.
    pub api_version: u32,
}

/// One way to communicate, as a list: given to fi_getinfo as hints and returned by it as results,
/// fi_getinfo(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_info {
    /// The next best way, or null.
    pub next: *mut fi_info,
    /// What the endpoint can do: capabilities.
    pub caps: u64,
    /// What the application must do: mode bits.
    pub mode: u64,
    /// Format of all addresses.
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    /// Address of the endpoint, `src_addrlen` bytes, or null.
    pub src_addr: *mut c_void,
    /// Address of the peer, `dest_addrlen` bytes, or null.
    pub dest_addr: *mut c_void,
    /// A connection request that the endpoint shall answer, or another object it opens from.
    pub handle: fid_t,
    pub tx_attr: *mut fi_tx_attr,
    pub rx_attr: *mut fi_rx_attr,
    pub ep_attr: *mut fi_ep_attr,
    pub domain_attr: *mut fi_domain_attr,
    pub fabric_attr: *mut fi_fabric_attr,
    /// The network device, or null.
    pub nic: *mut fid_nic,
}

/// State of a network device's link: MTU in bytes, speed in bits per second, fi_nic(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_link_attr {
    pub address: *mut c_char,
    /// Bytes of a packet at most.
    pub mtu: usize,
    /// Bits per second.
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

/// What the receive side of an endpoint is or shall be, fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_rx_attr {
    pub caps: u64,
    pub mode: u64,
    /// Flags of operations that are given none.
    pub op_flags: u64,
    /// Order in which messages are processed: `FI_ORDER_*`.
    pub msg_order: u64,
    /// Order of completions: `FI_ORDER_*`.
    pub comp_order: u64,
    /// Bytes of messages kept that nothing was posted for; of the 1.x interface.
    pub total_buffered_recv: usize,
    /// Receives posted at most.
    pub size: usize,
    /// Buffers of one receive at most.
    pub iov_limit: usize,
}

/// What the transmit side of an endpoint is or shall be, fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_tx_attr {
    pub caps: u64,
    pub mode: u64,
    /// Flags of operations that are given none.
    pub op_flags: u64,
    /// Order in which the peer processes messages: `FI_ORDER_*`.
    pub msg_order: u64,
    /// Order of completions: `FI_ORDER_*`.
    pub comp_order: u64,
    /// Largest message that inject calls take, in bytes.
    pub inject_size: usize,
    /// Operations in flight at most, each of the largest kind.
    pub size: usize,
    /// Local buffers of one operation at most.
    pub iov_limit: usize,
    /// Remote buffers of one operation at most.
    pub rma_iov_limit: usize,
    /// Traffic class, `FI_TC_*`.
    pub tclass: u32,
}

/// A network device as a result of fi_getinfo describes it, fi_nic(3).
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
