//! How completion queues, event queues and counters move the transport on.

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::drive::Signals;

/// Names an open completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueName(usize);

impl QueueName {
    /// The name of a queue, which is where it is.
    pub fn of<Queue>(queue: &Queue) -> Self {
        QueueName(std::ptr::from_ref(queue).addr())
    }
}

/// Something that has work to do when the application reads a queue: a
/// provider's engine. A queue never calls it with a lock of its own held, since
/// the engine writes to queues under its lock.
pub trait Progress: Send + Sync {
    /// Whether anything happens between the application's calls. What does
    /// everything in these is never called from queues.
    fn is_driven(&self) -> bool {
        true
    }

    /// Does what is ready, without blocking.
    fn progress(&self);

    /// What tells queues that have completions whether it is to be driven all
    /// the same. Read once, when it is added to a queue.
    fn signals(&self) -> Arc<Signals> {
        Arc::default()
    }

    /// What event queues are to drive instead, where it makes a difference.
    fn for_events(&self) -> Option<Arc<dyn Progress>> {
        None
    }

    /// What this completion queue is to drive instead, likewise.
    fn for_completions(&self, _queue: QueueName) -> Option<Arc<dyn Progress>> {
        None
    }

    /// A descriptor that polls readable when [`Progress::progress`] has
    /// something to do; `None` for a transport that must be polled.
    fn wait_fd(&self) -> Option<RawFd>;

    /// Called before a thread sleeps on [`Progress::wait_fd`]: `false` means
    /// that work is due now and the caller should not sleep.
    fn prepare_wait(&self) -> bool;
}
