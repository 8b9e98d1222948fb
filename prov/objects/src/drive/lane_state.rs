//! The state that a lane shares with the progress thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{OnceLock, Weak};

use parking_lot::Mutex;

use super::Driven;
use super::alarm::Alarm;
use super::burst::Burst;
use super::care::Care;
use super::stall::Stall;

/// See the [module](self) description.
pub(super) struct LaneState {
    pub(super) burst: Burst,
    pub(super) id: u64,
    pub(super) lane: Weak<dyn Driven>,
    /// The descriptor to sleep on, with automatic progress.
    pub(super) wait_fd: OnceLock<OwnedFd>,
    /// The alarm that wakes the thread when the application stops driving the lane, with automatic
    /// progress.
    pub(super) alarm: OnceLock<Alarm>,
    /// Whether threads that sleep elsewhere leave it to the thread.
    pub(super) care: Care,
    pub(super) stall: Stall,
    /// Whether the thread must not enter the lane. Locked while the thread is in the lane.
    pub(super) is_closed: Mutex<bool>,
    pub(super) is_left: AtomicBool,
    /// Whether the thread was ever told of this lane.
    pub(super) is_known: AtomicBool,
}

impl LaneState {
    pub(super) fn new(id: u64, lane: Weak<dyn Driven>) -> Self {
        LaneState {
            burst: Burst::new(),
            id,
            lane,
            wait_fd: OnceLock::new(),
            alarm: OnceLock::new(),
            care: Care::new(),
            stall: Stall::default(),
            is_closed: Mutex::new(false),
            is_left: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
        }
    }

    /// Enters the lane from the thread, if the lane still exists.
    pub(super) fn visit<R>(&self, visit: impl FnOnce(&dyn Driven) -> R) -> Option<R> {
        let is_closed = self.is_closed.lock();
        if *is_closed {
            return None;
        }
        let lane = self.lane.upgrade()?;
        let outcome = visit(&*lane);
        // This may be the last reference, which drops the lane and its seat here.
        drop(lane);
        drop(is_closed);
        Some(outcome)
    }

    pub(super) fn wait_fd(&self) -> Option<impl AsFd> {
        self.wait_fd.get()
    }
}
