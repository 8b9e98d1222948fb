//! The interface by which queues and counters drive the transports.

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::drive::Signals;

/// Identifies an open completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueName(usize);

impl QueueName {
    /// Identifies a queue by its address.
    pub fn of<Queue>(queue: &Queue) -> Self {
        QueueName(std::ptr::from_ref(queue).addr())
    }
}

/// A progress engine: a transport that has work to do when the application reads a queue. A queue
/// calls it without holding its own lock, since the engine writes to queues under its lock.
pub trait Progress: Send + Sync {
    /// Returns whether anything happens between the application's calls. A transport that does all
    /// its work within them is not driven by queues.
    fn is_driven(&self) -> bool {
        true
    }

    /// Makes progress without blocking.
    fn progress(&self);

    /// Returns the signals by which queues that have completions know whether to drive it
    /// nevertheless. Read once, when it is added to a queue.
    fn signals(&self) -> Arc<Signals> {
        Arc::default()
    }

    /// Returns the engine for event queues, if it differs from this one.
    fn for_events(&self) -> Option<Arc<dyn Progress>> {
        None
    }

    /// Returns the engine for this completion queue, if it differs from this one.
    fn for_completions(&self, _queue: QueueName) -> Option<Arc<dyn Progress>> {
        None
    }

    /// Returns a descriptor that polls readable when [`Progress::progress`] has something to do;
    /// `None` for a transport that must be polled.
    fn wait_fd(&self) -> Option<RawFd>;

    /// Called before a thread sleeps on [`Progress::wait_fd`]. `false` means that there is work to
    /// do, and the caller should not sleep.
    fn prepare_wait(&self) -> bool;

    /// Called when a thread goes to sleep and every engine that feeds its queue has agreed
    /// ([`Progress::prepare_wait`]): it does not drive the other engines of the domain any more.
    fn sleeps(&self) {}
}
