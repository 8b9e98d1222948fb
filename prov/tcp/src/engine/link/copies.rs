//! The data of a connection that does not go through its socket: copies from the memory of the
//! peer's process.

use std::collections::HashMap;

use prov_base::process_memory::OtherIov;
use prov_local::copies::{Goal, Transfers};
use prov_message::Course;

use crate::engine::link::messages::{Placing, Tcp};
use crate::wire::header::{self, Header};

/// The data of a connection that does not go through its socket.
#[derive(Default)]
pub struct Copies {
    /// Number of large writes since the peer's last one, if it has made one.
    one_way: Option<u32>,
    /// The copies in progress.
    pub transfers: Transfers<Tcp>,
    /// The header of a message that must not overtake the copies. Nothing after it is read until
    /// then.
    pub waiting: Option<Header>,
    /// A message that there is no space for; it continues with an action.
    pub held_back: Option<Held>,
    /// The outcome for a buffered message, if it was decided during the copy.
    pub course: Option<Course<Tcp>>,
    /// Announced messages, with their memory.
    pub announced: HashMap<u64, Held>,
}

/// A message in the peer's memory.
pub struct Held {
    pub from: Box<OtherIov>,
    /// The peer's name for it, if it is to be acknowledged when it is copied.
    pub ack: Option<u64>,
    /// The peer's name for it, if it can help to copy it.
    pub offer: Option<u64>,
}

impl Held {
    /// A message that the peer has not named.
    pub fn unnamed(from: OtherIov) -> Held {
        Held {
            from: Box::new(from),
            ack: None,
            offer: None,
        }
    }
}

/// Number of large writes without one by the peer after which they go through the socket again: two
/// processes without other work transfer them faster through the socket, since both of them copy.
const MUTUAL: u32 = 256;

/// Largest number of waiting transfers; beyond it nothing more is read.
const LIMIT: usize = 1024;

impl Copies {
    /// Returns whether a message has to wait until earlier data is copied.
    pub fn must_wait(&self, header: &Header) -> bool {
        if self.transfers.is_empty() {
            return false;
        }
        match header.op {
            // Reads are answered in order.
            header::Op::ReadResponse => true,
            header::Op::Refusal => header::refusal::is_of_read(header),
            header::Op::DirectRead | header::Op::DirectWrite => self.transfers.len() >= LIMIT,
            header::Op::Msg if header.is_ack() => false,
            header::Op::Acquaint
            | header::Op::AtomicResponse
            | header::Op::Cts
            | header::Op::NamedAck
            | header::Op::Throttle
            | header::Op::WideCts => false,
            // Nothing may overtake what the peer wrote before.
            header::Op::Accessed
            | header::Op::AtomicRequest
            | header::Op::Data
            | header::Op::DirectMsg
            | header::Op::Msg
            | header::Op::ReadRequest
            | header::Op::Tagged
            | header::Op::TaggedRts
            | header::Op::WideData
            | header::Op::WideRts
            | header::Op::Write => self.transfers.go_first(),
        }
    }

    /// Counts a large write by the peer.
    pub fn written(&mut self) {
        self.one_way = Some(0);
    }

    /// Counts a large write by this process; returns whether the peer has large writes in progress,
    /// too.
    pub fn is_mutual(&mut self) -> bool {
        let count = self.one_way.map(|count| count.saturating_add(1));
        self.one_way = count;
        count.is_some_and(|count| count <= MUTUAL)
    }

    /// Whether there are copies or announced messages.
    pub fn are_any(&self) -> bool {
        !self.transfers.is_empty()
            || self.waiting.is_some()
            || self.held_back.is_some()
            || self.course.is_some()
            || !self.announced.is_empty()
    }

    /// Removes and returns the transfers that will not complete.
    pub fn abandon(&mut self) -> Vec<Placing> {
        let goals = self.transfers.drain().map(|transfer| transfer.to);
        let goals = goals.chain(self.course.take().map(Goal::from));
        goals.filter_map(Goal::abandon).collect()
    }
}
