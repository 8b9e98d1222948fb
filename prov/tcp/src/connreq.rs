//! Connection requests that the application has been told of and has neither
//! accepted nor rejected yet.

use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::{FI_CLASS_CONNREQ, fid};
use prov_util::ffi::{Class, Handle};

use crate::engine::link::listener::Incomer;
use crate::engine::link::socket;
use crate::wire::handshake::{Features, Kind, Message};

/// Unanswered requests of a passive endpoint beyond which no more connections
/// are taken from the system. Those that were taken before and have not sent
/// their request yet may add to them.
pub const UNANSWERED_LIMIT: usize = 256;

/// Counts the requests of a passive endpoint that have no answer yet.
#[derive(Clone, Default)]
pub struct Unanswered(Arc<AtomicUsize>);

impl Unanswered {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn one_more(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }
}

/// One of the requests that are counted.
struct Counted(Unanswered);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request, as `fi_info::handle` names it.
pub struct ConnectionRequest {
    incomer: Mutex<Option<Incomer>>,
    _counted: Counted,
}

/// The open requests of a fabric, by the address of their handles. A handle
/// that the application makes up is none of them.
#[derive(Default)]
pub struct Requests {
    open: Mutex<HashMap<usize, Handle<ConnectionRequest>>>,
}

impl Requests {
    fn open(&self) -> MutexGuard<'_, HashMap<usize, Handle<ConnectionRequest>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request and returns its handle.
    pub fn add(&self, incomer: Incomer, unanswered: &Unanswered) -> *mut c_void {
        let request = ConnectionRequest {
            incomer: Mutex::new(Some(incomer)),
            _counted: unanswered.one_more(),
        };
        let handle = Handle::new(request, std::ptr::null_mut(), Vec::new());
        let address = handle.fid();
        self.open().insert(address.addr(), handle);
        address.cast()
    }

    /// Takes the peer of a request; `None` if it is taken or there is no such
    /// request.
    pub fn take(&self, handle: *mut c_void) -> Option<Incomer> {
        let open = self.open();
        let request = open.get(&handle.addr())?;
        let mut incomer = request
            .incomer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        incomer.take()
    }

    /// Puts a peer back that was taken: it may still be rejected.
    pub fn put_back(&self, handle: *mut c_void, incomer: Incomer) {
        if let Some(request) = self.open().get(&handle.addr()) {
            *request
                .incomer
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(incomer);
        }
    }

    /// Whether there is such a request.
    pub fn knows(&self, handle: *mut c_void) -> bool {
        self.open().contains_key(&handle.addr())
    }

    /// Ends a request: its handle means nothing any more.
    pub fn forget(&self, handle: *mut c_void) {
        self.open().remove(&handle.addr());
    }

    /// Ends a request of which the application was not told, by the address of
    /// its handle.
    pub fn drop_unread(&self, address: usize) {
        let dropped = self.open().remove(&address);
        drop(dropped);
    }

    /// Refuses a request, with connection data.
    pub fn reject(&self, handle: *mut c_void, data: &[u8]) -> bool {
        let Some(request) = self.open().remove(&handle.addr()) else {
            return false;
        };
        let incomer = request
            .incomer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(incomer) = incomer {
            let answer = Message::new(Kind::Reject, Features::default(), 0, data);
            // If it does not reach the peer, the end of the connection does.
            let _ = socket::send(incomer.socket.as_fd(), &answer.encode());
            socket::end(incomer.socket);
        }
        true
    }
}

impl Class for ConnectionRequest {
    type Header = fid;

    fn class(&self) -> usize {
        FI_CLASS_CONNREQ
    }

    fn header(&self, fid: fid) -> fid {
        fid
    }
}
