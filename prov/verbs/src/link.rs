//! How far the connection of an endpoint has come, for those who post.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use slotmap::DefaultKey;

use crate::failure::Failure;
use crate::notes::Notes;

/// Names an end of a connection, or a listener, of a manager.
pub type EndKey = DefaultKey;

/// Connections of a manager that requests have failed of, and that it has not ended yet: the lane that hears of a
/// failure waits for no manager, whose next turn ends them.
pub type Lost = Notes<EndKey>;

/// Shared by the connection manager, which knows, and those who post and hear what
/// became of that.
#[derive(Default)]
pub struct Link {
    is_connected: AtomicBool,
    /// Where the manager is told that it is lost, and its name there.
    end: Mutex<Option<(Arc<Lost>, EndKey)>>,
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

    /// It is this end of a manager's.
    pub fn belong(&self, lost: &Arc<Lost>, key: EndKey) {
        *self.end.lock() = Some((lost.clone(), key));
    }

    /// A request has failed. The queue pair has ended with it: further requests
    /// are flushed, and the manager ends the connection.
    #[cold]
    pub fn failed(&self, failure: &Failure) {
        // What is flushed behind the end is no news. Where nothing has ended, somebody
        // else's request has failed, of who shares the queue pair (XRC), or the device
        // has ended it (iWARP).
        if failure.is_flush() && !self.is_connected() {
            return;
        }
        log::info!(
            target: crate::LOG.ep_data,
            "a connection is lost: {}",
            crate::failure::text(failure.status)
                .map_or_else(|| "?".into(), |text| text.to_string_lossy())
        );
        self.set_connected(false);
        if let Some((lost, key)) = &*self.end.lock() {
            lost.add(*key);
        }
    }
}
