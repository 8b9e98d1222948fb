//! Declarations of `<rdma/fi_xpu.h>`.

use crate::*;
use core::ffi::{c_int, c_uint, c_void};

// Flag of `fi_xpu_ops::alloc`: the memory can be exported as a dma-buf.

pub const FI_XPU_ALLOC_DMABUF: u64 = 1;

// Flags of `fi_xpu_ops::import`: the address is that of device registers; the result is for device
// code.

pub const FI_XPU_IMPORT_IOMEMORY: u64 = 1;
pub const FI_XPU_IMPORT_DEVICEMAP: u64 = 2;

// Objects that an accelerator context can export.

pub const FI_XPU_CAP_EP: u64 = 1;
pub const FI_XPU_CAP_CQ: u64 = 2;
pub const FI_XPU_CAP_CNTR: u64 = 4;

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
    /// Providers with device-side code, fi_xpu(3).
    pub enum fi_xpu_provider: c_uint {
        FI_XPU_PROV_EFA = 1,
    }
}

/// The accelerator of a context, fi_xpu(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_xpu_attr {
    pub iface: fi_hmem_iface,
    pub device: u64,
    pub ops: *mut fi_xpu_ops,
}

/// Objects that an accelerator context can export, and their sizes in bytes, fi_xpu(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_xpu_ctx_attr {
    pub caps: u64,
    pub av_addr_size: usize,
    pub mr_desc_size: usize,
}

/// Functions by which a provider allocates accelerator memory and maps host memory into the
/// accelerator, fi_xpu(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_xpu_ops {
    pub size: usize,
    pub alloc: Option<
        unsafe extern "C" fn(
            device: u64,
            size: u64,
            align: u64,
            flags: u64,
            addr: *mut *mut c_void,
            fd: *mut c_int,
            offset: *mut u64,
        ) -> c_int,
    >,
    pub import: Option<
        unsafe extern "C" fn(
            device: u64,
            addr: *mut c_void,
            size: u64,
            flags: u64,
            device_addr: *mut *mut c_void,
        ) -> c_int,
    >,
    pub free: Option<unsafe extern "C" fn(device: u64, addr: *mut c_void)>,
}

/// Operations of an accelerator context, fi_xpu(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_xpu_ctx {
    pub size: usize,
    pub query:
        Option<unsafe extern "C" fn(ctx: *mut fid_xpu_ctx, attr: *mut fi_xpu_ctx_attr) -> c_int>,
}

/// The first member of every object in accelerator memory, fi_xpu(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_xpu {
    pub fclass: u32,
    pub prov_id: u32,
    pub prov_ctx: u64,
}

/// A counter in accelerator memory, fi_xpu(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_xpu_cntr {
    pub fid: fid_xpu,
}

/// A completion queue in accelerator memory, fi_xpu(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_xpu_cq {
    pub fid: fid_xpu,
}

/// An accelerator context, fi_xpu(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_xpu_ctx {
    pub fid: fid,
    pub ops: *mut fi_ops_xpu_ctx,
}

/// An endpoint in accelerator memory, fi_xpu(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_xpu_ep {
    pub fid: fid_xpu,
}

zero_is_valid!(
    fi_xpu_attr,
    fi_xpu_ctx_attr,
    fi_xpu_ops,
    fi_ops_xpu_ctx,
    fid_xpu,
    fid_xpu_cntr,
    fid_xpu_cq,
    fid_xpu_ctx,
    fid_xpu_ep
);
