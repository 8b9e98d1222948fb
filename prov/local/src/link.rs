//! What two processes of a host do with each other, whoever has found the peer.

pub mod aside;
pub mod payload;
