//! Event queues of the provider below (fi_eq(3)), and their connection events (fi_cm(3)).

use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use fabric_abi::symbols::fi_freeinfo;
use fabric_abi::*;

use super::{Fabric, Object};
use crate::marshal::info;
use prov_base::errno::{Errno, Result};

/// An event queue; closed when it is dropped, which must be after the endpoints that are bound to
/// it.
pub struct Eq {
    object: Object<fid_eq>,
    _fabric: Arc<Fabric>,
}

/// Upper limit of connection data in bytes.
const DATA: usize = 256;

/// The buffer for an event.
#[repr(C)]
struct EventBuffer {
    cm: fi_eq_cm_entry,
    data: [u8; DATA],
}

/// A connection event. Endpoints are identified by [`super::Endpoint::name`].
pub enum Event {
    /// A peer asks for a connection, with connection data.
    Asked(Asking, Vec<u8>),
    /// The connection is established, with the peer's connection data.
    Connected(usize, Vec<u8>),
    /// It has ended.
    Shutdown(usize),
    /// The connection failed or was broken, with the peer's connection data.
    Failed(usize, Errno, Vec<u8>),
    /// Another event, which is ignored.
    Other,
}

/// A connection request, to be accepted or rejected.
pub struct Asking(NonNull<fi_info>);

// SAFETY: the value is the only owner of the structure, which is bound to no thread.
unsafe impl Send for Asking {}

impl Asking {
    pub(super) fn as_c(&self) -> *mut fi_info {
        self.0.as_ptr()
    }

    /// Returns the peer's address.
    pub fn address(&self) -> Vec<u8> {
        // SAFETY: the structure was made by the library, in its layout, and is freed by the drop of
        // `self`.
        let info = unsafe { info::hints(self.0.as_ptr()) };
        info.map_or_else(Vec::new, |info| info.dest_addr)
    }

    pub(super) fn handle(&self) -> fid_t {
        // SAFETY: the structure was made by the library, in its layout, and is freed by the drop of
        // `self`.
        unsafe { (*self.0.as_ptr()).handle }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // SAFETY: the reader of an event has to free the structure, and this value is its only
        // owner.
        unsafe { fi_freeinfo(self.0.as_ptr()) }
    }
}

impl Eq {
    /// Opens a queue with a descriptor to sleep on.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open(fabric: &Arc<Fabric>) -> Result<Arc<Eq>> {
        let mut attr = fi_eq_attr {
            size: 0,
            flags: 0,
            wait_obj: FI_WAIT_FD,
            signaling_vector: 0,
            wait_set: null_mut(),
        };
        let mut eq = null_mut();
        // SAFETY: the fabric is open, and the attributes are valid during the call.
        let object = unsafe {
            let open = (*(*fabric.as_c()).ops).eq_open.ok_or(Errno::ENOSYS)?;
            let status = open(fabric.as_c(), &mut attr, &mut eq, null_mut());
            Object::opened(status, eq)?
        };
        Ok(Arc::new(Eq {
            object,
            _fabric: fabric.clone(),
        }))
    }

    pub(super) fn fid(&self) -> *mut fid {
        self.object.fid()
    }

    /// Returns the descriptor to sleep on, after [`Fabric::may_sleep`].
    ///
    /// # Errors
    /// What the provider returns.
    pub fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        self.object.wait_fd()
    }

    /// Returns the next event; `None` if there is none.
    ///
    /// # Errors
    /// What the provider returns.
    #[allow(clippy::indexing_slicing, reason = "limited to the room for data")]
    pub fn read(&self) -> Result<Option<Event>> {
        let mut entry = EventBuffer {
            cm: fi_eq_cm_entry {
                fid: null_mut(),
                info: null_mut(),
                data: [],
            },
            data: [0; DATA],
        };
        let mut event = 0;
        // SAFETY: the object is open, and `entry` has the size that is passed.
        let read = unsafe {
            let read = (*(*self.object.as_ptr()).ops).read.ok_or(Errno::ENOSYS)?;
            let room = (&raw mut entry).cast();
            read(
                self.object.as_ptr(),
                &mut event,
                room,
                size_of::<EventBuffer>(),
                0,
            )
        };
        let Ok(len) = usize::try_from(read) else {
            return match Errno::new(read as i32) {
                Errno::EAGAIN => Ok(None),
                Errno::EAVAIL => self.read_error(),
                error => Err(error),
            };
        };
        let len = len.saturating_sub(size_of::<fi_eq_cm_entry>()).min(DATA);
        let data = entry.data[..len].to_vec();
        let name = entry.cm.fid.addr();
        Ok(Some(match event {
            FI_CONNREQ => match NonNull::new(entry.cm.info) {
                Some(info) => Event::Asked(Asking(info), data),
                None => Event::Other,
            },
            FI_CONNECTED => Event::Connected(name, data),
            FI_SHUTDOWN => Event::Shutdown(name),
            _ => Event::Other,
        }))
    }

    fn read_error(&self) -> Result<Option<Event>> {
        let mut data = [0_u8; DATA];
        let mut entry = fi_eq_err_entry {
            fid: null_mut(),
            context: null_mut(),
            data: 0,
            err: 0,
            prov_errno: 0,
            err_data: data.as_mut_ptr().cast(),
            err_data_size: DATA,
        };
        // SAFETY: the object is open, and the buffer for the error's data has the size that `entry`
        // contains.
        let read = unsafe {
            let read = (*(*self.object.as_ptr()).ops).readerr;
            read.ok_or(Errno::ENOSYS)?(self.object.as_ptr(), &mut entry, 0)
        };
        if read <= 0 {
            return match Errno::new(read as i32) {
                _ if read == 0 => Ok(None),
                Errno::EAGAIN => Ok(None),
                error => Err(error),
            };
        }
        // SAFETY: the provider has filled the buffer, or returned a pointer to bytes of its own
        // that are valid until the next read.
        let said = unsafe { crate::marshal::bytes(entry.err_data, entry.err_data_size.min(DATA)) };
        let said = said.to_vec();
        Ok(Some(Event::Failed(
            entry.fid.addr(),
            Errno::new(entry.err),
            said,
        )))
    }
}
