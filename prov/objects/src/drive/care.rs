//! Progress of a lane on behalf of threads that sleep at other lanes.
//!
//! A thread of the application that polls drives the lanes that are left alone. When it falls
//! asleep it leaves them to the progress thread, which then drives them as with
//! `FI_PROGRESS_AUTO`, with two differences: it does not disturb threads that sleep at the lane
//! themselves, and takes over at once what was not driven since a thread fell asleep elsewhere.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The progress thread was never told of the lane for this reason.
const UNKNOWN: u8 = 0;
/// The progress thread looks after the lane by itself.
const KNOWN: u8 = 1;
/// The progress thread waits for the lane's alarm, because the application drove the lane. It
/// was last seen to do so beside a lane that it left alone before: the next thread that falls
/// asleep elsewhere need not wait for the alarm.
const WAITS: u8 = 2;

/// The state of a lane that is left to the progress thread.
pub(super) struct Care {
    state: AtomicU8,
    /// The count of the lane's calls when a thread last fell asleep elsewhere.
    left_at: AtomicU64,
}

/// What a thread that falls asleep elsewhere has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    Nothing,
    /// Tell the progress thread of the lane.
    Tell,
    /// Let the alarm ring.
    Ring,
}

impl Care {
    pub(super) fn new() -> Self {
        Care {
            state: AtomicU8::new(UNKNOWN),
            // No count is as high.
            left_at: AtomicU64::new(u64::MAX),
        }
    }

    /// Called by a thread that falls asleep elsewhere, when the lane has counted this many calls.
    pub(super) fn leave(&self, calls: u64) -> Leaving {
        self.left_at.store(calls, Ordering::SeqCst);
        let (from, leaving) = match self.state.load(Ordering::SeqCst) {
            UNKNOWN => (UNKNOWN, Leaving::Tell),
            WAITS => (WAITS, Leaving::Ring),
            _ => return Leaving::Nothing,
        };
        let is_first =
            self.state
                .compare_exchange(from, KNOWN, Ordering::SeqCst, Ordering::Relaxed);
        is_first.map_or(Leaving::Nothing, |_| leaving)
    }

    /// Returns whether the lane is driven for this reason.
    pub(super) fn is_given(&self) -> bool {
        self.state.load(Ordering::Relaxed) != UNKNOWN
    }

    /// Returns whether nobody has driven the lane, which has counted this many calls, since a
    /// thread fell asleep elsewhere.
    pub(super) fn is_left_at(&self, calls: u64) -> bool {
        self.left_at.load(Ordering::SeqCst) == calls
    }

    /// Called by the progress thread, which waits for the alarm: the next thread that falls asleep
    /// elsewhere lets it ring.
    pub(super) fn wait(&self) {
        self.state.store(WAITS, Ordering::SeqCst);
    }

    /// Called by the progress thread, which has heard the alarm.
    pub(super) fn is_heard(&self) {
        let _ = self
            .state
            .compare_exchange(WAITS, KNOWN, Ordering::SeqCst, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_progress_thread_is_told_once() {
        let care = Care::new();
        assert!(!care.is_given() && !care.is_left_at(0));
        assert_eq!(care.leave(7), Leaving::Tell);
        assert!(care.is_given() && care.is_left_at(7) && !care.is_left_at(8));
        assert_eq!(care.leave(8), Leaving::Nothing);
        assert!(care.is_left_at(8));
    }

    #[test]
    fn the_alarm_is_rung_once_each_time_the_progress_thread_waits_for_it() {
        let care = Care::new();
        care.leave(1);
        for calls in 2..4 {
            care.wait();
            assert_eq!(care.leave(calls), Leaving::Ring);
            assert_eq!(care.leave(calls), Leaving::Nothing);
        }
        care.wait();
        care.is_heard();
        assert_eq!(care.leave(9), Leaving::Nothing);
    }
}
