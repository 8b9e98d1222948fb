//! A mutex that locks or not, as is decided when an object is opened.
//!
//! Applications state in the threading level of their hints how much locking they need
//! (fi_domain(3)). A lock that is not needed costs a few plain instructions, even if threads of the
//! library itself may have to enter; a real one costs an uncontended compare-and-swap.
//!
//! A lock that is not needed belongs to the thread that uses it. When another thread enters it, it
//! becomes real: whatever the application does, no two threads are inside.

mod attempt;
pub mod barrier;
mod bias;
mod futex;
mod guard;
mod habit;
mod presence;
mod raw;
mod thread;
mod words;

use std::cell::UnsafeCell;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, Ordering};

use fabric_abi::{
    FI_PROGRESS_MANUAL, FI_THREAD_COMPLETION, FI_THREAD_DOMAIN, fi_progress, fi_threading,
};
#[cfg(not(loom))]
use parking_lot::lock_api::RawMutex as _;

use self::bias::{Bias, Entry};
pub use self::guard::{Guard, HelperGuard, LoneGuard, PromptGuard, RealGuard};
use self::habit::Habit;
pub use self::presence::{Entrant, Presence};
use self::raw::RawMutex;
use crate::logging::UTIL;

/// Whether a [`Lock`] excludes threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Several threads may enter concurrently; they exclude each other.
    Real,
    /// The application has promised that its threads do not enter concurrently. The thread that
    /// enters usually is the owner, which executes no locked instructions; the lock becomes real
    /// when another one enters nevertheless.
    Elided,
    /// As [`LockKind::Elided`]; besides, threads of the library enter now and then
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

/// All threads enter through the mutex.
const REAL: u8 = 0;
/// As [`REAL`], until a thread has entered [`habit::HABIT`] times in a row.
const YOUNG: u8 = 1;
/// A thread is the owner, and enters through the bias.
const OWNED: u8 = 2;

