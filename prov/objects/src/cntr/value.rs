//! The two numbers of a counter, and the flags that make updates ring the bell and look at the work
//! that waits for a threshold.
//!
//! A thread that is about to sleep, or that queues work, sets a flag and then reads the numbers
//! again; an update changes a number and then reads the flags. Both modify the number's atomic (the
//! former by adding zero), so one of them comes first there: either that thread sees the update, or
//! the update sees the flag. No fence is needed for that.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The next update has to ring the bell.
const SLEEPER: u8 = 1 << 0;
/// Work waits for a threshold.
const WORK: u8 = 1 << 1;

/// What the caller of an update has to do.
#[derive(Clone, Copy)]
pub(super) struct Armed(u8);

impl Armed {
    #[inline]
    pub(super) fn is_any(self) -> bool {
        self.0 != 0
    }

    pub(super) fn has_sleeper(self) -> bool {
        self.0 & SLEEPER != 0
    }

    pub(super) fn has_work(self) -> bool {
        self.0 & WORK != 0
    }
}

/// Both numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Numbers {
    pub count: u64,
    pub errors: u64,
}

pub(super) struct Value {
    count: AtomicU64,
    errors: AtomicU64,
    /// [`SLEEPER`], [`WORK`].
    armed: AtomicU8,
    /// The values of `count` and `errors` that polling has reported to the application.
    known_count: AtomicU64,
    known_errors: AtomicU64,
}

impl Value {
    pub(super) fn new(armed: bool) -> Self {
        Self {
            count: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            armed: AtomicU8::new(if armed { SLEEPER } else { 0 }),
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

    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            count: self.get(),
            errors: self.get_error(),
        }
    }

    /// Like the other updates, returns what the caller has to do.
    #[inline]
    #[must_use]
    pub(super) fn add(&self, amount: u64) -> Armed {
        self.count.fetch_add(amount, Ordering::AcqRel);
        self.disarm()
    }

    #[must_use]
    pub(super) fn add_error(&self, amount: u64) -> Armed {
        self.errors.fetch_add(amount, Ordering::AcqRel);
        self.disarm()
    }

    /// Adds what the application asks for, which may lead back below a threshold. Returns the
    /// number before, too.
    pub(super) fn add_known(&self, amount: u64) -> (Numbers, Armed) {
        self.known_count.fetch_add(amount, Ordering::Relaxed);
        let count = self.count.fetch_add(amount, Ordering::AcqRel);
        (Numbers { count, errors: 0 }, self.disarm())
    }

    /// [`Value::add_known`] of errors.
    pub(super) fn add_known_error(&self, amount: u64) -> (Numbers, Armed) {
        self.known_errors.fetch_add(amount, Ordering::Relaxed);
        let errors = self.errors.fetch_add(amount, Ordering::AcqRel);
        (Numbers { count: 0, errors }, self.disarm())
    }

    /// Returns the number before, too.
    pub(super) fn set(&self, value: u64) -> (Numbers, Armed) {
        self.known_count.store(value, Ordering::Relaxed);
        let count = self.count.swap(value, Ordering::AcqRel);
        (Numbers { count, errors: 0 }, self.disarm())
    }

    /// [`Value::set`] of errors.
    pub(super) fn set_error(&self, value: u64) -> (Numbers, Armed) {
        self.known_errors.store(value, Ordering::Relaxed);
        let errors = self.errors.swap(value, Ordering::AcqRel);
        (Numbers { count: 0, errors }, self.disarm())
    }

    /// Makes the next update ring the bell, and returns the numbers read afterwards.
    pub(super) fn arm(&self) -> (u64, u64) {
        let numbers = self.set_flag(SLEEPER);
        (numbers.count, numbers.errors)
    }

    /// Makes updates look at the work from now on, and returns the numbers read afterwards. Called
    /// with the lock of the work.
    pub(super) fn has_work(&self) -> Numbers {
        self.set_flag(WORK)
    }

    /// No work is left. Called with the lock of the work.
    pub(super) fn has_no_work(&self) {
        self.armed.fetch_and(!WORK, Ordering::Relaxed);
    }

    fn set_flag(&self, flag: u8) -> Numbers {
        self.armed.fetch_or(flag, Ordering::Relaxed);
        Numbers {
            count: self.count.fetch_add(0, Ordering::AcqRel),
            errors: self.errors.fetch_add(0, Ordering::AcqRel),
        }
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
    fn disarm(&self) -> Armed {
        match self.armed.load(Ordering::Relaxed) {
            0 => Armed(0),
            _ => Armed(self.armed.fetch_and(!SLEEPER, Ordering::Relaxed)),
        }
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
                loom::thread::spawn(move || value.add(1).has_sleeper())
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
                    let first = value.add_error(1).has_sleeper();
                    value.set(5).1.has_sleeper() || first
                })
            };
            let (count, errors) = value.arm();
            let rang = updater.join().unwrap();
            assert!((count == 5 && errors == 1) || rang);
        });
    }
}
