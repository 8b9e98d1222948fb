//! The C interface of event queues (fi_eq(3)).

mod peer;
#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use fabric_abi::*;

use super::cancel::{Call, Next, cancellation_point};
use super::cq::{error_text, put_err_data};
use super::object::{Class, Handle, Use};
use super::wait::{self, OpenedWait};
use super::{bytes, count, deliver};
use prov_base::errno::{Errno, Result};
use prov_objects::eq::{Eq, Event, EventBody};

/// Implements fi_eq_open(3).
///
/// # Safety
/// `fabric` is an open fabric of type `F`; the other pointers are null or as
/// fi_eq(3) asks.
pub unsafe extern "C" fn eq_open<F: Class<Header = fid_fabric>>(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees that the fabric is open and that the other pointers are null or
    // as fi_eq(3) demands.
    unsafe {
        let fabric = Handle::<F>::from_c(fabric);
        // Every fabric structure contains the version that it was opened for.
        let opened = open(attr.as_ref(), (*fabric.as_c()).api_version, context);
        deliver(
            eq,
            opened.inspect(|eq| eq.keep_open(Use::of(&fabric).any())),
        )
    }
}

/// # Safety
/// A wait set in `attr` is open where one is asked for, and `context` is a
/// `fi_peer_eq_context` under `FI_PEER`.
unsafe fn open(
    attr: Option<&fi_eq_attr>,
    api_version: u32,
    context: *mut c_void,
) -> Result<Handle<Eq>> {
    let (wait_obj, wait_set, flags) = match attr {
        Some(attr) => (attr.wait_obj, attr.wait_set, attr.flags),
        None => (FI_WAIT_NONE, ptr::null_mut(), 0),
    };
    if flags & !(FI_AFFINITY | FI_WRITE | FI_PEER) != 0 {
        return Err(Errno::EINVAL);
    }
    let (owner, context) = match flags & FI_PEER {
        0 => (None, context),
        // SAFETY: the caller guarantees that the context is null or a valid `fi_peer_eq_context`.
        _ => (Some(unsafe { peer::import(context) }?), ptr::null_mut()),
    };
    // SAFETY: the caller guarantees that the wait set is open if one is requested.
    let mut opened = unsafe { OpenedWait::open(wait_obj, wait_set) }?;
    let joiner = opened.joiner();
    let eq = match owner {
        None => Eq::new(opened.attachment, api_version),
        Some(owner) => Eq::of_peer(opened.attachment, api_version, owner),
    };
    Ok(joiner.join(Handle::new(eq, context, Vec::new())))
}

impl Class for Eq {
    type Header = fid_eq;

    fn class(&self) -> usize {
        FI_CLASS_EQ
    }

