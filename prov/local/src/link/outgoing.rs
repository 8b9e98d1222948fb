//! Data that leaves on the peer's request, or when its channel has space.

use prov_util::request::RemoteIov;

use super::payload::Payload;
use super::pending::PendingKey;
use crate::channel::Head;

/// A reply with its bytes.
pub struct Answer {
    pub head: Head,
    pub bytes: Vec<u8>,
}

/// Data that a peer reads and that is sent in parts.
pub struct ReadReply {
    pub offer: PendingKey,
    /// The peer's name for the read.
    pub to: u64,
    pub done: usize,
    pub len: usize,
}

/// A write that is sent in parts.
pub struct Writing {
    pub name: PendingKey,
    pub payload: Payload,
    pub remote: RemoteIov,
    pub data: Option<u64>,
    pub done: usize,
    pub len: usize,
}
