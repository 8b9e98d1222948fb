//! What drives an endpoint.

use std::os::fd::RawFd;
use std::sync::Arc;

use prov_util::cq::Cq;
use prov_util::endpoint::{Bindings, SharedReceive};
use prov_util::ffi::Use;
use prov_util::progress::{Progress, QueueName};

use crate::device::Device;
use crate::lane::{Lane, Seat, Seats};

/// Drives the progress of an endpoint: for each of its queues the lane that reports there, for its
/// event queue the connections.
pub struct EndpointProgress<D: Device> {
    /// Each with the name of its queue, if it has one.
    send: Option<(Option<QueueName>, Arc<Lane<D>>)>,
    receive: Option<(Option<QueueName>, Arc<Lane<D>>)>,
    events: Option<Arc<dyn Progress>>,
}

impl<D: Device> EndpointProgress<D> {
    /// Drives the members of an endpoint with these bindings, and `events`, which has the events of
    /// its connection.
    pub fn new<S: SharedReceive>(
        seats: &Seats<D>,
        bindings: &Bindings<S>,
        events: Option<Arc<dyn Progress>>,
    ) -> Self {
        let queue = |cq: &Option<Use<Cq>>| cq.as_ref().map(|cq| QueueName::of::<Cq>(cq));
        let of =
            |seat: &Option<Seat<D>>, queue| seat.as_ref().map(|seat| (queue, seat.lane.clone()));
        EndpointProgress {
            send: of(&seats.send, queue(&bindings.tx_cq)),
            receive: of(&seats.receive, queue(&bindings.rx_cq)),
            events,
        }
    }

    fn lanes(&self) -> impl Iterator<Item = &Arc<Lane<D>>> {
        let [send, receive] =
            [&self.send, &self.receive].map(|side| side.as_ref().map(|(_, lane)| lane));
        let is_other = |lane: &&Arc<Lane<D>>| send.is_none_or(|send| !Arc::ptr_eq(send, lane));
        send.into_iter().chain(receive.filter(is_other))
    }
}

impl<D: Device> Progress for EndpointProgress<D> {
    fn progress(&self) {
        self.lanes().for_each(|lane| lane.progress());
    }

    fn for_events(&self) -> Option<Arc<dyn Progress>> {
        self.events.clone()
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
