//! Memory of a segment that is there only where it is used a lot: of some channels
//! of a process, since of all of them it would be much on a host with many
//! processes.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many channels of a process may have one.
pub const MOST: usize = 16;

/// How many have one.
#[derive(Default)]
pub struct Count(AtomicUsize);

impl Count {
    /// None.
    pub const fn new() -> Count {
        Count(AtomicUsize::new(0))
    }
}

/// One of [`MOST`], as long as it lives.
pub struct Extension(&'static Count);

impl Extension {
    /// One more, if there may be.
    pub fn new(extended: &'static Count) -> Option<Extension> {
        let one_more = |count: usize| (count < MOST).then_some(count + 1);
        let counted = extended
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.ok().map(|_| Extension(extended))
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
