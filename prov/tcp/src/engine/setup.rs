//! Establishing connections.

pub mod connect;
pub mod handshake;
pub mod listening;
pub mod msg;
pub mod negotiated;
pub mod proving;
pub mod strangers;
pub mod subflows;
