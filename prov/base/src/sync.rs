//! A mutex that locks or not, as is decided when an object is opened.
//!
//! Applications state in the threading level of their hints how much locking they need
//! (fi_domain(3)). A lock that is not needed costs a few plain instructions, even if threads of the
//! library itself may have to enter; a real one costs an uncontended compare-and-swap.

pub mod barrier;
mod bias;
mod futex;
mod guard;

use std::cell::UnsafeCell;

use fabric_abi::{
    FI_PROGRESS_MANUAL, FI_THREAD_COMPLETION, FI_THREAD_DOMAIN, fi_progress, fi_threading,
};
use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

use self::bias::Bias;
pub use self::guard::{Guard, HelperGuard, LoneGuard, PromptGuard, RealGuard};

/// Whether a [`Lock`] excludes threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Several threads may enter concurrently; they exclude each other.
    Real,
    /// The application has promised that its threads do not enter concurrently. The behaviour if
    /// they do is undefined (fabric(7)); most often it is detected, and aborts.
    Elided,
    /// As [`LockKind::Elided`] for the application; threads of the library enter now and then
    /// ([`Lock::lock_as_helper`]) and bear the cost of the exclusion.
    Biased,
}

impl LockKind {
    /// For state that all objects of a domain share: only with `FI_THREAD_DOMAIN` do threads never
    /// access it concurrently.
    pub fn for_domain(threading: fi_threading) -> Self {
        if threading == FI_THREAD_DOMAIN {
            LockKind::Elided
        } else {
            LockKind::Real
        }
    }

    /// For state that belongs to one completion object and is not accessed by a progress engine
    /// that other completion objects drive too: `FI_THREAD_COMPLETION` is sufficient there.
    pub fn for_completion(threading: fi_threading) -> Self {
        if threading == FI_THREAD_COMPLETION {
            LockKind::Elided
        } else {
            Self::for_domain(threading)
        }
    }

    /// For a lane, which belongs to one endpoint or one completion object, and which a thread of
    /// the library helps. With automatic progress that thread enters too often for the application
    /// to be preferred.
    pub fn for_lane(threading: fi_threading, progress: fi_progress) -> Self {
        match Self::for_completion(threading) {
            LockKind::Elided if progress == FI_PROGRESS_MANUAL => LockKind::Biased,
            _ => LockKind::Real,
        }
    }
}

/// A value that one thread at a time uses. `HELPED` says whether threads of the library may enter.
pub struct Lock<T: ?Sized, const HELPED: bool = true> {
    kind: LockKind,
    /// The mutex of a lock that is real.
    raw: RawMutex,
    /// The exclusion of a lock that is not real. Closed if the lock is real, so that testing it is
    /// sufficient in the other case.
    bias: Bias,
    value: UnsafeCell<T>,
}

// SAFETY: a real lock gives the value to one thread at a time, so that the value is at most moved
// between threads. The other locks do so, too, provided that one thread of the application is on
// one side and helpers are on the other; the application guarantees that with the threading level
// that it requests, as it guarantees that its pointers are valid.
unsafe impl<T: ?Sized + Send, const HELPED: bool> Sync for Lock<T, HELPED> {}
// SAFETY: the lock owns the value, and contains nothing else that is bound to a thread.
unsafe impl<T: ?Sized + Send, const HELPED: bool> Send for Lock<T, HELPED> {}

/// A [`Lock`] that helpers cannot enter, so that there are no threads to be biased against.
pub type LoneLock<T> = Lock<T, false>;

impl<T> Lock<T> {
    /// Creates a free lock around `value`. Where the kernel does not support biased locks, it is
    /// real.
    pub fn new(kind: LockKind, value: T) -> Self {
        let kind = match kind {
            LockKind::Biased if !barrier::is_available() => LockKind::Real,
            kind => kind,
        };
        Self::of(kind, value)
    }
}

impl<T> LoneLock<T> {
    /// Creates a free lock around `value`.
    pub fn alone(kind: LockKind, value: T) -> Self {
        let kind = match kind {
            LockKind::Biased => LockKind::Elided,
            kind => kind,
        };
        Self::of(kind, value)
    }
}

