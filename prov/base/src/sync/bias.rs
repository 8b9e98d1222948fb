//! Mutual exclusion between one thread, the owner, and all others that enter now and then.
//!
//! The owner stores that it is inside and then tests whether another thread has claimed the lock; it
//! executes no locked instruction for that. The other thread claims the lock, has a [`barrier`]
//! executed by all processors that run the process, and tests whether the owner is inside. So if
//! both enter at the same time, at least one of them notices. The owner is the one that steps back:
//! it enters all the time.
//!
//! The other threads are either *helpers*, which are quick and give the claim back, or threads of
//! the application. One of these [revokes](Bias::revoke) the bias: it never gives its claim back, so
//! that nobody enters this way any more. The owner cannot be replaced instead: it may be about to
//! store that it is inside.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use super::attempt::{self, Attempt};
use super::words::{AWAITED, CLAIMED, FREE, INSIDE, NOBODY, REVOKED};
use super::{barrier, futex};

pub(super) use super::words::Bias;

/// Number of tests of a word that another thread is about to change, before the thread sleeps.
const SPINS: u32 = if cfg!(loom) { 1 } else { 64 };
/// How long a thread sleeps before it tests again whether the owner has left: an owner that leaves
/// wakes nobody, one that comes back to wait does.
const LOOK: Duration = Duration::from_micros(50);

/// The outcome of an attempt to enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Entered,
    /// The owner is inside already, or the kernel has refused the barrier.
    Refused,
    /// The bias is revoked.
    Revoked,
}

impl Bias {
    /// Creates a lock without an owner.
    pub(super) fn new() -> Self {
        Self {
            owner: AtomicUsize::new(NOBODY),
            claim: AtomicU32::new(FREE),
            steps: AtomicU32::new(0),
        }
    }

    /// Makes a thread the owner, inside. Another lock keeps all threads out meanwhile. Numbers are
    /// even, and not 0.
    pub(super) fn adopt(&self, thread: usize) {
        self.owner.store(thread | INSIDE, Ordering::Relaxed);
    }

    /// Whether this thread is the owner.
    pub(super) fn is_owner(&self, thread: usize) -> bool {
        self.owner.load(Ordering::Relaxed) & !INSIDE == thread
    }

    /// Enters as this thread, if it is the owner and the lock is free.
    #[inline(always)]
    pub(super) fn try_enter(&self, thread: usize) -> bool {
        match attempt::enter(self, thread) {
            Attempt::Entered => true,
            Attempt::NotTheOwner => false,
            Attempt::Claimed => {
                self.step_back(thread);
                false
            }
        }
    }

    /// Leaves the lock to another thread; for good if the bias is revoked. A few instructions and no
    /// call, for which the callers of [`Bias::try_enter`] would save registers.
    #[inline(always)]
    fn step_back(&self, owner: usize) {
        let next = match self.claim.load(Ordering::Acquire) {
            REVOKED => NOBODY,
            _ => owner,
        };
        self.owner.store(next, Ordering::Release);
    }

    /// Wakes the thread to which the owner has stepped back, if it is asleep. In a model nobody is.
    #[cold]
    #[inline(never)]
    pub(super) fn wake_other(&self) {
        if cfg!(not(loom)) && self.claim.load(Ordering::Relaxed) != FREE {
            self.steps.fetch_add(1, Ordering::Relaxed);
            futex::wake_all(&self.steps);
        }
    }

    /// Leaves as the owner.
    #[inline(always)]
    pub(super) fn leave(&self) {
        let owner = self.owner.load(Ordering::Relaxed);
        self.owner.store(owner & !INSIDE, Ordering::Release);
    }

