//! Declarations of `<rdma/fi_eq.h>`.

use crate::*;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{pollfd, pthread_cond_t, pthread_mutex_t, ssize_t};

c_enum! {
    /// Events of an event queue, fi_eq(3).
    enum : u32 {
        FI_NOTIFY,
        FI_CONNREQ,
        FI_CONNECTED,
        FI_SHUTDOWN,
        FI_MR_COMPLETE,
        FI_AV_COMPLETE,
        FI_JOIN_COMPLETE,
    }
}

c_enum! {
    /// Events that a counter counts, fi_cntr(3).
    pub enum fi_cntr_events: c_uint {
        FI_CNTR_EVENTS_COMP,
        FI_CNTR_EVENTS_BYTES,
    }
}

c_enum! {
    /// Formats of completions, fi_cq(3).
    pub enum fi_cq_format: c_uint {
        FI_CQ_FORMAT_UNSPEC,
        FI_CQ_FORMAT_CONTEXT,
        FI_CQ_FORMAT_MSG,
        FI_CQ_FORMAT_DATA,
        FI_CQ_FORMAT_TAGGED,
    }
}

c_enum! {
    /// Conditions that fi_cq_sread waits for, fi_cq(3).
    pub enum fi_cq_wait_cond: c_uint {
        FI_CQ_COND_NONE,
        FI_CQ_COND_THRESHOLD,
    }
}

c_enum! {
    /// Wait objects, fi_cq(3).
    pub enum fi_wait_obj: c_uint {
        FI_WAIT_NONE,
        /// The provider chooses; only calls of the library can wait.
        FI_WAIT_UNSPEC,
        FI_WAIT_SET,
        /// A descriptor that `FI_GETWAIT` returns.
        FI_WAIT_FD,
        FI_WAIT_MUTEX_COND,
        /// Waiting calls poll and yield the processor.
        FI_WAIT_YIELD,
        FI_WAIT_POLLFD,
    }
}

/// Attributes of a counter: its events and its wait object, fi_cntr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cntr_attr {
    pub events: fi_cntr_events,
    pub wait_obj: fi_wait_obj,
    /// The wait set to join, with `FI_WAIT_SET`.
    pub wait_set: *mut fid_wait,
    pub flags: u64,
    pub xpu_ctx: *mut fid_xpu_ctx,
}

/// Attributes of a completion queue, fi_cq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_attr {
    /// Number of completions for which the queue has space at least; 0: the provider chooses.
    pub size: usize,
    pub flags: u64,
    pub format: fi_cq_format,
    pub wait_obj: fi_wait_obj,
    /// Interrupt affinity, with `FI_AFFINITY`.
    pub signaling_vector: c_int,
    pub wait_cond: fi_cq_wait_cond,
    /// The wait set to join, with `FI_WAIT_SET`.
    pub wait_set: *mut fid_wait,
    pub xpu_ctx: *mut fid_xpu_ctx,
}

/// A completion in `FI_CQ_FORMAT_DATA`, fi_cq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_data_entry {
    /// Context of the operation.
    pub op_context: *mut c_void,
    /// Kind of the operation and its properties: `FI_SEND`, `FI_REMOTE_CQ_DATA`...
    pub flags: u64,
    /// Number of bytes received.
    pub len: usize,
    /// Location of the data, in a multi-receive buffer.
    pub buf: *mut c_void,
    /// Immediate data, with `FI_REMOTE_CQ_DATA`.
    pub data: u64,
}

/// A completion in `FI_CQ_FORMAT_CONTEXT`, fi_cq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_entry {
    /// Context of the operation.
    pub op_context: *mut c_void,
}

/// An operation that failed, fi_cq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_err_entry {
    /// Context of the operation.
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    /// Number of bytes that did not fit, of a truncated message.
    pub olen: usize,
    /// The error: a positive error number.
    pub err: c_int,
    /// The provider's error number, for fi_cq_strerror.
    pub prov_errno: c_int,
    /// Additional data of the provider; valid until the queue is read again, unless the caller
    /// provides a buffer.
    pub err_data: *mut c_void,
    /// Size of `err_data` in bytes; before the call, size of the caller's buffer.
    pub err_data_size: usize,
    /// The peer, with `FI_SOURCE_ERR`.
    pub src_addr: fi_addr_t,
}

