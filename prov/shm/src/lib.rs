//! The shm provider (fi_shm(7)): reliable datagrams between processes of one host, through shared
//! memory.
//!
//! Two endpoints that communicate have a [`channel`](prov_local::channel), and the socket by which
//! they have connected. The receiver of a large transfer copies it from the memory of the other
//! process, if the system permits that.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), forbid(unsafe_code))]

mod address;
mod domain;
mod engine;
mod listener;
mod params;
mod provider;
mod rehearsal;

pub use provider::{Shm, provider};

/// Where the provider logs.
const LOG: prov_base::logging::Targets = prov_base::log_targets!("shm");
