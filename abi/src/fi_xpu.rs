//! Declarations of `<rdma/fi_xpu.h>`.

use crate::*;
use core::ffi::{c_int, c_uint, c_void};

c_enum! {
    /// Execution scopes of fi_xpu(3).
    enum : c_uint {
        FI_XPU_WORK_ITEM,
        FI_XPU_SUBGROUP,
        FI_XPU_WORK_GROUP,
        FI_XPU_DEVICE,
    }
}

c_enum! {
    pub enum fi_xpu_provider: c_uint {
        FI_XPU_PROV_EFA = 1,
    }
}

pub const FI_XPU_ALLOC_DMABUF: u64 = 1;
pub const FI_XPU_CAP_CNTR: u64 = 4;
pub const FI_XPU_CAP_CQ: u64 = 2;
pub const FI_XPU_CAP_EP: u64 = 1;
pub const FI_XPU_IMPORT_DEVICEMAP: u64 = 2;
pub const FI_XPU_IMPORT_IOMEMORY: u64 = 1;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_xpu_ctx {
    pub size: usize,
    pub query: Option<unsafe extern "C" fn(*mut fid_xpu_ctx, *mut fi_xpu_ctx_attr) -> c_int>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_xpu_attr {
    pub iface: fi_hmem_iface,
    pub device: u64,
    pub ops: *mut fi_xpu_ops,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_xpu_ctx_attr {
    pub caps: u64,
    pub av_addr_size: usize,
    pub mr_desc_size: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_xpu_ops {
    pub size: usize,
    pub alloc: Option<
        unsafe extern "C" fn(u64, u64, u64, u64, *mut *mut c_void, *mut c_int, *mut u64) -> c_int,
    >,
    pub import: Option<unsafe extern "C" fn(u64, *mut c_void, u64, u64, *mut *mut c_void) -> c_int>,
    pub free: Option<unsafe extern "C" fn(u64, *mut c_void)>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_xpu {
    pub fclass: u32,
    pub prov_id: u32,
    pub prov_ctx: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_xpu_cntr {
    pub fid: fid_xpu,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_xpu_cq {
    pub fid: fid_xpu,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_xpu_ctx {
    pub fid: fid,
    pub ops: *mut fi_ops_xpu_ctx,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_xpu_ep {
    pub fid: fid_xpu,
}

zero_is_valid! {fi_ops_xpu_ctx, fi_xpu_attr, fi_xpu_ctx_attr, fi_xpu_ops, fid_xpu, fid_xpu_cntr, fid_xpu_cq, fid_xpu_ctx, fid_xpu_ep}
