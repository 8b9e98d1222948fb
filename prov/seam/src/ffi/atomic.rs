//! fi_atomic(3): atomic operations on remote memory.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use fabric_abi::*;
use libc::iovec;

use super::call::{self, Call, Local, calls};
use super::ep::{EndpointObject, Request};
use super::{Handle, missing, posted, status};
use crate::endpoint::Endpoint;
use prov_base::atomic_ops::{self, Datatype, Form, Op};
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_objects::request::{Atomic, AtomicKind, RemoteIov, RemotePiece};

struct Table<E>(std::marker::PhantomData<E>);

impl<E: Endpoint> Table<E> {
    const ALL: &'static fi_ops_atomic = &fi_ops_atomic {
        size: size_of::<fi_ops_atomic>(),
        write: Some(write::<E>),
        writev: Some(writev::<E>),
        writemsg: Some(writemsg::<E>),
        inject: Some(inject::<E>),
        readwrite: Some(readwrite::<E>),
        readwritev: Some(readwritev::<E>),
        readwritemsg: Some(readwritemsg::<E>),
        compwrite: Some(compwrite::<E>),
        compwritev: Some(compwritev::<E>),
        compwritemsg: Some(compwritemsg::<E>),
        writevalid: Some(valid::<E, 0>),
        readwritevalid: Some(valid::<E, FI_FETCH_ATOMIC>),
        compwritevalid: Some(valid::<E, FI_COMPARE_ATOMIC>),
    };
}

/// Returns the table of an endpoint of a provider with these capabilities.
pub(super) fn table<E: Endpoint>(caps: u64) -> *const fi_ops_atomic {
    match caps & FI_ATOMIC {
        0 => &raw const missing::ATOMIC,
        _ => Table::<E>::ALL,
    }
}

calls! {
    fn write<E: Endpoint>(ep, buf, count, desc, peer, addr, key, datatype, op, context) {
        let operand = Elements::One(buf, count, desc);
        let call = Call::plain(peer, context);
        post::<E>(ep, operand, Kind::Base, RemoteSegments::One(addr, key), datatype, op, call)
    }

    fn readwrite<E: Endpoint>(
        ep, buf, count, desc, result, result_desc, peer, addr, key, datatype, op, context
    ) {
        let operand = Elements::One(buf, count, desc);
        let kind = Kind::Fetch(Elements::One(result, count, result_desc));
        let call = Call::plain(peer, context);
        post::<E>(ep, operand, kind, RemoteSegments::One(addr, key), datatype, op, call)
    }

    fn compwrite<E: Endpoint>(
        ep, buf, count, desc, compare, compare_desc, result, result_desc,
        peer, addr, key, datatype, op, context
    ) {
        let operand = Elements::One(buf, count, desc);
        let compare = Elements::One(compare, count, compare_desc);
        let kind = Kind::Compare(compare, Elements::One(result, count, result_desc));
        let call = Call::plain(peer, context);
        post::<E>(ep, operand, kind, RemoteSegments::One(addr, key), datatype, op, call)
    }

    fn inject<E: Endpoint>(ep, buf, count, peer, addr, key, datatype, op) {
        let operand = Elements::One(buf, count, null_mut());
        let call = Call::inject(peer);
        post::<E>(ep, operand, Kind::Base, RemoteSegments::One(addr, key), datatype, op, call)
    }

    fn writev<E: Endpoint>(ep, ioc, descs, count, peer, addr, key, datatype, op, context) {
        let operand = Elements::Many(ioc, count, descs);
        let call = Call::plain(peer, context);
        post::<E>(ep, operand, Kind::Base, RemoteSegments::One(addr, key), datatype, op, call)
    }

    fn readwritev<E: Endpoint>(
        ep, ioc, descs, count, resultv, result_descs, result_count,
        peer, addr, key, datatype, op, context
    ) {
        let operand = Elements::Many(ioc, count, descs);
        let kind = Kind::Fetch(Elements::Many(resultv, result_count, result_descs));
        let call = Call::plain(peer, context);
        post::<E>(ep, operand, kind, RemoteSegments::One(addr, key), datatype, op, call)
    }

    fn compwritev<E: Endpoint>(
        ep, ioc, descs, count, comparev, compare_descs, compare_count,
        resultv, result_descs, result_count, peer, addr, key, datatype, op, context
    ) {
        let operand = Elements::Many(ioc, count, descs);
        let compare = Elements::Many(comparev, compare_count, compare_descs);
        let kind = Kind::Compare(compare, Elements::Many(resultv, result_count, result_descs));
        let call = Call::plain(peer, context);
        post::<E>(ep, operand, kind, RemoteSegments::One(addr, key), datatype, op, call)
    }

    fn writemsg<E: Endpoint>(ep, msg: *const fi_msg_atomic, flags) {
        message::<E>(ep, msg, Kind::Base, flags)
    }

    fn readwritemsg<E: Endpoint>(
        ep, msg: *const fi_msg_atomic, resultv, result_descs, result_count, flags
    ) {
        let kind = Kind::Fetch(Elements::Many(resultv, result_count, result_descs));
        message::<E>(ep, msg, kind, flags)
    }

    fn compwritemsg<E: Endpoint>(
        ep, msg: *const fi_msg_atomic, comparev, compare_descs, compare_count,
        resultv, result_descs, result_count, flags
    ) {
        let compare = Elements::Many(comparev, compare_count, compare_descs);
        let kind = Kind::Compare(compare, Elements::Many(resultv, result_count, result_descs));
        message::<E>(ep, msg, kind, flags)
    }
}

