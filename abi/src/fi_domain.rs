//! Declarations of `<rdma/fi_domain.h>`.

use crate::*;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{iovec, ssize_t};

c_enum! {
    pub enum fi_collective_op: c_uint {
        FI_BARRIER,
        FI_BROADCAST,
        FI_ALLTOALL,
        FI_ALLREDUCE,
        FI_ALLGATHER,
        FI_REDUCE_SCATTER,
        FI_REDUCE,
        FI_SCATTER,
        FI_GATHER,
    }
}

c_enum! {
    pub enum fi_datatype: c_uint {
        FI_INT8,
        FI_UINT8,
        FI_INT16,
        FI_UINT16,
        FI_INT32,
        FI_UINT32,
        FI_INT64,
        FI_UINT64,
        FI_FLOAT,
        FI_DOUBLE,
        FI_FLOAT_COMPLEX,
        FI_DOUBLE_COMPLEX,
        FI_LONG_DOUBLE,
        FI_LONG_DOUBLE_COMPLEX,
        FI_INT128,
        FI_UINT128,
        FI_FLOAT16,
        FI_BFLOAT16,
        FI_FLOAT8_E4M3,
        FI_FLOAT8_E5M2,
        FI_VOID = 256,
    }
}

c_enum! {
    pub enum fi_hmem_iface: c_uint {
        FI_HMEM_SYSTEM,
        FI_HMEM_CUDA,
        FI_HMEM_ROCR,
        FI_HMEM_ZE,
        FI_HMEM_NEURON,
        FI_HMEM_SYNAPSEAI,
    }
}

c_enum! {
    pub enum fi_op: c_uint {
        FI_MIN,
        FI_MAX,
        FI_SUM,
        FI_PROD,
        FI_LOR,
        FI_LAND,
        FI_BOR,
        FI_BAND,
        FI_LXOR,
        FI_BXOR,
        FI_ATOMIC_READ,
        FI_ATOMIC_WRITE,
        FI_CSWAP,
        FI_CSWAP_NE,
        FI_CSWAP_LE,
        FI_CSWAP_LT,
        FI_CSWAP_GE,
        FI_CSWAP_GT,
        FI_MSWAP,
        FI_DIFF,
        FI_NOOP = 256,
    }
}

