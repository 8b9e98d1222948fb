//! A value that is read far more often than it is replaced, without a lock (read-copy-update).
//!
//! A reader is counted ([`Presence`]) before it loads the pointer. A writer first replaces the
//! pointer and then reads the count: readers that it does not see will load the new value. The old
//! value is dropped when no reader is left, by the thread that notices this.

#[cfg(loom)]
use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicPtr, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicPtr, Ordering},
};

use std::sync::PoisonError;

use prov_base::sync::{Entrant, LockKind, Presence};

/// See the module.
pub struct Snapshot<T> {
    /// From `Box::into_raw`; owned by the snapshot.
    current: AtomicPtr<T>,
    /// The threads in `read`.
    readers: Presence,
    /// Whether `retired` is nonempty.
    has_retired: AtomicBool,
    /// Old values that readers may still use.
    retired: Mutex<Vec<Retired<T>>>,
}

/// An old value, which readers may still refer to: no `Box` before the last of them has left, since
/// nothing else may refer to the content of one.
struct Retired<T>(*mut T);

// SAFETY: it owns the value, as a `Box` does.
unsafe impl<T: Send> Send for Retired<T> {}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer is from `Box::into_raw`, and owned by this value alone, which
        // `take_unused` gives away when no reader is left, or the snapshot drops, which nobody reads
        // any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<T: Send + Sync> Snapshot<T> {
    /// Creates a snapshot. `kind` tells whether threads usually read it concurrently. A reader may
    /// replace the value that it reads.
    pub fn new(kind: LockKind, value: T) -> Self {
        Self {
            current: AtomicPtr::new(Box::into_raw(Box::new(value))),
            readers: Presence::new(kind),
            has_retired: AtomicBool::new(false),
            retired: Mutex::new(Vec::new()),
        }
    }

    /// Passes the value to `reader`, which may replace it.
    #[inline(always)]
    pub fn read<R>(&self, reader: impl FnOnce(&T) -> R) -> R {
        // Two branches, so that none has to remember which it is.
        match self.readers.enter() {
            Entrant::Owner => self.read_as(Entrant::Owner, reader),
            Entrant::Other => self.read_as(Entrant::Other, reader),
        }
    }

    /// [`Snapshot::read`], for a thread that has entered `readers`.
    #[inline(always)]
    fn read_as<R>(&self, entrant: Entrant, reader: impl FnOnce(&T) -> R) -> R {
        let _leaves = Leaves(self, entrant);
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: `current` is a value of this snapshot, which is dropped only after it was replaced
        // and `readers` was then seen to be empty. This reader was counted before it loaded the
        // pointer: either it is seen, or it has loaded the new pointer.
        reader(unsafe { &*current })
    }

    /// Replaces the value by the result of `make`. Calls are serialised.
    pub fn replace(&self, make: impl FnOnce(&T) -> T) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.current.load(Ordering::Acquire);
        // SAFETY: only this method replaces and retires the value, and it holds its mutex.
        let new = Box::into_raw(Box::new(make(unsafe { &*old })));
        self.current.store(new, Ordering::Release);
        retired.push(Retired(old));
        self.has_retired.store(true, Ordering::Relaxed);
        let unused = self.take_unused(&mut retired);
        drop(retired);
        drop(unused);
    }

    #[cold]
    fn reclaim(&self) {
        // A thread that holds the mutex checks the count after this reader has left, or leaves the
        // work to the next one.
        if let Ok(mut retired) = self.retired.try_lock() {
            let unused = self.take_unused(&mut retired);
            drop(retired);
            drop(unused);
        }
    }

    /// Returns the old values, if there are no readers. They have to be dropped without the mutex,
    /// since a destructor may use the snapshot.
    fn take_unused(&self, retired: &mut Vec<Retired<T>>) -> Vec<Retired<T>> {
        if self.readers.is_empty() {
            self.has_retired.store(false, Ordering::Relaxed);
            return std::mem::take(retired);
        }
        Vec::new()
    }
}

