//! fi_atomic(3): atomic operations on remote memory.

use std::ffi::{c_int, c_void};

use fabric_abi::*;
use libc::iovec;

use super::ep::{Caps, EndpointObject};
use super::{Handle, missing, posted, status};
use crate::atomic_ops;
use crate::atomic_ops::{Datatype, Form, Op};
use crate::buffer::{AppIov, IOV_LIMIT};
use crate::endpoint::Endpoint;
use crate::errno::{Errno, Result};
use crate::request::{Atomic, AtomicKind, RemoteIov, RemotePiece};

struct Table<E>(std::marker::PhantomData<E>);

impl<E: Endpoint> Table<E> {
    const FUNCTIONS: fi_ops_atomic = fi_ops_atomic {
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
        writevalid: Some(writevalid::<E>),
        readwritevalid: Some(readwritevalid::<E>),
        compwritevalid: Some(compwritevalid::<E>),
    };
    const BOTH: &'static fi_ops_atomic = &Self::FUNCTIONS;
    /// What brings values back.
    const FETCH: &'static fi_ops_atomic = &fi_ops_atomic {
        write: missing::slot(),
        writev: missing::slot(),
        writemsg: missing::slot(),
        inject: missing::slot(),
        ..Self::FUNCTIONS
    };
    /// What does not.
    const UPDATE: &'static fi_ops_atomic = &fi_ops_atomic {
        write: Some(write::<E>),
        writev: Some(writev::<E>),
        writemsg: Some(writemsg::<E>),
        inject: Some(inject::<E>),
        writevalid: Some(writevalid::<E>),
        ..missing::ATOMIC
    };
}

/// The table of an endpoint with these capabilities.
pub(super) fn table<E: Endpoint>(caps: Caps) -> *const fi_ops_atomic {
    match (caps.reads(FI_ATOMIC), caps.writes(FI_ATOMIC)) {
        (true, true) => Table::<E>::BOTH,
        (true, false) => Table::<E>::FETCH,
        (false, true) => Table::<E>::UPDATE,
        (false, false) => &raw const missing::ATOMIC,
    }
}

/// Bytes of one element; `-FI_EOPNOTSUPP` for an unknown type.
#[inline]
fn element(datatype: fi_datatype) -> Result<usize> {
    Datatype::from_number(datatype)
        .map(Datatype::size)
        .ok_or(Errno::EOPNOTSUPP)
}

/// The memory of `count` elements of `size` bytes.
///
/// # Safety
/// The application lends the memory; a null `base` stands for none.
#[inline]
unsafe fn elements(base: *const c_void, count: usize, size: usize) -> Result<AppIov> {
    let len = count
        .checked_mul(size)
        .filter(|&len| len <= isize::MAX as usize)
        .ok_or(Errno::EINVAL)?;
    if base.is_null() {
        return Ok(AppIov::EMPTY);
    }
    // SAFETY: the caller vouches for the memory.
    Ok(unsafe { AppIov::from_raw(base.cast_mut().cast(), len) })
}

/// The memory of a vector of elements of `size` bytes.
///
/// # Safety
/// `ioc` is null or points to `count` entries of memory that the application
/// lends; null addresses stand for no memory.
unsafe fn vector(ioc: *const fi_ioc, count: usize, size: usize) -> Result<AppIov> {
    if count > IOV_LIMIT || (ioc.is_null() && count != 0) {
        return Err(Errno::EINVAL);
    }
    let mut iov = [iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; IOV_LIMIT];
    for (i, piece) in iov.iter_mut().enumerate().take(count) {
        // SAFETY: `i < count`, and the caller vouches for `count` entries.
        let entry = unsafe { &*ioc.add(i) };
        if !entry.addr.is_null() {
            piece.iov_base = entry.addr;
            piece.iov_len = entry.count.checked_mul(size).ok_or(Errno::EINVAL)?;
        }
    }
    // SAFETY: the caller lends the memory that the entries describe.
    unsafe { AppIov::from_iov(iov.as_ptr(), count) }
}

fn total(mut ioc_count: impl Iterator<Item = usize>, size: usize) -> Result<u64> {
    ioc_count
        .try_fold(0usize, |sum, count| {
            sum.checked_add(count.checked_mul(size)?)
        })
        .map(|sum| sum as u64)
        .ok_or(Errno::EINVAL)
}

fn single(addr: u64, len: u64, key: u64) -> RemoteIov {
    let mut remote = RemoteIov::default();
    remote.push(RemotePiece { addr, len, key });
    remote
}

/// What every call tells of its target.
struct Target {
    peer: fi_addr_t,
    remote: RemoteIov,
    datatype: fi_datatype,
    op: fi_op,
    data: u64,
    context: *mut c_void,
}

