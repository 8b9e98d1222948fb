//! Operations that do not report to the endpoint they are posted to: transfers that a peer makes over it
//! (`FI_PEER_TRANSFER`, fi_peer(3)), and deferred work (fi_trigger(3)). The owner records how they end while it holds its
//! locks. The peer, which may post more, is told after they are released; deferred work reports to a counter at once.

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fabric_abi::{FI_CLAIM, FI_MULTI_RECV, FI_RECV, FI_REMOTE_CQ_DATA, fi_addr_t};

use crate::object::{Handle, Use};
use prov_objects::cntr::Cntr;
use prov_objects::cq::{Completion, Cq, ErrorCompletion};

/// Flags of the provider's completion that the application's has, too.
const KEPT_FLAGS: u64 = FI_REMOTE_CQ_DATA | FI_MULTI_RECV | FI_CLAIM;

/// The outcome of a transfer.
#[derive(Debug)]
pub enum Ended {
    /// It is done.
    Done(Completion),
    /// It has failed.
    Failed(ErrorCompletion),
}

/// Where deferred work reports.
pub struct Quiet {
    /// The application's context.
    pub context: AtomicUsize,
    /// Flags of the completion.
    pub flags: u64,
    /// Whether success is reported to `cq`.
    pub wants_completion: bool,
    /// The endpoint's queue for operations of this direction. Without one, a receive of a shared
    /// context is reported to the queue of the endpoint that has taken it.
    pub cq: Option<Use<Cq>>,
    /// Is incremented by one.
    pub counter: Option<Handle<Cntr>>,
    /// Whether it goes on until a completion gives its buffer back (`FI_MULTI_RECV`).
    pub is_multi: bool,
}

impl Quiet {
    fn context(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.context.load(Ordering::Relaxed))
    }

    /// Reports the end, to `at` if it has no queue of its own.
    fn report(&self, ended: Ended, at: Option<&Cq>) {
        let own = |completion: Completion| Completion {
            context: self.context(),
            flags: self.flags | completion.flags & KEPT_FLAGS,
            ..completion
        };
        match ended {
            Ended::Done(completion) => {
                // The buffer is the application's again, which it has to know.
                let releases = completion.flags & FI_MULTI_RECV != 0;
                if (self.wants_completion || releases)
                    && let Some(cq) = self.cq.as_deref().or(at)
                {
                    cq.write(&own(completion));
                }
                // Some providers report that as a completion of its own.
                let is_message = completion.flags & (FI_RECV | FI_MULTI_RECV) != FI_MULTI_RECV;
                if is_message && let Some(counter) = &self.counter {
                    counter.count(1);
                }
            }
            Ended::Failed(mut error) => {
                error.completion = own(error.completion);
                self.fail_at(error, at);
            }
        }
    }

    /// Reports that the operation has failed.
    pub fn fail(&self, error: ErrorCompletion) {
        self.fail_at(error, None);
    }

    fn fail_at(&self, error: ErrorCompletion, at: Option<&Cq>) {
        if let Some(cq) = self.cq.as_deref().or(at) {
            cq.write_error(error);
        }
        if let Some(counter) = &self.counter {
            counter.count_error();
        }
    }
}

/// See the [module](self) description.
#[derive(Default)]
pub struct Transfers {
    /// Ended transfers that the peer has yet to be told about, in order.
    ended: Mutex<VecDeque<Ended>>,
    has_some: AtomicBool,
    /// Deferred work under way, by the contexts that it is posted with: the addresses of the values, which no context of
    /// a peer's is.
    quiet: Mutex<HashMap<usize, Arc<Quiet>>>,
    has_quiet: AtomicBool,
    /// The deferred receives of the shared context that the endpoint uses.
    of_shared: OnceLock<Arc<Transfers>>,
}

impl Transfers {
    /// Has an endpoint take the deferred receives of a shared context.
    pub fn share(&self, of_shared: &Arc<Transfers>) {
        self.of_shared.get_or_init(|| of_shared.clone());
    }

    /// Records that a transfer has succeeded; `at` is the endpoint's queue, for a receive, and `src`
    /// the number of the message's source, which the peer provider gets whatever the application
    /// calls it.
    pub fn done(&self, completion: Completion, src: fi_addr_t, at: Option<&Cq>) {
        let is_last = completion.flags & FI_MULTI_RECV != 0;
        let context = completion.context;
        match self.deferred(context, is_last) {
            Some(quiet) => quiet.report(Ended::Done(completion), at),
            None => self.push(Ended::Done(Completion { src, ..completion })),
        }
    }

