//! The number of subflows in this process that peers have added: each takes a descriptor.

use std::sync::atomic::{AtomicUsize, Ordering};

use prov_message::strangers::limit;

static JOINED: AtomicUsize = AtomicUsize::new(0);

/// Counts a subflow that a peer has added, while it lives.
pub struct Joined(());

impl Joined {
    /// Returns `None` if they have a quarter of the descriptors that the process may open.
    pub fn new() -> Option<Self> {
        let before = JOINED.fetch_add(1, Ordering::Relaxed);
        // It is counted no longer when it is dropped, also if it is one too many.
        let joined = Joined(());
        (before < limit(0)).then_some(joined)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        JOINED.fetch_sub(1, Ordering::Relaxed);
    }
}
