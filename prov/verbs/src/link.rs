//! How far the connection of an endpoint has come, for those who post.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

/// Shared by the connection manager, which knows, and the endpoint's sender.
#[derive(Debug, Default)]
pub struct Link {
    is_connected: AtomicBool,
}

impl Link {
    /// Whether messages may be sent.
    #[inline(always)]
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// The queue pair is ready, or it is not any more.
    pub fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
    }

    /// A request has failed. The queue pair has ended with it: further requests
    /// are flushed.
    #[cold]
    pub fn failed(&self, failure: &Failure) {
        if !failure.is_flush() {
            log::info!(
                target: crate::LOG.ep_data,
                "a connection is lost: {}",
                crate::failure::text(failure.status)
                    .map_or_else(|| "?".into(), |text| text.to_string_lossy())
            );
        }
    }
}
