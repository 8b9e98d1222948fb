//! Sleeping until a word changes.

#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;
use std::time::Duration;

#[cfg(not(loom))]
use rustix::thread::futex;

/// Sleeps while `word` is `value`, until it is woken, and no longer than
/// `limit`. May wake for no reason.
#[cfg(not(loom))]
pub(super) fn wait(word: &AtomicU32, value: u32, limit: Option<Duration>) {
    let limit = limit.map(|limit| rustix::time::Timespec {
        tv_sec: limit.as_secs() as _,
        tv_nsec: limit.subsec_nanos() as _,
    });
    // All that can go wrong is waking early.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, limit.as_ref());
}

/// Wakes all that sleep at `word`.
#[cfg(not(loom))]
pub(super) fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// In a model every thread that waits lets the others go on.
#[cfg(loom)]
pub(super) fn wait(_word: &AtomicU32, _value: u32, _limit: Option<Duration>) {
    loom::thread::yield_now();
}

#[cfg(loom)]
pub(super) fn wake_all(_word: &AtomicU32) {}
