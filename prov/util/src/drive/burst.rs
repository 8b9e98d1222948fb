//! What the application tells the thread about bursts: plain stores.
//!
//! A burst is marked, and then the thread is told if it does not look at this
//! lane. A thread that stops looking says so and then reads the mark once more.
//! The barrier between the two is the thread's to pay.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use crate::sync::barrier;

/// The marks of one lane. Written by whoever has the lane's lock, so they have
/// a cache line of their own, and the one that is fetched with it.
#[repr(align(128))]
pub struct Burst {
    /// Odd while messages are held back; changes with every burst.
    mark: AtomicU64,
    /// Whether the thread looks at the mark, or was told to begin.
    is_watched: AtomicBool,
    /// Whether both sides execute a full barrier, since the system does not let
    /// the thread pay for both.
    is_shared: bool,
}

impl Burst {
    /// None, and nobody looks.
    pub fn new() -> Self {
        Self {
            mark: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            is_shared: !barrier::is_available(),
        }
    }

    /// Messages are held back from now on. Whether the thread looks; if not,
    /// the caller goes on with [`Burst::watch`].
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

    /// Nothing is held back any more.
    #[inline(always)]
    pub fn end(&self) {
        let mark = self.mark.load(Ordering::Relaxed);
        self.mark.store(mark + mark % 2, Ordering::Relaxed);
    }

    /// Whether the thread looks.
    #[inline(always)]
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Whether the caller is the one who has to tell the thread to look.
    pub fn watch(&self) -> bool {
        !self.is_watched.swap(true, Ordering::AcqRel)
    }

    /// Odd while messages are held back.
    pub fn mark(&self) -> u64 {
        self.mark.load(Ordering::Relaxed)
    }

    /// The thread will not look any more; whether that is so, since a burst may
    /// have begun. If one did, the thread goes on or was told.
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
        // Otherwise somebody has to look; if the application said so first, it
        // also tells the thread.
        may_rest || !self.watch()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn a_burst_that_begins_while_the_thread_goes_to_rest_is_looked_after_once() {
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
