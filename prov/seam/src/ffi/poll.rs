//! The C interface of poll sets (fi_poll(3)).

use std::ffi::{c_int, c_void};

use fabric_abi::*;

use super::cancel::{Call, Next, cancellation_point};
use super::object::{AnyFid, Class, Downcast, Handle, Use};
use super::{deliver, status};
use prov_base::errno::{Errno, Result};
use prov_objects::cntr::Cntr;
use prov_objects::cq::Cq;
use prov_objects::poll_set::{PollSet, Polled};
use prov_objects::wait::Waitable;

/// A member of a set, which the set does not keep open.
struct Member<T: Class>(Handle<T>);

impl<T: Class + Waitable> Polled for Member<T> {
    fn waitable(&self) -> &dyn Waitable {
        &*self.0
    }

    fn context(&self) -> *mut c_void {
        self.0.context()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// Returns the queue or counter that an application names; `-FI_EINVAL` for any other object.
fn member(object: AnyFid<'_>) -> Result<Box<dyn Polled>> {
    if let Some(cq) = object.downcast::<Cq>() {
        return Ok(Box::new(Member(cq)));
    }
    Ok(Box::new(Member(object.expect::<Cntr>()?)))
}

/// Implements fi_poll_open(3).
///
/// # Safety
/// `domain` is an open domain of type `D`; the other pointers are null or as
/// fi_poll(3) asks.
pub unsafe extern "C" fn poll_open<D: Class<Header = fid_domain>>(
    domain: *mut fid_domain,
    attr: *mut fi_poll_attr,
    pollset: *mut *mut fid_poll,
) -> c_int {
    // SAFETY: the caller guarantees that the domain is open and that the other pointers are null or
    // as fi_poll(3) demands.
    unsafe {
        if attr.as_ref().is_some_and(|attr| attr.flags != 0) {
            return Errno::EINVAL.to_c();
        }
        let parent = Use::of(&Handle::<D>::from_c(domain)).any();
        let set = Handle::new(PollSet::default(), std::ptr::null_mut(), vec![parent]);
        deliver(pollset, Ok(set))
    }
}

impl Class for PollSet {
    type Header = fid_poll;

    fn class(&self) -> usize {
        FI_CLASS_POLL
    }

    fn header(&self, fid: fid) -> fid_poll {
        static OPS: fi_ops_poll = fi_ops_poll {
            size: size_of::<fi_ops_poll>(),
            poll: Some(poll),
            poll_add: Some(poll_add),
            poll_del: Some(poll_del),
        };
        fid_poll {
            fid,
            ops: (&raw const OPS).cast_mut(),
        }
    }
}

cancellation_point! {
    fn poll(*mut fid_poll, *mut *mut c_void, c_int) -> c_int = poll_round
}

unsafe extern "C" fn poll_round(call: *mut Call) -> Next {
    // SAFETY: `poll` is only in the tables of poll sets, and the application passes an open one and
    // an array as fi_poll(3) demands.
    unsafe {
        Call::test_and(call, |&[pollset, context, count, ..]| {
            poll_now(pollset.cast(), context.cast(), count.addr() as c_int) as isize
        })
    }
}

/// # Safety
/// As for `fi_poll`.
unsafe fn poll_now(pollset: *mut fid_poll, context: *mut *mut c_void, count: c_int) -> c_int {
    // A negative count means no room.
    let limit = usize::try_from(count).unwrap_or(0);
    if context.is_null() && limit > 0 {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller passes an open poll set.
    let set = unsafe { Handle::<PollSet>::borrow(pollset) };
    let mut place = context;
    let found = set.poll(limit, |context| {
        // SAFETY: the set returns at most `count` contexts, for which the application passes space.
        unsafe {
            place.write(context);
            place = place.add(1);
        }
    });
    found as c_int
}

/// No flags are defined here and in `poll_del`, so they are ignored.
unsafe extern "C" fn poll_add(pollset: *mut fid_poll, object: *mut fid, _flags: u64) -> c_int {
    // SAFETY: this function is only in the tables of poll sets, and the application passes an open
    // one, and another open object.
    status(unsafe {
        AnyFid::new(object)
            .and_then(member)
            .map(|member| Handle::<PollSet>::borrow(pollset).add(member))
    })
}

unsafe extern "C" fn poll_del(pollset: *mut fid_poll, object: *mut fid, _flags: u64) -> c_int {
    // SAFETY: this function is only in the tables of poll sets, and the application passes an open
    // one, and another open object.
    status(unsafe {
        AnyFid::new(object)
            .and_then(member)
            .map(|member| Handle::<PollSet>::borrow(pollset).remove(&*member))
    })
}
