//! What of a connection does not come through its socket: what is copied from
//! the memory of the peer's process.

use std::collections::VecDeque;

use prov_message::Ticket;
use prov_util::process_memory::OtherIov;

use crate::engine::link::messages::{Placing, Then};
use crate::wire::header::{self, Header};

/// What of a connection does not come through its socket.
#[derive(Default)]
pub struct Copies {
    /// Large writes since the peer's last one, if it has made one.
    one_way: Option<u32>,
    /// What is being copied from the peer's memory, in the order in which it
    /// came.
    pub transfers: VecDeque<Transfer>,
    /// Whether the oldest of them is with whoever copies, and not here.
    pub is_away: bool,
    /// The peer's writes among those.
    pub writes: usize,
    /// The header of a message that may not overtake those. Nothing behind it
    /// is read until then.
    pub waiting: Option<Header>,
}

/// Large writes without one by the peer after which they go through the socket
/// again: two processes with nothing else to do get them through it faster, as
/// they share the work.
const MUTUAL: u32 = 256;

/// A transfer on its way to its place.
pub struct Transfer {
    pub placing: Placing,
    /// Where it is in the peer's memory.
    pub from: OtherIov,
}

/// Transfers that may wait before nothing more is read.
const LIMIT: usize = 1024;

impl Copies {
    /// Whether something is being copied from the peer's memory.
    #[inline]
    pub fn is_copying(&self) -> bool {
        self.is_away || !self.transfers.is_empty()
    }

    /// Whether a message has to wait until what came before it is copied.
    pub fn must_wait(&self, header: &Header) -> bool {
        if !self.is_copying() {
            return false;
        }
        match header.op {
            // Reads are done in order.
            header::Op::ReadResponse => true,
            header::Op::DirectRead | header::Op::DirectWrite => self.transfers.len() >= LIMIT,
            header::Op::Msg if header.is_ack() => false,
            header::Op::Acquaint
            | header::Op::AtomicResponse
            | header::Op::Cts
            | header::Op::NamedAck
            | header::Op::Throttle
            | header::Op::WideCts => false,
            // Nothing that the peer does overtakes what it wrote before.
            header::Op::AtomicRequest
            | header::Op::Data
            | header::Op::Msg
            | header::Op::ReadRequest
            | header::Op::Tagged
            | header::Op::TaggedRts
            | header::Op::WideData
            | header::Op::WideRts
            | header::Op::Write => self.writes != 0,
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

    /// Operations that will not be done any more.
    pub fn abandon(&mut self) -> impl Iterator<Item = Ticket> {
        self.transfers
            .drain(..)
            .filter_map(|transfer| match transfer.placing.then {
                Then::Read(ticket) => Some(ticket),
                Then::Receive(_) | Then::RemoteWrite { .. } => None,
            })
    }
}

impl Transfer {
    /// Whether the peer writes.
    pub fn is_write(&self) -> bool {
        matches!(self.placing.then, Then::RemoteWrite { .. })
    }
}