/// Memory as a call passes it: its size in bytes depends on the datatype.
pub(super) enum Elements {
    /// Address, count and descriptor.
    One(*const c_void, usize, *mut c_void),
    /// Entries, their count and their descriptors.
    Many(*const fi_ioc, usize, *mut *mut c_void),
}

/// Returns the memory of a vector of elements of `size` bytes; `-FI_EINVAL` for elements at a null
/// pointer.
///
/// # Safety
/// The application lends the memory, and the vector is null or has `count` entries.
pub(super) unsafe fn elements(ioc: *const fi_ioc, count: usize, size: usize) -> Result<AppIov> {
    // SAFETY: the caller keeps the contract of this function, which is that of the called one.
    unsafe { Elements::Many(ioc, count, null_mut()).local(size) }.map(|local| local.buffers)
}

impl Elements {
    /// Returns the memory of elements of `size` bytes; `-FI_EINVAL` for elements at a null pointer.
    ///
    /// # Safety
    /// The application lends the memory, and a vector is null or has as many
    /// entries as it says.
    #[inline]
    unsafe fn local(&self, size: usize) -> Result<Local> {
        let bytes = |base: *const c_void, count: usize| {
            let len = count
                .checked_mul(size)
                .filter(|&len| len <= isize::MAX as usize);
            match len {
                Some(len) if len == 0 || !base.is_null() => Ok(len),
                _ => Err(Errno::EINVAL),
            }
        };
        match *self {
            Elements::One(base, count, desc) => {
                let len = bytes(base, count)?;
                // SAFETY: the caller guarantees that the application lends the memory to the
                // operation.
                Ok(unsafe { Local::one(base, len, desc) })
            }
            Elements::Many(ioc, count, descs) => {
                if count > IOV_LIMIT || (ioc.is_null() && count != 0) {
                    return Err(Errno::EINVAL);
                }
                let nothing = iovec {
                    iov_base: null_mut(),
                    iov_len: 0,
                };
                let mut iov = [nothing; IOV_LIMIT];
                for (i, piece) in iov.iter_mut().enumerate().take(count) {
                    // SAFETY: `i` is less than `count`, and the caller guarantees that there are
                    // `count` valid entries.
                    let entry = unsafe { &*ioc.add(i) };
                    piece.iov_base = entry.addr;
                    piece.iov_len = bytes(entry.addr, entry.count)?;
                }
                // SAFETY: the caller guarantees that the application lends the memory of all
                // entries to the operation.
                unsafe { Local::vector(iov.as_ptr(), descs, count) }
            }
        }
    }
}

