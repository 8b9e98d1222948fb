//! What providers share for communication between two processes of one host: memory that both map
//! ([`segment`]), queues in it ([`channel`]), long payloads through it ([`parts`]), access to the
//! memory of the other process ([`process`], [`copies`], [`onesided`]), what both do with all of these
//! ([`link`]), and the order in which channels are polled ([`rota`]). [`switch_points`] says which of these a payload takes. How the two processes find and authenticate each other is up to
//! the provider.

#![deny(clippy::indexing_slicing)]
#[cfg(not(loom))]
pub mod barrier;
#[cfg(not(loom))]
pub mod channel;
#[cfg(not(loom))]
pub mod copies;
pub mod doorbell;
#[cfg(not(loom))]
pub mod link;
pub mod onesided;
pub mod parts;
#[cfg(not(loom))]
pub mod payload;
#[cfg(not(loom))]
pub mod process;
pub mod relocation;
pub mod ring;
#[cfg(not(loom))]
pub mod rota;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
mod supply;
#[cfg(not(loom))]
pub mod switch_points;
