//! Declarations of `<rdma/fi_ext.h>`.

use crate::*;
use core::ffi::{c_char, c_int, c_void};

c_enum! {
    /// Endpoint options of the efa provider, fi_efa(7).
    enum : c_int {
        FI_OPT_EFA_RNR_RETRY = -0xefa0000,
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

pub const FI_LOG_PROV_FILTERED: u64 = 1;
pub const FI_PROV_SPECIFIC_EFA: c_int = 0xefa0000;
pub const FI_PROV_SPECIFIC_TCP: c_int = 0x7cb0000;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_fid_export {
    pub fid: *mut *mut fid,
    pub flags: u64,
    pub context: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_log {
    pub size: usize,
    pub enabled:
        Option<unsafe extern "C" fn(*const fi_provider, fi_log_level, fi_log_subsys, u64) -> c_int>,
    pub ready: Option<
        unsafe extern "C" fn(
            *const fi_provider,
            fi_log_level,
            fi_log_subsys,
            u64,
            *mut u64,
        ) -> c_int,
    >,
    pub log: Option<
        unsafe extern "C" fn(
            *const fi_provider,
            fi_log_level,
            fi_log_subsys,
            *const c_char,
            c_int,
            *const c_char,
        ),
    >,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_mem_monitor {
    pub size: usize,
    pub start: Option<unsafe extern "C" fn(*mut fid_mem_monitor) -> c_int>,
    pub stop: Option<unsafe extern "C" fn(*mut fid_mem_monitor)>,
    pub subscribe:
        Option<unsafe extern "C" fn(*mut fid_mem_monitor, *const c_void, usize) -> c_int>,
    pub unsubscribe: Option<unsafe extern "C" fn(*mut fid_mem_monitor, *const c_void, usize)>,
    pub valid: Option<unsafe extern "C" fn(*mut fid_mem_monitor, *const c_void, usize) -> bool>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_mem_notify {
    pub size: usize,
    pub notify: Option<unsafe extern "C" fn(*mut fid_mem_monitor, *const c_void, usize)>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_logging {
    pub fid: fid,
    pub ops: *mut fi_ops_log,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_mem_monitor {
    pub fid: fid,
    pub export_ops: *mut fi_ops_mem_monitor,
    pub import_ops: *mut fi_ops_mem_notify,
}

zero_is_valid! {fi_fid_export, fi_ops_log, fi_ops_mem_monitor, fi_ops_mem_notify, fid_logging, fid_mem_monitor}