/// A value that one thread at a time uses.
pub struct Lock<T: ?Sized> {
    /// The kind with which it was opened.
    kind: LockKind,
    /// [`REAL`], [`YOUNG`] or [`OWNED`], in the order `YOUNG`, `OWNED`, `REAL`. Changed by a thread
    /// that is inside and holds the mutex.
    state: AtomicU8,
    /// Through which the threads enter that are not the owner.
    raw: RawMutex,
    /// Through which the owner enters.
    bias: Bias,
    /// Who enters while the lock is young. Used by the thread that holds the mutex.
    habit: Habit,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one thread at a time, so that the value is at most moved
// between threads. Without an owner a thread inside holds the mutex. With an owner it is inside
// through the bias, which excludes helpers and a thread that revokes the bias; the latter holds the
// mutex, and from then on there is no owner.
unsafe impl<T: ?Sized + Send> Sync for Lock<T> {}
// SAFETY: the lock owns the value, and contains nothing else that is bound to a thread.
unsafe impl<T: ?Sized + Send> Send for Lock<T> {}

impl<T> Lock<T> {
    /// Creates a free lock around `value`. Where the kernel does not support locks that are not
    /// real, it is real.
    pub fn new(kind: LockKind, value: T) -> Self {
        let kind = match barrier::is_available() {
            true => kind,
            false => LockKind::Real,
        };
        Self {
            kind,
            state: AtomicU8::new(match kind {
                LockKind::Real => REAL,
                LockKind::Elided | LockKind::Biased => YOUNG,
            }),
            raw: raw::free(),
            bias: Bias::new(),
            habit: Habit::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// Creates a free lock around `value` that threads other than the owner [visit](Self::visit).
    pub fn with_visitors(kind: LockKind, value: T) -> Self {
        let kind = match kind {
            LockKind::Elided => LockKind::Biased,
            kind => kind,
        };
        Self::new(kind, value)
    }

    /// Ends the lock and gives the value back.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Lock<T> {
    /// The kind of this lock.
    pub fn kind(&self) -> LockKind {
        match self.state.load(Ordering::Relaxed) {
            REAL => LockKind::Real,
            _ => self.kind,
        }
    }

    /// Whether the thread inside has entered through the bias: asked by that thread, or by one that
    /// holds the mutex.
    #[inline(always)]
    fn is_owned(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OWNED
    }

    /// [`Lock::is_owned`], asked by the thread inside: the state does not change meanwhile.
    ///
    /// # Safety
    /// This thread is inside.
    #[inline(always)]
    unsafe fn is_entered_by_owner(&self) -> bool {
        // SAFETY: only a thread that is inside writes the state, which this one is, as the caller
        // guarantees. So nobody writes it at the same time, and the load need not be atomic: the
        // compiler makes one instruction of it and the comparison.
        #[cfg(not(loom))]
        let state = unsafe { *self.state.as_ptr() };
        // SAFETY: as above; loom reports a concurrent store.
        #[cfg(loom)]
        let state = unsafe { self.state.unsync_load() };
        state == OWNED
    }

    /// Enters, waiting for the thread inside.
    ///
    /// # Panics
    /// When the owner of the lock is inside already: code of this library has entered twice.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T> {
        let own = thread::current();
        if !self.bias.try_enter(own) {
            match self.state.load(Ordering::Relaxed) {
                REAL => self.raw.lock(),
                _ => self.enter_otherwise(own),
            }
        }
        // SAFETY: this thread has just entered the lock.
        unsafe { Guard::new(self) }
    }

    /// Enters a lock that has an owner, or is young.
    #[cold]
    #[inline(never)]
    fn enter_otherwise(&self, own: usize) {
        if self.is_owned() && self.bias.is_owner(own) {
            match self.bias.enter_after_helper(own) {
                Entry::Entered => return,
                Entry::Refused => entered_twice(),
                Entry::Revoked => {}
            }
        }
        self.raw.lock();
        self.enter_with_mutex(own, true);
    }

    /// Enters, holding the mutex, a lock that is not real. Returns `false`, without the mutex, if the
    /// owner is inside and must not be waited for.
    #[cold]
    #[inline(never)]
    fn enter_with_mutex(&self, own: usize, waits: bool) -> bool {
        match self.state.load(Ordering::Relaxed) {
            YOUNG => {
                if self.habit.is_formed(own) {
                    self.bias.adopt(own);
                    self.state.store(OWNED, Ordering::Release);
                    // SAFETY: this thread holds the mutex, and is inside through the bias now.
                    unsafe { self.raw.unlock() };
                }
                true
            }
            OWNED => {
                if self.bias.revoke(waits) != Entry::Revoked {
                    // SAFETY: this thread holds the mutex, and is not inside.
                    unsafe { self.raw.unlock() };
                    if waits {
                        barrier_is_refused();
                    }
                    return false;
                }
                self.state.store(REAL, Ordering::Relaxed);
                log::debug!(
                    target: UTIL.core,
                    "a second thread uses an object whose threading level leaves it to one at a time: \
                     it is locked from now on"
                );
                true
            }
            _ => true,
        }
    }

    /// Enters if the lock is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let own = thread::current();
        let free = self.bias.try_enter(own)
            || match self.state.load(Ordering::Relaxed) {
                REAL => self.raw.try_lock(),
                _ => self.try_otherwise(own),
            };
        // SAFETY: if `free`, this thread has just entered the lock.
        free.then(|| unsafe { Guard::new(self) })
    }

    /// Enters a lock that has an owner, or is young, if it is free.
    #[cold]
    #[inline(never)]
    fn try_otherwise(&self, own: usize) -> bool {
        if self.is_owned() && self.bias.is_owner(own) {
            self.bias.wake_other();
            return false;
        }
        self.raw.try_lock() && self.enter_with_mutex(own, false)
    }

    /// The value, without locking: the exclusive reference excludes all others.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Enters through the mutex, waiting for other threads; `None` if the lock has an owner, or gets
    /// one.
    #[inline(always)]
    pub fn enter_real(&self) -> Option<RealGuard<'_, T>> {
        let entered = match self.state.load(Ordering::Relaxed) {
            REAL => {
                self.raw.lock();
                true
            }
            OWNED => false,
            _ => self.enter_young(),
        };
        // SAFETY: if `entered`, this thread holds the mutex of a lock without an owner.
        entered.then(|| unsafe { RealGuard::new(self) })
    }

