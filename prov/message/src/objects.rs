//! Domains, endpoints and shared receive contexts of a software provider: what
//! of them is the same for all.

mod domain;
mod endpoint;
mod shared_receive;

pub use domain::{Domain, Provider};
pub use endpoint::{Enabling, SoftEndpoint};
pub use shared_receive::SoftSharedReceive;
