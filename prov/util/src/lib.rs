//! The toolkit of providers: objects, object model and FFI boundary. ARCHITECTURE.md has the map.

#![deny(clippy::indexing_slicing)]
pub mod attr;
pub mod av;
pub mod below;
pub mod cntr;
pub mod collective;
pub mod connection;
pub mod cq;
pub mod desc;
pub mod drive;
pub mod eq;
pub mod ffi;
pub mod fid;
pub mod hmem;
pub mod marshal;
pub mod matching;
pub mod missing;
pub mod mr;
pub mod object;
pub mod peer_ends;
pub mod poll_set;
pub mod progress;
pub mod request;
pub mod transfers;
pub mod transmit_pool;
pub mod trigger;
pub mod wait;

pub use ffi::traits::{domain, endpoint, provider};
pub use wait::set as wait_set;

#[cfg(test)]
#[path = "../../base/src/services/stand_in.rs"]
mod framework;
