//! Mutual exclusion between the application, whose threads exclude each other themselves, and
//! threads of the library that help it now and then (helpers).
//!
//! The application stores that it is inside and then tests whether a helper has claimed the lock;
//! it executes no locked instruction for that. A helper claims the lock, has a [`barrier`] executed
//! by all processors that run the application, and tests whether the application is inside. So if
//! both enter at the same time, at least one of them notices. The application is the one that steps
//! back: it enters all the time, and helpers are quick.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{barrier, futex};

/// See the module.
pub(super) struct Bias {
    /// [`INSIDE`] while the application is inside, or is about to be. Written only by the
    /// application. Permanently `INSIDE` if nobody may ever enter this way.
    application: AtomicU32,
    /// [`FREE`], [`CLAIMED`] or [`AWAITED`]. Only helpers change it from and to `FREE`.
    claim: AtomicU32,
}

const OUTSIDE: u32 = 0;
const INSIDE: u32 = 1;

const FREE: u32 = 0;
/// A helper is inside, or waits for the application to leave.
const CLAIMED: u32 = 1;
/// As [`CLAIMED`], and a thread sleeps until the helper has left.
const AWAITED: u32 = 2;

/// Number of tests of a word that another thread is about to change, before the thread sleeps.
const SPINS: u32 = if cfg!(loom) { 1 } else { 64 };
/// How long a helper sleeps before it tests again whether the application has left: an application
/// that leaves does not wake helpers, one that comes back does.
const LOOK: Duration = Duration::from_micros(50);

impl Bias {
    /// Creates a lock that nobody holds.
    pub(super) fn new() -> Self {
        Self {
            application: AtomicU32::new(OUTSIDE),
            claim: AtomicU32::new(FREE),
        }
    }

    /// Creates a lock that nobody can enter.
    pub(super) fn closed() -> Self {
        Self {
            application: AtomicU32::new(INSIDE),
            claim: AtomicU32::new(FREE),
        }
    }

    /// Enters as the application, if the lock is free. `HELPED` is false if there are no helpers.
    #[inline(always)]
    pub(super) fn try_enter<const HELPED: bool>(&self) -> bool {
        if self.application.load(Ordering::Relaxed) != OUTSIDE {
            return false;
        }
        self.application.store(INSIDE, Ordering::Relaxed);
        if HELPED {
            barrier::light();
            if self.claim.load(Ordering::Acquire) != FREE {
                self.step_back();
                return false;
            }
        }
        true
    }

    /// Leaves as the application.
    #[inline(always)]
    pub(super) fn leave(&self) {
        self.application.store(OUTSIDE, Ordering::Release);
    }

    /// Enters as the application, waiting at most for a helper, after [`Bias::try_enter`] has
    /// failed. `false` if the application is inside already.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_after_helper(&self) -> bool {
        if self.application.load(Ordering::Relaxed) != OUTSIDE {
            return false;
        }
        loop {
            self.await_free();
            if self.try_enter::<true>() {
                return true;
            }
        }
    }

    /// Leaves the lock to the helper, which may be asleep.
    #[cold]
    #[inline(never)]
    fn step_back(&self) {
        self.application.store(OUTSIDE, Ordering::Release);
        futex::wake_all(&self.application);
    }

    /// Enters as a helper, waiting for the thread inside. `false` if the kernel refuses the
    /// barrier.
    pub(super) fn enter_as_helper(&self) -> bool {
        while !self.try_claim() {
            self.await_free();
        }
        if !barrier::heavy() {
            self.leave_as_helper();
            return false;
        }
        let mut looks = 0;
        while self.application.load(Ordering::Acquire) != OUTSIDE {
            pause_or(&mut looks, || {
                futex::wait(&self.application, INSIDE, Some(LOOK));
            });
        }
        true
    }

    /// Enters as a helper, if the lock is free.
    pub(super) fn try_enter_as_helper(&self) -> bool {
        if !self.try_claim() {
            return false;
        }
        if barrier::heavy() && self.application.load(Ordering::Acquire) == OUTSIDE {
            return true;
        }
        self.leave_as_helper();
        false
    }

    /// Leaves as a helper.
    pub(super) fn leave_as_helper(&self) {
        if self.claim.swap(FREE, Ordering::Release) == AWAITED {
            futex::wake_all(&self.claim);
        }
    }

    fn try_claim(&self) -> bool {
        self.claim
            .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns when no helper has held the lock for a moment.
    fn await_free(&self) {
        let mut looks = 0;
        loop {
            match self.claim.load(Ordering::Acquire) {
                FREE => return,
                claim => pause_or(&mut looks, || {
                    let awaited = claim == AWAITED
                        || self
                            .claim
                            .compare_exchange(
                                CLAIMED,
                                AWAITED,
                                Ordering::Relaxed,
                                Ordering::Relaxed,
                            )
                            .is_ok();
                    if awaited {
                        futex::wait(&self.claim, AWAITED, None);
                    }
                }),
            }
        }
    }
}

