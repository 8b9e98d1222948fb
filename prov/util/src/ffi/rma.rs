//! fi_rma(3): remote memory access.

use std::ffi::c_void;

use fabric_abi::*;
use libc::iovec;

use super::ep::{Caps, EndpointObject};
use super::{Handle, missing, posted};
use crate::buffer::AppIov;
use crate::endpoint::Endpoint;
use crate::errno::{Errno, Result};
use crate::request::{Access, RemoteAccess, RemoteIov, RemotePiece};

struct Table<E>(std::marker::PhantomData<E>);

impl<E: Endpoint> Table<E> {
    const FUNCTIONS: fi_ops_rma = fi_ops_rma {
        size: size_of::<fi_ops_rma>(),
        read: Some(read::<E>),
        readv: Some(readv::<E>),
        readmsg: Some(readmsg::<E>),
        write: Some(write::<E>),
        writev: Some(writev::<E>),
        writemsg: Some(writemsg::<E>),
        inject: Some(inject::<E>),
        writedata: Some(writedata::<E>),
        injectdata: Some(injectdata::<E>),
    };
    const BOTH: &'static fi_ops_rma = &Self::FUNCTIONS;
    const READ: &'static fi_ops_rma = &fi_ops_rma {
        read: Some(read::<E>),
        readv: Some(readv::<E>),
        readmsg: Some(readmsg::<E>),
        ..missing::RMA
    };
    const WRITE: &'static fi_ops_rma = &fi_ops_rma {
        read: missing::slot(),
        readv: missing::slot(),
        readmsg: missing::slot(),
        ..Self::FUNCTIONS
    };
}

/// The table of an endpoint with these capabilities.
pub(super) fn table<E: Endpoint>(caps: Caps) -> *const fi_ops_rma {
    match (caps.reads(FI_RMA), caps.writes(FI_RMA)) {
        (true, true) => Table::<E>::BOTH,
        (true, false) => Table::<E>::READ,
        (false, true) => Table::<E>::WRITE,
        (false, false) => &raw const missing::RMA,
    }
}

/// One remote piece as long as the local memory.
#[inline(always)]
fn single(addr: u64, len: usize, key: u64) -> RemoteIov {
    let mut remote = RemoteIov::default();
    remote.push(RemotePiece {
        addr,
        len: len as u64,
        key,
    });
    remote
}

/// # Safety
/// `msg` is null or a valid message whose memory the application lends.
#[inline(always)]
unsafe fn post_msg<E: Endpoint>(
    ep: *mut fid_ep,
    access: Access,
    msg: *const fi_msg_rma,
    flags: u64,
) -> Result {
    // SAFETY: the caller vouches for the message and its vectors; the table
    // belongs to endpoints of `E`.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        let msg = msg.as_ref().ok_or(Errno::EINVAL)?;
        let local = AppIov::from_iov(msg.msg_iov, msg.iov_count)?;
        if msg.rma_iov.is_null() && msg.rma_iov_count != 0 {
            return Err(Errno::EINVAL);
        }
        let mut remote = RemoteIov::default();
        for i in 0..msg.rma_iov_count {
            let piece = &*msg.rma_iov.add(i);
            if !remote.push(RemotePiece {
                addr: piece.addr,
                len: piece.len as u64,
                key: piece.key,
            }) {
                return Err(Errno::EINVAL);
            }
        }
        if remote.len() != local.len() as u64 {
            return Err(Errno::EINVAL);
        }
        ep.access(&RemoteAccess {
            access,
            local,
            remote,
            peer: msg.addr,
            data: msg.data,
            flags: ep.tx.with(flags),
            context: msg.context,
        })
    }
}

unsafe extern "C" fn read<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the table belongs to endpoints of `E`; the application lends
    // `len` bytes at `buf`.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(ep.access(&RemoteAccess {
            access: Access::Read,
            local: AppIov::from_raw(buf.cast(), len),
            remote: single(addr, len, key),
            peer: src_addr,
            data: 0,
            flags: ep.tx.plain(),
            context,
        }))
    }
}

unsafe extern "C" fn readv<E: Endpoint>(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`, for the memory of `count` entries.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(AppIov::from_iov(iov, count).and_then(|local| {
            ep.access(&RemoteAccess {
                access: Access::Read,
                local,
                remote: single(addr, local.len(), key),
                peer: src_addr,
                data: 0,
                flags: ep.tx.plain(),
                context,
            })
        }))
    }
}

unsafe extern "C" fn readmsg<E: Endpoint>(
    ep: *mut fid_ep,
    msg: *const fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: the application passes a valid message.
    posted(unsafe { post_msg::<E>(ep, Access::Read, msg, flags) })
}

/// The single-buffer writes differ in their flags and data alone.
///
/// # Safety
/// As for [`read`].
#[inline(always)]
unsafe fn post_write<E: Endpoint>(
    ep: *mut fid_ep,
    local: AppIov,
    peer: fi_addr_t,
    (addr, key): (u64, u64),
    flags: impl FnOnce(&EndpointObject<E>) -> u64,
    data: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller vouches for the endpoint.
    let ep = unsafe { Handle::<EndpointObject<E>>::borrow(ep) };
    posted(ep.access(&RemoteAccess {
        access: Access::Write,
        local,
        remote: single(addr, local.len(), key),
        peer,
        data,
        flags: flags(ep),
        context,
    }))
}

unsafe extern "C" fn write<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`.
    unsafe {
        let local = AppIov::from_raw(buf.cast_mut().cast(), len);
        let flags = |ep: &EndpointObject<E>| ep.tx.plain();
        post_write::<E>(ep, local, dest_addr, (addr, key), flags, 0, context)
    }
}

unsafe extern "C" fn writev<E: Endpoint>(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`, for the memory of `count` entries.
    unsafe {
        match AppIov::from_iov(iov, count) {
            Ok(local) => {
                let flags = |ep: &EndpointObject<E>| ep.tx.plain();
                post_write::<E>(ep, local, dest_addr, (addr, key), flags, 0, context)
            }
            Err(error) => posted(Err(error)),
        }
    }
}

unsafe extern "C" fn writemsg<E: Endpoint>(
    ep: *mut fid_ep,
    msg: *const fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: the application passes a valid message.
    posted(unsafe { post_msg::<E>(ep, Access::Write, msg, flags) })
}

unsafe extern "C" fn inject<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: as in `read`.
    unsafe {
        let local = AppIov::from_raw(buf.cast_mut().cast(), len);
        let flags = |ep: &EndpointObject<E>| ep.tx.inject();
        let context = std::ptr::null_mut();
        post_write::<E>(ep, local, dest_addr, (addr, key), flags, 0, context)
    }
}

unsafe extern "C" fn writedata<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`.
    unsafe {
        let local = AppIov::from_raw(buf.cast_mut().cast(), len);
        let flags = |ep: &EndpointObject<E>| ep.tx.plain() | FI_REMOTE_CQ_DATA;
        post_write::<E>(ep, local, dest_addr, (addr, key), flags, data, context)
    }
}

unsafe extern "C" fn injectdata<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: as in `read`.
    unsafe {
        let local = AppIov::from_raw(buf.cast_mut().cast(), len);
        let flags = |ep: &EndpointObject<E>| ep.tx.inject() | FI_REMOTE_CQ_DATA;
        let context = std::ptr::null_mut();
        post_write::<E>(ep, local, dest_addr, (addr, key), flags, data, context)
    }
}
