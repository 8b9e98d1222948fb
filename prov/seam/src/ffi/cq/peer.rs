//! Completion queues that providers share (fi_peer(3)): the owner's side, and the side of the peer
//! that writes to it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use fabric_abi::*;

use super::super::object::{Class, Handle, Header, Use};
use super::super::peer;
use prov_base::errno::{Errno, Result};
use prov_objects::cq::{Completion, Cq, CqOwner, ErrorCompletion};

/// Another provider's queue, which owns this one.
struct Imported(NonNull<fid_peer_cq>);

// SAFETY: the interface makes the owner responsible for locking, so that its functions may be
// called from any thread (fi_peer(3)).
unsafe impl Send for Imported {}
// SAFETY: a shared reference permits the same calls, which the owner locks.
unsafe impl Sync for Imported {}

/// Returns the owner in the context of fi_cq_open(3) with `FI_PEER`.
///
/// # Safety
/// `context` is null or a `fi_peer_cq_context` whose queue stays valid until
/// the peer's is closed.
pub(super) unsafe fn import(context: *mut c_void) -> Result<Box<dyn CqOwner>> {
    // SAFETY: the caller guarantees that the context is null or a valid `fi_peer_cq_context`.
    let cq = unsafe { peer::context::<fi_peer_cq_context>(context) }?.cq;
    let cq = NonNull::new(cq).ok_or(Errno::EINVAL)?;
    // SAFETY: the caller guarantees that the queue is valid as long as the result.
    unsafe { cq.as_ref().owner_ops.as_ref() }.ok_or(Errno::EINVAL)?;
    Ok(Box::new(Imported(cq)))
}

impl CqOwner for Imported {
    fn write(&self, completion: &Completion) -> Result {
        // SAFETY: the owner's queue and table are valid while this one is open.
        unsafe {
            let write = (*self.0.as_ref().owner_ops).write.ok_or(Errno::ENOSYS)?;
            let status = write(
                self.0.as_ptr(),
                completion.context,
                completion.flags,
                completion.len,
                completion.buf,
                completion.data,
                completion.tag,
                completion.src,
            );
            Errno::check(status as i32).map(drop)
        }
    }

    fn write_error(&self, error: &ErrorCompletion) -> Result {
        let entry = error_entry(error);
        // SAFETY: the owner's queue and table are valid while this one is open; the owner copies
        // the entry.
        unsafe {
            let writeerr = (*self.0.as_ref().owner_ops).writeerr.ok_or(Errno::ENOSYS)?;
            Errno::check(writeerr(self.0.as_ptr(), &entry) as i32).map(drop)
        }
    }
}

/// Returns the entry of an error, with borrowed data.
pub(in crate::ffi) fn error_entry(error: &ErrorCompletion) -> fi_cq_err_entry {
    let completion = &error.completion;
    fi_cq_err_entry {
        op_context: completion.context,
        flags: completion.flags,
        len: completion.len,
        buf: completion.buf,
        data: completion.data,
        tag: completion.tag,
        olen: error.olen,
        err: error.err.number(),
        prov_errno: error.prov_errno,
        err_data: error.err_data.as_ptr().cast_mut().cast(),
        err_data_size: error.err_data.len(),
        src_addr: completion.src,
    }
}

/// Returns the error of an entry.
///
/// # Safety
/// The entry's data is as long as it says.
pub(in crate::ffi) unsafe fn read_error_entry(entry: &fi_cq_err_entry) -> ErrorCompletion {
    // SAFETY: the caller guarantees that the data has the length that the entry contains.
    let err_data = unsafe { super::super::bytes(entry.err_data, entry.err_data_size) };
    ErrorCompletion {
        completion: Completion {
            context: entry.op_context,
            flags: entry.flags,
            len: entry.len,
            buf: entry.buf,
            data: entry.data,
            tag: entry.tag,
            src: entry.src_addr,
        },
        olen: entry.olen,
        err: Errno::new(entry.err),
        prov_errno: entry.prov_errno,
        err_data: err_data.into(),
    }
}

/// The functions of a peer's queue, which has no entries to read.
pub(super) static OPS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(progress),
    readfrom: Some(no_readfrom),
    readerr: Some(no_readerr),
    sread: Some(no_sread),
    sreadfrom: Some(no_sreadfrom),
    signal: Some(no_signal),
    strerror: Some(no_strerror),
    export_xpu: Some(super::export_xpu),
};

const ENOSYS: c_int = Errno::ENOSYS.to_c();

/// Called by the owner to drive the peer.
unsafe extern "C" fn progress(cq: *mut fid_cq, _: *mut c_void, _: usize) -> isize {
    // SAFETY: this function is only in the tables of queues, and the application passes an open
    // one.
    let this = unsafe { Handle::<Cq>::borrow(cq) };
    // There are never entries to read.
    this.drive();
    0
}

