//! Two processes of one host: how they meet, memory that they share, queues in
//! it, proof of who the other is, and copies from each other's memory. No
//! provider by itself.
//!
//! [`rendezvous`] is for processes that know each other's names; those that have
//! a connection already show each other who they are ([`neighbour`]). A
//! [`channel`] is for two, whichever way they have met. A connection that may
//! leave its socket for shared memory is a [`path`], and an [`outbox`] has what
//! goes along it.

#![deny(clippy::indexing_slicing)]
#[cfg(not(loom))]
pub mod barrier;
#[cfg(not(loom))]
pub mod channel;
#[cfg(not(loom))]
pub mod copies;
#[cfg(not(loom))]
mod extension;
#[cfg(not(loom))]
pub mod far_end;
#[cfg(not(loom))]
pub mod host;
pub mod joint;
#[cfg(not(loom))]
pub mod neighbour;
pub mod onesided;
#[cfg(not(loom))]
pub mod outbox;
#[cfg(not(loom))]
pub mod path;
#[cfg(not(loom))]
pub mod process;
#[cfg(not(loom))]
pub mod rendezvous;
pub mod ring;
#[cfg(not(loom))]
pub mod rota;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod stream;
