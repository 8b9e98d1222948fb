//! The mutex of a lock. A model has loom's, in the same form.

#[cfg(not(loom))]
pub(super) use parking_lot::RawMutex;

/// Creates a free mutex.
#[cfg(not(loom))]
pub(super) fn free() -> RawMutex {
    use parking_lot::lock_api::RawMutex as _;
    RawMutex::INIT
}

#[cfg(loom)]
pub(super) use model::{RawMutex, free};

#[cfg(loom)]
mod model {
    use std::cell::UnsafeCell;

    use loom::sync::{Mutex, MutexGuard};

    pub struct RawMutex {
        /// Of `mutex`. Used by the thread that holds it.
        guard: UnsafeCell<Option<MutexGuard<'static, ()>>>,
        mutex: Box<Mutex<()>>,
    }

    pub fn free() -> RawMutex {
        RawMutex {
            guard: UnsafeCell::new(None),
            mutex: Box::new(Mutex::new(())),
        }
    }

    impl RawMutex {
        pub fn lock(&self) {
            if let Ok(guard) = self.mutex.lock() {
                self.keep(guard);
            }
        }

        pub fn try_lock(&self) -> bool {
            let guard = self.mutex.try_lock();
            guard.map(|guard| self.keep(guard)).is_ok()
        }

        fn keep(&self, guard: MutexGuard<'_, ()>) {
            // SAFETY: this thread holds the mutex, which stays at its address, and outlives the
            // guard: that is declared, and so dropped, first.
            unsafe {
                let guard =
                    std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(guard);
                *self.guard.get() = Some(guard);
            }
        }

        /// # Safety
        /// This thread holds the mutex.
        pub unsafe fn unlock(&self) {
            // SAFETY: the caller guarantees that this thread holds the mutex.
            let guard = unsafe { (*self.guard.get()).take() };
            drop(guard);
        }
    }
}
