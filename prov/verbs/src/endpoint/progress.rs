//! What drives an endpoint.

use std::os::fd::RawFd;
use std::sync::Arc;

use prov_util::progress::{Progress, QueueName};

use crate::lane::Lane;
use crate::manager::Manager;

/// Drives the progress of an endpoint: for each of its queues the lane that reports there, for its
/// event queue the connection manager.
pub(super) struct EndpointProgress {
    /// Each with the name of its queue, if it has one.
    pub(super) send: Option<(Option<QueueName>, Arc<Lane>)>,
    pub(super) receive: Option<(Option<QueueName>, Arc<Lane>)>,
    pub(super) manager: Option<Arc<Manager>>,
}

impl EndpointProgress {
    fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        let [send, receive] =
            [&self.send, &self.receive].map(|side| side.as_ref().map(|(_, lane)| lane));
        let is_other = |lane: &&Arc<Lane>| send.is_none_or(|send| !Arc::ptr_eq(send, lane));
        send.into_iter().chain(receive.filter(is_other))
    }
}

impl Progress for EndpointProgress {
    fn progress(&self) {
        self.lanes().for_each(|lane| lane.progress());
    }

    fn for_events(&self) -> Option<Arc<dyn Progress>> {
        let manager = self.manager.clone()?;
        Some(manager)
    }

    fn for_completions(&self, name: QueueName) -> Option<Arc<dyn Progress>> {
        let mut sides = [&self.send, &self.receive].into_iter().flatten();
        let (_, lane) = sides.find(|(queue, _)| *queue == Some(name))?;
        Some(lane.clone())
    }

    /// Used only by counters, which count several kinds of operations.
    fn wait_fd(&self) -> Option<RawFd> {
        let mut lanes = self.lanes();
        match (lanes.next(), lanes.next()) {
            (Some(only), None) => only.wait_fd(),
            _ => None,
        }
    }

    fn prepare_wait(&self) -> bool {
        self.lanes().all(|lane| lane.prepare_wait())
    }
}
