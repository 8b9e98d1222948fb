//! The objects of a software provider: domains, endpoints, passive endpoints, shared receive
//! contexts and connection requests, as far as they are the same for all providers.

mod cross_lane_srx;
mod domain;
mod endpoint;
mod fabric;
mod layered;
mod passive;
mod requests;
mod shared_receive;

pub use domain::{Domain, Provider};
pub use endpoint::{Enabling, Seat, SoftEndpoint};
pub use fabric::SoftFabric;
pub use layered::{BelowFabric, Layered, LayeredFabric};
pub use passive::{Listening, RequestReporter, SoftPassive};
pub use requests::{Claimed, Requests, Unanswered};
pub use shared_receive::SoftSharedReceive;
