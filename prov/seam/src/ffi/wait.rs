//! The C interface of wait objects and wait sets (fi_poll(3)), and fi_trywait(3).

#[cfg(test)]
mod tests;

use std::ffi::{c_int, c_void};
use std::ops::Deref;
use std::sync::Arc;

use fabric_abi::*;

use super::cancel::{Call, Next, cancellation_point};
use super::object::{AnyFid, Class, Downcast, Handle, Use};
use super::status;
use prov_base::errno::{Errno, Result};
use prov_objects::cntr::Cntr;
use prov_objects::cq::Cq;
use prov_objects::eq::Eq;
use prov_objects::wait::set::{Member, WaitSet};
use prov_objects::wait::{Attachment, Deadline, Wait, WaitKind, Waitable};

/// The object that `fi_wait_open` creates.
pub struct WaitSetObject(Arc<WaitSet>);

/// A member of a set, which the set does not keep open.
struct Joined<T: Class>(Handle<T>);

impl<T: Class + Waitable> Deref for Joined<T> {
    type Target = dyn Waitable;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// The wait object with which an object is opened.
pub(super) struct OpenedWait {
    pub attachment: Attachment,
    set: Option<Arc<WaitSet>>,
}

impl OpenedWait {
    /// Creates the wait object that an attribute structure asks for.
    ///
    /// # Safety
    /// `wait_set` is an open wait set where `wait_obj` is `FI_WAIT_SET`.
    pub(super) unsafe fn open(wait_obj: fi_wait_obj, wait_set: *mut fid_wait) -> Result<Self> {
        let kind = kind_of(wait_obj)?;
        let set = match kind {
            WaitKind::Set => {
                // SAFETY: the caller guarantees that the wait set is open.
                let set = unsafe { AnyFid::new(wait_set.cast()) }?.expect::<WaitSetObject>()?;
                Some(set.0.clone())
            }
            _ => None,
        };
        let attachment = Attachment::open(kind, set.clone())?;
        Ok(Self { attachment, set })
    }

    /// Returns the step that is left when the object exists: it joins its set.
    pub(super) fn joiner(&mut self) -> Joiner {
        Joiner(self.set.take())
    }
}

/// See [`OpenedWait::joiner`]. An object in a set keeps the wait object, but does not keep the
/// application from closing the set.
pub(super) struct Joiner(Option<Arc<WaitSet>>);

impl Joiner {
    pub(super) fn join<T: Class + Waitable>(self, object: Handle<T>) -> Handle<T> {
        if let Some(set) = self.0 {
            set.join(Box::new(Joined(object.clone())) as Member);
        }
        object
    }
}

/// Removes an object that is being closed from its set.
pub(super) fn leave_set(object: &impl Waitable) {
    if let Attachment::Set(set) = object.attachment() {
        set.leave(object);
    }
}

/// Implements fi_control(3) for a queue or a counter.
///
/// # Safety
/// As for [`control`].
pub(super) unsafe fn control_of(
    object: &impl Waitable,
    command: c_int,
    arg: *mut c_void,
) -> Result<c_int> {
    let attachment = object.attachment();
    // SAFETY: the caller keeps the contract of this function, which is that of the called one.
    unsafe { control(attachment.kind(), attachment.wait(), command, arg) }
}

fn kind_of(wait_obj: fi_wait_obj) -> Result<WaitKind> {
    Ok(match wait_obj {
        FI_WAIT_NONE => WaitKind::None,
        FI_WAIT_UNSPEC => WaitKind::Unspec,
        FI_WAIT_SET => WaitKind::Set,
        FI_WAIT_FD => WaitKind::Fd,
        FI_WAIT_MUTEX_COND => WaitKind::MutexCond,
        FI_WAIT_YIELD => WaitKind::Yield,
        FI_WAIT_POLLFD => WaitKind::PollFd,
        _ => return Err(Errno::EINVAL),
    })
}

fn kind_to_c(kind: WaitKind) -> fi_wait_obj {
    match kind {
        WaitKind::None => FI_WAIT_NONE,
        WaitKind::Unspec => FI_WAIT_UNSPEC,
        WaitKind::Set => FI_WAIT_SET,
        WaitKind::Fd => FI_WAIT_FD,
        WaitKind::MutexCond => FI_WAIT_MUTEX_COND,
        WaitKind::Yield => FI_WAIT_YIELD,
        WaitKind::PollFd => FI_WAIT_POLLFD,
    }
}

/// Implements `FI_GETWAIT` and `FI_GETWAITOBJ`.
///
/// # Errors
/// `FI_ENODATA` if there is no native wait object, `FI_ETOOSMALL` if the array of descriptors is
/// too small, `FI_ENOSYS` for another command.
///
/// # Safety
/// `arg` is null or what fi_eq(3) and fi_poll(3) require for the kind of wait object.
pub(super) unsafe fn control(
    kind: WaitKind,
    wait: Option<&Wait>,
    command: c_int,
    arg: *mut c_void,
) -> Result<c_int> {
    if command != FI_GETWAIT && command != FI_GETWAITOBJ {
        return Err(Errno::ENOSYS);
    }
    if arg.is_null() {
        return Err(Errno::EINVAL);
    }
    if command == FI_GETWAITOBJ {
        // SAFETY: the caller guarantees that `arg` is as the command demands for this wait object.
        unsafe { arg.cast::<fi_wait_obj>().write(kind_to_c(kind)) };
        return Ok(0);
    }
    let wait = wait.ok_or(Errno::ENODATA)?;
    match (kind, wait.mutex_cond()) {
        (_, Some(pair)) => {
            let (mutex, cond) = pair.native();
            // SAFETY: the caller guarantees that `arg` is as the command demands for this wait
            // object.
            unsafe {
                arg.cast::<fi_mutex_cond>()
                    .write(fi_mutex_cond { mutex, cond })
            };
        }
        // SAFETY: the caller guarantees that `arg` is as the command demands for this wait object.
        (WaitKind::PollFd, None) => unsafe { list_fds(wait, &mut *arg.cast()) }?,
        // SAFETY: the caller guarantees that `arg` is as the command demands for this wait object.
        _ => unsafe { arg.cast::<c_int>().write(wait.fd()) },
    }
    Ok(0)
}

/// # Safety
/// `list.fd` has `list.nfds` entries.
unsafe fn list_fds(wait: &Wait, list: &mut fi_wait_pollfd) -> Result {
    let (fds, changes) = wait.poll_fds();
    let room = std::mem::replace(&mut list.nfds, fds.len());
    list.change_index = changes;
    if room < fds.len() || list.fd.is_null() {
        return Err(Errno::ETOOSMALL);
    }
    for (index, fd) in fds.into_iter().enumerate() {
        let entry = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the caller guarantees that the array has `nfds` elements, and the index is below
        // that.
        unsafe { list.fd.add(index).write(entry) };
    }
    Ok(())
}

/// Implements fi_wait_open(3).
///
/// # Safety
/// `fabric` is an open fabric of type `F`; the other pointers are null or as
/// fi_poll(3) asks.
pub unsafe extern "C" fn wait_open<F: Class<Header = fid_fabric>>(
    fabric: *mut fid_fabric,
    attr: *mut fi_wait_attr,
    waitset: *mut *mut fid_wait,
) -> c_int {
    // SAFETY: the caller guarantees that the fabric is open and that the other pointers are null or
    // as fi_poll(3) demands.
    unsafe {
        let parent = Use::of(&Handle::<F>::from_c(fabric)).any();
        let open = || {
            let (wait_obj, flags) = match attr.as_ref() {
                Some(attr) => (attr.wait_obj, attr.flags),
                None => (FI_WAIT_UNSPEC, 0),
            };
            if flags != 0 {
                return Err(Errno::EINVAL);
            }
            let set = Arc::new(WaitSet::new(kind_of(wait_obj)?)?);
            let object = WaitSetObject(set);
            Ok(Handle::new(object, std::ptr::null_mut(), vec![parent]))
        };
        super::deliver(waitset, open())
    }
}

impl Class for WaitSetObject {
    type Header = fid_wait;

