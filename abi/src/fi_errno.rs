//! Declarations of `<rdma/fi_errno.h>`.

use core::ffi::c_int;

/// No error.
pub const FI_SUCCESS: c_int = 0;

// Error numbers of the system under their libfabric names, fi_errno(3).

pub const FI_EPERM: c_int = libc::EPERM;
pub const FI_ENOENT: c_int = libc::ENOENT;
pub const FI_EINTR: c_int = libc::EINTR;
pub const FI_EIO: c_int = libc::EIO;
pub const FI_E2BIG: c_int = libc::E2BIG;
pub const FI_EBADF: c_int = libc::EBADF;
pub const FI_EAGAIN: c_int = libc::EAGAIN;
pub const FI_EWOULDBLOCK: c_int = libc::EWOULDBLOCK;
pub const FI_ENOMEM: c_int = libc::ENOMEM;
pub const FI_EACCES: c_int = libc::EACCES;
pub const FI_EFAULT: c_int = libc::EFAULT;
pub const FI_EBUSY: c_int = libc::EBUSY;
pub const FI_ENODEV: c_int = libc::ENODEV;
pub const FI_EINVAL: c_int = libc::EINVAL;
pub const FI_EMFILE: c_int = libc::EMFILE;
pub const FI_ENOSPC: c_int = libc::ENOSPC;
pub const FI_ENOSYS: c_int = libc::ENOSYS;
pub const FI_ENOMSG: c_int = libc::ENOMSG;
pub const FI_ENODATA: c_int = libc::ENODATA;
pub const FI_EPROTO: c_int = libc::EPROTO;
pub const FI_EOVERFLOW: c_int = libc::EOVERFLOW;
pub const FI_EMSGSIZE: c_int = libc::EMSGSIZE;
pub const FI_ENOPROTOOPT: c_int = libc::ENOPROTOOPT;
pub const FI_EOPNOTSUPP: c_int = libc::EOPNOTSUPP;
pub const FI_EADDRINUSE: c_int = libc::EADDRINUSE;
pub const FI_EADDRNOTAVAIL: c_int = libc::EADDRNOTAVAIL;
pub const FI_ENETDOWN: c_int = libc::ENETDOWN;
pub const FI_ENETUNREACH: c_int = libc::ENETUNREACH;
pub const FI_ECONNABORTED: c_int = libc::ECONNABORTED;
pub const FI_ECONNRESET: c_int = libc::ECONNRESET;
pub const FI_ENOBUFS: c_int = libc::ENOBUFS;
pub const FI_EISCONN: c_int = libc::EISCONN;
pub const FI_ENOTCONN: c_int = libc::ENOTCONN;
pub const FI_ESHUTDOWN: c_int = libc::ESHUTDOWN;
pub const FI_ETIMEDOUT: c_int = libc::ETIMEDOUT;
pub const FI_ECONNREFUSED: c_int = libc::ECONNREFUSED;
pub const FI_EHOSTDOWN: c_int = libc::EHOSTDOWN;
pub const FI_EHOSTUNREACH: c_int = libc::EHOSTUNREACH;
pub const FI_EALREADY: c_int = libc::EALREADY;
pub const FI_EINPROGRESS: c_int = libc::EINPROGRESS;
pub const FI_EREMOTEIO: c_int = libc::EREMOTEIO;
pub const FI_ECANCELED: c_int = libc::ECANCELED;
pub const FI_EKEYREJECTED: c_int = libc::EKEYREJECTED;

/// First error number that no operating system uses.
pub const FI_ERRNO_OFFSET: c_int = 256;

c_enum! {
    /// Error numbers beyond those of the system, fi_errno(3).
    enum : c_int {
        FI_EOTHER = 256,
        FI_ETOOSMALL,
        FI_EOPBADSTATE,
        FI_EAVAIL,
        FI_EBADFLAGS,
        FI_ENOEQ,
        FI_EDOMAIN,
        FI_ENOCQ,
        FI_ECRC,
        FI_ETRUNC,
        FI_ENOKEY,
        FI_ENOAV,
        FI_EOVERRUN,
        FI_ENORX,
        FI_ENOMR,
        FI_EFIREWALLADDR,
        FI_ERRNO_MAX,
    }
}
