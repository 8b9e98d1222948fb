//! The udp provider (fi_udp(7)): datagrams over IPv4 and IPv6.
//!
//! A message is the payload of one datagram of UDP, and nothing else, as the C library's
//! provider of this name sends it. [`engine`] moves them, what stands around it is what
//! libraries and applications see.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), forbid(unsafe_code))]

mod bases;
mod domain;
mod engine;
mod params;
mod provider;

pub use provider::{Udp, provider};

/// Where the provider logs.
const LOG: prov_base::logging::Targets = prov_base::log_targets!("udp");

#[cfg(test)]
prov_base::stand_in!();
