//! The shm provider (fi_shm(7)): reliable datagrams between processes of one
//! host, through memory that they share.
//!
//! Two endpoints that talk have a [`channel`](prov_local::channel), and a socket
//! by which they have met. Large transfers are copied by who is to have them
//! from the memory of who has them, where the system permits that.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo,
        clippy::unimplemented
    )
)]
#![cfg_attr(not(test), forbid(unsafe_code))]

mod address;
mod domain;
mod engine;
mod params;
mod provider;

pub use provider::{Shm, provider};

/// Where the provider logs.
const LOG: prov_util::logging::Targets = prov_util::log_targets!("shm");
