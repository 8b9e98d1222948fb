//! The right to use the value of a [`Lock`]. Guards differ in how they leave it.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use parking_lot::lock_api::RawMutex as _;

use super::{Lock, LockKind};

/// The right to use the value of a [`Lock`]; ends when dropped.
pub type Guard<'a, T, const HELPED: bool = true> = Inside<'a, T, Usual, HELPED>;
/// The same right; a real lock is released inline, without a function call.
pub type PromptGuard<'a, T, const HELPED: bool = true> = Inside<'a, T, Promptly, HELPED>;
/// The same right to a lock that is real and has no helpers.
pub type RealGuard<'a, T> = Inside<'a, T, Real, false>;
/// The same right to a lock that is not real and has no helpers.
pub type LoneGuard<'a, T> = Inside<'a, T, Lone, false>;
/// The same right, held by a thread of the library.
pub type HelperGuard<'a, T> = Inside<'a, T, Helper, true>;

/// A thread's right to be inside a lock, which it leaves by `L`.
pub struct Inside<'a, T: ?Sized, L: Leave, const HELPED: bool> {
    lock: &'a Lock<T, HELPED>,
    /// Binds the guard to its thread: it is neither `Send` nor `Sync`, like a raw pointer.
    _thread_bound: PhantomData<(*mut T, L)>,
}

/// How a lock is left.
pub trait Leave {
    /// Leaves it.
    ///
    /// # Safety
    /// The caller has entered by the matching method, and gives up its right to the value.
    unsafe fn leave<T: ?Sized, const HELPED: bool>(lock: &Lock<T, HELPED>);
}

/// Of [`Guard`].
pub enum Usual {}
/// Of [`PromptGuard`].
pub enum Promptly {}
/// Of [`RealGuard`].
pub enum Real {}
/// Of [`LoneGuard`].
pub enum Lone {}
/// Of [`HelperGuard`].
pub enum Helper {}

impl Leave for Usual {
    #[inline(always)]
    unsafe fn leave<T: ?Sized, const HELPED: bool>(lock: &Lock<T, HELPED>) {
        if lock.kind == LockKind::Real {
            // SAFETY: the caller guarantees that this thread has entered the lock.
            unsafe { leave_out_of_the_way(lock) }
        } else {
            lock.bias.leave();
        }
    }
}

/// Leaves a real lock, in a function of its own, off the path of locks that are not real.
///
/// # Safety
/// As for [`Leave::leave`].
#[cold]
#[inline(never)]
unsafe fn leave_out_of_the_way<T: ?Sized, const HELPED: bool>(lock: &Lock<T, HELPED>) {
    // SAFETY: the caller guarantees that this thread has entered the lock, and so holds the raw
    // one.
    unsafe { lock.raw.unlock() }
}

impl Leave for Promptly {
    #[inline(always)]
    unsafe fn leave<T: ?Sized, const HELPED: bool>(lock: &Lock<T, HELPED>) {
        if lock.kind == LockKind::Real {
            // SAFETY: the caller guarantees that this thread has entered the lock, and so holds the
            // raw one.
            unsafe { lock.raw.unlock() }
        } else {
            lock.bias.leave();
        }
    }
}

impl Leave for Real {
    #[inline(always)]
    unsafe fn leave<T: ?Sized, const HELPED: bool>(lock: &Lock<T, HELPED>) {
        // SAFETY: the caller guarantees that this thread has entered the lock, which is a real one,
        // and so holds the raw one.
        unsafe { lock.raw.unlock() }
    }
}

impl Leave for Lone {
    #[inline(always)]
    unsafe fn leave<T: ?Sized, const HELPED: bool>(lock: &Lock<T, HELPED>) {
        lock.bias.leave();
    }
}

impl Leave for Helper {
    unsafe fn leave<T: ?Sized, const HELPED: bool>(lock: &Lock<T, HELPED>) {
        if lock.kind == LockKind::Real {
            // SAFETY: the caller guarantees that this thread has entered the lock, and so holds the
            // raw one.
            unsafe { lock.raw.unlock() }
        } else {
            lock.bias.leave_as_helper();
        }
    }
}

impl<'a, T: ?Sized, L: Leave, const HELPED: bool> Inside<'a, T, L, HELPED> {
    /// # Safety
    /// This thread has entered the lock by the method that matches `L`, and nothing else will leave
    /// it.
    #[inline(always)]
    pub(super) unsafe fn new(lock: &'a Lock<T, HELPED>) -> Self {
        Inside {
            lock,
            _thread_bound: PhantomData,
        }
    }
}

impl<'a, T: ?Sized, const HELPED: bool> Guard<'a, T, HELPED> {
    /// The same right, released inline: for locks that are real more often than not.
    #[inline(always)]
    pub fn promptly(self) -> PromptGuard<'a, T, HELPED> {
        let lock = self.lock;
        std::mem::forget(self);
        // SAFETY: this thread has entered the lock, and the guard that would have left it is
        // forgotten.
        unsafe { PromptGuard::new(lock) }
    }
}

impl<T: ?Sized, L: Leave, const HELPED: bool> Deref for Inside<'_, T, L, HELPED> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: as long as the guard exists, this thread is the only one that has entered the
        // lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, L: Leave, const HELPED: bool> DerefMut for Inside<'_, T, L, HELPED> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as long as the guard exists, this thread is the only one that has entered the
        // lock, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized, L: Leave, const HELPED: bool> Drop for Inside<'_, T, L, HELPED> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: as long as the guard exists, this thread has entered the lock, and a guard is
        // dropped once.
        unsafe { L::leave(self.lock) }
    }
}
