//! Declarations of `<rdma/fi_ext.h>`.

use crate::*;
use core::ffi::{c_char, c_int, c_void};

// Flag: log lines of providers that the user has filtered out are not passed to an imported log.

pub const FI_LOG_PROV_FILTERED: u64 = 1;

// Ranges of option and command values that belong to one provider.

pub const FI_PROV_SPECIFIC_EFA: c_int = 0xefa0000;
pub const FI_PROV_SPECIFIC_TCP: c_int = 0x7cb0000;

c_enum! {
    /// Endpoint options of the efa provider, fi_efa(7).
    enum : c_int {
        FI_OPT_EFA_RNR_RETRY = -FI_PROV_SPECIFIC_EFA,
        FI_OPT_EFA_EMULATED_READ,
        FI_OPT_EFA_EMULATED_WRITE,
        FI_OPT_EFA_EMULATED_ATOMICS,
        FI_OPT_EFA_USE_DEVICE_RDMA,
        FI_OPT_EFA_SENDRECV_IN_ORDER_ALIGNED_128_BYTES,
        FI_OPT_EFA_WRITE_IN_ORDER_ALIGNED_128_BYTES,
        FI_OPT_EFA_HOMOGENEOUS_PEERS,
        FI_OPT_EFA_USE_UNSOLICITED_WRITE_RECV,
    }
}

/// Argument of `FI_EXPORT_FID`: location of the object to share.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_fid_export {
    pub fid: *mut *mut fid,
    pub flags: u64,
    pub context: *mut c_void,
}

/// Functions of an application that receives all log lines, fi_provider(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_log {
    pub size: usize,
    pub enabled: Option<
        unsafe extern "C" fn(
            prov: *const fi_provider,
            level: fi_log_level,
            subsys: fi_log_subsys,
            flags: u64,
        ) -> c_int,
    >,
    pub ready: Option<
        unsafe extern "C" fn(
            prov: *const fi_provider,
            level: fi_log_level,
            subsys: fi_log_subsys,
            flags: u64,
            showtime: *mut u64,
        ) -> c_int,
    >,
    pub log: Option<
        unsafe extern "C" fn(
            prov: *const fi_provider,
            level: fi_log_level,
            subsys: fi_log_subsys,
            func: *const c_char,
            line: c_int,
            msg: *const c_char,
        ),
    >,
}

/// Functions of a memory monitor that the library imports.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_mem_monitor {
    pub size: usize,
    pub start: Option<unsafe extern "C" fn(monitor: *mut fid_mem_monitor) -> c_int>,
    pub stop: Option<unsafe extern "C" fn(monitor: *mut fid_mem_monitor)>,
    pub subscribe: Option<
        unsafe extern "C" fn(
            monitor: *mut fid_mem_monitor,
            addr: *const c_void,
            len: usize,
        ) -> c_int,
    >,
    pub unsubscribe: Option<
        unsafe extern "C" fn(monitor: *mut fid_mem_monitor, addr: *const c_void, len: usize),
    >,
    pub valid: Option<
        unsafe extern "C" fn(
            monitor: *mut fid_mem_monitor,
            addr: *const c_void,
            len: usize,
        ) -> bool,
    >,
}

/// Functions of the library that a memory monitor calls when a range is unmapped.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_mem_notify {
    pub size: usize,
    pub notify: Option<
        unsafe extern "C" fn(monitor: *mut fid_mem_monitor, addr: *const c_void, len: usize),
    >,
}

/// An application's logging, for fi_import.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_logging {
    pub fid: fid,
    pub ops: *mut fi_ops_log,
}

/// A memory monitor, for fi_import.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_mem_monitor {
    pub fid: fid,
    pub export_ops: *mut fi_ops_mem_monitor,
    pub import_ops: *mut fi_ops_mem_notify,
}

zero_is_valid!(
    fi_fid_export,
    fi_ops_log,
    fi_ops_mem_monitor,
    fi_ops_mem_notify,
    fid_logging,
    fid_mem_monitor
);
