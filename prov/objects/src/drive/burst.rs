//! The marks by which the application informs the progress thread of bursts: plain stores.
//!
//! The application marks a burst, and then informs the thread if it is not watching this lane. A
//! thread that stops watching clears its flag and then reads the mark again. The barrier between
//! store and load is executed by the thread for both sides.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use prov_base::sync::barrier;

/// The marks of one lane. They are written by the holder of the lane's lock, so they have their own
/// cache line, and the adjacent one that is prefetched with it.
#[repr(align(128))]
pub struct Burst {
    /// Odd while messages are held back for coalescing; changes with every burst.
    mark: AtomicU64,
    /// Whether the thread watches the mark, or was told to begin.
    is_watched: AtomicBool,
    /// Whether both sides execute a full barrier, because the system does not support one that the
    /// thread executes for both.
    is_shared: bool,
}

impl Burst {
    /// Creates the state without a burst and without a watching thread.
    pub fn new() -> Self {
        Self {
            mark: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            is_shared: !barrier::is_available(),
        }
    }

    /// Marks the beginning of a burst. Returns whether the thread is watching; if not, the caller
    /// continues with [`Burst::watch`].
    #[inline(always)]
    #[must_use]
    pub fn begin(&self) -> bool {
        let mark = self.mark.load(Ordering::Relaxed);
        self.mark.store(mark | 1, Ordering::Relaxed);
        if self.is_shared {
            fence(Ordering::SeqCst);
        } else {
            barrier::light();
        }
        self.is_watched()
    }

    /// Marks the end of a burst.
    #[inline(always)]
    pub fn end(&self) {
        let mark = self.mark.load(Ordering::Relaxed);
        self.mark.store(mark + mark % 2, Ordering::Relaxed);
    }

    /// Returns whether the thread is watching.
    #[inline(always)]
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Returns whether the caller has to tell the thread to watch.
    pub fn watch(&self) -> bool {
        !self.is_watched.swap(true, Ordering::AcqRel)
    }

    /// Returns the mark: odd while messages are held back.
    pub fn mark(&self) -> u64 {
        self.mark.load(Ordering::Relaxed)
    }

    /// Ends the thread's watch. Returns whether it could end, since a burst may have begun: in that
    /// case the thread continues to watch, or was told to.
    pub fn rest(&self) -> bool {
        self.is_watched.store(false, Ordering::Release);
        let barrier = match self.is_shared {
            true => {
                fence(Ordering::SeqCst);
                true
            }
            false => barrier::heavy(),
        };
        let may_rest = barrier && self.mark().is_multiple_of(2);
        // Otherwise one side has to continue; if the application was first, it also tells the
        // thread.
        may_rest || !self.watch()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn a_burst_that_begins_while_the_thread_stops_watching_is_handled_once() {
        loom::model(|| {
            let burst = Arc::new(Burst::new());
            assert!(burst.watch());
            let application = {
                let burst = burst.clone();
                loom::thread::spawn(move || !burst.begin() && burst.watch())
            };
            let rests = burst.rest();
            let told = application.join().unwrap();
            assert_eq!(rests, told, "either the thread goes on, or it was told");
        });
    }
}
