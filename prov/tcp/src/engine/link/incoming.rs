//! The message that is being received on a connection.

use prov_message::{Course, UnexpectedHandle};

use crate::engine::link::messages::{Placing, Tcp};
use crate::wire::header::Header;

/// The destination of the rest of the current message.
#[derive(Default)]
pub enum Incoming {
    /// None: no message has begun.
    #[default]
    Nothing,
    /// Its destination in memory, which may be too small.
    Place(Box<Placing>),
    /// Into the queue of unexpected messages.
    Keep(UnexpectedHandle),
    /// A buffer of the library; the message is processed when it is complete.
    Collect(Collecting),
    /// None: the message is dropped.
    Discard,
    /// None: access to the destination is not permitted. The peer is informed after the end of the
    /// message.
    Refuse(Header),
}

impl From<Course<Tcp>> for Incoming {
    fn from(course: Course<Tcp>) -> Self {
        match course {
            Course::Place(placing) => Incoming::Place(placing),
            Course::Keep(kept) => Incoming::Keep(kept),
            Course::Discard => Incoming::Discard,
            Course::Done => Incoming::Nothing,
        }
    }
}

/// A message that is processed when it is complete.
pub struct Collecting {
    pub header: Header,
    pub bytes: Vec<u8>,
}
