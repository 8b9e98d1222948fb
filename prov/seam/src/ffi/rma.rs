//! fi_rma(3): remote memory access.

use std::ptr::null_mut;

use fabric_abi::*;

use super::call::{self, Call, Local, calls};
use super::ep::{EndpointObject, Request};
use super::{Handle, missing, posted};
use crate::endpoint::Endpoint;
use prov_base::errno::{Errno, Result};
use prov_objects::request::Access::{self, Read, Write};
use prov_objects::request::{RemoteAccess, RemoteIov, RemotePiece};

struct Table<E>(std::marker::PhantomData<E>);

impl<E: Endpoint> Table<E> {
    const ALL: &'static fi_ops_rma = &fi_ops_rma {
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
}

/// Returns the table of an endpoint of a provider with these capabilities.
pub(super) fn table<E: Endpoint>(caps: u64) -> *const fi_ops_rma {
    match caps & FI_RMA {
        0 => &raw const missing::RMA,
        _ => Table::<E>::ALL,
    }
}

calls! {
    fn read<E: Endpoint>(ep, room, len, desc, peer, addr, key, context) {
        one::<E>(ep, Read, Local::one(room, len, desc), addr, key, Call::plain(peer, context))
    }

    fn write<E: Endpoint>(ep, buf, len, desc, peer, addr, key, context) {
        one::<E>(ep, Write, Local::one(buf, len, desc), addr, key, Call::plain(peer, context))
    }

    fn readv<E: Endpoint>(ep, iov, descs, count, peer, addr, key, context) {
        let local = Local::vector(iov, descs, count)?;
        one::<E>(ep, Read, local, addr, key, Call::plain(peer, context))
    }

    fn writev<E: Endpoint>(ep, iov, descs, count, peer, addr, key, context) {
        let local = Local::vector(iov, descs, count)?;
        one::<E>(ep, Write, local, addr, key, Call::plain(peer, context))
    }

    fn readmsg<E: Endpoint>(ep, msg: *const fi_msg_rma, flags) {
        message::<E>(ep, Read, msg, flags)
    }

    fn writemsg<E: Endpoint>(ep, msg: *const fi_msg_rma, flags) {
        message::<E>(ep, Write, msg, flags)
    }

    fn inject<E: Endpoint>(ep, buf, len, peer, addr, key) {
        let local = Local::one(buf, len, null_mut());
        one::<E>(ep, Write, local, addr, key, Call::inject(peer))
    }

    fn writedata<E: Endpoint>(ep, buf, len, desc, data, peer, addr, key, context) {
        let call = Call::plain(peer, context).with_data(data);
        one::<E>(ep, Write, Local::one(buf, len, desc), addr, key, call)
    }

    fn injectdata<E: Endpoint>(ep, buf, len, data, peer, addr, key) {
        let local = Local::one(buf, len, null_mut());
        one::<E>(ep, Write, local, addr, key, Call::inject(peer).with_data(data))
    }
}

/// Posts an access to one remote segment, which is as long as the local memory.
///
/// # Safety
/// `ep` is an open endpoint of `E`.
#[inline(always)]
unsafe fn one<E: Endpoint>(
    ep: *mut fid_ep,
    access: Access,
    local: Local,
    addr: u64,
    key: u64,
    call: Call,
) -> Result<isize> {
    let len = local.buffers.len() as u64;
    let remote = RemoteIov::from(RemotePiece { addr, len, key });
    // SAFETY: the caller guarantees that `ep` is an open endpoint of `E`, and that the application
    // lends the memory.
    unsafe { post::<E>(ep, access, local, remote, call) }
}

/// Posts the operation in a message structure.
///
/// # Safety
/// `ep` is an open endpoint of `E`; `msg` is null or a valid message whose
/// memory the application lends.
#[inline(always)]
unsafe fn message<E: Endpoint>(
    ep: *mut fid_ep,
    access: Access,
    msg: *const fi_msg_rma,
    flags: u64,
) -> Result<isize> {
    // SAFETY: the caller guarantees that the endpoint is open, and that the message is null or
    // valid.
    unsafe {
        let msg = msg.as_ref().ok_or(Errno::EINVAL)?;
        let (local, remote) = memory(access, msg)?;
        let call = Call::message(msg.addr, flags, msg.data, msg.context);
        post::<E>(ep, access, local, remote, call)
    }
}

/// The memory of both sides that a message describes.
///
/// # Safety
/// It is a valid message whose memory the application lends.
#[inline(always)]
pub(super) unsafe fn memory(access: Access, msg: &fi_msg_rma) -> Result<(Local, RemoteIov)> {
    // SAFETY: the caller guarantees that the message's vectors are null or have the stated number
    // of entries.
    unsafe {
        let mut local = Local::vector(msg.msg_iov, msg.desc, msg.iov_count)?;
        let mut remote = call::remote(msg.rma_iov, msg.rma_iov_count, |piece| {
            Some(RemotePiece {
                addr: piece.addr,
                len: piece.len as u64,
                key: piece.key,
            })
        })?;
        if remote.len() != local.buffers.len() as u64 {
            cut_to_fit(access, &mut local, &mut remote)?;
        }
        Ok((local, remote))
    }
}

/// Truncates the longer of both sides; bytes that would be written beyond their destination are
/// `-FI_EINVAL`.
#[cold]
fn cut_to_fit(access: Access, local: &mut Local, remote: &mut RemoteIov) -> Result {
    let (here, there) = (local.buffers.len(), remote.len());
    if here as u64 <= there {
        remote.truncate(here as u64);
    } else if access == Read {
        local.buffers = local.buffers.take().into_slice(0, there as usize);
    } else {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Returns the request of a call, between local and remote memory.
#[inline(always)]
pub(super) fn request(
    access: Access,
    (local, remote): (Local, RemoteIov),
    call: &Call,
    flags: u64,
) -> RemoteAccess {
    RemoteAccess {
        access,
        local: local.buffers,
        desc: local.desc,
        remote,
        peer: call.peer,
        data: call.data(),
        flags,
        context: call.context,
    }
}

/// # Safety
/// `ep` is an open endpoint of `E`.
#[inline(always)]
unsafe fn post<E: Endpoint>(
    ep: *mut fid_ep,
    access: Access,
    local: Local,
    remote: RemoteIov,
    call: Call,
) -> Result<isize> {
    // SAFETY: the caller guarantees that `ep` is an open endpoint of `E`, and that the application
    // lends the memory.
    let ep = unsafe { Handle::<EndpointObject<E>>::borrow(ep) };
    let request = || request(access, (local, remote), &call, call.flags(&ep.tx));
    Ok(posted(match ep.fast_path() {
        Some(endpoint) => endpoint.access(&mut request()),
        None => ep.post_watchfully(Request::Access(request())),
    }))
}
