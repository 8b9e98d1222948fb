//! The thread of a domain that helps its lanes, which the application drives.
//!
//! A lane is what moves together under one lock, such as an endpoint with its
//! connections. It holds a [`Seat`] at the [`Helper`] of its domain, whose one
//! thread serves all of them: it ends bursts that the application has left, goes
//! on with what had no room where the application makes no call, and drives lanes
//! with `FI_PROGRESS_AUTO` while the application does not. It starts when it is
//! needed first, sleeps while nothing is due, and ends with the last lane.
//!
//! After fork(2) the child has no such thread. Its lanes are not helped, and
//! can be closed; no lock is held by a thread that it does not have, since a
//! fork waits for helpers to be done with the lane they are in.

mod alarm;
mod auto;
mod burst;
mod fork;
mod helper;
mod pace;
mod rounds;
mod signals;
mod stall;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod thread;

use std::os::fd::OwnedFd;

pub use helper::{Helper, Seat};
pub use signals::{READS_WITHOUT_PROGRESS, Signals, Waiting};

use crate::errno::Result;

/// Who goes to sleep at a lane's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleeper {
    /// A thread of the application.
    Thread,
    /// The thread that drives the lane while the application does not.
    Helper,
}

/// A lane as the thread of its domain sees it.
///
/// The thread calls these without a lock of its own. Whatever takes the lane's
/// lock takes it as a helper does
/// ([`Lock::lock_as_helper`](crate::sync::Lock::lock_as_helper)).
pub trait Driven: Send + Sync {
    /// Sends what is held back, and what had no room as far as there is some, and
    /// calls [`Seat::burst_ends`] and, where nothing waits any more,
    /// [`Seat::stall_ends`]. Whether anything has left.
    ///
    /// A lane whose lock is biased reports nothing to queues and counters here,
    /// where the application may be: it leaves that to the application's next
    /// call.
    fn end_burst(&self) -> bool;

    /// Makes progress for the application; whether there is nothing to do
    /// until the descriptor is readable.
    fn drive(&self) -> bool;

    /// A duplicate of the descriptor that polls readable when there is
    /// something to do, timers included; `None` if the lane must be polled.
    ///
    /// # Errors
    /// What duplicating it returns.
    fn share_wait_fd(&self) -> Result<Option<OwnedFd>>;

    /// About how many progress calls the application has made.
    fn calls(&self) -> u64;
}
