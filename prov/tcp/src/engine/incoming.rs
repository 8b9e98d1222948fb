//! The message that a connection is receiving.

use prov_util::matching::{MessageId, MultiId};

use super::keys::{ConnKey, EpKey, ReceiverKey};
use super::op::{Context, Op};
use super::place::Place;
use crate::wire::header::{Header, RmaList};

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
    Collect(Box<Collecting>),
    /// Nobody wants it.
    Discard,
}

/// A message on its way to its place.
pub struct Placing {
    /// The place.
    pub place: Place,
    /// Bytes of the message that came, whether or not they had room.
    pub done: usize,
    /// What then.
    pub then: Then,
}

/// A message that found no receive; its bytes are in the queue of the receiver.
#[derive(Clone, Copy)]
pub struct Kept {
    pub receiver: ReceiverKey,
    pub tagged: bool,
    pub id: MessageId,
}

/// A message that is acted upon.
pub struct Collecting {
    pub header: Header,
    pub rma: RmaList,
    pub bytes: Vec<u8>,
}

/// What happens when a message has reached its place.
pub enum Then {
    /// A receive completes.
    Receive(Receipt),
    /// A read completes.
    Read(Op),
    /// A peer has written to our memory.
    RemoteWrite {
        data: Option<u64>,
        len: usize,
        ack: Ack,
    },
}

/// What a sender wants to hear about its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ack {
    /// Nothing.
    None,
    /// That the oldest message which asked has come.
    Next,
    /// That the message of this name has come.
    Named(u64),
}

/// A receive that has its message.
#[derive(Clone, Copy, Debug)]
pub struct Receipt {
    /// Where it was posted.
    pub receiver: ReceiverKey,
    pub tagged: bool,
    pub context: Context,
    /// Operation flags of the receive.
    pub flags: u64,
    pub multi: Option<MultiId>,
    pub src: u64,
    pub tag: u64,
    /// Immediate data.
    pub data: Option<u64>,
    /// Bytes in the message.
    pub len: usize,
    pub ack: Ack,
}

/// What stands in the queue of unexpected messages.
pub struct Unexpected {
    /// The connection that it came on.
    pub conn: ConnKey,
    /// The endpoint that it came to.
    pub ep: EpKey,
    pub ack: Ack,
    pub body: Body,
}

/// Where the bytes of an unexpected message are.
pub enum Body {
    /// Here.
    Complete(Vec<u8>),
    /// Here as far as they have come; the connection goes on adding.
    Arriving(Vec<u8>),
    /// Still in the socket: the connection is held back until a receive takes
    /// the message.
    HeldBack,
    /// With the sender, until it is asked for them.
    Announced(Rendezvous),
}

/// The sender's name for a message that it announced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rendezvous {
    /// In the C library's protocol.
    Narrow(u8),
    /// Between two of this library.
    Wide(u64),
}