    /// Enters through the mutex of a lock that was young a moment ago. `false` if it has an owner by
    /// now, or if the caller is about to be the owner.
    #[cold]
    #[inline(never)]
    fn enter_young(&self) -> bool {
        self.raw.lock();
        let state = self.state.load(Ordering::Relaxed);
        if state == OWNED || state == YOUNG && self.habit.is_formed(thread::current()) {
            // SAFETY: this thread holds the mutex, and gives up its right to the value.
            unsafe { self.raw.unlock() };
            return false;
        }
        true
    }

    /// Enters if that takes only a few instructions: this thread is the owner, and the lock is free.
    #[inline(always)]
    pub fn enter_lone(&self) -> Option<LoneGuard<'_, T>> {
        let entered = self.bias.try_enter(thread::current());
        // SAFETY: if `entered`, this thread has just entered the lock through the bias.
        entered.then(|| unsafe { LoneGuard::new(self) })
    }

    /// Enters from a thread of the library, waiting for the thread inside. `None` if the kernel has
    /// begun to refuse membarrier(2), which a biased lock needs for that.
    ///
    /// # Panics
    /// For [`LockKind::Elided`].
    pub fn lock_as_helper(&self) -> Option<HelperGuard<'_, T>> {
        if self.kind == LockKind::Elided {
            not_for_helpers();
        }
        if self.state.load(Ordering::Acquire) != OWNED {
            self.raw.lock();
            if !self.is_owned() {
                // SAFETY: this thread holds the mutex of a lock without an owner.
                return Some(unsafe { HelperGuard::new(self) });
            }
            // SAFETY: this thread holds the mutex, and is not inside.
            unsafe { self.raw.unlock() };
        }
        match self.bias.enter_as_helper() {
            Entry::Entered => {}
            // It is real when the thread that has revoked the bias has left.
            Entry::Revoked => self.raw.lock(),
            Entry::Refused => return None,
        }
        // SAFETY: this thread has just entered the lock as a helper.
        Some(unsafe { HelperGuard::new(self) })
    }

    /// Enters for a short time from a thread of the application that may be another than the one that
    /// usually does: the owner, if there is one, remains it.
    pub fn visit<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        if let Some(mut value) = self.enter_lone() {
            return act(&mut value);
        }
        if self.kind == LockKind::Biased
            && let Some(mut value) = self.lock_as_helper()
        {
            return act(&mut value);
        }
        act(&mut self.lock())
    }

    /// [`Lock::lock_as_helper`] if nobody is inside.
    ///
    /// # Panics
    /// For [`LockKind::Elided`].
    pub fn try_lock_as_helper(&self) -> Option<HelperGuard<'_, T>> {
        if self.kind == LockKind::Elided {
            not_for_helpers();
        }
        if self.state.load(Ordering::Acquire) != OWNED {
            if !self.raw.try_lock() {
                return None;
            }
            if !self.is_owned() {
                // SAFETY: this thread holds the mutex of a lock without an owner.
                return Some(unsafe { HelperGuard::new(self) });
            }
            // SAFETY: this thread holds the mutex, and is not inside.
            unsafe { self.raw.unlock() };
        }
        let entered = self.bias.try_enter_as_helper();
        // SAFETY: if `entered`, this thread has just entered the lock as a helper.
        entered.then(|| unsafe { HelperGuard::new(self) })
    }
}

#[allow(
    clippy::panic,
    reason = "a thread that waits for itself does nothing any more"
)]
#[cold]
#[inline(never)]
fn entered_twice() -> ! {
    panic!("a lock that the threading level made superfluous was entered twice");
}

#[allow(
    clippy::panic,
    reason = "without the barrier the thread inside cannot be excluded"
)]
#[cold]
fn barrier_is_refused() -> ! {
    panic!(
        "a system call filter that was installed after the domain was opened refuses membarrier(2), \
         and a second thread uses an object of that domain"
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

#[cfg(all(test, loom))]
mod loom_tests;