    fn class(&self) -> usize {
        FI_CLASS_WAIT
    }

    fn header(&self, fid: fid) -> fid_wait {
        static OPS: fi_ops_wait = fi_ops_wait {
            size: size_of::<fi_ops_wait>(),
            wait: Some(wait),
        };
        fid_wait {
            fid,
            ops: (&raw const OPS).cast_mut(),
        }
    }

    unsafe fn control(this: &Handle<Self>, command: c_int, arg: *mut c_void) -> Result<c_int> {
        // SAFETY: the caller guarantees that `arg` is as the command demands for this wait object.
        unsafe { control(this.0.kind(), this.0.wait(), command, arg) }
    }
}

cancellation_point! {
    fn wait(*mut fid_wait, c_int) -> c_int = wait_round
}

unsafe extern "C" fn wait_round(call: *mut Call) -> Next {
    // SAFETY: this function is only in the tables of wait sets; the application passes an open one,
    // and keeps it open during the call.
    unsafe {
        Call::round(
            call,
            |&[_, timeout, ..]| Ok(Deadline::after_ms(timeout.addr() as c_int)),
            |deadline, &[set, ..], woke| {
                let set: &WaitSet = &Handle::<WaitSetObject>::borrow(set.cast()).0;
                set.wait_round(*deadline, woke)
                    .map_break(|outcome| status(outcome) as isize)
            },
        )
    }
}

/// Implements fi_trywait(3).
///
/// # Safety
/// `fids` is an array of `count` open objects.
pub unsafe extern "C" fn trywait(
    _fabric: *mut fid_fabric,
    fids: *mut *mut fid,
    count: c_int,
) -> c_int {
    // A negative count means no objects.
    let count = usize::try_from(count).unwrap_or(0);
    if fids.is_null() && count > 0 {
        return Errno::EINVAL.to_c();
    }
    // An object may be asleep only when all are.
    for step in [try_wait, sleeps] {
        for index in 0..count {
            // SAFETY: the caller guarantees that the array has `count` entries, all of which are
            // open objects.
            let outcome = unsafe { AnyFid::new(*fids.add(index)) }.and_then(step);
            if outcome.is_err() {
                return status(outcome);
            }
        }
    }
    0
}

fn try_wait(object: AnyFid<'_>) -> Result {
    if let Some(cq) = object.downcast::<Cq>() {
        cq.try_wait()
    } else if let Some(cntr) = object.downcast::<Cntr>() {
        cntr.try_wait()
    } else if let Some(eq) = object.downcast::<Eq>() {
        eq.try_wait()
    } else {
        object.expect::<WaitSetObject>()?.0.try_wait()
    }
}

fn sleeps(object: AnyFid<'_>) -> Result {
    if let Some(cq) = object.downcast::<Cq>() {
        cq.sleeps();
    } else if let Some(cntr) = object.downcast::<Cntr>() {
        cntr.sleeps();
    } else if let Some(eq) = object.downcast::<Eq>() {
        eq.sleeps();
    } else {
        object.expect::<WaitSetObject>()?.0.sleeps();
    }
    Ok(())
}
