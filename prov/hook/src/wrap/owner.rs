//! An event queue that the provider below writes its events to (fi_peer(3)), in the place of the
//! owner's: these events are about the provider's objects, and the owner knows those over them.

use std::ffi::c_void;
use std::ptr::from_ref;

use fabric_abi::*;

use super::special::lift_bytes;

/// The queue that the provider gets. It lives as long as the provider's own queue.
#[repr(C)]
struct Relay {
    header: fid_eq,
    owner: *mut fid_eq,
}

/// Owns a [`Relay`].
pub(super) struct Owner(*mut Relay);

// SAFETY: the relay is constant, and the interface permits calls for the owner's queue from any
// thread.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: `over` made it, and it is dropped once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

static OPS: fi_ops = fi_ops {
    size: size_of::<fi_ops>(),
    close: None,
    bind: None,
    control: None,
    ops_open: None,
    tostr: None,
    ops_set: None,
};

/// A peer does nothing but write.
static OPS_EQ: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: None,
    readerr: None,
    write: Some(write),
    sread: None,
    strerror: None,
};

impl Owner {
    /// # Safety
    /// `owner` is an event queue, and open as long as the result is used.
    pub unsafe fn over(owner: *mut fid_eq) -> Self {
        // SAFETY: the caller's promise.
        let (fclass, context) = unsafe { ((*owner).fid.fclass, (*owner).fid.context) };
        let header = fid_eq {
            fid: fid {
                fclass,
                context,
                ops: from_ref(&OPS).cast_mut(),
            },
            ops: from_ref(&OPS_EQ).cast_mut(),
        };
        Owner(Box::into_raw(Box::new(Relay { header, owner })))
    }

    /// Returns the queue for the provider.
    pub fn as_c(&self) -> *mut fid_eq {
        self.0.cast()
    }
}

/// fi_eq_write(3) of the relay.
unsafe extern "C" fn write(
    eq: *mut fid_eq,
    event: u32,
    buf: *const c_void,
    len: usize,
    flags: u64,
) -> isize {
    const MISSING: isize = -libc::ENOSYS as isize;
    // SAFETY: the provider has this function from a relay, which is over an open queue, and the
    // event has `len` bytes.
    unsafe {
        let owner = (*eq.cast::<Relay>()).owner;
        let Some(write) = (*owner).ops.as_ref().and_then(|ops| ops.write) else {
            return MISSING;
        };
        if buf.is_null() {
            return write(owner, event, buf, len, flags);
        }
        let mut bytes = vec![0u8; len];
        bytes.as_mut_ptr().copy_from(buf.cast(), len);
        lift_bytes(event, bytes.as_mut_ptr().cast(), len);
        write(owner, event, bytes.as_ptr().cast(), len, flags)
    }
}

/// The context of an opening call with `FI_PEER`, for the provider below.
pub(super) struct PeerContext {
    context: fi_peer_eq_context,
    owner: Option<Owner>,
}

impl PeerContext {
    /// Returns the context for the provider below, unless it is of an interface that is not known.
    ///
    /// # Safety
    /// `context` is null or a `fi_peer_eq_context`, which begins with its size.
    pub unsafe fn of(context: *mut c_void) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe {
            if context.is_null() || *context.cast::<usize>() < size_of::<fi_peer_eq_context>() {
                return None;
            }
            let mut context = *context.cast::<fi_peer_eq_context>();
            let queue = context.eq;
            let lowered = super::below(queue.cast()).cast::<fid_eq>();
            let mut owner = None;
            if lowered != queue {
                // The owner's is of this library, and events are looked at when they are read.
                context.eq = lowered;
            } else if !queue.is_null() {
                let relay = Owner::over(queue);
                context.eq = relay.as_c();
                owner = Some(relay);
            }
            Some(PeerContext { context, owner })
        }
    }

    /// Returns the structure.
    pub fn as_c(&mut self) -> *mut c_void {
        (&raw mut self.context).cast()
    }

    /// Returns what has to live as long as the queue that was opened.
    pub fn into_owner(self) -> Option<Owner> {
        self.owner
    }
}
