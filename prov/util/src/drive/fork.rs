//! Forks happen while no helper is in a lane.
//!
//! A thread that is in the middle of something when the process forks does not
//! exist in the child, which would wait for it for ever at the first lock.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Helpers that are not asleep.
static AT_WORK: AtomicU32 = AtomicU32::new(0);
/// Threads in fork(2).
static FORKING: AtomicU32 = AtomicU32::new(0);

/// How long a helper sleeps that meets a fork, and the other way round.
const PAUSE: Duration = Duration::from_micros(20);
/// Pauses after which a fork goes on without waiting for helpers. One of them
/// may be waiting for a lock of the thread that forks, which then has been
/// interrupted by a signal inside this library.
const PATIENCE: u32 = 5000;

/// A helper at work, until this is dropped.
pub(super) struct AtWork(());

impl AtWork {
    /// Begins, when no fork is under way.
    pub(super) fn begin() -> Self {
        loop {
            AT_WORK.fetch_add(1, Ordering::SeqCst);
            if FORKING.load(Ordering::SeqCst) == 0 {
                return AtWork(());
            }
            AT_WORK.fetch_sub(1, Ordering::SeqCst);
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Lets forks wait for helpers from now on.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers are functions without conditions, and only
        // touch the atomics above. If there is no memory for them, forks do
        // not wait.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

unsafe extern "C" fn before() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    for _ in 0..PATIENCE {
        if AT_WORK.load(Ordering::SeqCst) == 0 {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

unsafe extern "C" fn in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

unsafe extern "C" fn in_child() {
    AT_WORK.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
}
