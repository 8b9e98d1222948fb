//! A mutex whose reality is decided when an object is opened.
//!
//! Applications tell with the threading level of their hints how much locking
//! they need (fi_domain(3)). A lock that nobody asked for costs a few plain
//! instructions, also where threads of the library itself may have to enter;
//! one that is real costs an uncontended compare-and-swap.

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

/// Whether a [`Lock`] locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Threads may meet; they exclude each other.
    Real,
    /// The application promised that its threads do not meet. What happens if they do
    /// is undefined (fabric(7)); most often it is noticed, and aborts.
    Elided,
    /// As [`LockKind::Elided`] for the application, which threads of the
    /// library help now and then ([`Lock::lock_as_helper`]). They pay.
    Biased,
}

impl LockKind {
    /// For state that everything in a domain shares: only `FI_THREAD_DOMAIN`
    /// lets threads never meet there.
    pub fn for_domain(threading: fi_threading) -> Self {
        if threading == FI_THREAD_DOMAIN {
            LockKind::Elided
        } else {
            LockKind::Real
        }
    }

    /// For state that belongs to one completion object and is touched by no
    /// engine that other completion objects drive too: `FI_THREAD_COMPLETION`
    /// is enough there.
    pub fn for_completion(threading: fi_threading) -> Self {
        if threading == FI_THREAD_COMPLETION {
            LockKind::Elided
        } else {
            Self::for_domain(threading)
        }
    }

    /// For what moves together, which belongs to one endpoint or one completion
    /// object, and which a thread of the library helps. With automatic progress
    /// that thread enters too often for the application to be preferred.
    pub fn for_lane(threading: fi_threading, progress: fi_progress) -> Self {
        match Self::for_completion(threading) {
            LockKind::Elided if progress == FI_PROGRESS_MANUAL => LockKind::Biased,
            _ => LockKind::Real,
        }
    }
}

/// A value that one thread at a time uses. `HELPED` says whether threads of the
/// library are among them.
pub struct Lock<T: ?Sized, const HELPED: bool = true> {
    kind: LockKind,
    /// Who is inside, where the lock is real.
    raw: RawMutex,
    /// Who is inside, where it is not. Closed where it is, so that one look at it
    /// is enough where it is not.
    bias: Bias,
    value: UnsafeCell<T>,
}

// SAFETY: a real lock gives out the value to one thread at a time, which moves
// it between threads at most. So do the others, of which one thread of the
// application is on one side and helpers on the other; that it is one thread
// is the promise that came with the threading level, on which they rely to the
// same extent as on the application's pointers.
unsafe impl<T: ?Sized + Send, const HELPED: bool> Sync for Lock<T, HELPED> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: ?Sized + Send, const HELPED: bool> Send for Lock<T, HELPED> {}

/// A [`Lock`] that helpers cannot enter, so that there is nothing to be biased
/// against.
pub type LoneLock<T> = Lock<T, false>;

impl<T> Lock<T> {
    /// A free lock around `value`. Where the system does not let it be biased,
    /// it is real.
    pub fn new(kind: LockKind, value: T) -> Self {
        let kind = match kind {
            LockKind::Biased if !barrier::is_available() => LockKind::Real,
            kind => kind,
        };
        Self::of(kind, value)
    }
}

impl<T> LoneLock<T> {
    /// A free lock around `value`.
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
    /// What this lock is.
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// Enters, waiting for other threads where the lock is real, and for
    /// helpers.
    ///
    /// # Panics
    /// When a lock that is not real is seen to be held by the application already: a
    /// caller broke the threading level it asked for, or code of this library
    /// entered twice. Only the latter is always seen: two threads that enter at the
    /// same time may both get in.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T, HELPED> {
        if !self.bias.try_enter::<HELPED>() {
            if self.kind == LockKind::Real {
                self.raw.lock();
            } else if !self.bias.enter_after_helper() {
                entered_twice();
            }
        }
        // SAFETY: this thread has just entered.
        unsafe { Guard::new(self) }
    }

    /// Enters if nobody is inside.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T, HELPED>> {
        let free =
            self.bias.try_enter::<HELPED>() || self.kind == LockKind::Real && self.raw.try_lock();
        // SAFETY: if so, this thread has just entered.
        free.then(|| unsafe { Guard::new(self) })
    }

    /// The value, without locking: nobody else can hold a reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized> LoneLock<T> {
    /// Enters a real lock, waiting for other threads; `None` where it is none.
    #[inline(always)]
    pub fn enter_real(&self) -> Option<RealGuard<'_, T>> {
        (self.kind == LockKind::Real).then(|| {
            self.raw.lock();
            // SAFETY: this thread has just entered, and the lock is real.
            unsafe { RealGuard::new(self) }
        })
    }

    /// Enters if that takes a few instructions: nobody is inside, and the lock is
    /// not real.
    #[inline(always)]
    pub fn enter_at_once(&self) -> Option<LoneGuard<'_, T>> {
        let entered = self.bias.try_enter::<false>();
        // SAFETY: if so, this thread has just entered, and the lock is not real.
        entered.then(|| unsafe { LoneGuard::new(self) })
    }
}

impl<T: ?Sized> Lock<T> {
    /// Enters from a thread of the library, waiting for whoever is inside.
    /// `None`: the system has begun to refuse what a biased lock needs for
    /// that.
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
        // SAFETY: if so, this thread has just entered, as a helper.
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
        // SAFETY: if so, this thread has just entered, as a helper.
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