    /// Records that a transfer has failed, likewise.
    pub fn failed(&self, error: ErrorCompletion, at: Option<&Cq>) {
        let is_last = error.completion.flags & FI_MULTI_RECV != 0;
        match self.deferred(error.completion.context, is_last) {
            Some(quiet) => quiet.report(Ended::Failed(error), at),
            None => self.push(Ended::Failed(error)),
        }
    }

    /// Returns the deferred work that was posted with a context. `is_last` says that a buffer for
    /// several messages takes no more.
    fn deferred(&self, context: *mut c_void, is_last: bool) -> Option<Arc<Quiet>> {
        let of_shared = || self.of_shared.get()?.quiet_with(context, is_last);
        self.quiet_with(context, is_last).or_else(of_shared)
    }

    fn push(&self, ended: Ended) {
        let mut queue = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(ended);
        bounded!(queue, OPERATIONS);
        self.has_some.store(true, Ordering::Release);
    }

    /// Returns whether none is recorded.
    pub fn is_empty(&self) -> bool {
        !self.has_some.load(Ordering::Acquire)
    }

    /// Takes the next recorded transfer.
    pub fn next(&self) -> Option<Ended> {
        if self.is_empty() {
            return None;
        }
        let mut queue = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let next = queue.pop_front();
        self.has_some.store(!queue.is_empty(), Ordering::Release);
        next
    }

    /// Expects the end of an operation that is about to be posted. Returns the context to post it with.
    pub fn expect(&self, quiet: Quiet) -> *mut c_void {
        let quiet = Arc::new(quiet);
        let context = std::ptr::from_ref(&*quiet).expose_provenance();
        let mut all = self.quiet();
        all.insert(context, quiet);
        self.has_quiet.store(true, Ordering::Release);
        std::ptr::with_exposed_provenance_mut(context)
    }

    /// Takes back [`Transfers::expect`].
    pub fn take_back(&self, context: *mut c_void) {
        self.quiet_with(context, true);
    }

    /// Returns the application's context of the deferred work that was posted with `context`, which
    /// names the message that the application has set aside (`FI_CLAIM`). `None` if it is no
    /// deferred work.
    pub fn name_of(&self, context: *mut c_void) -> Option<*mut c_void> {
        let quiet = self.posted_with(context)?;
        Some(quiet.context())
    }

    /// Reports deferred work with another context than the one that it was queued with.
    pub fn rename(&self, context: *mut c_void, name: *mut c_void) {
        if let Some(quiet) = self.posted_with(context) {
            let name = name.expose_provenance();
            quiet.context.store(name, Ordering::Relaxed);
        }
    }

    /// Forgets the deferred work of one direction, which has ended without being reported.
    pub fn forget(&self, receives: bool) {
        let mut all = self.quiet();
        all.retain(|_, quiet| (quiet.flags & FI_RECV != 0) != receives);
        self.has_quiet.store(!all.is_empty(), Ordering::Release);
    }

    fn posted_with(&self, context: *mut c_void) -> Option<Arc<Quiet>> {
        let own = match self.has_quiet.load(Ordering::Acquire) {
            true => self.quiet().get(&context.addr()).cloned(),
            false => None,
        };
        own.or_else(|| self.of_shared.get()?.posted_with(context))
    }

    /// Returns the deferred work that was posted with a context, which has ended unless it goes on
    /// and this is not the last of it.
    fn quiet_with(&self, context: *mut c_void, is_last: bool) -> Option<Arc<Quiet>> {
        if !self.has_quiet.load(Ordering::Acquire) {
            return None;
        }
        let mut all = self.quiet();
        let quiet = all.get(&context.addr())?.clone();
        if is_last || !quiet.is_multi {
            all.remove(&context.addr());
            self.has_quiet.store(!all.is_empty(), Ordering::Release);
        }
        Some(quiet)
    }

    fn quiet(&self) -> MutexGuard<'_, HashMap<usize, Arc<Quiet>>> {
        self.quiet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use fabric_abi::FI_SEND;

    use super::*;
    use prov_objects::cq::CqConfig;

    const UNKNOWN: fi_addr_t = fi_addr_t::MAX;

    /// The contexts and flags of the completions in a queue.
    fn completions(cq: &Cq) -> Vec<(usize, u64)> {
        let mut all = Vec::new();
        let _ = cq.read(10, |one: &Completion| {
            all.push((one.context.addr(), one.flags))
        });
        all
    }

