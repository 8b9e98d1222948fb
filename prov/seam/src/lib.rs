//! The seam (FFI boundary): the object model, the functions in the tables of the objects, and the
//! traits that a provider implements. ARCHITECTURE.md has the map.

#![deny(clippy::indexing_slicing)]
pub mod collective;
pub mod connection;
pub mod ffi;
pub mod object;
pub mod transfers;
pub mod trigger;

pub use ffi::traits::{domain, endpoint, provider};

#[cfg(test)]
#[path = "../../base/src/services/stand_in.rs"]
mod framework;
#[cfg(test)]
mod test_library;
