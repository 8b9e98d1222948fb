//! The tcp provider (fi_tcp(7)), which is also offered as `sockets` (fi_sockets(7)).

#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(any(test, fuzzing)), forbid(unsafe_code))]

// Tests share code with the fuzz targets, which refer to this crate by name.
#[cfg(test)]
extern crate self as prov_tcp;

mod bases;
mod domain;
#[cfg(not(fuzzing))]
mod engine;
#[cfg(fuzzing)]
pub mod engine;
mod fabric;
#[cfg(not(fuzzing))]
mod local;
#[cfg(fuzzing)]
pub mod local;
pub mod mrail;
#[cfg(not(fuzzing))]
mod multipath;
#[cfg(fuzzing)]
pub mod multipath;
#[cfg(not(fuzzing))]
mod params;
#[cfg(fuzzing)]
pub mod params;
mod passive;
mod provider;
pub mod sockets;
pub mod wire;

pub use provider::{Tcp, provider};

/// Version of the provider, which is that of the library: 2.7.0.
const VERSION: u32 = prov_util::attr::version(207, 0);

/// The provider's log targets.
const LOG: prov_base::logging::Targets = prov_base::log_targets!("tcp");

#[cfg(any(test, fuzzing))]
prov_base::stand_in!();