    /// Enters as the owner, waiting at most for a helper, after [`Bias::try_enter`] has failed.
    /// Refused if the owner is inside already.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_after_helper(&self, owner: usize) -> Entry {
        loop {
            match self.owner.load(Ordering::Relaxed) {
                NOBODY => return Entry::Revoked,
                inside if inside != owner => return Entry::Refused,
                _ => self.wake_other(),
            }
            if !self.await_free() {
                return Entry::Revoked;
            }
            if self.try_enter(owner) {
                return Entry::Entered;
            }
        }
    }

    /// Ends this way of entering; to be called by one thread at a time, which is not the owner.
    /// Returns when nobody is inside; with `waits` false, [`Entry::Refused`] if somebody is. The
    /// other outcomes are [`Entry::Revoked`], and [`Entry::Refused`] if the kernel refuses the
    /// barrier: then nothing has changed.
    #[cold]
    pub(super) fn revoke(&self, waits: bool) -> Entry {
        // A claim and a barrier would hinder the owner for nothing.
        if !waits && self.is_inside() {
            return Entry::Refused;
        }
        while !self.try_claim() {
            if !waits {
                return Entry::Refused;
            }
            if !self.await_free() {
                return Entry::Revoked;
            }
        }
        if !barrier::heavy() || !waits && self.is_inside() {
            self.leave_as_helper();
            return Entry::Refused;
        }
        self.await_outside();
        self.end_claim(REVOKED);
        Entry::Revoked
    }

    /// Enters as a helper, waiting for the thread inside. Refused if the kernel refuses the barrier.
    pub(super) fn enter_as_helper(&self) -> Entry {
        while !self.try_claim() {
            if !self.await_free() {
                return Entry::Revoked;
            }
        }
        if !barrier::heavy() {
            self.leave_as_helper();
            return Entry::Refused;
        }
        self.await_outside();
        Entry::Entered
    }

    /// Whether the owner is inside, or about to be.
    pub(super) fn is_inside(&self) -> bool {
        self.owner.load(Ordering::Acquire) & INSIDE != 0
    }

    fn await_outside(&self) {
        let mut looks = 0;
        while self.is_inside() {
            pause_or(&mut looks, || {
                let steps = self.steps.load(Ordering::Relaxed);
                if self.is_inside() {
                    futex::wait(&self.steps, steps, Some(LOOK));
                }
            });
        }
    }

    /// Enters as a helper, if the lock is free.
    pub(super) fn try_enter_as_helper(&self) -> bool {
        if !self.try_claim() {
            return false;
        }
        if barrier::heavy() && !self.is_inside() {
            return true;
        }
        self.leave_as_helper();
        false
    }

    /// Leaves as a helper.
    pub(super) fn leave_as_helper(&self) {
        self.end_claim(FREE);
    }

    /// Ends this thread's claim, with [`FREE`] or [`REVOKED`].
    fn end_claim(&self, next: u32) {
        if self.claim.swap(next, Ordering::Release) == AWAITED {
            futex::wake_all(&self.claim);
        }
    }

    /// Whether a helper or a thread that revokes the bias has claimed the lock.
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_claimed(&self) -> bool {
        self.claim.load(Ordering::Relaxed) != FREE
    }

    /// How often the owner has woken a thread.
    #[cfg(all(test, not(loom)))]
    pub(super) fn steps(&self) -> u32 {
        self.steps.load(Ordering::Relaxed)
    }

    fn try_claim(&self) -> bool {
        self.claim
            .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns `true` when no helper has held the lock for a moment, `false` if the bias is revoked.
    fn await_free(&self) -> bool {
        let mut looks = 0;
        loop {
            match self.claim.load(Ordering::Acquire) {
                FREE => return true,
                REVOKED => return false,
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

    /// The number of the thread that owns the lock.
    const OWNER: usize = 2;

    impl ProtectedValue {
        fn new() -> Arc<Self> {
            let bias = Bias::new();
            bias.adopt(OWNER);
            bias.leave();
            Arc::new(ProtectedValue {
                bias,
                value: UnsafeCell::new(0),
            })
        }

        fn enter(&self) -> bool {
            self.bias.try_enter(OWNER) || self.bias.enter_after_helper(OWNER) == Entry::Entered
        }

        fn add(&self) {
            // SAFETY: this thread has entered the lock; loom reports a concurrent access.
            self.value.with_mut(|value| unsafe { *value += 1 });
        }

        /// Adds as the owner, if the lock is free and still biased.
        fn add_if_free(&self) {
            if self.bias.try_enter(OWNER) {
                self.add();
                self.bias.leave();
            }
        }
    }

    /// Starts a helper, which adds if the lock is free and still biased.
    fn helper_that_tries(value: &Arc<ProtectedValue>) -> thread::JoinHandle<()> {
        let value = value.clone();
        thread::spawn(move || {
            if value.bias.try_enter_as_helper() {
                value.add();
                value.bias.leave_as_helper();
            }
        })
    }

    #[test]
    fn the_owner_and_a_helper_do_not_meet() {
        loom::model(|| {
            let value = ProtectedValue::new();
            let helper = {
                let value = value.clone();
                thread::spawn(move || {
                    assert_eq!(value.bias.enter_as_helper(), Entry::Entered);
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
            let helper = helper_that_tries(&value);
            for _ in 0..2 {
                value.add_if_free();
            }
            helper.join().unwrap();
            assert!(value.bias.try_enter(OWNER), "nobody is left inside");
        });
    }

    #[test]
    fn two_helpers_and_the_owner_do_not_meet() {
        // Only one of them waits: loom does not guarantee that, of two threads that wait, the third
        // gets a turn.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let value = ProtectedValue::new();
            let helpers = [0, 1].map(|_| helper_that_tries(&value));
            assert!(value.enter());
            value.add();
            value.bias.leave();
            for helper in helpers {
                helper.join().unwrap();
            }
        });
    }

    #[test]
    fn nobody_enters_after_the_bias_is_revoked() {
        loom::model(|| {
            let value = ProtectedValue::new();
            let other = {
                let value = value.clone();
                thread::spawn(move || {
                    assert_eq!(value.bias.revoke(true), Entry::Revoked);
                    // From here on the thread needs no lock.
                    value.add();
                    value.add();
                })
            };
            for _ in 0..2 {
                value.add_if_free();
            }
            other.join().unwrap();
            assert!(!value.bias.try_enter(OWNER));
            assert_eq!(value.bias.enter_after_helper(OWNER), Entry::Revoked);
            assert_eq!(value.bias.enter_as_helper(), Entry::Revoked);
        });
    }

    #[test]
    fn a_helper_and_a_thread_that_revokes_the_bias_do_not_meet() {
        loom::model(|| {
            let value = ProtectedValue::new();
            let helper = helper_that_tries(&value);
            assert_eq!(value.bias.revoke(true), Entry::Revoked);
            value.add();
            helper.join().unwrap();
        });
    }
}
