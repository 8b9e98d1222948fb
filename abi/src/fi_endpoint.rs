//! Declarations of `<rdma/fi_endpoint.h>`.

use crate::*;
use core::ffi::{c_int, c_void};
use libc::{iovec, ssize_t};

c_enum! {
    /// Levels of fi_setopt and fi_getopt, fi_endpoint(3).
    enum : c_int {
        FI_OPT_ENDPOINT,
    }
}

c_enum! {
    /// Endpoint options, fi_endpoint(3).
    enum : c_int {
        FI_OPT_MIN_MULTI_RECV,
        FI_OPT_CM_DATA_SIZE,
        FI_OPT_BUFFERED_MIN,
        FI_OPT_BUFFERED_LIMIT,
        FI_OPT_SEND_BUF_SIZE,
        FI_OPT_RECV_BUF_SIZE,
        FI_OPT_TX_SIZE,
        FI_OPT_RX_SIZE,
        FI_OPT_FI_HMEM_P2P,
        FI_OPT_XPU_TRIGGER,
        FI_OPT_CUDA_API_PERMITTED,
        FI_OPT_SHARED_MEMORY_PERMITTED,
        FI_OPT_MAX_MSG_SIZE,
        FI_OPT_MAX_TAGGED_SIZE,
        FI_OPT_MAX_RMA_SIZE,
        FI_OPT_MAX_ATOMIC_SIZE,
        FI_OPT_INJECT_MSG_SIZE,
        FI_OPT_INJECT_TAGGED_SIZE,
        FI_OPT_INJECT_RMA_SIZE,
        FI_OPT_INJECT_ATOMIC_SIZE,
        FI_OPT_FIREWALL_ADDR,
    }
}

c_enum! {
    /// Values of `FI_OPT_FI_HMEM_P2P`, fi_endpoint(3).
    enum : c_int {
        FI_HMEM_P2P_ENABLED,
        FI_HMEM_P2P_REQUIRED,
        FI_HMEM_P2P_PREFERRED,
        FI_HMEM_P2P_DISABLED,
    }
}

/// All arguments of a message transfer, fi_msg(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_msg {
    pub msg_iov: *const iovec,
    /// Descriptors of the buffers, one for each, or null.
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    /// The peer.
    pub addr: fi_addr_t,
    pub context: *mut c_void,
    /// Immediate data, with `FI_REMOTE_CQ_DATA`.
    pub data: u64,
}

/// Operations of an endpoint, fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_ep {
    pub size: usize,
    pub cancel: Option<unsafe extern "C" fn(fid: fid_t, context: *mut c_void) -> ssize_t>,
    pub getopt: Option<
        unsafe extern "C" fn(
            fid: fid_t,
            level: c_int,
            optname: c_int,
            optval: *mut c_void,
            optlen: *mut usize,
        ) -> c_int,
    >,
    pub setopt: Option<
        unsafe extern "C" fn(
            fid: fid_t,
            level: c_int,
            optname: c_int,
            optval: *const c_void,
            optlen: usize,
        ) -> c_int,
    >,
    pub tx_ctx: Option<
        unsafe extern "C" fn(
            sep: *mut fid_ep,
            index: c_int,
            attr: *mut fi_tx_attr,
            tx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub rx_ctx: Option<
        unsafe extern "C" fn(
            sep: *mut fid_ep,
            index: c_int,
            attr: *mut fi_rx_attr,
            rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub rx_size_left: Option<unsafe extern "C" fn(ep: *mut fid_ep) -> ssize_t>,
    pub tx_size_left: Option<unsafe extern "C" fn(ep: *mut fid_ep) -> ssize_t>,
    pub export_xpu:
        Option<unsafe extern "C" fn(ep: *mut fid_ep, flags: u64, xpu_ep: *mut fid_xpu_ep) -> c_int>,
}

/// Message transfer of an endpoint, fi_msg(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_msg {
    pub size: usize,
    pub recv: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *mut c_void,
            len: usize,
            desc: *mut c_void,
            src_addr: fi_addr_t,
            context: *mut c_void,
        ) -> ssize_t,
    >,
    pub recvv: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const iovec,
            desc: *mut *mut c_void,
            count: usize,
            src_addr: fi_addr_t,
            context: *mut c_void,
        ) -> ssize_t,
    >,
    pub recvmsg:
        Option<unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> ssize_t>,
    pub send: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            desc: *mut c_void,
            dest_addr: fi_addr_t,
            context: *mut c_void,
        ) -> ssize_t,
    >,
    pub sendv: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const iovec,
            desc: *mut *mut c_void,
            count: usize,
            dest_addr: fi_addr_t,
            context: *mut c_void,
        ) -> ssize_t,
    >,
    pub sendmsg:
        Option<unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> ssize_t>,
    pub inject: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            dest_addr: fi_addr_t,
        ) -> ssize_t,
    >,
    pub senddata: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            desc: *mut c_void,
            data: u64,
            dest_addr: fi_addr_t,
            context: *mut c_void,
        ) -> ssize_t,
    >,
    pub injectdata: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            data: u64,
            dest_addr: fi_addr_t,
        ) -> ssize_t,
    >,
}

/// An endpoint, or one side of one (a transmit, receive or shared receive context),
/// fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *mut fi_ops_ep,
    pub cm: *mut fi_ops_cm,
    pub msg: *mut fi_ops_msg,
    pub rma: *mut fi_ops_rma,
    pub tagged: *mut fi_ops_tagged,
    pub atomic: *mut fi_ops_atomic,
    /// An operation table for which the endpoint has no capability contains functions that return
    /// an error.
    pub collective: *mut fi_ops_collective,
}

/// A passive endpoint, fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_pep {
    pub fid: fid,
    pub ops: *mut fi_ops_ep,
    pub cm: *mut fi_ops_cm,
}

/// A shared transmit context, fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_stx {
    pub fid: fid,
    pub ops: *mut fi_ops_ep,
}

zero_is_valid!(fi_msg, fi_ops_ep, fi_ops_msg, fid_ep, fid_pep, fid_stx);
