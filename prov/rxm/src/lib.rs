//! The rxm provider (fi_rxm(7)): reliable datagrams over the connected endpoints of another
//! provider, which it calls through the C interface like any application. It therefore works over
//! every provider of the library.
//!
//! Each endpoint has a completion queue below for each direction, and a connected endpoint below
//! for each peer. [`wire`] contains the protocol.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), forbid(unsafe_code))]

#[cfg(test)]
extern crate self as prov_rxm;

mod address;
mod domain;
mod engine;
mod listening;
mod memory;
mod offer;
mod params;
mod provider;
pub mod wire;

pub use provider::{Rxm, provider};

/// Version of the provider, which goes with that of the library: 2.7.0.
const VERSION: u32 = prov_util::attr::version(207, 0);

/// The provider's log targets.
const LOG: prov_base::logging::Targets = prov_base::log_targets!("ofi_rxm");
