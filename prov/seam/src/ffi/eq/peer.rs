//! Event queues that providers share (fi_peer(3)): the side of the peer whose events go to
//! another's queue. The owner's side is its ordinary queue.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use fabric_abi::*;

use super::super::object::{AnyFid, Downcast, Handle, Use};
use super::super::peer;
use prov_base::errno::{Errno, Result};
use prov_base::logging::UTIL;
use prov_objects::eq::{Eq, EqOwner, Event, EventError};
use prov_objects::progress::Progress;

/// Returns the owner in the context of fi_eq_open(3) with `FI_PEER`.
///
/// # Safety
/// `context` is null or a `fi_peer_eq_context` whose queue stays valid until the
/// peer's is closed.
pub(super) unsafe fn import(context: *mut c_void) -> Result<Box<dyn EqOwner>> {
    // SAFETY: the caller guarantees that the context is null or valid, and its queue valid as long
    // as the result.
    unsafe {
        let eq = peer::context::<fi_peer_eq_context>(context)?.eq;
        let owner = AnyFid::new(eq.cast())?;
        if owner.class() != FI_CLASS_EQ {
            return Err(Errno::EINVAL);
        }
        match owner.downcast::<Eq>() {
            Some(eq) => Ok(Box::new(Ours(Use::of(&eq)))),
            None => Ok(Box::new(Foreign::of(eq)?)),
        }
    }
}

/// A queue of this library.
struct Ours(Use<Eq>);

impl EqOwner for Ours {
    fn write(&self, event: Event) -> Result {
        self.0.write(event)
    }

    fn write_error(&self, error: EventError) -> Result {
        self.0.write_error(error)
    }

    fn forget(&self, fid: *mut fid) {
        self.0.forget(fid);
    }

    fn add_source(&self, progress: Arc<dyn Progress>) -> Result {
        self.0.add_source(progress)
    }

    fn remove_source(&self, progress: &Arc<dyn Progress>) {
        self.0.remove_source(progress);
    }
}

/// Another library's queue, to which events are written like an application's. It cannot be told of
/// transports: its owner has to drive the peer.
struct Foreign {
    eq: NonNull<fid_eq>,
    write: unsafe extern "C" fn(*mut fid_eq, u32, *const c_void, usize, u64) -> isize,
}

// SAFETY: the interface permits calls for an event queue from any thread.
unsafe impl Send for Foreign {}
// SAFETY: a shared reference permits the same calls, from several threads.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// # Safety
    /// `eq` is an open event queue for as long as the result is used.
    unsafe fn of(eq: *mut fid_eq) -> Result<Self> {
        let eq = NonNull::new(eq).ok_or(Errno::EINVAL)?;
        // SAFETY: the caller guarantees that the queue is open, and has a valid table or none.
        let ops = unsafe { eq.as_ref().ops.as_ref() }.ok_or(Errno::EINVAL)?;
        let write = ops.write.ok_or(Errno::EINVAL)?;
        Ok(Foreign { eq, write })
    }
}

impl EqOwner for Foreign {
    fn write(&self, event: Event) -> Result {
        let mut bytes = vec![0u8; event.size()];
        let place = bytes.as_mut_ptr().cast();
        // SAFETY: the buffer has the size of the event, and the queue is open as long as `self` is
        // used.
        let written = unsafe {
            super::put(&event, ptr::null_mut(), place, bytes.len());
            (self.write)(self.eq.as_ptr(), event.kind, place, bytes.len(), 0)
        };
        if written < 0 {
            return Err(Errno::new(written as i32));
        }
        event.delivered();
        Ok(())
    }

    fn write_error(&self, error: EventError) -> Result {
        // fi_eq(3) has no function to write one.
        log::error!(
            target: UTIL.eq,
            "the owner of a peer event queue takes no errors: {} is lost",
            error.err
        );
        Err(Errno::ENOSYS)
    }

    fn forget(&self, _: *mut fid) {}

    fn add_source(&self, _: Arc<dyn Progress>) -> Result {
        Ok(())
    }

    fn remove_source(&self, _: &Arc<dyn Progress>) {}
}

/// The functions of a peer's queue, which has no events to read.
pub(super) static OPS: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: Some(progress),
    readerr: Some(no_readerr),
    write: Some(no_write),
    sread: Some(no_sread),
    strerror: Some(no_strerror),
};

/// Called by the owner to drive the peer.
unsafe extern "C" fn progress(
    eq: *mut fid_eq,
    _: *mut u32,
    _: *mut c_void,
    _: usize,
    _: u64,
) -> isize {
    // SAFETY: this function is only in the tables of queues, and the application passes an open
    // one.
    let this = unsafe { Handle::<Eq>::borrow(eq) };
    // There are never events to read.
    let _ = this.read(0, false, |_| ());
    Errno::EAGAIN.to_c() as isize
}

const ENOSYS: isize = Errno::ENOSYS.to_c() as isize;

unsafe extern "C" fn no_readerr(_: *mut fid_eq, _: *mut fi_eq_err_entry, _: u64) -> isize {
    ENOSYS
}

unsafe extern "C" fn no_write(_: *mut fid_eq, _: u32, _: *const c_void, _: usize, _: u64) -> isize {
    ENOSYS
}

unsafe extern "C" fn no_sread(
    _: *mut fid_eq,
    _: *mut u32,
    _: *mut c_void,
    _: usize,
    _: c_int,
    _: u64,
) -> isize {
    ENOSYS
}

unsafe extern "C" fn no_strerror(
    _: *mut fid_eq,
    _: c_int,
    _: *const c_void,
    _: *mut c_char,
    _: usize,
) -> *const c_char {
    ptr::null()
}
