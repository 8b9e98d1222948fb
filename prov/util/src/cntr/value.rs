//! The two numbers of a counter, and the flag that makes updates ring the bell.
//!
//! A thread that is about to sleep sets the flag and then reads the numbers again; an update
//! changes a number and then reads the flag. Both modify the number's atomic (the sleeper by adding
//! zero), so one of them comes first there: either the sleeper sees the update, or the update sees
//! the flag. No fence is needed for that.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) struct Value {
    count: AtomicU64,
    errors: AtomicU64,
    /// The next update has to ring the bell.
    armed: AtomicBool,
    /// The values of `count` and `errors` that polling has reported to the application.
    known_count: AtomicU64,
    known_errors: AtomicU64,
}

impl Value {
    pub(super) fn new(armed: bool) -> Self {
        Self {
            count: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            armed: AtomicBool::new(armed),
            known_count: AtomicU64::new(0),
            known_errors: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn get_error(&self) -> u64 {
        self.errors.load(Ordering::Acquire)
    }

    /// Like the other updates, returns whether the caller has to ring the bell.
    #[inline]
    #[must_use]
    pub(super) fn add(&self, amount: u64) -> bool {
        self.count.fetch_add(amount, Ordering::AcqRel);
        self.disarm()
    }

    #[must_use]
    pub(super) fn add_error(&self, amount: u64) -> bool {
        self.errors.fetch_add(amount, Ordering::AcqRel);
        self.disarm()
    }

    #[must_use]
    pub(super) fn set(&self, value: u64) -> bool {
        self.known_count.store(value, Ordering::Relaxed);
        self.count.swap(value, Ordering::AcqRel);
        self.disarm()
    }

    #[must_use]
    pub(super) fn set_error(&self, value: u64) -> bool {
        self.known_errors.store(value, Ordering::Relaxed);
        self.errors.swap(value, Ordering::AcqRel);
        self.disarm()
    }

    /// Records that the application itself is about to add these.
    pub(super) fn expect(&self, count: u64, errors: u64) {
        self.known_count.fetch_add(count, Ordering::Relaxed);
        self.known_errors.fetch_add(errors, Ordering::Relaxed);
    }

    /// Makes the next update ring the bell, and returns the numbers read afterwards.
    pub(super) fn arm(&self) -> (u64, u64) {
        self.armed.store(true, Ordering::Relaxed);
        (
            self.count.fetch_add(0, Ordering::AcqRel),
            self.errors.fetch_add(0, Ordering::AcqRel),
        )
    }

    /// Returns whether the numbers differ from those that polling has reported.
    pub(super) fn has_news(&self) -> bool {
        self.get() != self.known_count.load(Ordering::Relaxed)
            || self.get_error() != self.known_errors.load(Ordering::Relaxed)
    }

    /// [`Value::has_news`], which also records the numbers as reported.
    pub(super) fn take_news(&self) -> bool {
        let count = self.get();
        let errors = self.get_error();
        let known_count = self.known_count.swap(count, Ordering::Relaxed);
        let known_errors = self.known_errors.swap(errors, Ordering::Relaxed);
        count != known_count || errors != known_errors
    }

    #[inline]
    fn disarm(&self) -> bool {
        self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::Relaxed)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn a_sleeper_sees_the_update_or_the_update_sees_the_sleeper() {
        loom::model(|| {
            let value = Arc::new(Value::new(false));
            let updater = {
                let value = value.clone();
                loom::thread::spawn(move || value.add(1))
            };
            let (count, _) = value.arm();
            let rang = updater.join().unwrap();
            assert!(count == 1 || rang);
        });
    }

    #[test]
    fn an_error_or_a_set_wakes_as_an_addition_does() {
        loom::model(|| {
            let value = Arc::new(Value::new(false));
            let updater = {
                let value = value.clone();
                loom::thread::spawn(move || {
                    let first = value.add_error(1);
                    value.set(5) || first
                })
            };
            let (count, errors) = value.arm();
            let rang = updater.join().unwrap();
            assert!((count == 5 && errors == 1) || rang);
        });
    }
}
