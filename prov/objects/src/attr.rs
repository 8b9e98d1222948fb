//! What a provider supports, what a caller asks for, and the comparison of the two (fi_getinfo(3),
//! fi_domain(3), fi_endpoint(3)).
//!
//! A provider describes each kind of endpoint that it offers as a [`Base`]. [`check()`] compares it
//! with the caller's [`Hints`] and names the attribute that does not match; [`fit()`] narrows it to
//! what was asked. [`ip::getinfo`] does both for providers with IP addresses, and adds the
//! addresses; [`named::getinfo`] does so for providers with other addresses.

mod check;
pub mod collective;
mod fit;
pub mod ip;
mod mismatch;
pub mod named;
mod nic;
mod offers;
mod request;
#[cfg(test)]
mod tests;

use std::ffi::c_void;

use fabric_abi::*;

pub use check::{address_format_fits, check};
pub use fit::fit;
pub use mismatch::{Change, Mismatch, Value};
pub use nic::{Nic, NicDevice, NicLink, PciAddress};
pub use offers::Offers;
pub use request::{CORE_ONLY, Ends, Request};

use prov_base::errno::{self, Errno};

/// The interface version `major.minor`, as `FI_VERSION(3)` encodes it.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// Capabilities that are meaningful only for transmits.
pub const TX_CAPS: u64 = FI_MSG
    | FI_RMA
    | FI_TAGGED
    | FI_ATOMIC
    | FI_MULTICAST
    | FI_READ
    | FI_WRITE
    | FI_SEND
    | FI_COLLECTIVE
    | FI_NAMED_RX_CTX
    | FI_HMEM
    | FI_TRIGGER
    | FI_FENCE
    | FI_RMA_PMEM
    | FI_XPU;

/// Capabilities that are meaningful only for receives.
pub const RX_CAPS: u64 = FI_MSG
    | FI_RMA
    | FI_TAGGED
    | FI_ATOMIC
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_RECV
    | FI_DIRECTED_RECV
    | FI_TAGGED_DIRECTED_RECV
    | FI_EXACT_DIRECTED_RECV
    | FI_COLLECTIVE
    | FI_HMEM
    | FI_MULTI_RECV
    | FI_TAGGED_MULTI_RECV
    | FI_TRIGGER
    | FI_RMA_PMEM
    | FI_SOURCE
    | FI_SOURCE_ERR
    | FI_RMA_EVENT
    | FI_XPU;

/// Capabilities that an endpoint has only if the caller asks for them, with their modifiers
/// (fi_getinfo(3), "primary capabilities").
pub const PRIMARY_CAPS: u64 = FI_MSG
    | FI_RMA
    | FI_TAGGED
    | FI_ATOMIC
    | FI_MULTICAST
    | FI_NAMED_RX_CTX
    | FI_DIRECTED_RECV
    | FI_TAGGED_DIRECTED_RECV
    | FI_EXACT_DIRECTED_RECV
    | FI_HMEM
    | FI_COLLECTIVE
    | FI_XPU
    | FI_AV_USER_ID
    | FI_PEER
    | FI_READ
    | FI_WRITE
    | FI_RECV
    | FI_SEND
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE;

/// Capabilities that a provider may offer without being asked (fi_getinfo(3), "secondary
/// capabilities").
pub const SECONDARY_CAPS: u64 = FI_MULTI_RECV
    | FI_TAGGED_MULTI_RECV
    | FI_SOURCE
    | FI_SOURCE_ERR
    | FI_RMA_EVENT
    | FI_SHARED_AV
    | FI_TRIGGER
    | FI_FENCE
    | FI_LOCAL_COMM
    | FI_REMOTE_COMM
    | FI_RMA_PMEM;

/// Directions of messages; without any, both are meant.
const MSG_DIRECTIONS: u64 = FI_SEND | FI_RECV;
/// Directions of remote accesses; without any, all are meant.
const RMA_DIRECTIONS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// `FI_MR_BASIC`: registration before interface version 1.5, by name.
pub const MR_BASIC: i32 = 1 << 0;
/// `FI_MR_SCALABLE`: the other mode of registration before interface version 1.5.
pub const MR_SCALABLE: i32 = 1 << 1;
/// The bits that `FI_MR_BASIC` stands for.
pub const MR_BASIC_BITS: i32 = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
/// `FI_BUFFERED_RECV`: the application reads messages in the provider's buffer (fi_msg(3) of the
/// 1.x interface).
pub const MODE_BUFFERED_RECV: u64 = 1 << 51;
/// `FI_LOCAL_MR`: the predecessor of `FI_MR_LOCAL`.
pub const MODE_LOCAL_MR: u64 = 1 << 55;
/// Registration modes that concern only regions which peers access.
const MR_REMOTE_MODES: i32 = FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_RMA_EVENT;

