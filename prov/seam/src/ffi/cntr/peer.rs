//! Counters that providers share (fi_peer(3)): the side of the peer that counts in another's
//! counter, and the owner's.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use fabric_abi::*;

use super::super::object::{Class, Handle, Header, Use};
use super::super::peer;
use prov_base::errno::{Errno, Result};
use prov_objects::cntr::{Cntr, CntrOwner};

/// Another provider's counter, which owns this one.
struct Imported(NonNull<fid_peer_cntr>);

// SAFETY: the interface makes the owner responsible for locking, so that its functions may be
// called from any thread (fi_peer(3)).
unsafe impl Send for Imported {}
// SAFETY: a shared reference permits the same calls, which the owner locks.
unsafe impl Sync for Imported {}

/// Returns the owner in the context of fi_cntr_open(3) with `FI_PEER`.
///
/// # Safety
/// `context` is null or a `fi_peer_cntr_context` whose counter stays valid
/// until the peer's is closed.
pub(super) unsafe fn import(context: *mut c_void) -> Result<Box<dyn CntrOwner>> {
    // SAFETY: the caller guarantees that the context is null or valid, and its counter valid as
    // long as the result.
    unsafe {
        let cntr = peer::context::<fi_peer_cntr_context>(context)?.cntr;
        let cntr = NonNull::new(cntr).ok_or(Errno::EINVAL)?;
        cntr.as_ref().owner_ops.as_ref().ok_or(Errno::EINVAL)?;
        Ok(Box::new(Imported(cntr)))
    }
}

impl CntrOwner for Imported {
    fn increment(&self) {
        // SAFETY: the owner's counter and table are valid while this one is
        // open.
        unsafe {
            if let Some(inc) = (*self.0.as_ref().owner_ops).inc {
                inc(self.0.as_ptr());
            }
        }
    }

    fn increment_error(&self) {
        // SAFETY: the owner's counter and table are valid while this one is open.
        unsafe {
            if let Some(incerr) = (*self.0.as_ref().owner_ops).incerr {
                incerr(self.0.as_ptr());
            }
        }
    }
}

/// The functions of a peer's counter, which has no value.
pub(super) static OPS: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read: Some(progress),
    readerr: Some(no_readerr),
    add: Some(no_update),
    set: Some(no_update),
    wait: Some(no_wait),
    adderr: Some(no_update),
    seterr: Some(no_update),
    export_xpu: Some(super::export_xpu),
};

/// Called by the owner to drive the peer.
unsafe extern "C" fn progress(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: this function is only in the tables of counters, and the application passes an open
    // one.
    unsafe { Handle::<Cntr>::borrow(cntr) }.read();
    0
}

/// The function cannot return an error, so it returns its number.
unsafe extern "C" fn no_readerr(_: *mut fid_cntr) -> u64 {
    Errno::ENOSYS.to_c() as i64 as u64
}

unsafe extern "C" fn no_update(_: *mut fid_cntr, _: u64) -> c_int {
    Errno::ENOSYS.to_c()
}

unsafe extern "C" fn no_wait(_: *mut fid_cntr, _: u64, _: c_int) -> c_int {
    Errno::ENOSYS.to_c()
}

/// A counter of this library that another provider may import: the target of
/// `fi_peer_cntr_context::cntr`. One for each peer.
pub struct SharedCntr(Use<Cntr>);

// SAFETY: the interface specifies that `fid_peer_cntr` begins with a `fid`.
unsafe impl Header for fid_peer_cntr {}

impl SharedCntr {
    /// Shares `cntr`, which stays open until the result is closed or dropped.
    pub fn of(cntr: &Handle<Cntr>) -> Handle<SharedCntr> {
        Handle::new(SharedCntr(Use::of(cntr)), ptr::null_mut(), Vec::new())
    }
}

impl Class for SharedCntr {
    type Header = fid_peer_cntr;

    fn class(&self) -> usize {
        FI_CLASS_PEER_CNTR
    }

    fn header(&self, fid: fid) -> fid_peer_cntr {
        static OPS: fi_ops_cntr_owner = fi_ops_cntr_owner {
            size: size_of::<fi_ops_cntr_owner>(),
            inc: Some(increment),
            incerr: Some(increment_error),
        };
        fid_peer_cntr {
            fid,
            owner_ops: (&raw const OPS).cast_mut(),
        }
    }
}

unsafe extern "C" fn increment(cntr: *mut fid_peer_cntr) {
    // SAFETY: this function is only in the tables of shared counters, and the peer passes an open
    // one.
    unsafe { Handle::<SharedCntr>::borrow(cntr) }.0.count(1);
}

unsafe extern "C" fn increment_error(cntr: *mut fid_peer_cntr) {
    // SAFETY: this function is only in the tables of shared counters, and the peer passes an open
    // one.
    unsafe { Handle::<SharedCntr>::borrow(cntr) }
        .0
        .count_error();
}
