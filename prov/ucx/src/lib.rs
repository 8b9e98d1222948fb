//! The ucx provider (fi_ucx(7)): endpoints on workers of UCP, the protocol layer of UCX.
//!
//! UCP matches tags, moves the data and chooses the transports. This crate converts the requests of
//! the toolkit to calls of libucp, which is loaded when the provider is first asked for something,
//! and its callbacks to completions. Only [`sys`] and [`ucp`] have unsafe code.

#![deny(clippy::indexing_slicing)]
#![deny(unsafe_code)]

mod domain;
mod endpoint;
mod fabric;
mod keys;
mod offer;
mod params;
mod provider;
mod resources;
mod status;
#[allow(unsafe_code)]
mod sys;
#[allow(unsafe_code)]
mod ucp;

pub use provider::{Ucx, provider};

/// Version of the provider, which is that of the library: 2.7.0.
const VERSION: u32 = prov_util::attr::version(207, 0);

/// Where the provider logs.
const LOG: prov_base::logging::Targets = prov_base::log_targets!("ucx");

#[cfg(test)]
prov_base::stand_in!();