impl<T, const HELPED: bool> Lock<T, HELPED> {
    fn of(kind: LockKind, value: T) -> Self {
        Self {
            kind,
            raw: RawMutex::INIT,
            bias: match kind {
                LockKind::Real => Bias::closed(),
                LockKind::Elided | LockKind::Biased => Bias::new(),
            },
            value: UnsafeCell::new(value),
        }
    }

    /// Ends the lock and gives the value back.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, const HELPED: bool> Lock<T, HELPED> {
    /// The kind of this lock.
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// Enters, waiting for other threads if the lock is real, and for helpers.
    ///
    /// # Panics
    /// When a lock that is not real is found held by the application: either the application broke
    /// the threading level that it requested, or code of this library entered twice. Only the
    /// latter is always detected: two threads that enter at the same time may both succeed.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T, HELPED> {
        if !self.bias.try_enter::<HELPED>() {
            if self.kind == LockKind::Real {
                self.raw.lock();
            } else if !self.bias.enter_after_helper() {
                entered_twice();
            }
        }
        // SAFETY: this thread has just entered the lock.
        unsafe { Guard::new(self) }
    }

    /// Enters if the lock is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T, HELPED>> {
        let free =
            self.bias.try_enter::<HELPED>() || self.kind == LockKind::Real && self.raw.try_lock();
        // SAFETY: if `free`, this thread has just entered the lock.
        free.then(|| unsafe { Guard::new(self) })
    }

    /// The value, without locking: the exclusive reference excludes all others.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized> LoneLock<T> {
    /// Enters a real lock, waiting for other threads; `None` if the lock is not real.
    #[inline(always)]
    pub fn enter_real(&self) -> Option<RealGuard<'_, T>> {
        (self.kind == LockKind::Real).then(|| {
            self.raw.lock();
            // SAFETY: this thread has just entered the lock, which is a real one.
            unsafe { RealGuard::new(self) }
        })
    }

    /// Enters if that takes only a few instructions: the lock is free and not real.
    #[inline(always)]
    pub fn enter_lone(&self) -> Option<LoneGuard<'_, T>> {
        let entered = self.bias.try_enter::<false>();
        // SAFETY: if `entered`, this thread has just entered the lock, which is not a real one.
        entered.then(|| unsafe { LoneGuard::new(self) })
    }
}

impl<T: ?Sized> Lock<T> {
    /// Enters from a thread of the library, waiting for the thread inside. `None` if the kernel has
    /// begun to refuse membarrier(2), which a biased lock needs for that.
    ///
    /// # Panics
    /// For [`LockKind::Elided`].
    pub fn lock_as_helper(&self) -> Option<HelperGuard<'_, T>> {
        let entered = match self.kind {
            LockKind::Real => {
                self.raw.lock();
                true
            }
            LockKind::Biased => self.bias.enter_as_helper(),
            LockKind::Elided => not_for_helpers(),
        };
        // SAFETY: if `entered`, this thread has just entered the lock as a helper.
        entered.then(|| unsafe { HelperGuard::new(self) })
    }

    /// [`Lock::lock_as_helper`] if nobody is inside.
    ///
    /// # Panics
    /// For [`LockKind::Elided`].
    pub fn try_lock_as_helper(&self) -> Option<HelperGuard<'_, T>> {
        let entered = match self.kind {
            LockKind::Real => self.raw.try_lock(),
            LockKind::Biased => self.bias.try_enter_as_helper(),
            LockKind::Elided => not_for_helpers(),
        };
        // SAFETY: if `entered`, this thread has just entered the lock as a helper.
        entered.then(|| unsafe { HelperGuard::new(self) })
    }
}

#[allow(
    clippy::panic,
    reason = "the application has broken its promise: what follows is undefined, and ends here where it is noticed"
)]
#[cold]
#[inline(never)]
fn entered_twice() -> ! {
    panic!(
        "a lock that the threading level made superfluous was entered twice: \
         the application uses objects from several threads at once, which its \
         threading level forbids (fabric(7))"
    );
}

#[allow(
    clippy::panic,
    reason = "helpers are given lanes whose locks they may enter"
)]
#[cold]
fn not_for_helpers() -> ! {
    panic!("a helper at a lock that was opened for the application alone");
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