/// Counts a reader until it is dropped.
struct Leaves<'a, T: Send + Sync>(&'a Snapshot<T>, Entrant);

impl<T: Send + Sync> Drop for Leaves<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        let Leaves(snapshot, entrant) = *self;
        if snapshot.readers.leave(entrant) && snapshot.has_retired.load(Ordering::Relaxed) {
            snapshot.reclaim();
        }
    }
}

impl<T> Drop for Snapshot<T> {
    fn drop(&mut self) {
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: the pointer is from `Box::into_raw`, and there are no readers, since the snapshot
        // is being dropped.
        drop(unsafe { Box::from_raw(current) });
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_reader_may_replace_what_it_reads() {
        for kind in [LockKind::Real, LockKind::Elided] {
            let snapshot = Snapshot::new(kind, vec![1]);
            snapshot.read(|value| {
                snapshot.replace(|old| [&old[..], &[2]].concat());
                assert_eq!(*value, [1]);
                snapshot.read(|value| assert_eq!(*value, [1, 2]));
            });
            assert!(snapshot.retired.lock().unwrap().is_empty());
        }
    }

    #[test]
    fn readers_of_other_threads_see_whole_values() {
        for kind in [LockKind::Real, LockKind::Elided] {
            let snapshot = Arc::new(Snapshot::new(kind, vec![0u64; 4]));
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let snapshot = snapshot.clone();
                    std::thread::spawn(move || {
                        for _ in 0..if cfg!(miri) { 500 } else { 2000 } {
                            snapshot.read(|value| assert!(value.iter().all(|&x| x == value[0])));
                        }
                    })
                })
                .collect();
            for number in 1..if cfg!(miri) { 150 } else { 500 } {
                snapshot.replace(|_| vec![number; 4]);
            }
            for reader in readers {
                reader.join().unwrap();
            }
            snapshot.read(|_| ());
            assert!(snapshot.retired.lock().unwrap().is_empty());
        }
    }

    /// Says so when it is dropped.
    struct Guarded(Arc<AtomicBool>);

    impl Drop for Guarded {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_one_thread_reads_is_not_dropped_when_another_replaces_it() {
        let snapshot = Snapshot::new(LockKind::Elided, Guarded(Arc::default()));
        // The thread that reads all the time is counted without locked instructions.
        for _ in 0..100 {
            snapshot.read(|_| ());
        }
        let replace = || {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    snapshot.read(|_| snapshot.replace(|_| Guarded(Arc::default())));
                });
                other.join().unwrap();
            });
        };
        let dropped = snapshot.read(|value| {
            replace();
            assert!(!value.0.load(Ordering::SeqCst), "dropped too early");
            value.0.clone()
        });
        assert!(dropped.load(Ordering::SeqCst), "kept too long");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Records when it is dropped, so that a later read is detected.
    struct Guarded {
        number: usize,
        dropped: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    }

    impl Drop for Guarded {
        fn drop(&mut self) {
            let bit = 1 << self.number;
            self.dropped
                .fetch_or(bit, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn a_value_is_not_dropped_while_it_is_read() {
        loom::model(|| {
            let dropped = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let make = |number| Guarded {
                number,
                dropped: dropped.clone(),
            };
            let snapshot = Arc::new(Snapshot::new(LockKind::Real, make(0)));
            let reader = {
                let snapshot = snapshot.clone();
                loom::thread::spawn(move || {
                    snapshot.read(|value| {
                        loom::thread::yield_now();
                        let dropped = value.dropped.load(std::sync::atomic::Ordering::Relaxed);
                        assert_eq!(dropped & (1 << value.number), 0);
                    });
                })
            };
            snapshot.replace(|_| make(1));
            reader.join().unwrap();
            snapshot.replace(|_| make(2));
            let dropped = dropped.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(dropped, 0b011, "nothing is kept longer than needed");
        });
    }
}
