//! A mutex whose reality is decided when an object is opened.
//!
//! Applications tell with the threading level of their hints how much locking
//! they need (fi_domain(3)). A lock that nobody asked for costs three plain
//! instructions; one that is real costs an uncontended compare-and-swap.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use fabric_abi::{FI_THREAD_COMPLETION, FI_THREAD_DOMAIN, fi_threading};
use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

/// Whether a [`Lock`] locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Threads may meet; they exclude each other.
    Real,
    /// The application promised that threads do not meet. Being entered twice
    /// all the same is detected and aborts.
    Elided,
}

impl LockKind {
    /// For state that everything in a domain shares, such as a provider's
    /// engine: only `FI_THREAD_DOMAIN` lets threads never meet there.
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
}

/// A value that one thread at a time uses.
pub struct Lock<T: ?Sized> {
    kind: LockKind,
    raw: RawMutex,
    /// Set while an elided lock is held.
    entered: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a real lock gives out the value to one thread at a time, which moves
// it between threads at most. An elided one relies on the promise that came
// with the threading level, to the same extent as on the application's
// pointers.
unsafe impl<T: ?Sized + Send> Sync for Lock<T> {}
// SAFETY: owning the lock is owning the value.
unsafe impl<T: ?Sized + Send> Send for Lock<T> {}

impl<T> Lock<T> {
    /// A free lock around `value`.
    pub const fn new(kind: LockKind, value: T) -> Self {
        Self {
            kind,
            raw: RawMutex::INIT,
            entered: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Ends the lock and gives the value back.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Lock<T> {
    /// Whether this lock is real.
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// Enters, waiting for other threads where the lock is real.
    ///
    /// # Panics
    /// When an elided lock is held already: a caller broke the threading level
    /// it asked for, or code of this library entered twice.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T> {
        match self.kind {
            LockKind::Real => self.raw.lock(),
            LockKind::Elided => {
                if self.entered.load(Ordering::Relaxed) {
                    entered_twice();
                }
                self.entered.store(true, Ordering::Relaxed);
            }
        }
        Guard::of(self)
    }

    /// Enters if nobody is inside.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let free = match self.kind {
            LockKind::Real => self.raw.try_lock(),
            LockKind::Elided => {
                let free = !self.entered.load(Ordering::Relaxed);
                if free {
                    self.entered.store(true, Ordering::Relaxed);
                }
                free
            }
        };
        free.then_some(Guard::of(self))
    }

    /// The value, without locking: nobody else can hold a reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

#[cold]
#[inline(never)]
fn entered_twice() -> ! {
    panic!(
        "a lock that the threading level made superfluous was entered twice: \
         the application uses this object from several threads at once"
    );
}

/// The right to use the value of a [`Lock`]; ends when dropped.
pub struct Guard<'a, T: ?Sized> {
    lock: &'a Lock<T>,
    /// Stays on its thread, and is as shareable as a pointer: not at all.
    _thread_bound: PhantomData<*mut T>,
}

impl<'a, T: ?Sized> Guard<'a, T> {
    #[inline(always)]
    fn of(lock: &'a Lock<T>) -> Self {
        Self {
            lock,
            _thread_bound: PhantomData,
        }
    }
}

impl<T: ?Sized> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread is the one inside.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so this thread is the one inside, and the
        // guard itself is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.lock.kind {
            // SAFETY: this guard came from locking, and it is dropped once.
            LockKind::Real => unsafe { self.lock.raw.unlock() },
            LockKind::Elided => self.lock.entered.store(false, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_real_lock_excludes_other_threads() {
        let lock = Arc::new(Lock::new(LockKind::Real, 0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        *lock.lock() += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*lock.lock(), 40_000);
    }

    #[test]
    #[should_panic(expected = "entered twice")]
    fn an_elided_lock_notices_being_entered_twice() {
        let lock = Lock::new(LockKind::Elided, ());
        let _first = lock.lock();
        let _second = lock.lock();
    }

    #[test]
    fn a_held_lock_cannot_be_tried() {
        for kind in [LockKind::Real, LockKind::Elided] {
            let lock = Lock::new(kind, 1);
            let held = lock.lock();
            assert!(lock.try_lock().is_none());
            drop(held);
            assert_eq!(lock.try_lock().map(|value| *value), Some(1));
        }
    }

    #[test]
    fn the_threading_level_decides_what_is_real() {
        assert_eq!(LockKind::for_domain(FI_THREAD_DOMAIN), LockKind::Elided);
        assert_eq!(LockKind::for_domain(FI_THREAD_COMPLETION), LockKind::Real);
        assert_eq!(
            LockKind::for_completion(FI_THREAD_COMPLETION),
            LockKind::Elided
        );
        assert_eq!(
            LockKind::for_completion(fabric_abi::FI_THREAD_SAFE),
            LockKind::Real
        );
    }
}
