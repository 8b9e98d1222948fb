//! The verbs provider (fi_verbs(7)): endpoints on queue pairs of RDMA devices.

#![deny(clippy::indexing_slicing)]

mod address;
mod affinity;
mod bases;
mod device;
mod domain;
mod endpoint;
mod fabric;
mod getinfo;
mod lane;
mod manager;
mod mr;
mod name;
mod name_server;
mod params;
mod passive;
mod provider;
mod resources;
mod sys;

#[cfg(fuzzing)]
pub use manager::hello;
pub use provider::{Verbs, provider};

/// Version of the provider, which is that of the library: 2.7.0.
const VERSION: u32 = prov_util::attr::version(207, 0);

/// Where the provider logs.
const LOG: prov_base::logging::Targets = prov_base::log_targets!("verbs");

#[cfg(test)]
prov_base::stand_in!();