pub const FI_ALLGATHER_SET: u64 = 1 << 44;
pub const FI_ALLREDUCE_SET: u64 = 1 << 43;
pub const FI_ALLTOALL_SET: u64 = 1 << 42;
pub const FI_BARRIER_SET: u64 = 1 << 40;
pub const FI_BROADCAST_SET: u64 = 1 << 41;
pub const FI_COLLECTIVE_OFFSET: c_int = 256;
pub const FI_GATHER_SET: u64 = 1 << 48;
pub const FI_HMEM_DEVICE_ONLY: u64 = 1 << 46;
pub const FI_HMEM_HOST_ALLOC: u64 = 1 << 45;
pub const FI_MR_DMABUF: u64 = 1 << 40;
pub const FI_MR_SINGLE_USE: u64 = 1 << 41;
pub const FI_REDUCE_SCATTER_SET: u64 = 1 << 45;
pub const FI_REDUCE_SET: u64 = 1 << 46;
pub const FI_REG_MR: u64 = 1 << 59;
pub const FI_SCATTER_SET: u64 = 1 << 47;
pub const FI_SYMMETRIC: u64 = 1 << 59;
pub const FI_SYNC_ERR: u64 = 1 << 58;
pub const FI_UNIVERSE: u64 = 1 << 57;
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_av_attr {
    pub type_: fi_av_type,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_av_set_attr {
    pub count: usize,
    pub start_addr: fi_addr_t,
    pub end_addr: fi_addr_t,
    pub stride: u64,
    pub comm_key_size: usize,
    pub comm_key: *mut u8,
    pub flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_hmem_override_ops {
    pub size: usize,
    pub copy_from_hmem_iov: Option<
        unsafe extern "C" fn(
            *mut c_void,
            usize,
            fi_hmem_iface,
            u64,
            *const iovec,
            usize,
            u64,
        ) -> ssize_t,
    >,
    pub copy_to_hmem_iov: Option<
        unsafe extern "C" fn(
            fi_hmem_iface,
            u64,
            *const iovec,
            usize,
            u64,
            *const c_void,
            usize,
        ) -> ssize_t,
    >,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_mr_attr_device {
    pub reserved: u64,
    pub cuda: c_int,
    pub ze: c_int,
    pub neuron: c_int,
    pub synapseai: c_int,
    pub rocr: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_attr {
    pub mr_iov: *const iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: fi_hmem_iface,
    pub device: fi_mr_attr_device,
    pub hmem_data: *mut c_void,
    pub page_size: usize,
    pub base_mr: *const fid_mr,
    pub sub_mr_cnt: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_auth_key {
    pub av: *mut fid_av,
    pub src_addr: fi_addr_t,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_dmabuf {
    pub fd: c_int,
    pub offset: u64,
    pub len: usize,
    pub base_addr: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_modify {
    pub flags: u64,
    pub attr: fi_mr_attr,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_av {
    pub size: usize,
    pub insert: Option<
        unsafe extern "C" fn(
            *mut fid_av,
            *const c_void,
            usize,
            *mut fi_addr_t,
            u64,
            *mut c_void,
        ) -> c_int,
    >,
    pub insertsvc: Option<
        unsafe extern "C" fn(
            *mut fid_av,
            *const c_char,
            *const c_char,
            *mut fi_addr_t,
            u64,
            *mut c_void,
        ) -> c_int,
    >,
    pub insertsym: Option<
        unsafe extern "C" fn(
            *mut fid_av,
            *const c_char,
            usize,
            *const c_char,
            usize,
            *mut fi_addr_t,
            u64,
            *mut c_void,
        ) -> c_int,
    >,
    pub remove: Option<unsafe extern "C" fn(*mut fid_av, *mut fi_addr_t, usize, u64) -> c_int>,
    pub lookup:
        Option<unsafe extern "C" fn(*mut fid_av, fi_addr_t, *mut c_void, *mut usize) -> c_int>,
    pub straddr: Option<
        unsafe extern "C" fn(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    >,
    pub av_set: Option<
        unsafe extern "C" fn(
            *mut fid_av,
            *mut fi_av_set_attr,
            *mut *mut fid_av_set,
            *mut c_void,
        ) -> c_int,
    >,
    pub insert_auth_key: Option<
        unsafe extern "C" fn(*mut fid_av, *const c_void, usize, *mut fi_addr_t, u64) -> c_int,
    >,
    pub lookup_auth_key:
        Option<unsafe extern "C" fn(*mut fid_av, fi_addr_t, *mut c_void, *mut usize) -> c_int>,
    pub set_user_id: Option<unsafe extern "C" fn(*mut fid_av, fi_addr_t, fi_addr_t, u64) -> c_int>,
    pub lookup2: Option<
        unsafe extern "C" fn(
            *mut fid_av,
            fi_addr_t,
            *mut c_void,
            *mut usize,
            u64,
            *mut fid_xpu_ctx,
        ) -> c_int,
    >,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_domain {
    pub size: usize,
    pub av_open: Option<
        unsafe extern "C" fn(
            *mut fid_domain,
            *mut fi_av_attr,
            *mut *mut fid_av,
            *mut c_void,
        ) -> c_int,
    >,
    pub cq_open: Option<
        unsafe extern "C" fn(
            *mut fid_domain,
            *mut fi_cq_attr,
            *mut *mut fid_cq,
            *mut c_void,
        ) -> c_int,
    >,
    pub endpoint: Option<
        unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
    >,
    pub scalable_ep: Option<
        unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
    >,
    pub cntr_open: Option<
        unsafe extern "C" fn(
            *mut fid_domain,
            *mut fi_cntr_attr,
            *mut *mut fid_cntr,
            *mut c_void,
        ) -> c_int,
    >,
    pub poll_open: Option<
        unsafe extern "C" fn(*mut fid_domain, *mut fi_poll_attr, *mut *mut fid_poll) -> c_int,
    >,
    pub stx_ctx: Option<
        unsafe extern "C" fn(
            *mut fid_domain,
            *mut fi_tx_attr,
            *mut *mut fid_stx,
            *mut c_void,
        ) -> c_int,
    >,
    pub srx_ctx: Option<
        unsafe extern "C" fn(
            *mut fid_domain,
            *mut fi_rx_attr,
            *mut *mut fid_ep,
            *mut c_void,
        ) -> c_int,
    >,
    pub query_atomic: Option<
        unsafe extern "C" fn(
            *mut fid_domain,
            fi_datatype,
            fi_op,
            *mut fi_atomic_attr,
            u64,
        ) -> c_int,
    >,
    pub query_collective: Option<
        unsafe extern "C" fn(
            *mut fid_domain,
            fi_collective_op,
            *mut fi_collective_attr,
            u64,
        ) -> c_int,
    >,
    pub endpoint2: Option<
        unsafe extern "C" fn(
            *mut fid_domain,
            *mut fi_info,
            *mut *mut fid_ep,
            u64,
            *mut c_void,
        ) -> c_int,
    >,
    pub xpu_ctx: Option<
        unsafe extern "C" fn(
            *mut fid_domain,
            *mut fi_xpu_attr,
            *mut *mut fid_xpu_ctx,
            *mut c_void,
        ) -> c_int,
    >,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_mr {
    pub size: usize,
    pub reg: Option<
        unsafe extern "C" fn(
            *mut fid,
            *const c_void,
            usize,
            u64,
            u64,
            u64,
            u64,
            *mut *mut fid_mr,
            *mut c_void,
        ) -> c_int,
    >,
    pub regv: Option<
        unsafe extern "C" fn(
            *mut fid,
            *const iovec,
            usize,
            u64,
            u64,
            u64,
            u64,
            *mut *mut fid_mr,
            *mut c_void,
        ) -> c_int,
    >,
    pub regattr:
        Option<unsafe extern "C" fn(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *mut fi_ops_av,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *mut fi_ops_domain,
    pub mr: *mut fi_ops_mr,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

zero_is_valid! {fi_av_attr, fi_av_set_attr, fi_hmem_override_ops, fi_mr_attr, fi_mr_auth_key, fi_mr_dmabuf, fi_mr_modify, fi_ops_av, fi_ops_domain, fi_ops_mr, fid_av, fid_domain, fid_mr, fi_mr_attr_device}

opaque_debug! {fi_mr_attr_device}
