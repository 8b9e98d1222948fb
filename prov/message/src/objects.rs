//! Domains, endpoints, passive ones, shared receive contexts and connection
//! requests of a software provider: what of them is the same for all.

mod domain;
mod endpoint;
mod fabric;
mod passive;
mod requests;
mod shared_receive;

pub use domain::{Domain, Provider};
pub use endpoint::{Enabling, SoftEndpoint};
pub use fabric::SoftFabric;
pub use passive::{Door, Listening, SoftPassive};
pub use requests::{Claimed, Requests, Unanswered};
pub use shared_receive::SoftSharedReceive;
