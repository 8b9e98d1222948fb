//! The right to use the value of a [`Lock`]. Guards differ in how they leave it.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

#[cfg(not(loom))]
use parking_lot::lock_api::RawMutex as _;

use super::Lock;

/// The right to use the value of a [`Lock`]; ends when dropped.
pub type Guard<'a, T> = Inside<'a, T, Usual>;
/// The same right; a lock without an owner is released inline, without a function call.
pub type PromptGuard<'a, T> = Inside<'a, T, Promptly>;
/// The same right to a lock without an owner.
pub type RealGuard<'a, T> = Inside<'a, T, Real>;
/// The same right, of the owner.
pub type LoneGuard<'a, T> = Inside<'a, T, Lone>;
/// The same right, held by a thread of the library.
pub type HelperGuard<'a, T> = Inside<'a, T, Helper>;

/// A thread's right to be inside a lock, which it leaves by `L`.
pub struct Inside<'a, T: ?Sized, L: Leave> {
    lock: &'a Lock<T>,
    /// Binds the guard to its thread: it is neither `Send` nor `Sync`, like a raw pointer.
    _thread_bound: PhantomData<(*mut T, L)>,
}

/// How a lock is left.
pub trait Leave {
    /// Leaves it.
    ///
    /// # Safety
    /// The caller has entered by the matching method, and gives up its right to the value.
    unsafe fn leave<T: ?Sized>(lock: &Lock<T>);
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
    unsafe fn leave<T: ?Sized>(lock: &Lock<T>) {
        // SAFETY: the caller guarantees that this thread has entered the lock.
        if unsafe { lock.is_entered_by_owner() } {
            lock.bias.leave();
        } else {
            // SAFETY: the caller guarantees that this thread has entered the lock.
            unsafe { leave_out_of_the_way(lock) }
        }
    }
}

/// Leaves a lock without an owner, in a function of its own, off the path of the others.
///
/// # Safety
/// As for [`Leave::leave`].
#[cold]
#[inline(never)]
unsafe fn leave_out_of_the_way<T: ?Sized>(lock: &Lock<T>) {
    // SAFETY: the caller guarantees that this thread has entered the lock, and so holds the raw
    // one.
    unsafe { lock.raw.unlock() }
}

impl Leave for Promptly {
    #[inline(always)]
    unsafe fn leave<T: ?Sized>(lock: &Lock<T>) {
        // SAFETY: the caller guarantees that this thread has entered the lock.
        if unsafe { lock.is_entered_by_owner() } {
            lock.bias.leave();
        } else {
            // SAFETY: the caller guarantees that this thread has entered the lock, and so holds the
            // raw one.
            unsafe { lock.raw.unlock() }
        }
    }
}

impl Leave for Real {
    #[inline(always)]
    unsafe fn leave<T: ?Sized>(lock: &Lock<T>) {
        // SAFETY: the caller guarantees that this thread has entered the lock, which is a real one,
        // and so holds the raw one.
        unsafe { lock.raw.unlock() }
    }
}

impl Leave for Lone {
    #[inline(always)]
    unsafe fn leave<T: ?Sized>(lock: &Lock<T>) {
        lock.bias.leave();
    }
}

impl Leave for Helper {
    unsafe fn leave<T: ?Sized>(lock: &Lock<T>) {
        if lock.is_owned() {
            lock.bias.leave_as_helper();
        } else {
            // SAFETY: the caller guarantees that this thread has entered the lock, and so holds the
            // raw one.
            unsafe { lock.raw.unlock() }
        }
    }
}

impl<'a, T: ?Sized, L: Leave> Inside<'a, T, L> {
    /// # Safety
    /// This thread has entered the lock by the method that matches `L`, and nothing else will leave
    /// it.
    #[inline(always)]
    pub(super) unsafe fn new(lock: &'a Lock<T>) -> Self {
        Inside {
            lock,
            _thread_bound: PhantomData,
        }
    }
}

impl<'a, T: ?Sized> Guard<'a, T> {
    /// The same right, released inline: for locks that are real more often than not.
    #[inline(always)]
    pub fn promptly(self) -> PromptGuard<'a, T> {
        let lock = self.lock;
        std::mem::forget(self);
        // SAFETY: this thread has entered the lock, and the guard that would have left it is
        // forgotten.
        unsafe { PromptGuard::new(lock) }
    }
}

impl<T: ?Sized, L: Leave> Deref for Inside<'_, T, L> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: as long as the guard exists, this thread is the only one that has entered the
        // lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, L: Leave> DerefMut for Inside<'_, T, L> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as long as the guard exists, this thread is the only one that has entered the
        // lock, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized, L: Leave> Drop for Inside<'_, T, L> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: as long as the guard exists, this thread has entered the lock, and a guard is
        // dropped once.
        unsafe { L::leave(self.lock) }
    }
}
