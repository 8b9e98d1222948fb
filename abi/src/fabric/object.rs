//! The common part of all objects, and the fabric object, of `<rdma/fabric.h>`.

use crate::*;
use core::ffi::{c_char, c_int, c_void};

/// An address in an address vector; opaque to the application, fi_av(3).
pub type fi_addr_t = u64;

/// A reference to any object.
pub type fid_t = *mut fid;

/// Argument of the `FI_ALIAS` command: location of the second handle, and its default operation
/// flags, fi_endpoint(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_alias {
    pub fid: *mut *mut fid,
    pub flags: u64,
}

/// Memory that the application provides with an operation in mode `FI_CONTEXT`, for the provider's
/// use only, fi_getinfo(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_context {
    pub internal: [*mut c_void; 4],
}

/// The larger memory of mode `FI_CONTEXT2`, fi_getinfo(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_context2 {
    pub internal: [*mut c_void; 8],
}

/// Argument of `FI_GET_VAL` and `FI_SET_VAL`: a variable of the provider and its value,
/// fi_control(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_fid_var {
    pub name: c_int,
    pub val: *mut c_void,
}

/// An element of the local vector of atomic and collective operations, whose length counts
/// elements, not bytes, fi_atomic(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ioc {
    pub addr: *mut c_void,
    pub count: usize,
}

/// Argument of `FI_MAP_RAW_MR`: a raw key, and the 64-bit key that it is mapped to, fi_mr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_map_raw {
    pub flags: u64,
    pub base_addr: u64,
    pub raw_key: *mut u8,
    pub key_size: usize,
    pub key: *mut u64,
}

/// Argument of `FI_GET_RAW_MR`: location of a region's base address and raw key, fi_mr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_raw_attr {
    pub flags: u64,
    pub base_addr: *mut u64,
    pub raw_key: *mut u8,
    pub key_size: *mut usize,
}

/// Argument of `FI_GET_MR_XPU_DESC`: location of a region's descriptor for accelerator code,
/// fi_xpu(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_xpu_desc {
    pub buf: *mut c_void,
    pub len: *mut usize,
    pub flags: u64,
    pub ctx: *mut fid_xpu_ctx,
}

/// A parameter that a user can set, as fi_getparams lists it, fi_provider(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_param {
    pub name: *const c_char,
    pub type_: fi_param_type,
    pub help_string: *const c_char,
    pub value: *const c_char,
}

/// Contents of a receive's `fi_context` in mode `FI_BUFFERED_RECV` of the 1.x interface.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_recv_context {
    pub ep: *mut fid_ep,
    pub context: *mut c_void,
}

/// Operations on every object.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops {
    pub size: usize,
    pub close: Option<unsafe extern "C" fn(fid: *mut fid) -> c_int>,
    pub bind: Option<unsafe extern "C" fn(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int>,
    pub control:
        Option<unsafe extern "C" fn(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int>,
    pub ops_open: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            name: *const c_char,
            flags: u64,
            ops: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub tostr: Option<unsafe extern "C" fn(fid: *const fid, buf: *mut c_char, len: usize) -> c_int>,
    pub ops_set: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            name: *const c_char,
            flags: u64,
            ops: *mut c_void,
            context: *mut c_void,
        ) -> c_int,
    >,
}

/// Operations of a fabric, fi_fabric(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_fabric {
    pub size: usize,
    pub domain: Option<
        unsafe extern "C" fn(
            fabric: *mut fid_fabric,
            info: *mut fi_info,
            domain: *mut *mut fid_domain,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub passive_ep: Option<
        unsafe extern "C" fn(
            fabric: *mut fid_fabric,
            info: *mut fi_info,
            pep: *mut *mut fid_pep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub eq_open: Option<
        unsafe extern "C" fn(
            fabric: *mut fid_fabric,
            attr: *mut fi_eq_attr,
            eq: *mut *mut fid_eq,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub wait_open: Option<
        unsafe extern "C" fn(
            fabric: *mut fid_fabric,
            attr: *mut fi_wait_attr,
            waitset: *mut *mut fid_wait,
        ) -> c_int,
    >,
    pub trywait: Option<
        unsafe extern "C" fn(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int,
    >,
    pub domain2: Option<
        unsafe extern "C" fn(
            fabric: *mut fid_fabric,
            info: *mut fi_info,
            domain: *mut *mut fid_domain,
            flags: u64,
            context: *mut c_void,
        ) -> c_int,
    >,
}

/// The first member of every object: its class, the application's context and the operations that
/// all objects have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid {
    /// Class of the object: `FI_CLASS_*`.
    pub fclass: usize,
    /// The application's context of the object, an argument of the call that opened it.
    pub context: *mut c_void,
    pub ops: *mut fi_ops,
}

/// A fabric, fi_fabric(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *mut fi_ops_fabric,
    pub api_version: u32,
}

zero_is_valid!(
    fi_alias,
    fi_context,
    fi_context2,
    fi_fid_var,
    fi_ioc,
    fi_mr_map_raw,
    fi_mr_raw_attr,
    fi_mr_xpu_desc,
    fi_param,
    fi_recv_context,
    fi_ops,
    fi_ops_fabric,
    fid,
    fid_fabric
);
