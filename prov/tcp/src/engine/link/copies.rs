//! What of a connection does not come through its socket: what is copied from
//! the memory of the peer's process.

use std::collections::{HashMap, VecDeque};

use prov_message::{Course, Kept, Ticket};
use prov_util::buffer::AppIov;
use prov_util::process_memory::OtherIov;

use crate::engine::link::messages::{Placing, Receipt, Tcp, Then};
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
    /// The peer's writes and messages among those.
    pub writes: usize,
    /// The header of a message that may not overtake those. Nothing behind it
    /// is read until then.
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
    pub from: OtherIov,
    /// The peer's name for it, if it is acknowledged as soon as it is copied.
    pub ack: Option<u64>,
}

/// Large writes without one by the peer after which they go through the socket
/// again: two processes with nothing else to do get them through it faster, as
/// they share the work.
const MUTUAL: u32 = 256;

/// A transfer on its way.
pub struct Transfer {
    pub to: Goal,
    /// Where it is in the peer's memory.
    pub from: OtherIov,
    /// The peer's name for it, if it is acknowledged as soon as it is copied.
    pub ack: Option<u64>,
}

/// Where a transfer goes.
pub enum Goal {
    /// To its place in memory, which may be too small for a message.
    Place(Box<Placing>),
    /// Into the queue of unexpected messages, of which so many bytes are there;
    /// these follow.
    Keep {
        kept: Kept,
        done: usize,
        next: Vec<u8>,
    },
    /// Nobody wants it.
    Discard,
}

impl From<Course<Tcp>> for Goal {
    fn from(course: Course<Tcp>) -> Self {
        match course {
            Course::Place(placing) => Goal::Place(placing),
            Course::Keep(kept) => Goal::Keep {
                kept,
                done: 0,
                next: Vec::new(),
            },
            Course::Discard | Course::Done => Goal::Discard,
        }
    }
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
            | header::Op::DirectMsg
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

    /// Operations that will not be done any more, and receives.
    pub fn abandon(&mut self, receipts: &mut Vec<(Receipt, AppIov)>) -> Vec<Ticket> {
        let goals = self.transfers.drain(..).map(|transfer| transfer.to);
        let goals = goals.chain(self.course.take().map(Goal::from));
        goals.filter_map(|goal| goal.abandon(receipts)).collect()
    }
}

impl Goal {
    /// The operation that will not be done any more, or the receive.
    pub fn abandon(self, receipts: &mut Vec<(Receipt, AppIov)>) -> Option<Ticket> {
        let Goal::Place(placing) = self else {
            return None;
        };
        match placing.then {
            Then::Read(ticket) => return Some(ticket),
            Then::Receive(receipt) => receipts.push((receipt, placing.place.memory())),
            Then::RemoteWrite { .. } => {}
        }
        None
    }
}

impl Transfer {
    /// Whether nothing that the peer does later may overtake it.
    pub fn goes_first(&self) -> bool {
        match &self.to {
            Goal::Place(placing) => !matches!(placing.then, Then::Read(_)),
            Goal::Keep { .. } | Goal::Discard => true,
        }
    }

    /// The bytes that are copied.
    pub fn done(&self) -> u64 {
        match &self.to {
            Goal::Place(placing) => placing.done as u64,
            Goal::Keep { done, next, .. } => (done + next.len()) as u64,
            Goal::Discard => self.from.len(),
        }
    }
}
