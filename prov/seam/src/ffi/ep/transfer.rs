//! Peer transfers (fi_peer(3)): a provider sends and receives over another provider's endpoint. The
//! owner has that endpoint; the peer's endpoint, which is opened with `FI_PEER_TRANSFER` in the
//! mode, is informed of completions.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use fabric_abi::*;

use super::super::cq::{error_entry, read_error_entry};
use super::super::object::Handle;
use super::super::{peer, posted};
use super::EndpointObject;
use crate::endpoint::Endpoint;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_layer::marshal::info;
use prov_objects::attr::Info;
use prov_objects::cq::{Completion, ErrorCompletion};
use prov_objects::request::{Receive, Select, Tag, Transmit};

/// Upper limit of an address in bytes: what address vectors keep.
const NAME_ROOM: usize = 4096;

/// The endpoint of the main provider, as its peer sees it.
pub struct TransferOwner {
    ep: NonNull<fid_ep>,
    info: Option<Info>,
}

// SAFETY: what the endpoint's threading level asks for is the owner's to see to
// (fi_peer(3)).
unsafe impl Send for TransferOwner {}
// SAFETY: as above.
unsafe impl Sync for TransferOwner {}

impl TransferOwner {
    /// Returns the endpoint in the context of fi_endpoint(3).
    ///
    /// # Safety
    /// It stays open as long as the result is used.
    unsafe fn import(context: &fi_peer_transfer_context, api: u32) -> Result<Self> {
        let ep = NonNull::new(context.ep).ok_or(Errno::EINVAL)?;
        let info = match context.info.is_null() {
            true => None,
            // SAFETY: an info that is not null is a valid one.
            false => Some(unsafe { info::info(context.info, api) }?),
        };
        Ok(TransferOwner { ep, info })
    }

    /// Returns the attributes of the owner, if it passes them.
    pub fn info(&self) -> Option<&Info> {
        self.info.as_ref()
    }

    /// Returns the address of the owner's endpoint.
    ///
    /// # Errors
    /// What the owner returns.
    pub fn name(&self) -> Result<Vec<u8>> {
        self.name_within(NAME_ROOM)
    }

    /// Returns its address in the form that fits into so many bytes.
    ///
    /// # Errors
    /// What the owner returns; `-FI_ETOOSMALL` if it has none.
    pub fn name_within(&self, room: usize) -> Result<Vec<u8>> {
        let mut name = vec![0; room];
        let mut length = name.len();
        // SAFETY: see `TransferOwner::import`; the room is as long as `length` says.
        let status = unsafe {
            let table = self.ep.as_ref().cm.as_ref().and_then(|table| table.getname);
            let fid: *mut fid = self.ep.as_ptr().cast();
            table.ok_or(Errno::ENOSYS)?(fid, name.as_mut_ptr().cast(), &raw mut length)
        };
        Errno::check(status)?;
        name.truncate(length);
        Ok(name)
    }

    /// Sends over the owner's endpoint.
    ///
    /// # Errors
    /// Those of the owner, including `FI_EAGAIN`.
    pub fn transmit(&self, transmit: &Transmit) -> Result {
        let pieces = transmit.buffers.pieces();
        let msg = message(pieces, transmit.peer, transmit.context, transmit.data);
        let flags = transmit.flags | FI_PEER_TRANSFER;
        // SAFETY: see `TransferOwner::import`; the vector lives through the
        // call, and its memory belongs to the operation.
        let status = unsafe {
            let ep = self.ep.as_ref();
            match transmit.tag {
                Tag::None => {
                    let table = ep.msg.as_ref().and_then(|table| table.sendmsg);
                    table.ok_or(Errno::ENOSYS)?(self.ep.as_ptr(), &raw const msg, flags)
                }
                Tag::Value(tag) => {
                    let msg = tagged(msg, tag, 0);
                    let table = ep.tagged.as_ref().and_then(|table| table.sendmsg);
                    table.ok_or(Errno::ENOSYS)?(self.ep.as_ptr(), &raw const msg, flags)
                }
            }
        };
        Errno::check(status as i32).map(drop)
    }

    /// Cancels the receive with this context, which then ends with an error, unless it has matched
    /// a message.
    ///
    /// # Errors
    /// What the owner returns.
    pub fn cancel(&self, context: usize) -> Result {
        let context = ptr::without_provenance_mut(context);
        // SAFETY: see `TransferOwner::import`.
        let status = unsafe {
            let cancel = self.ep.as_ref().ops.as_ref().and_then(|ops| ops.cancel);
            cancel.ok_or(Errno::ENOSYS)?(self.ep.as_ptr().cast(), context)
        };
        Errno::check(status as i32).map(drop)
    }

