//! Data that leaves on the peer's request, or when its channel has space.

use prov_base::buffer::AppIov;
use prov_local::channel::Head;
use prov_util::mr::Grants;
use prov_util::request::RemoteIov;

use crate::engine::keys::PendingKey;

/// Bytes that are sent on request.
pub enum Bytes {
    /// Memory of an operation in progress.
    App(AppIov),
    /// A copy.
    Own(Box<[u8]>),
    /// Registered memory that the peer reads.
    Registered(Grants),
}

impl Bytes {
    /// Returns their number.
    pub fn len(&self) -> usize {
        match self {
            Bytes::App(memory) => memory.len(),
            Bytes::Own(bytes) => bytes.len(),
            Bytes::Registered(grants) => grants.len(),
        }
    }
}

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
    pub bytes: Bytes,
    pub remote: RemoteIov,
    pub data: Option<u64>,
    pub done: usize,
    pub len: usize,
}
