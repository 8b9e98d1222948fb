//! Where the requests of a queue pair are.

use std::sync::{Arc, Weak};

use super::{Lane, Name};
use crate::device::QueuePair;

/// A member of a lane.
#[derive(Clone)]
pub struct Seat {
    /// The lane.
    pub lane: Arc<Lane>,
    /// Which of its members.
    pub name: Name,
}

/// The members that a queue pair has: one that sends, one that receives.
#[derive(Clone, Default)]
pub struct Seats {
    /// The one that sends.
    pub send: Option<Seat>,
    /// The one that receives.
    pub receive: Option<Seat>,
}

impl Seats {
    /// Leaves the lanes. `destroy` lets go of the queue pair, whose last
    /// completions come before that.
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

    /// The same, where requests go over an initiator that others may use on: they
    /// complete later, unless it was the last one.
    pub fn leave_initiator(&self, initiator: &Weak<QueuePair>, destroy: impl FnOnce()) {
        if let Some(seat) = &self.receive
            && let Some(unsettled) = seat.lane.remove_receiver(seat.name)
        {
            // What is shared is not settled by any of those who share it.
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

    /// Has what is under way reported as flushed, in place of a device that is gone.
    /// Any thread may ask for that.
    pub fn abandon(&self) {
        if let Some(seat) = &self.receive {
            seat.lane.abandon_receiver(seat.name);
        }
        if let Some(seat) = &self.send {
            seat.lane.abandon_sender(seat.name);
        }
    }

    /// Has the receives reported as flushed that are shared with others, of whom nobody
    /// is to get a message any more. Any thread may ask for that.
    pub fn abandon_shared(&self) {
        if let Some(seat) = &self.receive {
            seat.lane.abandon_shared(seat.name);
        }
    }
}