    fn header(&self, fid: fid) -> fid_eq {
        static OPS: fi_ops_eq = fi_ops_eq {
            size: size_of::<fi_ops_eq>(),
            read: Some(read),
            readerr: Some(readerr),
            write: Some(write),
            sread: Some(sread),
            strerror: Some(strerror),
        };
        let ops = if self.is_peer() { &peer::OPS } else { &OPS };
        fid_eq {
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

/// Copies an event to the application.
///
/// # Safety
/// `kind` is null or a place for the number, and `buf` has `room` bytes.
unsafe fn put(event: &Event, kind: *mut u32, buf: *mut c_void, room: usize) {
    // SAFETY: the caller guarantees that `kind` is null or writable and that `buf` has `room`
    // bytes. The queue returns only events that fit, and connection data is truncated here.
    unsafe {
        if !kind.is_null() {
            kind.write(event.kind);
        }
        match &event.body {
            _ if room == 0 => {}
            EventBody::Control { fid, context, data } => {
                buf.cast::<fi_eq_entry>().write_unaligned(fi_eq_entry {
                    fid: *fid,
                    context: *context,
                    data: *data,
                });
            }
            EventBody::Connection { fid, info, data } => {
                let entry = buf.cast::<fi_eq_cm_entry>();
                (&raw mut (*entry).fid).write_unaligned(*fid);
                let info = info.as_ref().map_or(ptr::null_mut(), |info| info.as_ptr());
                (&raw mut (*entry).info).write_unaligned(info);
                let len = data.len().min(room - size_of::<fi_eq_cm_entry>());
                let place = buf.cast::<u8>().add(size_of::<fi_eq_cm_entry>());
                ptr::copy_nonoverlapping(data.as_ptr(), place, len);
            }
            EventBody::User(data) => {
                ptr::copy_nonoverlapping(data.as_ptr(), buf.cast(), data.len());
            }
        }
    }
}

/// Flags other than `FI_PEEK` have no meaning here or in `sread`, and are ignored.
unsafe extern "C" fn read(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    let len = if buf.is_null() { 0 } else { len };
    // SAFETY: this function is only in the tables of event queues; the application passes an open
    // one, and a buffer of `len` bytes.
    count(unsafe {
        Handle::<Eq>::borrow(eq).read(len, flags & FI_PEEK != 0, |found| {
            put(found, event, buf, len)
        })
    })
}

cancellation_point! {
    fn sread(*mut fid_eq, *mut u32, *mut c_void, usize, c_int, u64) -> isize = sread_round
}

unsafe extern "C" fn sread_round(call: *mut Call) -> Next {
    // SAFETY: this function is only in the tables of event queues; the application passes an open
    // one, keeps it open until the call returns, and passes a buffer of the stated length.
    unsafe {
        Call::round(
            call,
            |&[eq, _, _, _, timeout, _]| {
                Handle::<Eq>::borrow(eq.cast())
                    .start_blocking(timeout.addr() as c_int)
                    .map_err(|error| count(Err(error)))
            },
            |read, &[_, event, buf, len, _, flags], woke| {
                let len = if buf.is_null() { 0 } else { len.addr() };
                let peek = flags.addr() as u64 & FI_PEEK != 0;
                read.round(len, peek, woke, |found| put(found, event.cast(), buf, len))
                    .map_break(count)
            },
        )
    }
}

unsafe extern "C" fn readerr(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize {
    if buf.is_null() {
        return Errno::EINVAL.to_c() as isize;
    }
    // SAFETY: this function is only in the tables of event queues, and the application passes an
    // open one.
    let this = unsafe { Handle::<Eq>::borrow(eq) };
    let error = match this.read_error(flags & FI_PEEK != 0) {
        Ok(error) => error,
        Err(error) => return error.to_c() as isize,
    };
    // SAFETY: the application passes an entry, whose data members describe a buffer of its own or
    // none.
    unsafe {
        (*buf).fid = error.fid;
        (*buf).context = error.context;
        (*buf).data = error.data;
        (*buf).err = error.err.number();
        (*buf).prov_errno = error.prov_errno;
        let size = &raw mut (*buf).err_data_size;
        put_err_data(
            &raw mut (*buf).err_data,
            size,
            this.api_version(),
            error.err_data,
            |data| this.lend(data),
        );
    }
    size_of::<fi_eq_err_entry>() as isize
}

/// Flags do not change what is written, and are ignored. Peers for collective operations pass
/// `FI_COLLECTIVE`.
unsafe extern "C" fn write(
    eq: *mut fid_eq,
    event: u32,
    buf: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    if len > isize::MAX as usize {
        return Errno::ENOMEM.to_c() as isize;
    }
    // SAFETY: this function is only in the tables of event queues; the application passes an open
    // one, and a buffer of `len` bytes.
    count(unsafe {
        copy(bytes(buf, len)).and_then(|data| {
            let body = EventBody::User(data);
            let event = Event { kind: event, body };
            Handle::<Eq>::borrow(eq).write(event).map(|()| len)
        })
    })
}

/// Returns a copy, if there is memory for one.
fn copy(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())
        .map_err(|_| Errno::ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

unsafe extern "C" fn strerror(
    _eq: *mut fid_eq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the application passes null or a buffer of `len` bytes.
    unsafe { error_text(prov_errno, buf, len) }
}
