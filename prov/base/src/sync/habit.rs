//! Who uses an object.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Number of times that a thread enters in a row before it becomes the owner. Objects are often set
/// up by another thread than the one that uses them, in fewer calls.
pub(super) const HABIT: u32 = if cfg!(loom) { 1 } else { 32 };

/// The thread that entered last, and how many times in a row. Threads that enter at the same time
/// may be miscounted.
#[derive(Default)]
pub(super) struct Habit {
    last: AtomicUsize,
    times: AtomicU32,
}

impl Habit {
    /// Counts that this thread enters. Returns whether it is to be the owner.
    pub(super) fn is_formed(&self, thread: usize) -> bool {
        let times = match self.last.swap(thread, Ordering::Relaxed) == thread {
            true => self.times.load(Ordering::Relaxed).saturating_add(1),
            false => 0,
        };
        self.times.store(times, Ordering::Relaxed);
        times >= HABIT
    }
}
