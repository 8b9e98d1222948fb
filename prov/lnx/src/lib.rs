//! The lnx provider (fi_lnx(7)): several providers linked into one. An endpoint has an endpoint of
//! each linked domain; peers of the same host are reached through shm, all others through the
//! networks.
//!
//! The linked providers are called through the C interface, and share this side's receives and
//! completions (fi_peer(3)), so that any provider with `FI_PEER` can be linked.

#![deny(clippy::indexing_slicing)]
#![forbid(unsafe_code)]

mod address;
mod domain;
mod endpoint;
mod fabric;
mod links;
mod memory;
mod offer;
mod params;
mod provider;
mod resources;
mod settings;
mod watched;

pub use address::{Composite, FORMAT, extent};
pub use links::parse;
pub use provider::{Lnx, provider};

/// Version of the provider, which goes with that of the library: 2.7.0.
const VERSION: u32 = prov_util::attr::version(207, 0);

/// The provider's log targets.
const LOG: prov_base::logging::Targets = prov_base::log_targets!("lnx");
