//! Connections between two processes of one host: how the two prove their identity ([`neighbour`]),
//! and how a connection leaves its socket for shared memory ([`path`]). An [`outbox`] is the send
//! queue of a path.

pub mod far_end;
pub mod host;
pub mod neighbour;
pub mod outbox;
pub mod path;
pub mod stream;
