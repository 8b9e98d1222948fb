//! Declarations of `<rdma/fi_domain.h>`.

use crate::*;
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::{iovec, ssize_t};

// Flags of memory registration, fi_mr(3).

pub const FI_MR_DMABUF: u64 = 1 << 40;
pub const FI_MR_SINGLE_USE: u64 = 1 << 41;
pub const FI_HMEM_HOST_ALLOC: u64 = 1 << 45;
pub const FI_HMEM_DEVICE_ONLY: u64 = 1 << 46;
pub const FI_REG_MR: u64 = 1 << 59;

// Flags of address vectors, fi_av(3), and of address vector sets, fi_av_set(3).

pub const FI_SYNC_ERR: u64 = 1 << 58;
pub const FI_SYMMETRIC: u64 = 1 << 59;
pub const FI_UNIVERSE: u64 = 1 << 57;
pub const FI_BARRIER_SET: u64 = 1 << 40;
pub const FI_BROADCAST_SET: u64 = 1 << 41;
pub const FI_ALLTOALL_SET: u64 = 1 << 42;
pub const FI_ALLREDUCE_SET: u64 = 1 << 43;
pub const FI_ALLGATHER_SET: u64 = 1 << 44;
pub const FI_REDUCE_SCATTER_SET: u64 = 1 << 45;
pub const FI_REDUCE_SET: u64 = 1 << 46;
pub const FI_SCATTER_SET: u64 = 1 << 47;
pub const FI_GATHER_SET: u64 = 1 << 48;

// First value of the data types and operations of collectives only.

pub const FI_COLLECTIVE_OFFSET: c_int = 256;

c_enum! {
    /// Collective operations, fi_collective(3).
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
    /// Element types of atomic and collective operations, fi_atomic(3).
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
    /// Interfaces to device memory, fi_mr(3).
    pub enum fi_hmem_iface: c_uint {
        /// Ordinary memory.
        FI_HMEM_SYSTEM,
        FI_HMEM_CUDA,
        FI_HMEM_ROCR,
        FI_HMEM_ZE,
        FI_HMEM_NEURON,
        FI_HMEM_SYNAPSEAI,
    }
}

c_enum! {
    /// Atomic operations, fi_atomic(3).
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

/// Attributes of an address vector, fi_av(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_av_attr {
    pub type_: fi_av_type,
    /// Number of upper bits of an address that select a receive context of a scalable endpoint.
    pub rx_ctx_bits: c_int,
    /// Expected number of insertions.
    pub count: usize,
    /// Expected number of endpoints at one network address; 0: unknown.
    pub ep_per_node: usize,
    /// Name under which processes share the vector, or null.
    pub name: *const c_char,
    /// Base of a shared vector's addresses, or null.
    pub map_addr: *mut c_void,
    pub flags: u64,
}

/// Attributes of an address vector set, fi_av_set(3).
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

/// Functions of the application that copy from and to device memory, instead of the provider's,
/// fi_mr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_hmem_override_ops {
    pub size: usize,
    pub copy_from_hmem_iov: Option<
        unsafe extern "C" fn(
            dest: *mut c_void,
            size: usize,
            iface: fi_hmem_iface,
            device: u64,
            hmem_iov: *const iovec,
            hmem_iov_count: usize,
            hmem_iov_offset: u64,
        ) -> ssize_t,
    >,
    pub copy_to_hmem_iov: Option<
        unsafe extern "C" fn(
            iface: fi_hmem_iface,
            device: u64,
            hmem_iov: *const iovec,
            hmem_iov_count: usize,
            hmem_iov_offset: u64,
            src: *const c_void,
            size: usize,
        ) -> ssize_t,
    >,
}

/// Identifies the device whose memory it is, by `iface`.
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

/// A memory region to register, fi_mr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_attr {
    /// With flag `FI_MR_DMABUF` this points to an `fi_mr_dmabuf` array instead.
    pub mr_iov: *const iovec,
    pub iov_count: usize,
    /// Operations for which the memory is registered: `FI_SEND`, `FI_REMOTE_WRITE`...
    pub access: u64,
    /// Offset of the region's first byte for peers, without `FI_MR_VIRT_ADDR`.
    pub offset: u64,
    /// The key, unless the provider chooses it (`FI_MR_PROV_KEY`).
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: fi_hmem_iface,
    pub device: fi_mr_attr_device,
    pub hmem_data: *mut c_void,
    /// Size of a page of the memory in bytes; 0: unknown.
    pub page_size: usize,
    /// A registration that this one is part of, or null.
    pub base_mr: *const fid_mr,
    /// Expected number of registrations of parts of this one.
    pub sub_mr_cnt: usize,
}

/// An authorization key, by the address vector entry that contains it, fi_mr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_auth_key {
    pub av: *mut fid_av,
    pub src_addr: fi_addr_t,
}