/// Value of a provider's `auth_key_size` that accepts keys of any size: no application's key is
/// that long.
pub const ANY_KEY_SIZE: usize = usize::MAX - 1;

/// Returns whether peers can access this side's memory under these capabilities.
pub fn is_rma_target(caps: u64) -> bool {
    caps & (FI_RMA | FI_ATOMIC) != 0
        && (caps & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 || caps & (FI_READ | FI_WRITE) == 0)
}

/// Returns whether the modes [`MR_BASIC_BITS`] apply to a request that allows these modes, though the
/// provider does not need them: for a target of remote accesses with collective operations. Runtimes
/// that ask for both (Lamellar) take the addresses of their peers for virtual ones.
pub fn is_basic(caps: u64, mr_mode: i32) -> bool {
    caps & FI_COLLECTIVE != 0 && is_rma_target(caps) && mr_mode & MR_BASIC_BITS == MR_BASIC_BITS
}

/// Returns whether an endpoint transmits under these capabilities. Directions without an operation
/// do not count.
pub fn has_transmits(caps: u64) -> bool {
    let sends = caps & (FI_MSG | FI_TAGGED) != 0 && (caps & FI_SEND != 0 || caps & FI_RECV == 0);
    let initiates = caps & (FI_RMA | FI_ATOMIC) != 0
        && (caps & (FI_READ | FI_WRITE) != 0 || caps & (FI_REMOTE_READ | FI_REMOTE_WRITE) == 0);
    sends || initiates
}

/// Returns whether an endpoint posts receives under these capabilities.
pub fn has_receives(caps: u64) -> bool {
    caps & (FI_MSG | FI_TAGGED) != 0 && (caps & FI_RECV != 0 || caps & FI_SEND == 0)
}

/// The address of an application's object, which this library only passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opaque(pub *mut c_void);

// SAFETY: the type does not dereference the address, so that it may be moved between threads.
unsafe impl Send for Opaque {}
// SAFETY: the type does not dereference the address, so that it may be shared between threads.
unsafe impl Sync for Opaque {}

impl Opaque {
    /// No object.
    pub const NULL: Opaque = Opaque(std::ptr::null_mut());
}

impl Default for Opaque {
    fn default() -> Self {
        Opaque::NULL
    }
}

/// `struct fi_tx_attr`; see fi_endpoint(3) for the meaning of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct TxAttr {
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

/// `struct fi_rx_attr`; see fi_endpoint(3) for the meaning of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RxAttr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

/// `struct fi_ep_attr`; see fi_endpoint(3) for the meaning of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct EpAttr {
    /// `FI_EP_*`
    pub ep_type: u32,
    /// `FI_PROTO_*`
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
    /// Separate from the key, since a provider reports the size alone.
    pub auth_key_size: usize,
    pub auth_key: Option<Vec<u8>>,
}

/// `struct fi_domain_attr`; see fi_domain(3) for the meaning of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DomainAttr {
    /// An open `fid_domain`, or null.
    pub domain: Opaque,
    pub name: Option<String>,
    /// `FI_THREAD_*`
    pub threading: u32,
    /// `FI_PROGRESS_*`
    pub control_progress: u32,
    /// `FI_PROGRESS_*`
    pub data_progress: u32,
    /// `FI_RM_*`
    pub resource_mgmt: u32,
    /// `FI_AV_*`
    pub av_type: u32,
    /// `FI_MR_*`
    pub mr_mode: i32,
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
    /// Separate from the key, since a provider reports the size alone, and `FI_AV_AUTH_KEY` has no
    /// key.
    pub auth_key_size: usize,
    pub auth_key: Option<Vec<u8>>,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
    pub max_ep_auth_key: usize,
    pub max_group_id: u32,
    pub max_cntr_value: u64,
    pub max_err_cntr_value: u64,
    pub max_xpu_ctx_cnt: usize,
}

fn contexts(count: usize) -> usize {
    match count {
        0 | FI_SHARED_CONTEXT => 1,
        count => count,
    }
}

/// Returns the authorization key in an attribute structure.
fn authorization(size: usize, key: Option<&[u8]>) -> errno::Result<Option<&[u8]>> {
    match key {
        _ if size == 0 => Ok(None),
        Some(key) if key.len() == size => Ok(Some(key)),
        _ => Err(Errno::EINVAL),
    }
}

impl EpAttr {
    /// Returns the number of transmit contexts of a scalable endpoint: one if no number is given,
    /// and if it uses a shared one (`FI_SHARED_CONTEXT`).
    pub fn transmit_contexts(&self) -> usize {
        contexts(self.tx_ctx_cnt)
    }

