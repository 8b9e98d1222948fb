//! Operations that wait for answers of the peer.

use std::collections::{HashMap, VecDeque};

use prov_base::buffer::AppIov;
use prov_local::link::payload::Payload;
use prov_message::Ticket;
use slotmap::SlotMap;

use crate::engine::link::keys::NameKey;
use crate::engine::link::messages::{Receipt, Rendezvous};
use crate::engine::link::narrow::Narrow;

/// Operations and receives that wait for answers of the peer.
#[derive(Default)]
pub struct Outstanding {
    /// Reads whose data has not arrived, oldest first.
    pub reads: VecDeque<PendingRead>,
    /// Operations that wait for an acknowledgement, oldest first.
    pub acks: VecDeque<Unacknowledged>,
    /// Operations that wait for an answer that contains their name.
    pub named: SlotMap<NameKey, Named>,
    /// Messages announced in the C library's protocol; `None` if the peer does not support that, or
    /// supports this library's.
    pub narrow: Option<Narrow>,
    /// Receives whose messages were requested.
    pub asked: HashMap<Rendezvous, Asked>,
}

impl Outstanding {
    /// Whether anything that the peer answers comes on the connection.
    pub fn awaits_answers(&self) -> bool {
        !self.reads.is_empty()
            || !self.acks.is_empty()
            || !self.named.is_empty()
            || !self.asked.is_empty()
            || self.narrow.as_ref().is_some_and(Narrow::is_waiting)
    }
}

/// A read in progress.
pub struct PendingRead {
    pub ticket: Ticket,
    pub memory: AppIov,
}

/// An operation that completes when the peer acknowledges its message.
pub struct Unacknowledged {
    pub ticket: Ticket,
    /// Position in the stream after the message. Until the message has been sent, the operation's
    /// memory is in use, and an acknowledgement cannot be genuine.
    pub end: u64,
}

/// An operation that waits for an answer with its name.
pub enum Named {
    /// A message that is to be acknowledged.
    Ack(Unacknowledged),
    /// A message that the peer copies from this process's memory, and then acknowledges.
    Offered {
        /// `None` once the payload is set aside: the operation is complete.
        ticket: Option<Ticket>,
        payload: Payload,
        /// Whether the operation completes only when it has been acknowledged.
        ack: bool,
        /// Position in the stream after the offer.
        end: u64,
    },
    /// An atomic operation, with the memory for its old values.
    Atomic { ticket: Ticket, result: AppIov },
    /// An announced message, which is sent when it is requested.
    Announced {
        /// `None` once the payload is set aside: the operation is complete.
        ticket: Option<Ticket>,
        /// `None` after it was requested.
        payload: Option<Payload>,
        /// Whether the operation completes only when it has been acknowledged.
        ack: bool,
        /// Position in the stream after the announcement; after the message once it was requested.
        end: u64,
    },
}

/// A receive that has requested its message.
pub struct Asked {
    pub memory: AppIov,
    pub receipt: Option<Receipt>,
    pub len: usize,
}
