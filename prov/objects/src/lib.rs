//! The objects of the interface, without the interface: completion and event queues, counters,
//! address vectors, memory regions, posted receives, attributes. ARCHITECTURE.md has the map.

#![deny(clippy::indexing_slicing)]
pub mod attr;
pub mod av;
pub mod cntr;
pub mod cq;
pub mod desc;
pub mod drive;
pub mod eq;
pub mod fid;
pub mod hmem;
pub mod matching;
pub mod mr;
pub mod peer_ends;
pub mod poll_set;
pub mod progress;
pub mod request;
pub mod transmit_pool;
pub mod wait;

#[cfg(test)]
#[path = "../../base/src/services/stand_in.rs"]
mod framework;
