//! The message that a connection is receiving.

use prov_message::{Course, Kept};

use crate::engine::link::messages::{Placing, Tcp};
use crate::wire::header::Header;

/// Where the rest of the current message goes.
#[derive(Default)]
pub enum Incoming {
    /// Nowhere: no message has begun.
    #[default]
    Nothing,
    /// To its place in memory, which may be too small.
    Place(Box<Placing>),
    /// Into the queue of unexpected messages.
    Keep(Kept),
    /// Into a buffer of ours, to be acted upon when complete.
    Collect(Collecting),
    /// Nobody wants it.
    Discard,
    /// Nowhere: it may not go where it should. The peer is told so behind its end.
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

/// A message that is acted upon.
pub struct Collecting {
    pub header: Header,
    pub bytes: Vec<u8>,
}
