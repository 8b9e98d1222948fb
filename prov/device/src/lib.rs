//! What providers share whose data a device moves (`verbs`): the operations of the application become
//! work requests of queue pairs, and work completions become entries of its queues and counters.
//!
//! A provider implements [`Device`] for its device: queue pairs, completion queues, shared receive
//! queues. A [`Lane`] has everything that completes at one completion queue of the device, and
//! [`lanes`] the lanes of a domain. [`posting`] makes work requests of operations, and a
//! [`Registrar`] registers memory.

#![deny(clippy::indexing_slicing)]
#![forbid(unsafe_code)]

pub mod connected;
pub mod device;
pub mod domain;
mod failure;
pub mod lane;
pub mod lanes;
pub mod link;
mod local_key;
pub mod mock;
pub mod modes;
mod notes;
pub mod posting;
mod progress;
pub mod registrar;
mod shared_receive;

pub use connected::{Connected, Connections};
pub use device::{
    Completion, CompletionQueue, Device, Keys, Local, QueuePair, ReceiveRequest, Remote,
    RemoteKind, SendRequest, SharedQueue, Verb,
};
pub use domain::DomainParts;
pub use failure::Failure;
pub use lane::{Ear, Lane, Posted, Seat, Seats};
pub use lanes::{Lanes, Sides};
pub use link::Link;
pub use local_key::LocalKey;
pub use notes::Notes;
pub use posting::Sizes;
pub use progress::EndpointProgress;
pub use registrar::{Access, Registrar};
pub use shared_receive::SharedReceive;
