//! Operations that do not report to the endpoint they are posted to: transfers that a peer makes over it
//! (`FI_PEER_TRANSFER`, fi_peer(3)), and deferred work (fi_trigger(3)). The owner records how they end while it holds its
//! locks. The peer, which may post more, is told after they are released; deferred work reports to a counter at once.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabric_abi::FI_REMOTE_CQ_DATA;

use crate::cntr::Cntr;
use crate::cq::{Completion, Cq, ErrorCompletion};
use crate::object::{Handle, Use};

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
    pub context: usize,
    /// Flags of the completion.
    pub flags: u64,
    /// Whether success is reported to `cq`.
    pub wants_completion: bool,
    /// The endpoint's queue for operations of this direction.
    pub cq: Option<Use<Cq>>,
    /// Is incremented by one.
    pub counter: Option<Handle<Cntr>>,
}

impl Quiet {
    fn report(&self, ended: Ended) {
        let own = |completion: Completion| Completion {
            context: std::ptr::with_exposed_provenance_mut(self.context),
            flags: self.flags | completion.flags & FI_REMOTE_CQ_DATA,
            ..completion
        };
        match ended {
            Ended::Done(completion) => {
                if self.wants_completion
                    && let Some(cq) = &self.cq
                {
                    cq.write(&own(completion));
                }
                if let Some(counter) = &self.counter {
                    counter.count(1);
                }
            }
            Ended::Failed(mut error) => {
                error.completion = own(error.completion);
                self.fail(error);
            }
        }
    }

    /// Reports that the operation has failed.
    pub fn fail(&self, error: ErrorCompletion) {
        if let Some(cq) = &self.cq {
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
    quiet: Mutex<HashMap<usize, Box<Quiet>>>,
    has_quiet: AtomicBool,
}

impl Transfers {
    /// Records that a transfer has succeeded.
    pub fn done(&self, completion: Completion) {
        self.end(completion.context, Ended::Done(completion));
    }

    /// Records that a transfer has failed.
    pub fn failed(&self, error: ErrorCompletion) {
        self.end(error.completion.context, Ended::Failed(error));
    }

    fn end(&self, context: *mut c_void, ended: Ended) {
        if let Some(quiet) = self.take_back(context) {
            return quiet.report(ended);
        }
        let mut queue = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(ended);
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
        let quiet = Box::new(quiet);
        let context = std::ptr::from_ref(&*quiet).expose_provenance();
        let mut all = self.quiet();
        all.insert(context, quiet);
        self.has_quiet.store(true, Ordering::Release);
        std::ptr::with_exposed_provenance_mut(context)
    }

    /// Takes back [`Transfers::expect`].
    pub fn take_back(&self, context: *mut c_void) -> Option<Box<Quiet>> {
        if !self.has_quiet.load(Ordering::Acquire) {
            return None;
        }
        let mut all = self.quiet();
        let quiet = all.remove(&context.addr());
        self.has_quiet.store(!all.is_empty(), Ordering::Release);
        quiet
    }

    fn quiet(&self) -> MutexGuard<'_, HashMap<usize, Box<Quiet>>> {
        self.quiet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
