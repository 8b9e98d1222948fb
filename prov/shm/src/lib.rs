//! The shm provider (fi_shm(7)): reliable datagrams between processes of one
//! host, through memory that they share.
//!
//! Two endpoints that talk have a [`channel`](prov_local::channel), and a socket
//! by which they have met. Large transfers are copied by who is to have them
//! from the memory of who has them, where the system permits that.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), forbid(unsafe_code))]

mod address;
mod domain;
mod engine;
mod params;
mod provider;
mod rendezvous;

pub use provider::{Shm, provider};

/// Where the provider logs.
const LOG: prov_base::logging::Targets = prov_base::log_targets!("shm");
