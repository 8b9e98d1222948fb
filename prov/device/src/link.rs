//! The state of an endpoint's connection, for threads that post.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use slotmap::DefaultKey;

use crate::device::Device;
use crate::failure::Failure;
use crate::notes::Notes;

/// Names an end of a connection, or a listener, of a manager.
pub type EndKey = DefaultKey;

/// Connections of a manager for which requests have failed, and that it has not ended yet: the lane
/// that notices a failure does not wait for the manager, whose next progress call ends them.
pub type Lost = Notes<EndKey>;

/// Shared by the connection manager, which sets the state, and the threads that post requests and
/// poll completions.
#[derive(Default)]
pub struct Link {
    is_connected: AtomicBool,
    /// Where the manager is informed of the loss, and the connection's name there.
    end: Mutex<Option<(Arc<Lost>, EndKey)>>,
}

impl Link {
    /// Whether messages may be sent.
    #[inline(always)]
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Sets whether the queue pair is ready.
    pub fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
    }

    /// Sets the manager's end to which it belongs.
    pub fn belong(&self, lost: &Arc<Lost>, key: EndKey) {
        *self.end.lock() = Some((lost.clone(), key));
    }

    /// Handles that a request has failed. The queue pair has failed with it: further requests are
    /// flushed, and the manager ends the connection.
    #[cold]
    pub fn failed<D: Device>(&self, failure: &Failure) {
        // Flushes after the end are expected. If the connection has not ended, a request of another
        // user of the queue pair has failed (XRC), or the device has ended it (iWARP).
        if failure.is_flush() && !self.is_connected() {
            return;
        }
        log::info!(
            target: D::LOG.ep_data,
            "a connection is lost: {}",
            D::error_text(failure.status)
                .map_or_else(|| "?".into(), |text| text.to_string_lossy())
        );
        self.set_connected(false);
        if let Some((lost, key)) = &*self.end.lock() {
            lost.add(*key);
        }
    }
}
