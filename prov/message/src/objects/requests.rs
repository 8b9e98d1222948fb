//! Connection requests (fi_cm(3)) that were reported to the application and have not been answered.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric_abi::{FI_CLASS_CONNREQ, fid};
use prov_base::errno::{Errno, Result};
use prov_util::ffi::{Class, Handle};

/// Counts the unanswered requests of a passive endpoint.
#[derive(Clone, Default)]
pub struct Unanswered(Arc<AtomicUsize>);

impl Unanswered {
    /// Returns the count.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn one_more(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }
}

/// One counted request.
struct Counted(Unanswered);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Limit of the remembered requests whose endpoint was closed. They may still be rejected, but need
/// not be, so the oldest are forgotten beyond this number.
const ABANDONED_LIMIT: usize = if cfg!(miri) { 64 } else { 1024 };

/// The open requests of a fabric, by the address of their handles, with the provider's data of the
/// peers. A handle that the application makes up is not found.
pub struct Requests<I> {
    known: Mutex<RequestTable<I>>,
}

struct RequestTable<I> {
    open: HashMap<usize, Request<I>>,
    /// Requests whose endpoint was closed without an answer, oldest first. Rejecting one of them
    /// succeeds without informing the peer, which has seen its connection end.
    abandoned: VecDeque<Handle<Named>>,
}

/// An unanswered request.
struct Request<I> {
    /// Keeps the address of the handle from being reused.
    handle: Handle<Named>,
    asking: Claimed<I>,
    /// Whether an endpoint is open that may accept it.
    is_claimed: bool,
    _counted: Counted,
}

/// The peer of a request, as the endpoint that may accept the request refers to it. It is empty as
/// soon as the request is accepted or rejected.
pub struct Claimed<I>(Arc<Mutex<Option<I>>>);

impl<I> Claimed<I> {
    fn shared(&self) -> MutexGuard<'_, Option<I>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the peer out for an answer; returns `None` if the request has been answered.
    pub fn take(&self) -> Option<I> {
        self.shared().take()
    }

    /// Puts the peer back after an answer that was not given.
    pub fn put_back(&self, incomer: I) {
        *self.shared() = Some(incomer);
    }

    /// Inspects the peer; returns `None` if the request has been answered.
    pub fn look<R>(&self, look: impl FnOnce(&I) -> R) -> Option<R> {
        self.shared().as_ref().map(look)
    }
}

impl<I> Default for Requests<I> {
    fn default() -> Self {
        let (open, abandoned) = (HashMap::new(), VecDeque::new());
        Requests {
            known: Mutex::new(RequestTable { open, abandoned }),
        }
    }
}

impl<I> Requests<I> {
    fn known(&self) -> MutexGuard<'_, RequestTable<I>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request and returns its handle.
    pub fn add(&self, incomer: I, unanswered: &Unanswered) -> *mut c_void {
        let handle = Handle::new(Named, std::ptr::null_mut(), Vec::new());
        let address = handle.fid();
        let request = Request {
            handle,
            asking: Claimed(Arc::new(Mutex::new(Some(incomer)))),
            is_claimed: false,
            _counted: unanswered.one_more(),
        };
        self.known().open.insert(address.addr(), request);
        address.cast()
    }

    /// Returns whether a request with this handle is open.
    pub fn knows(&self, handle: *mut c_void) -> bool {
        self.known().open.contains_key(&handle.addr())
    }

    /// Claims a request for the endpoint that may accept it. Returns `None` if another endpoint has
    /// claimed it or there is no such request. The request may still be rejected.
    pub fn claim(&self, handle: *mut c_void) -> Option<Claimed<I>> {
        let mut known = self.known();
        let request = known.open.get_mut(&handle.addr())?;
        if request.is_claimed {
            return None;
        }
        request.is_claimed = true;
        Some(Claimed(request.asking.0.clone()))
    }

    /// Undoes [`claim`](Requests::claim) for an endpoint that could not be opened, so that another
    /// one can claim the request.
    pub fn unclaim(&self, handle: *mut c_void) {
        if let Some(request) = self.known().open.get_mut(&handle.addr()) {
            request.is_claimed = false;
        }
    }

    /// Ends a request whose endpoint is closed or failed to accept it: the peer's data is dropped.
    /// The application may still reject the request, and need not.
    pub fn abandon(&self, handle: *mut c_void) {
        let mut known = self.known();
        let Some(request) = known.open.remove(&handle.addr()) else {
            return;
        };
        let Request {
            handle,
            asking,
            _counted,
            ..
        } = request;
        known.abandoned.push_back(handle);
        bounded!(known.abandoned, PEERS);
        let oldest = match known.abandoned.len() > ABANDONED_LIMIT {
            true => known.abandoned.pop_front(),
            false => None,
        };
        drop(known);
        // Dropped outside the lock: the peer's destructor may use the requests.
        drop((asking.take(), oldest));
    }

    /// Ends a request that was accepted: its handle becomes invalid.
    pub fn forget(&self, handle: *mut c_void) {
        self.forget_unread(handle.addr());
    }

