//! Operations that wait for answers of the peer.

use std::collections::{HashMap, VecDeque};

use prov_base::buffer::{AppIov, Iov};
use prov_message::Ticket;
use slotmap::SlotMap;

use crate::engine::link::keys::NameKey;
use crate::engine::link::messages::{Receipt, Rendezvous};
use crate::engine::link::narrow::Narrow;
use crate::local::outbox::Aside;

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

/// The bytes of a message that waits to be sent.
pub enum Payload {
    /// The application's.
    App(AppIov),
    /// A copy.
    Own(Vec<u8>),
    /// A copy for a peer that does not request it.
    Aside(Aside),
}

impl Payload {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Payload::App(memory) => memory.len(),
            Payload::Own(bytes) => bytes.len(),
            Payload::Aside(copy) => copy.len(),
        }
    }

    /// Returns the number of bytes that are set aside.
    pub fn aside(&self) -> u64 {
        match self {
            Payload::Aside(copy) => copy.len() as u64,
            Payload::App(_) | Payload::Own(_) => 0,
        }
    }

    /// Fills `to` with bytes from the offset `at` on. Returns `false` if there are fewer.
    #[must_use]
    pub fn copy_to(&self, at: u64, to: &Iov<'_>) -> bool {
        let end = at.checked_add(to.len() as u64);
        if end.is_none_or(|end| end > self.len() as u64) {
            return false;
        }
        let at = at as usize;
        let bytes = match self {
            Payload::App(memory) => {
                memory.slice(at, to.len()).copy_to(to);
                return true;
            }
            Payload::Own(bytes) => bytes,
            Payload::Aside(copy) => copy.bytes(),
        };
        bytes
            .get(at..at + to.len())
            .is_some_and(|bytes| to.write_at(0, bytes) == bytes.len())
    }
}

/// A receive that has requested its message.
pub struct Asked {
    pub memory: AppIov,
    pub receipt: Option<Receipt>,
    pub len: usize,
}
