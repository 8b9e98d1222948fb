//! The words of a biased lock.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicUsize};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// A biased lock; `bias` has what it does.
pub(super) struct Bias {
    /// The owner's number, with [`INSIDE`] while it is inside, or is about to be; [`NOBODY`] without
    /// an owner, and when the owner has noticed that the bias is revoked. Written by the owner alone
    /// once there is one.
    pub(super) owner: AtomicUsize,
    /// [`FREE`], [`CLAIMED`], [`AWAITED`] or [`REVOKED`]. Only other threads than the owner change it
    /// from and to `FREE`.
    pub(super) claim: AtomicU32,
    /// Counts how often the owner has woken the thread to which it has stepped back.
    pub(super) steps: AtomicU32,
}

pub(super) const NOBODY: usize = 0;
pub(super) const INSIDE: usize = 1;

pub(super) const FREE: u32 = 0;
/// Another thread is inside, or waits for the owner to leave.
pub(super) const CLAIMED: u32 = 1;
/// As [`CLAIMED`], and a thread sleeps until that thread has left.
pub(super) const AWAITED: u32 = 2;
/// Nobody enters this way any more.
pub(super) const REVOKED: u32 = 3;
