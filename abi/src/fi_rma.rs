//! Declarations of `<rdma/fi_rma.h>`.

use crate::*;
use core::ffi::c_void;
use libc::{iovec, ssize_t};

/// All arguments of a remote read or write, fi_rma(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_msg_rma {
    pub msg_iov: *const iovec,
    /// Descriptors of the buffers, one for each, or null.
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    /// The peer.
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_iov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    /// Immediate data, with `FI_REMOTE_CQ_DATA`.
    pub data: u64,
}

/// A remote range in elements, with its key, fi_atomic(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_rma_ioc {
    /// Virtual address with `FI_MR_VIRT_ADDR`, otherwise an offset.
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

/// A remote range in bytes, with its key, fi_rma(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_rma_iov {
    /// Virtual address with `FI_MR_VIRT_ADDR`, otherwise an offset.
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

/// Remote memory access of an endpoint, fi_rma(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_rma {
    pub size: usize,
    pub read: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *mut c_void,
            len: usize,
            desc: *mut c_void,
            src_addr: fi_addr_t,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> ssize_t,
    >,
    pub readv: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const iovec,
            desc: *mut *mut c_void,
            count: usize,
            src_addr: fi_addr_t,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> ssize_t,
    >,
    pub readmsg: Option<
        unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> ssize_t,
    >,
    pub write: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            desc: *mut c_void,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> ssize_t,
    >,
    pub writev: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const iovec,
            desc: *mut *mut c_void,
            count: usize,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> ssize_t,
    >,
    pub writemsg: Option<
        unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> ssize_t,
    >,
    pub inject: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
        ) -> ssize_t,
    >,
    pub writedata: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            desc: *mut c_void,
            data: u64,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
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
            addr: u64,
            key: u64,
        ) -> ssize_t,
    >,
}

zero_is_valid!(fi_msg_rma, fi_rma_ioc, fi_rma_iov, fi_ops_rma);