unsafe extern "C" fn no_readfrom(
    _: *mut fid_cq,
    _: *mut c_void,
    _: usize,
    _: *mut fi_addr_t,
) -> isize {
    ENOSYS as isize
}

unsafe extern "C" fn no_readerr(_: *mut fid_cq, _: *mut fi_cq_err_entry, _: u64) -> isize {
    ENOSYS as isize
}

unsafe extern "C" fn no_sread(
    _: *mut fid_cq,
    _: *mut c_void,
    _: usize,
    _: *const c_void,
    _: c_int,
) -> isize {
    ENOSYS as isize
}

unsafe extern "C" fn no_sreadfrom(
    _: *mut fid_cq,
    _: *mut c_void,
    _: usize,
    _: *mut fi_addr_t,
    _: *const c_void,
    _: c_int,
) -> isize {
    ENOSYS as isize
}

unsafe extern "C" fn no_signal(_: *mut fid_cq) -> c_int {
    ENOSYS
}

unsafe extern "C" fn no_strerror(
    _: *mut fid_cq,
    _: c_int,
    _: *const c_void,
    _: *mut c_char,
    _: usize,
) -> *const c_char {
    ptr::null()
}

/// Where the completions of another provider go, which imports a [`SharedCq`].
pub trait CompletionTarget: Send + Sync + 'static {
    /// An operation has succeeded.
    fn completed(&self, completion: &Completion);

    /// An operation has failed.
    fn failed(&self, error: ErrorCompletion);
}

impl CompletionTarget for Use<Cq> {
    fn completed(&self, completion: &Completion) {
        self.write(completion);
    }

    fn failed(&self, error: ErrorCompletion) {
        self.write_error(error);
    }
}

/// What another provider imports as a queue: the target of `fi_peer_cq_context::cq`. One for each
/// peer.
pub struct SharedCq<O: CompletionTarget = Use<Cq>>(O);

// SAFETY: the interface specifies that `fid_peer_cq` begins with a `fid`.
unsafe impl Header for fid_peer_cq {}

impl SharedCq {
    /// Shares `cq`, which stays open until the result is closed or dropped.
    pub fn of(cq: &Handle<Cq>) -> Handle<SharedCq> {
        SharedCq::owned_by(Use::of(cq))
    }
}

impl<O: CompletionTarget> SharedCq<O> {
    const OPS: fi_ops_cq_owner = fi_ops_cq_owner {
        size: size_of::<fi_ops_cq_owner>(),
        write: Some(write::<O>),
        writeerr: Some(writeerr::<O>),
    };

    /// Has this owner get the completions.
    pub fn owned_by(owner: O) -> Handle<SharedCq<O>> {
        Handle::new(SharedCq(owner), ptr::null_mut(), Vec::new())
    }
}

impl<O: CompletionTarget> Class for SharedCq<O> {
    type Header = fid_peer_cq;

    fn class(&self) -> usize {
        FI_CLASS_PEER_CQ
    }

    fn header(&self, fid: fid) -> fid_peer_cq {
        let ops: &'static fi_ops_cq_owner = &Self::OPS;
        fid_peer_cq {
            fid,
            owner_ops: std::ptr::from_ref(ops).cast_mut(),
        }
    }
}

unsafe extern "C" fn write<O: CompletionTarget>(
    cq: *mut fid_peer_cq,
    context: *mut c_void,
    flags: u64,
    len: usize,
    buf: *mut c_void,
    data: u64,
    tag: u64,
    src: fi_addr_t,
) -> isize {
    // SAFETY: this function is only in the tables of shared queues with this owner, and the peer
    // passes an open one.
    let this = unsafe { Handle::<SharedCq<O>>::borrow(cq) };
    this.0.completed(&Completion {
        context,
        flags,
        len,
        buf,
        data,
        tag,
        src,
    });
    0
}

unsafe extern "C" fn writeerr<O: CompletionTarget>(
    cq: *mut fid_peer_cq,
    entry: *const fi_cq_err_entry,
) -> isize {
    // SAFETY: the peer passes null or a valid entry.
    let Some(entry) = (unsafe { entry.as_ref() }) else {
        return Errno::EINVAL.to_c() as isize;
    };
    // SAFETY: this function is only in the tables of shared queues with this owner, and the peer
    // passes an open one.
    let this = unsafe { Handle::<SharedCq<O>>::borrow(cq) };
    // SAFETY: the peer passes an entry whose data has the length that it contains.
    this.0.failed(unsafe { read_error_entry(entry) });
    0
}
