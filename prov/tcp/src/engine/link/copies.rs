//! What of a connection does not come through its socket: what is copied from
//! the memory of the peer's process.

use std::collections::HashMap;

use prov_local::copies::{Goal, Transfers};
use prov_message::Course;
use prov_util::process_memory::OtherIov;

use crate::engine::link::messages::{Placing, Tcp};
use crate::wire::header::{self, Header};

/// What of a connection does not come through its socket.
#[derive(Default)]
pub struct Copies {
    /// Large writes since the peer's last one, if it has made one.
    one_way: Option<u32>,
    /// What is being copied from the peer's memory.
    pub transfers: Transfers<Tcp>,
    /// The header of a message that may not overtake what is being copied.
    /// Nothing behind it is read until then.
    pub waiting: Option<Header>,
    /// A message for which there is no room yet; it goes on with a course.
    pub held_back: Option<Held>,
    /// What became of the message that is kept while it was being copied.
    pub course: Option<Course<Tcp>>,
    /// Messages that were announced, and where they are.
    pub announced: HashMap<u64, Held>,
}

/// A message in the peer's memory.
pub struct Held {
    pub from: Box<OtherIov>,
    /// The peer's name for it, if it is acknowledged as soon as it is copied.
    pub ack: Option<u64>,
    /// The peer's name for it, if it can help to copy it.
    pub offer: Option<u64>,
}

impl Held {
    /// What the peer has no name for.
    pub fn unnamed(from: OtherIov) -> Held {
        Held {
            from: Box::new(from),
            ack: None,
            offer: None,
        }
    }
}

/// Large writes without one by the peer after which they go through the socket
/// again: two processes with nothing else to do get them through it faster, as
/// they share the work.
const MUTUAL: u32 = 256;

/// Transfers that may wait before nothing more is read.
const LIMIT: usize = 1024;

impl Copies {
    /// Whether a message has to wait until what came before it is copied.
    pub fn must_wait(&self, header: &Header) -> bool {
        if self.transfers.is_empty() {
            return false;
        }
        match header.op {
            // Reads are done in order.
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
            // Nothing that the peer does overtakes what it wrote before.
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

    /// Counts a large write by this process; whether the peer has large writes
    /// under way, too.
    pub fn is_mutual(&mut self) -> bool {
        let count = self.one_way.map(|count| count.saturating_add(1));
        self.one_way = count;
        count.is_some_and(|count| count <= MUTUAL)
    }

    /// Whether anything is copied, or was announced to be.
    pub fn are_any(&self) -> bool {
        !self.transfers.is_empty()
            || self.waiting.is_some()
            || self.held_back.is_some()
            || self.course.is_some()
            || !self.announced.is_empty()
    }

    /// What will not come to its place any more.
    pub fn abandon(&mut self) -> Vec<Placing> {
        let goals = self.transfers.drain().map(|transfer| transfer.to);
        let goals = goals.chain(self.course.take().map(Goal::from));
        goals.filter_map(Goal::abandon).collect()
    }
}