/// The three forms of calls, with their additional memory.
pub(super) enum Kind {
    Base,
    /// The memory for results.
    Fetch(Elements),
    /// The comparison values, and the memory for results.
    Compare(Elements, Elements),
}

impl Kind {
    fn form(&self) -> Form {
        match self {
            Kind::Base => Form::Base,
            Kind::Fetch(..) => Form::Fetch,
            Kind::Compare(..) => Form::Compare,
        }
    }

    /// Returns the form of the request.
    ///
    /// # Safety
    /// That of [`Elements::local`].
    #[inline]
    unsafe fn local(&self, size: usize) -> Result<AtomicKind> {
        // SAFETY: the caller keeps the contract of this function, which is that of the called one.
        let local = |elements: &Elements| unsafe { elements.local(size) };
        match self {
            Kind::Base => Ok(AtomicKind::Base),
            Kind::Fetch(result) => {
                let result = local(result)?;
                Ok(AtomicKind::Fetch {
                    result: result.buffers,
                    result_desc: result.desc,
                })
            }
            Kind::Compare(compare, result) => {
                let (compare, result) = (local(compare)?, local(result)?);
                Ok(AtomicKind::Compare {
                    compare: compare.buffers,
                    compare_desc: compare.desc,
                    result: result.buffers,
                    result_desc: result.desc,
                })
            }
        }
    }
}

/// Remote memory as a call passes it.
enum RemoteSegments {
    /// Address and key of one segment, which is as long as the operands.
    One(u64, u64),
    /// Entries and their count.
    Many(*const fi_rma_ioc, usize),
}

impl RemoteSegments {
    /// Returns the segments of elements of `size` bytes; a call without a length means `len` bytes.
    ///
    /// # Safety
    /// A vector is null or has as many entries as it says.
    #[inline]
    unsafe fn remote(&self, size: usize, len: u64) -> Result<RemoteIov> {
        match *self {
            RemoteSegments::One(addr, key) => Ok(RemotePiece { addr, len, key }.into()),
            // SAFETY: the caller guarantees that the vector is null or has `count` entries.
            RemoteSegments::Many(entries, count) => unsafe {
                call::remote(entries, count, |entry| {
                    Some(RemotePiece {
                        addr: entry.addr,
                        len: entry.count.checked_mul(size)? as u64,
                        key: entry.key,
                    })
                })
            },
        }
    }
}

/// Posts the operation in a message structure.
///
/// # Safety
/// `ep` is an open endpoint of `E`; `msg` is null or a valid message.
#[inline]
unsafe fn message<E: Endpoint>(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    kind: Kind,
    flags: u64,
) -> Result<isize> {
    // SAFETY: the caller guarantees that the endpoint is open, and that the message is null or
    // valid, with its vectors.
    unsafe {
        let msg = msg.as_ref().ok_or(Errno::EINVAL)?;
        let operand = Elements::Many(msg.msg_iov, msg.iov_count, msg.desc);
        let target = RemoteSegments::Many(msg.rma_iov, msg.rma_iov_count);
        let call = Call::message(msg.addr, flags, msg.data, msg.context);
        post::<E>(ep, operand, kind, target, msg.datatype, msg.op, call)
    }
}

/// Posts an operation.
///
/// # Safety
/// `ep` is an open endpoint of `E`; the application lends the memory.
#[inline]
unsafe fn post<E: Endpoint>(
    ep: *mut fid_ep,
    operand: Elements,
    kind: Kind,
    target: RemoteSegments,
    datatype: fi_datatype,
    op: fi_op,
    call: Call,
) -> Result<isize> {
    // SAFETY: the caller guarantees that `ep` is an open endpoint of `E`.
    let ep = unsafe { Handle::<EndpointObject<E>>::borrow(ep) };
    let flags = call.flags(&ep.tx);
    // SAFETY: the caller guarantees that the application lends the memory, and that vectors are
    // null or have the stated number of entries.
    let mut atomic = unsafe { request(operand, kind, target, datatype, op, &call, flags) }?;
    if flags & FI_INJECT != 0 && atomic.operand.len() > ep.inject_size {
        return Err(Errno::EINVAL);
    }
    Ok(posted(match ep.fast_path() {
        Some(endpoint) => endpoint.atomic(&mut atomic),
        None => ep.post_watchfully(Request::Atomic(atomic)),
    }))
}