    /// Ends a request that was not reported to the application, by the address of its handle.
    pub fn forget_unread(&self, address: usize) {
        let ended = self.known().open.remove(&address);
        // Dropped outside the lock: the peer's destructor may use the requests.
        drop(ended);
    }

    /// Implements fi_reject(3). Returns the peer that has to be informed, whether or not an
    /// endpoint is open that could have accepted the request; `None` if that endpoint is closed.
    ///
    /// # Errors
    /// `-FI_EINVAL` if there is no such request.
    pub fn reject(&self, handle: *mut c_void) -> Result<Option<I>> {
        let mut known = self.known();
        if let Some(ended) = known.open.remove(&handle.addr()) {
            drop(known);
            return Ok(ended.asking.take());
        }
        let is_it = |ended: &Handle<Named>| ended.fid().addr() == handle.addr();
        let at = known.abandoned.iter().position(is_it);
        let ended = at.and_then(|at| known.abandoned.remove(at));
        drop(known);
        ended.map(|_| None).ok_or(Errno::EINVAL)
    }
}

/// The object that `fi_info::handle` points to.
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
    fn one_endpoint_at_a_time_may_accept_a_request() {
        let requests = Requests::default();
        let handle = requests.add("peer", &Unanswered::default());
        let claimed = requests.claim(handle).unwrap();
        assert_eq!(claimed.look(|peer| *peer), Some("peer"));
        assert!(requests.claim(handle).is_none());
        requests.unclaim(handle);
        assert_eq!(requests.claim(handle).unwrap().take(), Some("peer"));
        assert!(requests.knows(handle));
    }

    #[test]
    fn an_unknown_handle_is_not_a_request() {
        let requests = Requests::default();
        requests.add("peer", &Unanswered::default());
        for made_up in [std::ptr::null_mut(), std::ptr::dangling_mut()] {
            assert!(!requests.knows(made_up));
            assert!(requests.claim(made_up).is_none());
            assert_eq!(requests.reject(made_up), Err(Errno::EINVAL));
            requests.forget(made_up);
            requests.unclaim(made_up);
            requests.abandon(made_up);
            assert!(!requests.knows(made_up));
            assert_eq!(requests.reject(made_up), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn each_request_has_a_handle_of_its_own() {
        let requests = Requests::default();
        let unanswered = Unanswered::default();
        let one = requests.add("one", &unanswered);
        let other = requests.add("other", &unanswered);
        assert_eq!(requests.claim(other).unwrap().take(), Some("other"));
        assert_eq!(requests.claim(one).unwrap().take(), Some("one"));
    }

    #[test]
    fn a_rejected_peer_is_informed_even_if_an_endpoint_could_accept() {
        let requests = Requests::default();
        let unanswered = Unanswered::default();
        let handle = requests.add("peer", &unanswered);
        assert_eq!(requests.reject(handle), Ok(Some("peer")));
        assert_eq!(requests.reject(handle), Err(Errno::EINVAL));
        let handle = requests.add("peer", &unanswered);
        let claimed = requests.claim(handle).unwrap();
        assert_eq!(requests.reject(handle), Ok(Some("peer")));
        assert_eq!(claimed.take(), None);
        assert_eq!(requests.reject(handle), Err(Errno::EINVAL));
    }

    #[test]
    fn a_request_may_be_rejected_once_after_its_endpoint_is_closed() {
        let requests = Requests::default();
        let unanswered = Unanswered::default();
        let handle = requests.add("peer", &unanswered);
        let claimed = requests.claim(handle).unwrap();
        requests.abandon(handle);
        assert_eq!((claimed.take(), unanswered.count()), (None, 0));
        assert!(requests.claim(handle).is_none());
        assert_eq!(requests.reject(handle), Ok(None));
        assert_eq!(requests.reject(handle), Err(Errno::EINVAL));
    }

    #[test]
    fn abandoned_requests_do_not_accumulate() {
        let requests = Requests::default();
        let unanswered = Unanswered::default();
        for peer in 0..ABANDONED_LIMIT * 2 {
            requests.abandon(requests.add(peer, &unanswered));
        }
        assert_eq!(requests.known().abandoned.len(), ABANDONED_LIMIT);
    }

    #[test]
    fn a_request_counts_until_it_is_answered_however_that_is() {
        let requests = Requests::default();
        let (unanswered, others) = (Unanswered::default(), Unanswered::default());
        let handles = [1, 2, 3].map(|peer| requests.add(peer, &unanswered));
        requests.add(4, &others);
        requests.claim(handles[0]);
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
    fn a_peer_is_dropped_with_its_request_and_outside_the_lock() {
        /// A peer whose destructor checks that the requests are not locked.
        struct Peer(std::sync::Weak<Requests<Peer>>, Arc<AtomicUsize>);
        impl Drop for Peer {
            fn drop(&mut self) {
                let free = self
                    .0
                    .upgrade()
                    .is_some_and(|of| of.known.try_lock().is_ok());
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
        let _claimed = requests.claim(handle).unwrap();
        requests.abandon(handle);
        assert_eq!(gone.load(Ordering::Relaxed), 3);
    }
}