/// Checks the lengths against each other and posts.
/// Whether the operation exists for the datatype in this family of calls.
fn offered(datatype: fi_datatype, op: fi_op, form: Form) -> bool {
    match (Datatype::from_number(datatype), Op::from_number(op)) {
        (Some(datatype), Some(op)) => op.has_form(form) && op.supports(datatype),
        _ => false,
    }
}

fn post<E: Endpoint>(
    ep: &EndpointObject<E>,
    target: Target,
    operand: AppIov,
    kind: AtomicKind,
    flags: u64,
) -> Result {
    let bytes = target.remote.len();
    let (result, compare) = match &kind {
        AtomicKind::Base => (None, None),
        AtomicKind::Fetch { result } => (Some(result), None),
        AtomicKind::Compare { compare, result } => (Some(result), Some(compare)),
    };
    let form = match &kind {
        AtomicKind::Base => Form::Base,
        AtomicKind::Fetch { .. } => Form::Fetch,
        AtomicKind::Compare { .. } => Form::Compare,
    };
    if !offered(target.datatype, target.op, form) {
        return Err(Errno::EOPNOTSUPP);
    }
    let reads_only = target.op == FI_ATOMIC_READ;
    let fits = |memory: &AppIov| memory.len() as u64 == bytes;
    if bytes == 0
        || !(fits(&operand) || reads_only)
        || !result.is_none_or(fits)
        || !compare.is_none_or(fits)
    {
        return Err(Errno::EINVAL);
    }
    ep.atomic(&Atomic {
        kind,
        datatype: target.datatype,
        op: target.op,
        operand: if reads_only { AppIov::EMPTY } else { operand },
        remote: target.remote,
        peer: target.peer,
        data: target.data,
        flags,
        context: target.context,
    })
}

/// The target and operand of a `fi_msg_atomic`.
///
/// # Safety
/// `msg` is null or valid.
unsafe fn message(msg: *const fi_msg_atomic) -> Result<(Target, AppIov, usize)> {
    // SAFETY: the caller vouches for the message and its vectors.
    unsafe {
        let msg = msg.as_ref().ok_or(Errno::EINVAL)?;
        let size = element(msg.datatype)?;
        if msg.rma_iov.is_null() && msg.rma_iov_count != 0 {
            return Err(Errno::EINVAL);
        }
        let mut remote = RemoteIov::default();
        for i in 0..msg.rma_iov_count {
            let piece = &*msg.rma_iov.add(i);
            let len = piece.count.checked_mul(size).ok_or(Errno::EINVAL)?;
            if !remote.push(RemotePiece {
                addr: piece.addr,
                len: len as u64,
                key: piece.key,
            }) {
                return Err(Errno::EINVAL);
            }
        }
        let target = Target {
            peer: msg.addr,
            remote,
            datatype: msg.datatype,
            op: msg.op,
            data: msg.data,
            context: msg.context,
        };
        Ok((target, vector(msg.msg_iov, msg.iov_count, size)?, size))
    }
}

/// The target of a call with one remote address and a vector of operands.
///
/// # Safety
/// `iov` is null or points to `count` entries.
#[allow(clippy::too_many_arguments)]
unsafe fn vectored(
    iov: *const fi_ioc,
    count: usize,
    peer: fi_addr_t,
    (addr, key): (u64, u64),
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> Result<(Target, AppIov, usize)> {
    let size = element(datatype)?;
    // SAFETY: the caller vouches for the vector.
    let (operand, bytes) = unsafe {
        let operand = vector(iov, count, size)?;
        (
            operand,
            total((0..count).map(|i| (*iov.add(i)).count), size)?,
        )
    };
    let target = Target {
        peer,
        remote: single(addr, bytes, key),
        datatype,
        op,
        data: 0,
        context,
    };
    Ok((target, operand, size))
}

unsafe extern "C" fn write<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    let ioc = fi_ioc {
        addr: buf.cast_mut(),
        count,
    };
    let mut desc = desc;
    // SAFETY: a vector of one entry; the rest is as the caller passes it.
    unsafe {
        writev::<E>(
            ep, &ioc, &mut desc, 1, dest_addr, addr, key, datatype, op, context,
        )
    }
}

unsafe extern "C" fn writev<E: Endpoint>(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: the table belongs to endpoints of `E`; the application lends the
    // memory of `count` entries.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(
            vectored(iov, count, dest_addr, (addr, key), datatype, op, context).and_then(
                |(target, operand, _)| post(ep, target, operand, AtomicKind::Base, ep.tx.plain()),
            ),
        )
    }
}

unsafe extern "C" fn writemsg<E: Endpoint>(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    flags: u64,
) -> isize {
    // SAFETY: as in `writev`, for a valid message.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(message(msg).and_then(|(target, operand, _)| {
            post(ep, target, operand, AtomicKind::Base, ep.tx.with(flags))
        }))
    }
}