    /// Receives over the owner's endpoint.
    ///
    /// # Errors
    /// Those of the owner, including `FI_EAGAIN`.
    pub fn receive(&self, receive: &Receive) -> Result {
        let msg = message(receive.buffers.pieces(), receive.peer, receive.context, 0);
        let flags = receive.flags | FI_PEER_TRANSFER;
        // SAFETY: as in `transmit`.
        let status = unsafe {
            let ep = self.ep.as_ref();
            match receive.select {
                Select::Untagged => {
                    let table = ep.msg.as_ref().and_then(|table| table.recvmsg);
                    table.ok_or(Errno::ENOSYS)?(self.ep.as_ptr(), &raw const msg, flags)
                }
                Select::Tagged { tag, ignore } => {
                    let msg = tagged(msg, tag, ignore);
                    let table = ep.tagged.as_ref().and_then(|table| table.recvmsg);
                    table.ok_or(Errno::ENOSYS)?(self.ep.as_ptr(), &raw const msg, flags)
                }
            }
        };
        Errno::check(status as i32).map(drop)
    }
}

fn message(pieces: &[libc::iovec], addr: fi_addr_t, context: *mut c_void, data: u64) -> fi_msg {
    fi_msg {
        msg_iov: pieces.as_ptr(),
        desc: ptr::null_mut(),
        iov_count: pieces.len(),
        addr,
        context,
        data,
    }
}

fn tagged(msg: fi_msg, tag: u64, ignore: u64) -> fi_msg_tagged {
    fi_msg_tagged {
        msg_iov: msg.msg_iov,
        desc: msg.desc,
        iov_count: msg.iov_count,
        addr: msg.addr,
        tag,
        ignore,
        context: msg.context,
        data: msg.data,
    }
}

/// Opens a peer's endpoint, and passes the functions that inform it of completions to the owner.
///
/// # Safety
/// `context` is null or a `fi_peer_transfer_context` whose endpoint stays open
/// as long as the new one.
pub(in crate::ffi) unsafe fn import<E: Endpoint>(
    context: *mut c_void,
    api: u32,
    open: impl FnOnce(TransferOwner) -> Result<E>,
) -> Result<E> {
    // SAFETY: the caller vouches for the context.
    let context = unsafe { peer::context::<fi_peer_transfer_context>(context) }?;
    // SAFETY: so it does for the endpoint.
    let endpoint = open(unsafe { TransferOwner::import(context, api) }?)?;
    context.peer_ops = Table::<E>::PEER.cast_mut();
    Ok(endpoint)
}

struct Table<E>(std::marker::PhantomData<E>);

impl<E: Endpoint> Table<E> {
    const PEER: *const fi_ops_transfer_peer = &fi_ops_transfer_peer {
        size: size_of::<fi_ops_transfer_peer>(),
        complete: Some(complete::<E>),
        comperr: Some(comperr::<E>),
    };
}

unsafe extern "C" fn complete<E: Endpoint>(
    ep: *mut fid_ep,
    entry: *mut fi_cq_tagged_entry,
    src: fi_addr_t,
) -> isize {
    // SAFETY: the owner passes an entry.
    let Some(entry) = (unsafe { entry.as_ref() }) else {
        return Errno::EINVAL.to_c() as isize;
    };
    // SAFETY: the table that holds this function belongs to endpoints of `E`.
    let this = unsafe { Handle::<EndpointObject<E>>::borrow(ep) };
    posted(this.transfer_done(&Completion {
        context: entry.op_context,
        flags: entry.flags,
        len: entry.len,
        buf: entry.buf,
        data: entry.data,
        tag: entry.tag,
        src,
    }))
}

unsafe extern "C" fn comperr<E: Endpoint>(ep: *mut fid_ep, entry: *mut fi_cq_err_entry) -> isize {
    // SAFETY: the owner passes an entry, with its data.
    let Some(error) = (unsafe { entry.as_ref().map(|entry| read_error_entry(entry)) }) else {
        return Errno::EINVAL.to_c() as isize;
    };
    // SAFETY: as in `complete`.
    let this = unsafe { Handle::<EndpointObject<E>>::borrow(ep) };
    posted(this.transfer_failed(error))
}

/// A peer's endpoint, as the main provider sees it. Transfers that the peer makes over the owner's
/// endpoint have `FI_PEER_TRANSFER` in their flags. Closed when it is dropped.
pub struct TransferPeer {
    ep: NonNull<fid_ep>,
    ops: NonNull<fi_ops_transfer_peer>,
}

