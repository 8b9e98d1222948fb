//! Connection requests (fi_cm(3)) that the application has been told of and has
//! neither accepted nor rejected yet.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::{FI_CLASS_CONNREQ, fid};
use prov_util::errno::{Errno, Result};
use prov_util::ffi::{Class, Handle};

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

/// The open requests of a fabric, by the address of their handles, and who asks:
/// what the provider has of such a peer. A handle that the application makes up
/// is none of them.
pub struct Requests<I> {
    open: Mutex<HashMap<usize, Request<I>>>,
}

/// A request without an answer.
struct Request<I> {
    /// Keeps the address of the handle from being another one's.
    _handle: Handle<Named>,
    /// Who asks, unless an endpoint has it.
    incomer: Option<I>,
    _counted: Counted,
}

impl<I> Default for Requests<I> {
    fn default() -> Self {
        Requests {
            open: Mutex::default(),
        }
    }
}

impl<I> Requests<I> {
    fn open(&self) -> MutexGuard<'_, HashMap<usize, Request<I>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request and returns its handle.
    pub fn add(&self, incomer: I, unanswered: &Unanswered) -> *mut c_void {
        let handle = Handle::new(Named, std::ptr::null_mut(), Vec::new());
        let address = handle.fid();
        let request = Request {
            _handle: handle,
            incomer: Some(incomer),
            _counted: unanswered.one_more(),
        };
        self.open().insert(address.addr(), request);
        address.cast()
    }

    /// Whether there is such a request.
    pub fn knows(&self, handle: *mut c_void) -> bool {
        self.open().contains_key(&handle.addr())
    }

    /// Takes who asks, for an endpoint that is to accept; `None` if another one
    /// has it or there is no such request.
    pub fn take(&self, handle: *mut c_void) -> Option<I> {
        self.open().get_mut(&handle.addr())?.incomer.take()
    }

    /// Puts back what was taken for an endpoint that did not come about: the request
    /// may still be rejected, or accepted with another one.
    pub fn put_back(&self, handle: *mut c_void, incomer: I) {
        // What is not put back, as the request has ended, ends behind the lock.
        let _ended = match self.open().get_mut(&handle.addr()) {
            Some(request) => request.incomer.replace(incomer),
            None => Some(incomer),
        };
    }

    /// Ends a request, which is answered: its handle means nothing any more.
    pub fn forget(&self, handle: *mut c_void) {
        self.forget_unread(handle.addr());
    }

    /// Ends a request of which the application was not told, by the address of
    /// its handle.
    pub fn forget_unread(&self, address: usize) {
        let ended = self.open().remove(&address);
        // Not under the lock.
        drop(ended);
    }

    /// Ends a request that is rejected, and returns who is to hear of it; nobody
    /// where an endpoint has it.
    ///
    /// # Errors
    /// `-FI_EINVAL` if there is no such request.
    pub fn reject(&self, handle: *mut c_void) -> Result<Option<I>> {
        let ended = self.open().remove(&handle.addr());
        ended.map(|request| request.incomer).ok_or(Errno::EINVAL)
    }
}

/// What `fi_info::handle` points to.
struct Named;

impl Class for Named {
    type Header = fid;

    fn class(&self) -> usize {
        FI_CLASS_CONNREQ
    }

    fn header(&self, fid: fid) -> fid {
        fid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_is_taken_once_and_may_be_put_back() {
        let requests = Requests::default();
        let handle = requests.add("peer", &Unanswered::default());
        assert_eq!(requests.take(handle), Some("peer"));
        assert_eq!(requests.take(handle), None);
        requests.put_back(handle, "peer");
        assert_eq!(requests.take(handle), Some("peer"));
        assert!(requests.knows(handle));
    }

    #[test]
    fn a_handle_that_nobody_was_given_is_no_request() {
        let requests = Requests::default();
        requests.add("peer", &Unanswered::default());
        for made_up in [std::ptr::null_mut(), std::ptr::dangling_mut()] {
            assert!(!requests.knows(made_up));
            assert_eq!(requests.take(made_up), None);
            assert_eq!(requests.reject(made_up), Err(Errno::EINVAL));
            requests.forget(made_up);
            requests.put_back(made_up, "another");
            assert!(!requests.knows(made_up));
        }
    }

    #[test]
    fn each_request_has_a_handle_of_its_own() {
        let requests = Requests::default();
        let unanswered = Unanswered::default();
        let one = requests.add("one", &unanswered);
        let other = requests.add("other", &unanswered);
        assert_eq!(requests.take(other), Some("other"));
        assert_eq!(requests.take(one), Some("one"));
    }

    #[test]
    fn whoever_is_rejected_is_told_unless_an_endpoint_has_it() {
        let requests = Requests::default();
        let unanswered = Unanswered::default();
        let handle = requests.add("peer", &unanswered);
        assert_eq!(requests.reject(handle), Ok(Some("peer")));
        assert_eq!(requests.reject(handle), Err(Errno::EINVAL));
        let handle = requests.add("peer", &unanswered);
        let taken = requests.take(handle).unwrap();
        assert_eq!(requests.reject(handle), Ok(None));
        requests.put_back(handle, taken);
        assert_eq!(requests.take(handle), None);
    }

    #[test]
    fn a_request_counts_until_it_is_answered_however_that_is() {
        let requests = Requests::default();
        let (unanswered, others) = (Unanswered::default(), Unanswered::default());
        let handles = [1, 2, 3].map(|peer| requests.add(peer, &unanswered));
        requests.add(4, &others);
        requests.take(handles[0]);
        assert_eq!(unanswered.count(), 3);
        requests.forget(handles[0]);
        requests.forget(handles[0]);
        assert_eq!(unanswered.count(), 2);
        requests.forget_unread(handles[1].addr());
        assert_eq!(unanswered.count(), 1);
        requests.reject(handles[2]).unwrap();
        assert_eq!((unanswered.count(), others.count()), (0, 1));
    }

    #[test]
    fn who_asks_is_let_go_with_the_request_and_not_under_the_lock() {
        /// Looks at the requests when it goes.
        struct Peer(std::sync::Weak<Requests<Peer>>, Arc<AtomicUsize>);
        impl Drop for Peer {
            fn drop(&mut self) {
                let free = self
                    .0
                    .upgrade()
                    .is_some_and(|of| of.open.try_lock().is_ok());
                self.1.fetch_add(usize::from(free), Ordering::Relaxed);
            }
        }
        let requests = Arc::<Requests<Peer>>::default();
        let gone = Arc::new(AtomicUsize::new(0));
        let unanswered = Unanswered::default();
        let add = || requests.add(Peer(Arc::downgrade(&requests), gone.clone()), &unanswered);
        requests.forget(add());
        drop(requests.reject(add()));
        let handle = add();
        let taken = requests.take(handle).unwrap();
        requests.forget(handle);
        requests.put_back(handle, taken);
        assert_eq!(gone.load(Ordering::Relaxed), 3);
    }
}
