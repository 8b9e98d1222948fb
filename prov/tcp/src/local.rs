//! Connections between two processes of one host: how the two make sure of one another
//! ([`neighbour`]), and how a connection leaves its socket for shared memory ([`path`]).
//! An [`outbox`] holds what is still to be sent along a path.

pub mod far_end;
pub mod host;
pub mod neighbour;
pub mod outbox;
pub mod path;
pub mod stream;