    /// Returns the number of receive contexts, likewise.
    pub fn receive_contexts(&self) -> usize {
        contexts(self.rx_ctx_cnt)
    }

    /// Returns the authorization key of an endpoint that is opened with these attributes.
    ///
    /// # Errors `-FI_EINVAL` for a size without a key.
    pub fn authorization(&self) -> errno::Result<Option<&[u8]>> {
        authorization(self.auth_key_size, self.auth_key.as_deref())
    }
}

impl DomainAttr {
    /// Returns the authorization key of a domain that is opened with these attributes.
    ///
    /// # Errors `-FI_EINVAL` for a size without a key, which `FI_AV_AUTH_KEY` is, too.
    pub fn authorization(&self) -> errno::Result<Option<&[u8]>> {
        authorization(self.auth_key_size, self.auth_key.as_deref())
    }
}

/// `struct fi_fabric_attr`; see fi_fabric(3) for the meaning of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct FabricAttr {
    /// An open `fid_fabric`, or null.
    pub fabric: Opaque,
    pub name: Option<String>,
    pub prov_name: Option<String>,
    pub prov_version: u32,
    pub api_version: u32,
}

/// `struct fi_info`, owned, with every substructure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Info {
    pub caps: u64,
    pub mode: u64,
    /// `FI_SOCKADDR_*`, `FI_ADDR_*`
    pub addr_format: u32,
    /// In the form of `addr_format`; empty for none.
    pub src_addr: Vec<u8>,
    /// In the form of `addr_format`; empty for none.
    pub dest_addr: Vec<u8>,
    pub handle: Opaque,
    pub tx: TxAttr,
    pub rx: RxAttr,
    pub ep: EpAttr,
    pub domain: DomainAttr,
    pub fabric: FabricAttr,
    /// The network interface (fi_nic(3)). Returned to callers; it has no part in hints.
    pub nic: Option<Nic>,
}

/// What a caller of fi_getinfo(3) asks for: like [`Info`], but any substructure may be missing,
/// which asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Hints {
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addr: Vec<u8>,
    pub dest_addr: Vec<u8>,
    pub handle: Opaque,
    pub tx: Option<TxAttr>,
    pub rx: Option<RxAttr>,
    pub ep: Option<EpAttr>,
    pub domain: Option<DomainAttr>,
    pub fabric: Option<FabricAttr>,
}

impl Hints {
    /// The name of the fabric that is asked for.
    pub fn fabric_name(&self) -> Option<&str> {
        self.fabric.as_ref()?.name.as_deref()
    }

    /// The name of the domain that is asked for.
    pub fn domain_name(&self) -> Option<&str> {
        self.domain.as_ref()?.name.as_deref()
    }
}

impl From<Hints> for Info {
    /// Substructures that are missing become zero.
    fn from(hints: Hints) -> Info {
        Info {
            caps: hints.caps,
            mode: hints.mode,
            addr_format: hints.addr_format,
            src_addr: hints.src_addr,
            dest_addr: hints.dest_addr,
            handle: hints.handle,
            tx: hints.tx.unwrap_or_default(),
            rx: hints.rx.unwrap_or_default(),
            ep: hints.ep.unwrap_or_default(),
            domain: hints.domain.unwrap_or_default(),
            fabric: hints.fabric.unwrap_or_default(),
            nic: None,
        }
    }
}

impl From<Info> for Hints {
    fn from(info: Info) -> Hints {
        Hints {
            caps: info.caps,
            mode: info.mode,
            addr_format: info.addr_format,
            src_addr: info.src_addr,
            dest_addr: info.dest_addr,
            handle: info.handle,
            tx: Some(info.tx),
            rx: Some(info.rx),
            ep: Some(info.ep),
            domain: Some(info.domain),
            fabric: Some(info.fabric),
        }
    }
}

/// One kind of endpoint that a provider offers.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// Everything that is supported, with all limits at their maximum. `domain.mr_mode` holds the
    /// required modes, and in addition [`MR_BASIC`] and [`MR_SCALABLE`] if those old modes are
    /// supported.
    pub limits: Info,
    /// Transmit queue size for callers that do not ask for one; 0 means the limit.
    pub tx_size: usize,
    /// Receive queue size for callers that do not ask for one; 0 means the limit.
    pub rx_size: usize,
    /// `inject_size` in bytes for callers that do not ask for one; 0 means the limit.
    pub inject_size: usize,
    /// Progress model for callers that do not ask for one; `FI_PROGRESS_UNSPEC` means the limit.
    pub progress: fi_progress,
}

impl From<Info> for Base {
    fn from(limits: Info) -> Self {
        Base {
            limits,
            tx_size: 0,
            rx_size: 0,
            inject_size: 0,
            progress: FI_PROGRESS_UNSPEC,
        }
    }
}