    #[test]
    fn a_buffer_for_several_messages_is_expected_until_it_is_given_back() {
        let cq = Cq::new(CqConfig::default()).unwrap();
        let cq = Use::of(&Handle::new(cq, null_mut(), Vec::new()));
        let all = Transfers::default();
        for is_multi in [true, false] {
            let context = all.expect(Quiet {
                context: 7.into(),
                flags: FI_RECV,
                wants_completion: false,
                cq: Some(cq.clone()),
                counter: None,
                is_multi,
            });
            all.done(Completion::new(context, FI_RECV), UNKNOWN, None);
            assert_eq!(completions(&cq), []);
            // Nothing is left of it, or it is as it was.
            all.done(
                Completion::new(context, FI_RECV | FI_MULTI_RECV),
                UNKNOWN,
                None,
            );
            let expected: &[_] = match is_multi {
                true => &[(7, FI_RECV | FI_MULTI_RECV)],
                false => &[],
            };
            assert_eq!(completions(&cq), expected);
            let error = ErrorCompletion::new(
                Completion::new(context, FI_RECV),
                prov_base::errno::Errno::EIO,
            );
            all.failed(error, None);
            // What is not expected is a peer's.
            let of_peer = std::iter::from_fn(|| all.next()).count();
            assert_eq!(of_peer, if is_multi { 1 } else { 2 });
        }
    }

    fn receive(context: usize, flags: u64) -> Quiet {
        Quiet {
            context: context.into(),
            flags,
            wants_completion: true,
            cq: None,
            counter: None,
            is_multi: false,
        }
    }

    #[test]
    fn deferred_work_has_the_name_of_the_application() {
        let cq = Cq::new(CqConfig::default()).unwrap();
        let cq = Use::of(&Handle::new(cq, null_mut(), Vec::new()));
        let all = Transfers::default();
        let context = all.expect(Quiet {
            cq: Some(cq.clone()),
            ..receive(7, FI_RECV)
        });
        assert_eq!(all.name_of(context).map(|name| name.addr()), Some(7));
        assert_eq!(all.name_of(std::ptr::without_provenance_mut(7)), None);
        all.rename(context, std::ptr::without_provenance_mut(9));
        assert_eq!(all.name_of(context).map(|name| name.addr()), Some(9));
        all.done(Completion::new(context, FI_RECV | FI_CLAIM), UNKNOWN, None);
        assert_eq!(completions(&cq), [(9, FI_RECV | FI_CLAIM)]);
        assert_eq!(all.name_of(context), None);
    }

    #[test]
    fn a_receive_of_a_shared_context_is_reported_by_the_endpoint_that_takes_it() {
        let queue = || {
            let cq = Cq::new(CqConfig::default()).unwrap();
            Use::of(&Handle::new(cq, null_mut(), Vec::new()))
        };
        let (of_shared, of_endpoint) = (Arc::<Transfers>::default(), Transfers::default());
        of_endpoint.share(&of_shared);
        let (own, taker) = (queue(), queue());
        for cq in [None, Some(own.clone())] {
            let context = of_shared.expect(Quiet {
                cq: cq.clone(),
                ..receive(7, FI_RECV)
            });
            of_endpoint.done(Completion::new(context, FI_RECV), UNKNOWN, Some(&taker));
            let expected: [&[_]; 2] = match cq {
                None => [&[], &[(7, FI_RECV)]],
                Some(_) => [&[(7, FI_RECV)], &[]],
            };
            assert_eq!([completions(&own), completions(&taker)], expected);
            assert_eq!(of_shared.name_of(context), None);
        }
    }

    #[test]
    fn the_work_of_one_direction_is_forgotten() {
        let all = Transfers::default();
        let contexts = [FI_RECV, FI_SEND].map(|flags| all.expect(receive(1, flags)));
        all.forget(true);
        let left = contexts.map(|context| all.name_of(context).is_some());
        assert_eq!(left, [false, true]);
        all.forget(false);
        assert!(
            contexts
                .iter()
                .all(|context| all.name_of(*context).is_none())
        );
    }

    #[test]
    fn a_peer_gets_the_number_of_a_source_and_deferred_work_what_completions_report() {
        let cq = Cq::new(CqConfig::default()).unwrap();
        let all = Transfers::default();
        let received = |context| Completion {
            src: 70,
            ..Completion::new(context, FI_RECV)
        };
        all.done(received(null_mut()), 7, None);
        let Some(Ended::Done(done)) = all.next() else {
            panic!("the transfer is not recorded");
        };
        assert_eq!(done.src, 7);
        let context = all.expect(Quiet {
            context: AtomicUsize::new(1),
            flags: FI_RECV,
            wants_completion: true,
            cq: None,
            counter: None,
            is_multi: false,
        });
        all.done(received(context), 7, Some(&cq));
        let mut sources = Vec::new();
        let _ = cq.read(10, |one: &Completion| sources.push(one.src));
        assert_eq!(sources, [70]);
    }
}
