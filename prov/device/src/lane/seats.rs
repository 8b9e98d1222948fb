//! The lane members of a queue pair.

use std::sync::{Arc, Weak};

use super::{Lane, Name};
use crate::device::Device;

/// A member of a lane.
pub struct Seat<D: Device> {
    /// The lane.
    pub lane: Arc<Lane<D>>,
    /// Its name there.
    pub name: Name,
}

/// The members of a queue pair: a sender and a receiver.
pub struct Seats<D: Device> {
    /// The one that sends.
    pub send: Option<Seat<D>>,
    /// The one that receives.
    pub receive: Option<Seat<D>>,
}

impl<D: Device> Clone for Seat<D> {
    fn clone(&self) -> Self {
        Seat {
            lane: self.lane.clone(),
            name: self.name,
        }
    }
}

impl<D: Device> Clone for Seats<D> {
    fn clone(&self) -> Self {
        Seats {
            send: self.send.clone(),
            receive: self.receive.clone(),
        }
    }
}

impl<D: Device> Default for Seats<D> {
    fn default() -> Self {
        Seats {
            send: None,
            receive: None,
        }
    }
}

impl<D: Device> Seats<D> {
    /// Leaves the lanes. `destroy` drops the queue pair; its last completions arrive before that.
    pub fn leave(&self, destroy: impl FnOnce()) {
        let receive = self.receive.as_ref();
        let send = self.send.as_ref();
        let received = receive.and_then(|seat| seat.lane.remove_receiver(seat.name));
        let sent = send.and_then(|seat| seat.lane.remove_sender(seat.name));
        destroy();
        if let (Some(seat), Some(unsettled)) = (receive, received) {
            seat.lane.settle(unsettled);
        }
        if let (Some(seat), Some(unsettled)) = (send, sent) {
            seat.lane.settle(unsettled);
        }
    }

    /// The same, if requests go over an initiator that others may continue to use: they complete
    /// later, unless this was the last user.
    pub fn leave_initiator(&self, initiator: &Weak<D::Pair>, destroy: impl FnOnce()) {
        if let Some(seat) = &self.receive
            && let Some(unsettled) = seat.lane.remove_receiver(seat.name)
        {
            // The shared receives are not affected by one of their users leaving.
            seat.lane.settle(unsettled);
        }
        if let Some(seat) = &self.send {
            seat.lane.part_with_sender(seat.name, initiator);
        }
        destroy();
        if let Some(seat) = &self.send
            && initiator.strong_count() == 0
        {
            seat.lane.settle_departed();
        }
    }

    /// Has the outstanding requests reported as flushed, because the device is gone. Any thread may
    /// call this.
    pub fn abandon(&self) {
        if let Some(seat) = &self.receive {
            seat.lane.abandon_receiver(seat.name);
        }
        if let Some(seat) = &self.send {
            seat.lane.abandon_sender(seat.name);
        }
    }

    /// Has the receives reported as flushed that are shared with others, none of whom can get a
    /// message any longer. Any thread may call this.
    pub fn abandon_shared(&self) {
        if let Some(seat) = &self.receive {
            seat.lane.abandon_shared(seat.name);
        }
    }
}