unsafe extern "C" fn inject<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
) -> isize {
    let ioc = fi_ioc {
        addr: buf.cast_mut(),
        count,
    };
    let context = std::ptr::null_mut();
    // SAFETY: as in `writev`, with a vector of one entry.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(
            vectored(&ioc, 1, dest_addr, (addr, key), datatype, op, context).and_then(
                |(target, operand, _)| post(ep, target, operand, AtomicKind::Base, ep.tx.inject()),
            ),
        )
    }
}

unsafe extern "C" fn readwrite<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    let ioc = fi_ioc {
        addr: buf.cast_mut(),
        count,
    };
    // SAFETY: as in `writev`, with vectors of one entry.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(
            vectored(&ioc, 1, dest_addr, (addr, key), datatype, op, context).and_then(
                |(target, operand, size)| {
                    let result = elements(result, count, size)?;
                    let kind = AtomicKind::Fetch { result };
                    post(ep, target, operand, kind, ep.tx.plain())
                },
            ),
        )
    }
}

unsafe extern "C" fn readwritev<E: Endpoint>(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `writev`, for both vectors.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        let call = || {
            let size = element(datatype)?;
            let result = vector(resultv, result_count, size)?;
            // FI_ATOMIC_READ may come without operands: the results say how
            // many elements are meant.
            let (operand, bytes) = if op == FI_ATOMIC_READ {
                (AppIov::EMPTY, result.len() as u64)
            } else {
                let operand = vector(iov, count, size)?;
                (operand, operand.len() as u64)
            };
            let target = Target {
                peer: dest_addr,
                remote: single(addr, bytes, key),
                datatype,
                op,
                data: 0,
                context,
            };
            post(
                ep,
                target,
                operand,
                AtomicKind::Fetch { result },
                ep.tx.plain(),
            )
        };
        posted(call())
    }
}

unsafe extern "C" fn readwritemsg<E: Endpoint>(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: as in `writev`, for a valid message and the result vector.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(message(msg).and_then(|(target, operand, size)| {
            let result = vector(resultv, result_count, size)?;
            let kind = AtomicKind::Fetch { result };
            post(ep, target, operand, kind, ep.tx.with(flags))
        }))
    }
}

unsafe extern "C" fn compwrite<E: Endpoint>(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    let ioc = fi_ioc {
        addr: buf.cast_mut(),
        count,
    };
    // SAFETY: as in `writev`, with vectors of one entry.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(
            vectored(&ioc, 1, dest_addr, (addr, key), datatype, op, context).and_then(
                |(target, operand, size)| {
                    let kind = AtomicKind::Compare {
                        compare: elements(compare, count, size)?,
                        result: elements(result, count, size)?,
                    };
                    post(ep, target, operand, kind, ep.tx.plain())
                },
            ),
        )
    }
}

unsafe extern "C" fn compwritev<E: Endpoint>(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    comparev: *const fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `writev`, for the three vectors.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(
            vectored(iov, count, dest_addr, (addr, key), datatype, op, context).and_then(
                |(target, operand, size)| {
                    let kind = AtomicKind::Compare {
                        compare: vector(comparev, compare_count, size)?,
                        result: vector(resultv, result_count, size)?,
                    };
                    post(ep, target, operand, kind, ep.tx.plain())
                },
            ),
        )
    }
}

unsafe extern "C" fn compwritemsg<E: Endpoint>(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    comparev: *const fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: as in `writev`, for a valid message and two vectors.
    unsafe {
        let ep = Handle::<EndpointObject<E>>::borrow(ep);
        posted(message(msg).and_then(|(target, operand, size)| {
            let kind = AtomicKind::Compare {
                compare: vector(comparev, compare_count, size)?,
                result: vector(resultv, result_count, size)?,
            };
            post(ep, target, operand, kind, ep.tx.with(flags))
        }))
    }
}

/// # Safety
/// `ep` is an endpoint of `E`; `count` is null or a place for the answer.
unsafe fn valid<E: Endpoint>(
    ep: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    flags: u64,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller vouches for the endpoint and the place.
    status(unsafe {
        let limit = Handle::<EndpointObject<E>>::borrow(ep).atomic_limit();
        atomic_ops::query(datatype, op, flags, limit).map(|attr| {
            if let Some(count) = count.as_mut() {
                *count = attr.count;
            }
        })
    })
}

unsafe extern "C" fn writevalid<E: Endpoint>(
    ep: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: the application passes an open endpoint and a place.
    unsafe { valid::<E>(ep, datatype, op, 0, count) }
}

unsafe extern "C" fn readwritevalid<E: Endpoint>(
    ep: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: as in `writevalid`.
    unsafe { valid::<E>(ep, datatype, op, FI_FETCH_ATOMIC, count) }
}

unsafe extern "C" fn compwritevalid<E: Endpoint>(
    ep: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: as in `writevalid`.
    unsafe { valid::<E>(ep, datatype, op, FI_COMPARE_ATOMIC, count) }
}
