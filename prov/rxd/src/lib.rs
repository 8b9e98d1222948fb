//! The rxd provider (fi_rxd(7)): reliable datagrams (RDM endpoints) over the datagrams (DGRAM
//! endpoints) of another provider, which it calls through the C interface like any application. It
//! therefore works over every provider of the library.
//!
//! [`protocol`] is the state machine of an endpoint and its peers, `engine` the provider around it.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), forbid(unsafe_code))]

mod address;
mod domain;
mod engine;
mod offer;
mod params;
pub mod protocol;
mod provider;

pub use provider::{Rxd, provider};

/// Version of the provider, which goes with that of the library: 2.7.0.
const VERSION: u32 = prov_util::attr::version(207, 0);

/// The provider's log targets.
const LOG: prov_base::logging::Targets = prov_base::log_targets!("ofi_rxd");

#[cfg(test)]
prov_base::stand_in!();
