//! What an event queue holds.

use std::ffi::c_void;
use std::ptr;

use fabric_abi::{fi_eq_cm_entry, fi_eq_entry, fi_info, fid};

use crate::attr::Info;
use crate::errno::{Errno, Result};
use crate::marshal::info;

/// Something that happened.
#[derive(Debug)]
pub struct Event {
    /// `FI_CONNREQ` and the like, or the application's own number.
    pub kind: u32,
    /// What is told about it.
    pub body: EventBody,
}

/// What is told about an event.
#[derive(Debug)]
pub enum EventBody {
    /// A control operation completed (`struct fi_eq_entry`).
    Control {
        /// The object it was about.
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
        /// For a request, the endpoint to open for it.
        info: Option<EventInfo>,
        /// What the peer sent along.
        data: Vec<u8>,
    },
    /// Bytes that the application wrote.
    User(Vec<u8>),
}

/// Something that failed (`struct fi_eq_err_entry`).
#[derive(Clone, Debug)]
pub struct EventError {
    /// The object it was about.
    pub fid: *mut fid,
    /// The operation's context.
    pub context: *mut c_void,
    /// Depends on the operation.
    pub data: u64,
    /// Why it failed.
    pub err: Errno,
    /// The provider's own number for that.
    pub prov_errno: i32,
    /// More about it: for a refused connection, what the peer sent along.
    pub err_data: Box<[u8]>,
}

// SAFETY: the pointers are handed back to the application and never followed
// here; the info is owned.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Send for EventError {}

impl EventError {
    /// `fid` failed with `err`, and nothing more is known.
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
    /// The object that the event is about; the application's own events are
    /// about none.
    pub fn fid(&self) -> Option<*mut fid> {
        match self.body {
            EventBody::Control { fid, .. } | EventBody::Connection { fid, .. } => Some(fid),
            EventBody::User(_) => None,
        }
    }

    /// Bytes that this takes where there is room.
    pub(crate) fn len(&self) -> usize {
        self.len_within(usize::MAX).unwrap_or_default()
    }

    /// Bytes that this takes of `room`; `None` if it does not fit. Only
    /// connection data may be cut off.
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

    /// The application has what it needs to free the rest.
    pub(crate) fn delivered(self) {
        if let EventBody::Connection {
            info: Some(info), ..
        } = self.body
        {
            info.give_away();
        }
    }
}

/// The `fi_info` of a connection request, which the application frees once it
/// has read the event, and the queue if it never does.
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
    /// One with these attributes.
    ///
    /// # Errors
    /// `-FI_ENOMEM`
    pub fn of(info: &Info) -> Result<Self> {
        let list = info::to_c(std::slice::from_ref(info))?;
        // SAFETY: the list was made for this and has no other owner.
        Ok(unsafe { Self::new(list, free) })
    }

    /// Takes over an info that `free` frees.
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

    /// Has `gone` called if the application never reads the event.
    pub fn if_unread(&mut self, gone: impl FnOnce() + Send + 'static) {
        self.if_unread = Some(Box::new(gone));
    }

    /// The info, still owned by this.
    pub fn as_ptr(&self) -> *mut fi_info {
        self.info
    }

    /// Leaves freeing to whoever got the pointer.
    pub fn give_away(mut self) -> *mut fi_info {
        self.given_away = true;
        self.info
    }
}

unsafe extern "C" fn free(list: *mut fi_info) {
    // SAFETY: called with what `info::to_c` made and nobody uses any more.
    unsafe { info::free(list) }
}

impl Drop for EventInfo {
    fn drop(&mut self) {
        if self.given_away {
            return;
        }
        // SAFETY: see `EventInfo::new`; nobody was given the pointer for good.
        unsafe { (self.free)(self.info) }
        if let Some(gone) = self.if_unread.take() {
            gone();
        }
    }
}