/// The request of a message, with complete flags.
///
/// # Safety
/// It is a valid message whose memory the application lends, and so is what `kind` refers to.
pub(super) unsafe fn request_of(msg: &fi_msg_atomic, kind: Kind, flags: u64) -> Result<Atomic> {
    let operand = Elements::Many(msg.msg_iov, msg.iov_count, msg.desc);
    let target = RemoteSegments::Many(msg.rma_iov, msg.rma_iov_count);
    let call = Call::message(msg.addr, flags, msg.data, msg.context);
    // SAFETY: the caller guarantees that the application lends the memory, and that vectors are
    // null or have the stated number of entries.
    unsafe { request(operand, kind, target, msg.datatype, msg.op, &call, flags) }
}

/// Checks the lengths against each other. `-FI_EOPNOTSUPP` for an operation that does not exist for the datatype in this
/// kind of call.
///
/// # Safety
/// The application lends the memory.
#[inline(always)]
unsafe fn request(
    operand: Elements,
    kind: Kind,
    target: RemoteSegments,
    datatype: fi_datatype,
    op: fi_op,
    call: &Call,
    flags: u64,
) -> Result<Atomic> {
    let size = element(datatype, op, kind.form()).ok_or(Errno::EOPNOTSUPP)?;
    // A read has no operands, so the results determine the number of elements.
    let reads_only = op == FI_ATOMIC_READ;
    // SAFETY: the caller guarantees that the application lends the memory, and that vectors are
    // null or have the stated number of entries.
    let (operand, kind, remote) = unsafe {
        let operand = match reads_only {
            true => Local::NONE,
            false => operand.local(size)?,
        };
        let kind = kind.local(size)?;
        let bytes = match &kind {
            AtomicKind::Fetch { result, .. } if reads_only => result.len(),
            _ => operand.buffers.len(),
        };
        (operand, kind, target.remote(size, bytes as u64)?)
    };
    let fits = |memory: &AppIov| memory.len() as u64 == remote.len();
    let all_fit = match &kind {
        AtomicKind::Base => true,
        AtomicKind::Fetch { result, .. } => fits(result),
        AtomicKind::Compare {
            compare, result, ..
        } => fits(compare) && fits(result),
    };
    if !all_fit || !(reads_only || fits(&operand.buffers)) {
        return Err(Errno::EINVAL);
    }
    Ok(Atomic {
        kind,
        datatype,
        op,
        operand: operand.buffers,
        desc: operand.desc,
        remote,
        peer: call.peer,
        data: call.data(),
        flags,
        context: call.context,
    })
}

/// Returns the size of one element in bytes, if the operation is defined for the datatype in this
/// form.
#[inline]
fn element(datatype: fi_datatype, op: fi_op, form: Form) -> Option<usize> {
    let (datatype, op) = (Datatype::from_number(datatype)?, Op::from_number(op)?);
    (op.has_form(form) && op.supports(datatype)).then(|| datatype.size())
}

/// Returns the largest number of elements of one operation; `FLAGS` selects the form.
unsafe extern "C" fn valid<E: Endpoint, const FLAGS: u64>(
    ep: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: this function is only in the tables of endpoints of `E`; the application passes an
    // open one, and null or a writable location for the result.
    status(unsafe {
        let offered = Handle::<EndpointObject<E>>::borrow(ep).atomics();
        atomic_ops::query(datatype, op, FLAGS, &offered).map(|attr| {
            if let Some(count) = count.as_mut() {
                *count = attr.count;
            }
        })
    })
}