/// Pauses briefly; calls `sleep` instead after [`SPINS`] pauses.
fn pause_or(looks: &mut u32, sleep: impl FnOnce()) {
    if *looks < SPINS {
        *looks += 1;
        #[cfg(not(loom))]
        std::hint::spin_loop();
        #[cfg(loom)]
        loom::thread::yield_now();
    } else {
        sleep();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// The protected value: loom detects two threads that access it concurrently.
    struct ProtectedValue {
        bias: Bias,
        value: UnsafeCell<u32>,
    }

    // SAFETY: `bias` serializes all accesses to `value`, which is what the model tests.
    unsafe impl Sync for ProtectedValue {}
    // SAFETY: the value is an integer, which is bound to no thread.
    unsafe impl Send for ProtectedValue {}

    impl ProtectedValue {
        fn new() -> Arc<Self> {
            Arc::new(ProtectedValue {
                bias: Bias::new(),
                value: UnsafeCell::new(0),
            })
        }

        fn enter(&self) -> bool {
            self.bias.try_enter::<true>() || self.bias.enter_after_helper()
        }

        fn add(&self) {
            // SAFETY: this thread has entered the lock; loom reports a concurrent access.
            self.value.with_mut(|value| unsafe { *value += 1 });
        }
    }

    #[test]
    fn the_application_and_a_helper_do_not_meet() {
        loom::model(|| {
            let value = ProtectedValue::new();
            let helper = {
                let value = value.clone();
                thread::spawn(move || {
                    assert!(value.bias.enter_as_helper());
                    value.add();
                    value.bias.leave_as_helper();
                })
            };
            for _ in 0..2 {
                assert!(value.enter());
                value.add();
                value.bias.leave();
            }
            helper.join().unwrap();
            assert!(value.enter());
            // SAFETY: the other threads have ended; loom reports a concurrent access.
            assert_eq!(value.value.with(|value| unsafe { *value }), 3);
        });
    }

    #[test]
    fn those_that_only_try_do_not_meet() {
        loom::model(|| {
            let value = ProtectedValue::new();
            let helper = {
                let value = value.clone();
                thread::spawn(move || {
                    if value.bias.try_enter_as_helper() {
                        value.add();
                        value.bias.leave_as_helper();
                    }
                })
            };
            for _ in 0..2 {
                if value.bias.try_enter::<true>() {
                    value.add();
                    value.bias.leave();
                }
            }
            helper.join().unwrap();
            assert!(value.bias.try_enter::<true>(), "nobody is left inside");
        });
    }

    #[test]
    fn two_helpers_and_the_application_do_not_meet() {
        // Only one of them waits: loom does not guarantee that, of two threads that wait, the third
        // gets a turn.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let value = ProtectedValue::new();
            let helpers = [0, 1].map(|_| {
                let value = value.clone();
                thread::spawn(move || {
                    if value.bias.try_enter_as_helper() {
                        value.add();
                        value.bias.leave_as_helper();
                    }
                })
            });
            assert!(value.enter());
            value.add();
            value.bias.leave();
            for helper in helpers {
                helper.join().unwrap();
            }
        });
    }
}
