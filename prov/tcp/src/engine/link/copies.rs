//! The data of a connection that does not go through its socket: messages that are fetched from
//! the memory of the peer's process.

use std::collections::HashMap;

use prov_base::process_memory::OtherIov;
use prov_local::copies::Transfers;
use prov_message::Course;

use crate::engine::link::messages::Tcp;
use crate::wire::header::{self, Header};

/// The data of a connection that does not go through its socket.
#[derive(Default)]
pub struct Copies {
    /// Messages that are being fetched.
    pub transfers: Transfers<Tcp>,
    /// The header of a message that waits for the end of copies, or to be reported. Nothing after it is
    /// read until then.
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
    /// The peer's name for it, if it delivers parts by that.
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

impl Copies {
    /// Whether a message has to wait until the payloads of earlier ones are fetched. Messages may
    /// pass them, except that a connection buffers one unexpected message at a time, and that of a
    /// connected endpoint completes them in order; operations that read or change memory may not.
    pub fn must_wait(&self, header: &Header) -> bool {
        if self.transfers.is_empty() {
            return false;
        }
        match header.op {
            header::Op::Msg if header.is_ack() => false,
            header::Op::Acquaint
            | header::Op::AtomicResponse
            | header::Op::Cts
            | header::Op::Multipath
            | header::Op::NamedAck
            | header::Op::ReadResponse
            | header::Op::Refusal
            | header::Op::Throttle
            | header::Op::WideCts => false,
            header::Op::DirectMsg
            | header::Op::Msg
            | header::Op::Tagged
            | header::Op::TaggedRts
            | header::Op::WideRts => self.transfers.go_first(),
            header::Op::Accessed
            | header::Op::AtomicRequest
            | header::Op::Data
            | header::Op::ReadRequest
            | header::Op::WideData
            | header::Op::Write => true,
        }
    }

    /// Whether there are copies or announced messages.
    pub fn are_any(&self) -> bool {
        !self.transfers.is_empty()
            || self.waiting.is_some()
            || self.held_back.is_some()
            || self.course.is_some()
            || !self.announced.is_empty()
    }
}
