//! Sleeping until a word changes.

#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;
use std::time::Duration;

#[cfg(not(loom))]
use rustix::thread::futex;

/// Sleeps while `word` is `value`, until woken, and at most for `limit`. May wake spuriously.
#[cfg(not(loom))]
pub(super) fn wait(word: &AtomicU32, value: u32, limit: Option<Duration>) {
    let limit = limit.map(|limit| rustix::time::Timespec {
        tv_sec: limit.as_secs() as _,
        tv_nsec: limit.subsec_nanos() as _,
    });
    // The only consequence of an error is an early wake-up.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, limit.as_ref());
}

/// Wakes all threads that sleep on `word`.
#[cfg(not(loom))]
pub(super) fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// In a model every thread that waits yields to the others.
#[cfg(loom)]
pub(super) fn wait(_word: &AtomicU32, _value: u32, _limit: Option<Duration>) {
    loom::thread::yield_now();
}

#[cfg(loom)]
pub(super) fn wake_all(_word: &AtomicU32) {}
