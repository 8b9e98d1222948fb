//! Which process an object belongs to. A child of fork(2) inherits objects whose
//! sockets, epoll instances and timers it shares with its parent.

use rustix::process::{Pid, getpid};

/// The process in which something was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(Pid);

impl Process {
    /// The calling process.
    pub fn current() -> Self {
        Process(getpid())
    }

    /// Whether this is the calling process, and not one that it was forked from.
    /// One system call.
    pub fn is_current(self) -> bool {
        self == Self::current()
    }
}