/// A completion in `FI_CQ_FORMAT_MSG`, fi_cq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_msg_entry {
    /// Context of the operation.
    pub op_context: *mut c_void,
    /// Kind of the operation and its properties: `FI_SEND`, `FI_REMOTE_CQ_DATA`...
    pub flags: u64,
    /// Number of bytes received.
    pub len: usize,
}

/// A completion in `FI_CQ_FORMAT_TAGGED`, fi_cq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_cq_tagged_entry {
    /// Context of the operation.
    pub op_context: *mut c_void,
    /// Kind of the operation and its properties: `FI_SEND`, `FI_REMOTE_CQ_DATA`...
    pub flags: u64,
    /// Number of bytes received.
    pub len: usize,
    /// Location of the data, in a multi-receive buffer.
    pub buf: *mut c_void,
    /// Immediate data, with `FI_REMOTE_CQ_DATA`.
    pub data: u64,
    /// Tag of the message.
    pub tag: u64,
}

/// Attributes of an event queue, fi_eq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_eq_attr {
    /// Number of events for which the queue has space at least; 0: the provider chooses.
    pub size: usize,
    pub flags: u64,
    pub wait_obj: fi_wait_obj,
    pub signaling_vector: c_int,
    /// The wait set to join, with `FI_WAIT_SET`.
    pub wait_set: *mut fid_wait,
}

/// A connection event, followed by the peer's connection data, fi_eq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_eq_cm_entry {
    pub fid: fid_t,
    /// Attributes with which to answer a connection request; the reader frees them.
    pub info: *mut fi_info,
    pub data: [u8; 0],
}

/// The completion of a control operation, fi_eq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_eq_entry {
    pub fid: fid_t,
    pub context: *mut c_void,
    pub data: u64,
}

/// A control operation that failed, fi_eq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_eq_err_entry {
    pub fid: fid_t,
    pub context: *mut c_void,
    pub data: u64,
    /// The error: a positive error number.
    pub err: c_int,
    /// The provider's error number, for fi_eq_strerror.
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// Result of `FI_GETWAIT` for `FI_WAIT_MUTEX_COND`, fi_cq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mutex_cond {
    pub mutex: *mut pthread_mutex_t,
    pub cond: *mut pthread_cond_t,
}

/// Attributes of a poll set, fi_poll(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_poll_attr {
    pub flags: u64,
}

/// Attributes of a wait set, fi_poll(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_wait_attr {
    pub wait_obj: fi_wait_obj,
    pub flags: u64,
}

/// Result of `FI_GETWAIT` for `FI_WAIT_POLLFD`, fi_cq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_wait_pollfd {
    pub change_index: u64,
    pub nfds: usize,
    pub fd: *mut pollfd,
}

/// Operations of a counter, fi_cntr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_cntr {
    pub size: usize,
    pub read: Option<unsafe extern "C" fn(cntr: *mut fid_cntr) -> u64>,
    pub readerr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr) -> u64>,
    pub add: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
    pub set: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
    pub wait:
        Option<unsafe extern "C" fn(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int>,
    pub adderr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
    pub seterr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
    pub export_xpu: Option<
        unsafe extern "C" fn(cntr: *mut fid_cntr, flags: u64, xpu_cntr: *mut fid_xpu_cntr) -> c_int,
    >,
}

