//! Declarations of `<rdma/providers/fi_peer.h>`.

use crate::*;
use core::ffi::{c_int, c_void};
use libc::{iovec, ssize_t};

/// Passes the owner's address vector to a peer, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_peer_av_context {
    pub size: usize,
    pub av: *mut fid_peer_av,
}

/// Passes the owner's address vector set to a peer, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_peer_av_set_context {
    pub size: usize,
    pub av_set: *mut fi_peer_av_set,
}

/// Passes the owner's counter to a peer, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_peer_cntr_context {
    pub size: usize,
    pub cntr: *mut fid_peer_cntr,
}

/// Passes the owner's completion queue to a peer, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_peer_cq_context {
    pub size: usize,
    pub cq: *mut fid_peer_cq,
}

/// Passes the owner's domain to a peer, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_peer_domain_context {
    pub size: usize,
    pub domain: *mut fid_domain,
}

/// Passes the owner's event queue to a peer, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_peer_eq_context {
    pub size: usize,
    pub eq: *mut fid_eq,
}

/// The message for which a peer requests a matching receive, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_peer_match_attr {
    pub addr: fi_addr_t,
    pub msg_size: usize,
    pub tag: u64,
}

/// A receive or an unexpected message of a shared receive context, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_peer_rx_entry {
    pub srx: *mut fid_peer_srx,
    pub addr: fi_addr_t,
    pub msg_size: usize,
    pub tag: u64,
    pub cq_data: u64,
    pub flags: u64,
    pub context: *mut c_void,
    pub count: usize,
    pub desc: *mut *mut c_void,
    pub peer_context: *mut c_void,
    pub owner_context: *mut c_void,
    pub iov: *mut iovec,
}

/// Passes the owner's shared receive context to a peer, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_peer_srx_context {
    pub size: usize,
    pub srx: *mut fid_peer_srx,
}

/// Passes the endpoint that initiates transfers to a peer, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_peer_transfer_context {
    pub size: usize,
    pub info: *mut fi_info,
    pub ep: *mut fid_ep,
    pub peer_ops: *mut fi_ops_transfer_peer,
}

/// Functions of the owner of a shared address vector, for its peers, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_av_owner {
    pub size: usize,
    pub query: Option<unsafe extern "C" fn(av: *mut fid_peer_av, attr: *mut fi_av_attr) -> c_int>,
    pub ep_addr: Option<unsafe extern "C" fn(av: *mut fid_peer_av, ep: *mut fid_ep) -> fi_addr_t>,
}

/// Functions of the owner of a shared address vector set, for its peers, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_av_set_owner {
    pub size: usize,
    pub members: Option<
        unsafe extern "C" fn(
            av_set: *mut fid_peer_av_set,
            addr: *mut fi_addr_t,
            count: *mut usize,
        ) -> c_int,
    >,
}

/// Functions of the owner of a shared counter, for its peers, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_cntr_owner {
    pub size: usize,
    pub inc: Option<unsafe extern "C" fn(cntr: *mut fid_peer_cntr)>,
    pub incerr: Option<unsafe extern "C" fn(cntr: *mut fid_peer_cntr)>,
}

/// Functions of the owner of a shared completion queue, for its peers, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_cq_owner {
    pub size: usize,
    pub write: Option<
        unsafe extern "C" fn(
            cq: *mut fid_peer_cq,
            context: *mut c_void,
            flags: u64,
            len: usize,
            buf: *mut c_void,
            data: u64,
            tag: u64,
            src: fi_addr_t,
        ) -> ssize_t,
    >,
    pub writeerr: Option<
        unsafe extern "C" fn(cq: *mut fid_peer_cq, err_entry: *const fi_cq_err_entry) -> ssize_t,
    >,
}

/// Functions of the owner of a shared receive context, for its peers, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_srx_owner {
    pub size: usize,
    pub get_msg: Option<
        unsafe extern "C" fn(
            srx: *mut fid_peer_srx,
            attr: *mut fi_peer_match_attr,
            entry: *mut *mut fi_peer_rx_entry,
        ) -> c_int,
    >,
    pub get_tag: Option<
        unsafe extern "C" fn(
            srx: *mut fid_peer_srx,
            attr: *mut fi_peer_match_attr,
            entry: *mut *mut fi_peer_rx_entry,
        ) -> c_int,
    >,
    pub queue_msg: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
    pub queue_tag: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
    pub foreach_unspec_addr: Option<
        unsafe extern "C" fn(
            srx: *mut fid_peer_srx,
            get_addr: Option<unsafe extern "C" fn(*mut fi_peer_rx_entry) -> fi_addr_t>,
        ),
    >,
    pub free_entry: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry)>,
}

/// Functions of a peer, for the owner of a shared receive context, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_srx_peer {
    pub size: usize,
    pub start_msg: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
    pub start_tag: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
    pub discard_msg: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
    pub discard_tag: Option<unsafe extern "C" fn(entry: *mut fi_peer_rx_entry) -> c_int>,
}

/// Completion of transfers that a provider has delegated to a peer, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_transfer_peer {
    pub size: usize,
    pub complete: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            entry: *mut fi_cq_tagged_entry,
            src_addr: fi_addr_t,
        ) -> ssize_t,
    >,
    pub comperr:
        Option<unsafe extern "C" fn(ep: *mut fid_ep, err_entry: *mut fi_cq_err_entry) -> ssize_t>,
}

/// An address vector shared between providers, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_peer_av {
    pub fid: fid,
    pub owner_ops: *mut fi_ops_av_owner,
}

/// An address vector set shared between providers, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_peer_av_set {
    pub fid: fid,
    pub owner_ops: *mut fi_ops_av_set_owner,
}

/// A counter shared between providers, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_peer_cntr {
    pub fid: fid,
    pub owner_ops: *mut fi_ops_cntr_owner,
}

/// A completion queue shared between providers, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_peer_cq {
    pub fid: fid,
    pub owner_ops: *mut fi_ops_cq_owner,
}

/// A receive context shared between providers, fi_peer(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_peer_srx {
    pub ep_fid: fid_ep,
    pub owner_ops: *mut fi_ops_srx_owner,
    pub peer_ops: *mut fi_ops_srx_peer,
}

zero_is_valid!(
    fi_peer_av_context,
    fi_peer_av_set_context,
    fi_peer_cntr_context,
    fi_peer_cq_context,
    fi_peer_domain_context,
    fi_peer_eq_context,
    fi_peer_match_attr,
    fi_peer_rx_entry,
    fi_peer_srx_context,
    fi_peer_transfer_context,
    fi_ops_av_owner,
    fi_ops_av_set_owner,
    fi_ops_cntr_owner,
    fi_ops_cq_owner,
    fi_ops_srx_owner,
    fi_ops_srx_peer,
    fi_ops_transfer_peer,
    fid_peer_av,
    fid_peer_av_set,
    fid_peer_cntr,
    fid_peer_cq,
    fid_peer_srx
);

/// Named by `fi_peer_av_set_context` only; never defined.
#[derive(Debug)]
pub struct fi_peer_av_set {
    _opaque: [u8; 0],
}