// SAFETY: peers tell of what they need from their owner (fi_peer(3)).
unsafe impl Send for TransferPeer {}
// SAFETY: as above.
unsafe impl Sync for TransferPeer {}

impl TransferPeer {
    /// Opens an endpoint in the peer's `domain` that transfers over `owner`.
    ///
    /// # Errors
    /// What the peer returns.
    ///
    /// # Safety
    /// `domain` is an open domain of the peer and `info` an info of it, which gets
    /// the mode `FI_PEER_TRANSFER`; `owner` stays open as long as the result, and `owner_info` is null or its.
    pub unsafe fn open(
        domain: *mut fid_domain,
        info: *mut fi_info,
        owner: *mut fid_ep,
        owner_info: *mut fi_info,
    ) -> Result<Self> {
        let mut context = fi_peer_transfer_context {
            size: size_of::<fi_peer_transfer_context>(),
            info: owner_info,
            ep: owner,
            peer_ops: ptr::null_mut(),
        };
        let mut ep = ptr::null_mut();
        // SAFETY: the caller vouches for the domain and the infos.
        unsafe {
            (*info).mode |= FI_PEER_TRANSFER;
            let open = (*(*domain).ops).endpoint.ok_or(Errno::ENOSYS)?;
            let context = (&raw mut context).cast();
            Errno::check(open(domain, info, &raw mut ep, context))?;
        }
        let ep = NonNull::new(ep).ok_or(Errno::EINVAL)?;
        match NonNull::new(context.peer_ops) {
            Some(ops) => Ok(TransferPeer { ep, ops }),
            None => {
                close(ep);
                Err(Errno::EINVAL)
            }
        }
    }

    /// Informs the peer that one of its transfers has completed. The peer may post further
    /// transfers during the call, and write to the owner's queues.
    ///
    /// # Errors
    /// What the peer returns.
    pub fn complete(&self, completion: &Completion) -> Result {
        let mut entry = fi_cq_tagged_entry {
            op_context: completion.context,
            flags: completion.flags,
            len: completion.len,
            buf: completion.buf,
            data: completion.data,
            tag: completion.tag,
        };
        // SAFETY: the endpoint is open, and its table lives as long.
        let status = unsafe {
            let complete = self.ops.as_ref().complete.ok_or(Errno::ENOSYS)?;
            complete(self.ep.as_ptr(), &raw mut entry, completion.src)
        };
        Errno::check(status as i32).map(drop)
    }

    /// Informs the peer that one of its transfers has failed.
    ///
    /// # Errors
    /// What the peer returns.
    pub fn fail(&self, error: &ErrorCompletion) -> Result {
        let mut entry = error_entry(error);
        // SAFETY: as in `complete`; the peer copies what it needs.
        let status = unsafe {
            let comperr = self.ops.as_ref().comperr.ok_or(Errno::ENOSYS)?;
            comperr(self.ep.as_ptr(), &raw mut entry)
        };
        Errno::check(status as i32).map(drop)
    }

    /// Binds one of the peer's queues or counters (fi_ep_bind(3)).
    pub(in crate::ffi) fn bind(&self, other: *mut fid, flags: u64) -> Result {
        let fid: *mut fid = self.ep.as_ptr().cast();
        // SAFETY: both objects are open.
        let status = unsafe {
            let bind = (*(*fid).ops).bind.ok_or(Errno::ENOSYS)?;
            bind(fid, other, flags)
        };
        Errno::check(status).map(drop)
    }

    /// Enables the endpoint (fi_enable(3)).
    pub(in crate::ffi) fn enable(&self) -> Result {
        let fid: *mut fid = self.ep.as_ptr().cast();
        // SAFETY: the endpoint is open.
        let status = unsafe {
            let control = (*(*fid).ops).control.ok_or(Errno::ENOSYS)?;
            control(fid, FI_ENABLE, ptr::null_mut())
        };
        Errno::check(status).map(drop)
    }

    /// Returns the endpoint, for calls that the peer serves.
    pub fn as_c(&self) -> *mut fid_ep {
        self.ep.as_ptr()
    }
}

impl Drop for TransferPeer {
    fn drop(&mut self) {
        close(self.ep);
    }
}

fn close(ep: NonNull<fid_ep>) {
    // SAFETY: the endpoint is open, and this its only owner.
    let status = unsafe {
        let fid: *mut fid = ep.as_ptr().cast();
        (*(*fid).ops).close.map_or(0, |close| close(fid))
    };
    if let Err(error) = Errno::check(status) {
        log::warn!(target: UTIL.ep_ctrl, "a peer's endpoint did not close: {error}");
    }
}