/// Part of a dma-buf: offset, length and base in bytes, fi_mr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_dmabuf {
    pub fd: c_int,
    pub offset: u64,
    pub len: usize,
    pub base_addr: *mut c_void,
}

/// Argument of `FI_REFRESH`: the part of a region that changed, fi_mr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_mr_modify {
    pub flags: u64,
    pub attr: fi_mr_attr,
}

/// Operations of an address vector, fi_av(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_av {
    pub size: usize,
    pub insert: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            addr: *const c_void,
            count: usize,
            fi_addr: *mut fi_addr_t,
            flags: u64,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub insertsvc: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            node: *const c_char,
            service: *const c_char,
            fi_addr: *mut fi_addr_t,
            flags: u64,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub insertsym: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            node: *const c_char,
            nodecnt: usize,
            service: *const c_char,
            svccnt: usize,
            fi_addr: *mut fi_addr_t,
            flags: u64,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub remove: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            fi_addr: *mut fi_addr_t,
            count: usize,
            flags: u64,
        ) -> c_int,
    >,
    pub lookup: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            addr: *mut c_void,
            addrlen: *mut usize,
        ) -> c_int,
    >,
    pub straddr: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            addr: *const c_void,
            buf: *mut c_char,
            len: *mut usize,
        ) -> *const c_char,
    >,
    pub av_set: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            attr: *mut fi_av_set_attr,
            av_set: *mut *mut fid_av_set,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub insert_auth_key: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            auth_key: *const c_void,
            auth_key_size: usize,
            fi_addr: *mut fi_addr_t,
            flags: u64,
        ) -> c_int,
    >,
    pub lookup_auth_key: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            auth_key: *mut c_void,
            auth_key_size: *mut usize,
        ) -> c_int,
    >,
    pub set_user_id: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            user_id: fi_addr_t,
            flags: u64,
        ) -> c_int,
    >,
    pub lookup2: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            buf: *mut c_void,
            len: *mut usize,
            flags: u64,
            xpu_ctx: *mut fid_xpu_ctx,
        ) -> c_int,
    >,
}

/// Operations of a domain, fi_domain(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_domain {
    pub size: usize,
    pub av_open: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_av_attr,
            av: *mut *mut fid_av,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub cq_open: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_cq_attr,
            cq: *mut *mut fid_cq,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub endpoint: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            info: *mut fi_info,
            ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub scalable_ep: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            info: *mut fi_info,
            sep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub cntr_open: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_cntr_attr,
            cntr: *mut *mut fid_cntr,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub poll_open: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_poll_attr,
            pollset: *mut *mut fid_poll,
        ) -> c_int,
    >,
    pub stx_ctx: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_tx_attr,
            stx: *mut *mut fid_stx,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub srx_ctx: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_rx_attr,
            rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub query_atomic: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            datatype: fi_datatype,
            op: fi_op,
            attr: *mut fi_atomic_attr,
            flags: u64,
        ) -> c_int,
    >,
    pub query_collective: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            coll: fi_collective_op,
            attr: *mut fi_collective_attr,
            flags: u64,
        ) -> c_int,
    >,
    pub endpoint2: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            info: *mut fi_info,
            ep: *mut *mut fid_ep,
            flags: u64,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub xpu_ctx: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_xpu_attr,
            ctx: *mut *mut fid_xpu_ctx,
            context: *mut c_void,
        ) -> c_int,
    >,
}

/// Memory registration of a domain, fi_mr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_ops_mr {
    pub size: usize,
    pub reg: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            buf: *const c_void,
            len: usize,
            access: u64,
            offset: u64,
            requested_key: u64,
            flags: u64,
            mr: *mut *mut fid_mr,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub regv: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            iov: *const iovec,
            count: usize,
            access: u64,
            offset: u64,
            requested_key: u64,
            flags: u64,
            mr: *mut *mut fid_mr,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub regattr: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            attr: *const fi_mr_attr,
            flags: u64,
            mr: *mut *mut fid_mr,
        ) -> c_int,
    >,
}

/// An address vector, fi_av(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *mut fi_ops_av,
}

/// A domain, fi_domain(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *mut fi_ops_domain,
    pub mr: *mut fi_ops_mr,
}

/// A registered memory region, fi_mr(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

zero_is_valid!(
    fi_av_attr,
    fi_av_set_attr,
    fi_hmem_override_ops,
    fi_mr_attr,
    fi_mr_auth_key,
    fi_mr_dmabuf,
    fi_mr_modify,
    fi_ops_av,
    fi_ops_domain,
    fi_ops_mr,
    fid_av,
    fid_domain,
    fid_mr,
    fi_mr_attr_device
);

opaque_debug!(fi_mr_attr_device);
