//! The events in an event queue.

use std::ffi::c_void;
use std::ptr;

use fabric_abi::{fi_eq_cm_entry, fi_eq_entry, fi_info, fid};

use prov_base::errno::Errno;

/// An event.
#[derive(Debug)]
pub struct Event {
    /// `FI_CONNREQ` and the like, or the application's number.
    pub kind: u32,
    /// The content.
    pub body: EventBody,
}

/// The content of an event.
#[derive(Debug)]
pub enum EventBody {
    /// A control operation completed (`struct fi_eq_entry`).
    Control {
        /// The object concerned.
        fid: *mut fid,
        /// The operation's context.
        context: *mut c_void,
        /// Depends on the operation.
        data: u64,
    },
    /// A connection changed its state (`struct fi_eq_cm_entry`).
    Connection {
        /// The endpoint, or for a request the passive endpoint.
        fid: *mut fid,
        /// For a request, the attributes of the endpoint to open for it.
        info: Option<EventInfo>,
        /// The peer's connection data.
        data: Vec<u8>,
    },
    /// Bytes that the application wrote.
    User(Vec<u8>),
}

/// An error (`struct fi_eq_err_entry`).
#[derive(Clone, Debug)]
pub struct EventError {
    /// The object concerned.
    pub fid: *mut fid,
    /// The operation's context.
    pub context: *mut c_void,
    /// Depends on the operation.
    pub data: u64,
    /// The error.
    pub err: Errno,
    /// The provider-specific error number.
    pub prov_errno: i32,
    /// Additional data: for a refused connection, the peer's connection data.
    pub err_data: Box<[u8]>,
}

// SAFETY: the pointers are returned to the application and never dereferenced here; the info has no
// other owner.
unsafe impl Send for Event {}
// SAFETY: the pointers are returned to the application and never dereferenced here.
unsafe impl Send for EventError {}

impl EventError {
    /// Creates an error entry for `fid`, without further information.
    pub fn new(fid: *mut fid, context: *mut c_void, err: Errno) -> Self {
        Self {
            fid,
            context,
            data: 0,
            err,
            prov_errno: err.number(),
            err_data: Box::default(),
        }
    }

    pub(super) fn overrun() -> Self {
        Self::new(ptr::null_mut(), ptr::null_mut(), Errno::EOVERRUN)
    }
}

impl Event {
    /// Returns the object concerned; the application's own events have none.
    pub fn fid(&self) -> Option<*mut fid> {
        match self.body {
            EventBody::Control { fid, .. } | EventBody::Connection { fid, .. } => Some(fid),
            EventBody::User(_) => None,
        }
    }

    /// Returns the size of the event in bytes.
    pub fn size(&self) -> usize {
        self.len_within(usize::MAX).unwrap_or_default()
    }

    /// Returns the size of the event in a buffer of `room` bytes; `None` if it does not fit. Only
    /// connection data may be truncated.
    pub(super) fn len_within(&self, room: usize) -> Option<usize> {
        let (least, most) = match &self.body {
            EventBody::Control { .. } => {
                let len = size_of::<fi_eq_entry>();
                (len, len)
            }
            EventBody::Connection { data, .. } => {
                let fixed = size_of::<fi_eq_cm_entry>();
                (fixed, fixed + data.len())
            }
            EventBody::User(bytes) => (bytes.len(), bytes.len()),
        };
        (room >= least).then_some(most.min(room))
    }

    /// Called when the application has got the pointers that it has to free.
    pub fn delivered(self) {
        if let EventBody::Connection {
            info: Some(info), ..
        } = self.body
        {
            info.give_away();
        }
    }
}

/// The `fi_info` of a connection request. The application frees it after it has read the event;
/// otherwise this value does.
pub struct EventInfo {
    info: *mut fi_info,
    free: unsafe extern "C" fn(*mut fi_info),
    given_away: bool,
    if_unread: Option<Box<dyn FnOnce() + Send>>,
}

impl std::fmt::Debug for EventInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EventInfo").field(&self.info).finish()
    }
}

impl EventInfo {
    /// Takes ownership of an info, which is freed by `free`.
    ///
    /// # Safety
    /// `info` is the caller's to give, and `free` may be called with it once.
    pub unsafe fn new(info: *mut fi_info, free: unsafe extern "C" fn(*mut fi_info)) -> Self {
        Self {
            info,
            free,
            given_away: false,
            if_unread: None,
        }
    }

    /// Sets a function to be called if the application never reads the event.
    pub fn if_unread(&mut self, gone: impl FnOnce() + Send + 'static) {
        self.if_unread = Some(Box::new(gone));
    }

    /// Returns the info, which this value still owns.
    pub fn as_ptr(&self) -> *mut fi_info {
        self.info
    }

    /// Transfers the ownership to the receiver of the pointer.
    pub fn give_away(mut self) -> *mut fi_info {
        self.given_away = true;
        self.info
    }
}

impl Drop for EventInfo {
    fn drop(&mut self) {
        if self.given_away {
            return;
        }
        // SAFETY: the caller of `EventInfo::new` has guaranteed that `free` frees the list, which
        // this value still owns.
        unsafe { (self.free)(self.info) }
        if let Some(gone) = self.if_unread.take() {
            gone();
        }
    }
}