/// Operations of a completion queue, fi_cq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_cq {
    pub size: usize,
    pub read:
        Option<unsafe extern "C" fn(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> ssize_t>,
    pub readfrom: Option<
        unsafe extern "C" fn(
            cq: *mut fid_cq,
            buf: *mut c_void,
            count: usize,
            src_addr: *mut fi_addr_t,
        ) -> ssize_t,
    >,
    pub readerr: Option<
        unsafe extern "C" fn(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> ssize_t,
    >,
    pub sread: Option<
        unsafe extern "C" fn(
            cq: *mut fid_cq,
            buf: *mut c_void,
            count: usize,
            cond: *const c_void,
            timeout: c_int,
        ) -> ssize_t,
    >,
    pub sreadfrom: Option<
        unsafe extern "C" fn(
            cq: *mut fid_cq,
            buf: *mut c_void,
            count: usize,
            src_addr: *mut fi_addr_t,
            cond: *const c_void,
            timeout: c_int,
        ) -> ssize_t,
    >,
    pub signal: Option<unsafe extern "C" fn(cq: *mut fid_cq) -> c_int>,
    pub strerror: Option<
        unsafe extern "C" fn(
            cq: *mut fid_cq,
            prov_errno: c_int,
            err_data: *const c_void,
            buf: *mut c_char,
            len: usize,
        ) -> *const c_char,
    >,
    pub export_xpu:
        Option<unsafe extern "C" fn(cq: *mut fid_cq, flags: u64, xpu_cq: *mut fid_xpu_cq) -> c_int>,
}

/// Operations of an event queue, fi_eq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_eq {
    pub size: usize,
    pub read: Option<
        unsafe extern "C" fn(
            eq: *mut fid_eq,
            event: *mut u32,
            buf: *mut c_void,
            len: usize,
            flags: u64,
        ) -> ssize_t,
    >,
    pub readerr: Option<
        unsafe extern "C" fn(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> ssize_t,
    >,
    pub write: Option<
        unsafe extern "C" fn(
            eq: *mut fid_eq,
            event: u32,
            buf: *const c_void,
            len: usize,
            flags: u64,
        ) -> ssize_t,
    >,
    pub sread: Option<
        unsafe extern "C" fn(
            eq: *mut fid_eq,
            event: *mut u32,
            buf: *mut c_void,
            len: usize,
            timeout: c_int,
            flags: u64,
        ) -> ssize_t,
    >,
    pub strerror: Option<
        unsafe extern "C" fn(
            eq: *mut fid_eq,
            prov_errno: c_int,
            err_data: *const c_void,
            buf: *mut c_char,
            len: usize,
        ) -> *const c_char,
    >,
}

/// Operations of a poll set, fi_poll(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_poll {
    pub size: usize,
    pub poll: Option<
        unsafe extern "C" fn(
            pollset: *mut fid_poll,
            context: *mut *mut c_void,
            count: c_int,
        ) -> c_int,
    >,
    pub poll_add: Option<
        unsafe extern "C" fn(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int,
    >,
    pub poll_del: Option<
        unsafe extern "C" fn(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int,
    >,
}

/// Operations of a wait set, fi_poll(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_wait {
    pub size: usize,
    pub wait: Option<unsafe extern "C" fn(waitset: *mut fid_wait, timeout: c_int) -> c_int>,
}

/// A counter, fi_cntr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_cntr {
    pub fid: fid,
    pub ops: *mut fi_ops_cntr,
}

/// A completion queue, fi_cq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *mut fi_ops_cq,
}

/// An event queue, fi_eq(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_eq {
    pub fid: fid,
    pub ops: *mut fi_ops_eq,
}

/// A poll set, fi_poll(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_poll {
    pub fid: fid,
    pub ops: *mut fi_ops_poll,
}

/// A wait set, fi_poll(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_wait {
    pub fid: fid,
    pub ops: *mut fi_ops_wait,
}

zero_is_valid!(
    fi_cntr_attr,
    fi_cq_attr,
    fi_cq_data_entry,
    fi_cq_entry,
    fi_cq_err_entry,
    fi_cq_msg_entry,
    fi_cq_tagged_entry,
    fi_eq_attr,
    fi_eq_cm_entry,
    fi_eq_entry,
    fi_eq_err_entry,
    fi_mutex_cond,
    fi_poll_attr,
    fi_wait_attr,
    fi_wait_pollfd,
    fi_ops_cntr,
    fi_ops_cq,
    fi_ops_eq,
    fi_ops_poll,
    fi_ops_wait,
    fid_cntr,
    fid_cq,
    fid_eq,
    fid_poll,
    fid_wait
);
