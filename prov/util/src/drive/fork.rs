//! Forks happen while no helper is in a lane.
//!
//! A thread that is in the middle of something when the process forks does not
//! exist in the child, which would wait for it for ever at the first lock.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Helpers that are not asleep.
static AT_WORK: Count = Count::new();
/// Threads in fork(2).
static FORKING: Count = Count::new();

/// How many there are in this process: what its parent had counted is nothing to it,
/// whether or not the handlers of the fork have run already.
struct Count(AtomicU64);

impl Count {
    const fn new() -> Self {
        Count(AtomicU64::new(0))
    }

    /// The count of the process `id` in a word.
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

/// How long a helper sleeps that meets a fork, and the other way round.
const PAUSE: Duration = Duration::from_micros(20);
/// Pauses after which a fork goes on without waiting for helpers. One of them
/// may be waiting for a lock of the thread that forks, which then has been
/// interrupted by a signal inside this library.
const PATIENCE: u32 = 5000;

/// A helper at work, until this is dropped.
pub(super) struct AtWork(());

impl AtWork {
    /// Begins, when no fork is under way; `None` once the helper is to end, for which
    /// the thread that forks may be waiting in another handler.
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

/// Lets forks wait for helpers from now on.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers are functions without conditions, and only
        // touch the atomics above. If there is no memory for them, forks do
        // not wait.
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
    fn what_another_process_has_counted_is_not_counted() {
        let count = Count(AtomicU64::new(u64::from(std::process::id() + 1) << 32 | 3));
        assert_eq!(count.get(), 0);
        count.subtract();
        assert_eq!(count.get(), 0);
        count.add();
        assert_eq!(count.get(), 1);
    }
}
