//! What providers share whose data a device moves (`verbs`): the operations of the application become
//! work requests of queue pairs, and work completions become entries of its queues and counters.
//!
//! A provider implements [`Device`] for its device: queue pairs, completion queues, shared receive
//! queues. A [`Lane`] has everything that completes at one completion queue of the device.
//! [`mock`] is a device without hardware.

#![deny(clippy::indexing_slicing)]
#![forbid(unsafe_code)]

pub mod device;
mod failure;
pub mod lane;
pub mod link;
mod notes;

pub use device::{
    Completion, CompletionQueue, Device, Keys, QueuePair, ReceiveRequest, SendRequest, SharedQueue,
    Verb,
};
pub use failure::Failure;
pub use lane::{Ear, Lane};
pub use link::Link;
pub use notes::Notes;
