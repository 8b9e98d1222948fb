//! Makes fork(2) wait until no helper is in a lane.
//!
//! A thread that holds a lock when the process forks does not exist in the child, which would wait
//! for that lock for ever.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of helpers that are not asleep.
static AT_WORK: Count = Count::new();
/// Number of threads in fork(2).
static FORKING: Count = Count::new();

/// A counter of this process. It ignores what the parent process has counted, whether or not the
/// fork handlers have run.
struct Count(AtomicU64);

impl Count {
    const fn new() -> Self {
        Count(AtomicU64::new(0))
    }

    /// Returns the count of the process `id` in a word.
    fn of(word: u64, id: u32) -> u32 {
        match (word >> 32) as u32 == id {
            true => word as u32,
            false => 0,
        }
    }

    fn get(&self) -> u32 {
        Self::of(self.0.load(Ordering::SeqCst), std::process::id())
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        let id = std::process::id();
        let next = |word| Some(u64::from(id) << 32 | u64::from(change(Self::of(word, id))));
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    fn add(&self) {
        self.change(|count| count + 1);
    }

    fn subtract(&self) {
        self.change(|count| count.saturating_sub(1));
    }
}

/// Polling interval, in microseconds, of a helper that meets a fork, and of a fork that meets a
/// helper.
const PAUSE: Duration = Duration::from_micros(20);
/// Number of pauses after which a fork continues without waiting for helpers. A helper may itself
/// wait for a lock of the forking thread, if that thread was interrupted by a signal inside this
/// library.
const PATIENCE: u32 = 5000;

/// Marks a helper as working until it is dropped.
pub(super) struct AtWork(());

impl AtWork {
    /// Marks the helper as working, when no fork is in progress. Returns `None` once the helper has
    /// to end, for which the forking thread may be waiting in another handler.
    pub(super) fn begin(is_over: impl Fn() -> bool) -> Option<Self> {
        loop {
            AT_WORK.add();
            if is_over() {
                AT_WORK.subtract();
                return None;
            }
            if FORKING.get() == 0 {
                return Some(AtWork(()));
            }
            AT_WORK.subtract();
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.subtract();
    }
}

/// Registers the fork handlers.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers may be called at any time, since they only access the atomics above.
        // If there is no memory to register them, forks do not wait.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), None) };
    });
}

unsafe extern "C" fn before() {
    FORKING.add();
    for _ in 0..PATIENCE {
        if AT_WORK.get() == 0 {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

unsafe extern "C" fn in_parent() {
    FORKING.subtract();
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_helper_that_is_to_end_does_so_while_the_process_forks() {
        FORKING.add();
        let begun = AtWork::begin(|| true);
        FORKING.subtract();
        assert!(begun.is_none());
    }

    #[test]
    fn calls_that_another_process_counted_are_not_counted() {
        let count = Count(AtomicU64::new(u64::from(std::process::id() + 1) << 32 | 3));
        assert_eq!(count.get(), 0);
        count.subtract();
        assert_eq!(count.get(), 0);
        count.add();
        assert_eq!(count.get(), 1);
    }
}
