//! The progress thread of a domain, which supports lanes that the application drives.
//!
//! A lane is a progress engine under one lock, such as an endpoint with its connections. It has a
//! [`Seat`] at the [`Helper`] of its domain, whose one thread serves all of them: it ends bursts
//! (coalesced messages) that the application has left unsent, continues to send what was queued for
//! want of room while the application makes no call, and drives lanes with `FI_PROGRESS_AUTO` while
//! the application does not. It also drives lanes that a thread has left alone which sleeps at
//! another one. The thread is started on first need, sleeps while nothing is due, and ends with the
//! last lane.
//!
//! After fork(2) the child has no such thread. Its lanes are not supported, and can be closed. No
//! lock is left held by the missing thread, because fork waits until helpers have left the lanes.

mod alarm;
mod auto;
mod burst;
mod care;
mod fork;
mod helper;
mod lane_state;
mod pace;
mod rate;
mod rounds;
mod signals;
mod stall;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod thread;

use std::os::fd::OwnedFd;

pub use helper::{Helper, Seat};
pub use signals::{Idling, READS_WITHOUT_PROGRESS, Signals, busy_elsewhere};

use prov_base::errno::Result;

/// The kind of thread that goes to sleep on a lane's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleeper {
    /// A thread of the application.
    Thread,
    /// The thread that drives the lane while the application does not.
    Helper,
}

/// A lane as the progress thread sees it.
///
/// The thread holds no lock of its own when it calls these methods. They take the lane's lock as a
/// helper ([`Lock::lock_as_helper`](prov_base::sync::Lock::lock_as_helper)).
pub trait Driven: Send + Sync {
    /// Sends coalesced messages, and what was queued for want of room as far as there is room.
    /// Calls [`Seat::burst_ends`] and, if nothing is queued any more, [`Seat::stall_ends`]. Returns
    /// whether anything was sent.
    ///
    /// A lane with a biased lock reports nothing to queues and counters here, since the application
    /// may be reading them: it leaves that to the application's next call.
    fn end_burst(&self) -> bool;

    /// Makes progress for the application. Returns whether there is nothing to do until the
    /// descriptor is readable.
    fn drive(&self) -> bool;

    /// Returns a duplicate of the descriptor that polls readable when there is something to do,
    /// timers included; `None` if the lane must be polled.
    ///
    /// # Errors
    /// Those of dup(2).
    fn share_wait_fd(&self) -> Result<Option<OwnedFd>>;

    /// Returns an approximate count of the application's calls that drive the lane, whether they are
    /// for this lane or for another one of the domain.
    fn calls(&self) -> u64;

    /// Returns whether a thread of the application sleeps at the lane and is woken when there is
    /// something to do. If so, [`Seat::sleeper_woke`] is called when it has woken.
    fn has_sleeper(&self) -> bool {
        false
    }

    /// Returns whether threads have slept at it in calls of this library.
    fn is_read_by_sleepers(&self) -> bool {
        false
    }

    /// Returns whether its descriptor does not tell of all that there is to do.
    fn is_polled(&self) -> bool {
        false
    }
}
