//! The C interface of counters (fi_cntr(3)).

mod peer;
#[cfg(test)]
mod tests;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use fabric_abi::*;

pub use peer::SharedCntr;

use super::cancel::{Call, Next, cancellation_point};
use super::object::{Class, Handle, Use};
use super::wait::{self, OpenedWait};
use super::{deliver, status};
use prov_base::errno::{Errno, Result};
use prov_objects::cntr::{Cntr, CntrEvents};
use prov_objects::progress::Progress;

/// A domain on which counters are opened.
pub trait CntrDomain: Class<Header = fid_domain> {
    /// Returns what reading a counter drives even before an endpoint or a region is bound to it.
    fn cntr_progress(&self) -> Option<Arc<dyn Progress>>;
}

/// Implements fi_cntr_open(3).
///
/// # Safety
/// `domain` is an open domain of type `D`; the other pointers are null or as
/// fi_cntr(3) asks.
pub unsafe extern "C" fn cntr_open<D: CntrDomain>(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees that the domain is open and that the other pointers are null or
    // as fi_cntr(3) demands.
    unsafe {
        let domain = Handle::<D>::from_c(domain);
        let opened = open(attr.as_ref(), context).inspect(|cntr| {
            if let Some(progress) = domain.cntr_progress() {
                // Nothing is counted in it at this point. Endpoints and regions add their
                // transports so that sleeping threads are woken.
                cntr.add_unwatched_source(progress);
            }
            cntr.keep_open(Use::of(&domain).any());
        });
        deliver(cntr, opened)
    }
}

/// # Safety
/// A wait set in `attr` is open where one is asked for, and `context` is a
/// `fi_peer_cntr_context` under `FI_PEER`.
unsafe fn open(attr: Option<&fi_cntr_attr>, context: *mut c_void) -> Result<Handle<Cntr>> {
    let (events, wait_obj, wait_set, flags) = match attr {
        Some(attr) => (attr.events, attr.wait_obj, attr.wait_set, attr.flags),
        None => (FI_CNTR_EVENTS_COMP, FI_WAIT_UNSPEC, ptr::null_mut(), 0),
    };
    if flags & !FI_PEER != 0 {
        return Err(Errno::EINVAL);
    }
    let events = match events {
        FI_CNTR_EVENTS_BYTES => CntrEvents::Bytes,
        FI_CNTR_EVENTS_COMP => CntrEvents::Completions,
        other => {
            log::warn!(
                target: prov_base::logging::UTIL.cntr,
                "fi_cntr_open: unknown events {other}, the counter counts completions"
            );
            CntrEvents::Completions
        }
    };
    let (owner, context) = match flags & FI_PEER {
        0 => (None, context),
        // SAFETY: the caller guarantees that the context is null or a valid `fi_peer_cntr_context`.
        _ => (Some(unsafe { peer::import(context) }?), ptr::null_mut()),
    };
    // SAFETY: the caller guarantees that the wait set is open if one is requested.
    let mut opened = unsafe { OpenedWait::open(wait_obj, wait_set) }?;
    let joiner = opened.joiner();
    let cntr = Cntr::new(events, opened.attachment, owner);
    Ok(joiner.join(Handle::new(cntr, context, Vec::new())))
}

impl Class for Cntr {
    type Header = fid_cntr;

    fn class(&self) -> usize {
        FI_CLASS_CNTR
    }

    fn header(&self, fid: fid) -> fid_cntr {
        static OPS: fi_ops_cntr = fi_ops_cntr {
            size: size_of::<fi_ops_cntr>(),
            read: Some(read),
            readerr: Some(readerr),
            add: Some(add),
            set: Some(set),
            wait: Some(wait_for),
            adderr: Some(adderr),
            seterr: Some(seterr),
            export_xpu: Some(export_xpu),
        };
        let ops = if self.is_peer() { &peer::OPS } else { &OPS };
        fid_cntr {
            fid,
            ops: ptr::from_ref(ops).cast_mut(),
        }
    }

    fn close(this: &Handle<Self>) -> Result {
        wait::leave_set(&**this);
        this.shut();
        Ok(())
    }

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        // SAFETY: the caller guarantees that `arg` is as the command demands.
        unsafe { wait::control_of(&**this, command, arg) }
    }
}

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: this function is only in the tables of counters, and the application passes an open
    // one.
    unsafe { Handle::<Cntr>::borrow(cntr) }.read()
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: this function is only in the tables of counters, and the application passes an open
    // one.
    unsafe { Handle::<Cntr>::borrow(cntr) }.read_error()
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: this function is only in the tables of counters, and the application passes an open
    // one.
    unsafe { Handle::<Cntr>::borrow(cntr) }.add(value);
    0
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: this function is only in the tables of counters, and the application passes an open
    // one.
    unsafe { Handle::<Cntr>::borrow(cntr) }.set(value);
    0
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: this function is only in the tables of counters, and the application passes an open
    // one.
    unsafe { Handle::<Cntr>::borrow(cntr) }.add_error(value);
    0
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: this function is only in the tables of counters, and the application passes an open
    // one.
    unsafe { Handle::<Cntr>::borrow(cntr) }.set_error(value);
    0
}

cancellation_point! {
    fn wait_for(*mut fid_cntr, u64, c_int) -> c_int = wait_round
}

unsafe extern "C" fn wait_round(call: *mut Call) -> Next {
    // SAFETY: this function is only in the tables of counters; the application passes an open one,
    // and keeps it open until the call returns.
    unsafe {
        Call::round(
            call,
            |&[cntr, threshold, timeout, ..]| {
                Handle::<Cntr>::borrow(cntr.cast())
                    .start_wait(threshold.addr() as u64, timeout.addr() as c_int)
                    .map_err(|error| error.to_c() as isize)
            },
            |wait, _, woke| {
                wait.round(woke)
                    .map_break(|outcome| status(outcome) as isize)
            },
        )
    }
}

/// The counters of this library are not accessible from a device.
unsafe extern "C" fn export_xpu(_: *mut fid_cntr, _: u64, _: *mut fid_xpu_cntr) -> c_int {
    Errno::ENOSYS.to_c()
}
