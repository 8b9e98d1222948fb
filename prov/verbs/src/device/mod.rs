//! A safe interface to the objects of libibverbs and librdmacm.
//!
//! Each value owns one object of the library and keeps the objects that it depends on. All unsafe
//! code of the provider is here and in [`crate::sys`]; it relies on what the libraries guarantee:
//! an object may be used by several threads until it is destroyed, which the last owner does.

mod address_handle;
mod asynchronous;
mod completion_queue;
mod connection;
mod context;
mod failure;
#[cfg(test)]
pub mod fake;
mod memory;
mod nic;
mod queue_pair;
mod shared_queue;
mod work;
mod xrc;

pub use address_handle::{AddressHandle, Destination};
pub use asynchronous::DeviceEvent;
pub use completion_queue::{CompletionQueue, WorkCompletion};
pub use connection::{
    Channel, ConnectionParam, Event, EventKind, Id, REJECTED_BY_IWARP_PEER, REJECTED_BY_PEER, Terms,
};
pub use context::{Context, Gid, Limits, Port, allow_unsafe_fork, contexts, status_text};
pub use failure::Rdma;
pub use memory::{MemoryRegion, ProtectionDomain, Scratch};
pub use queue_pair::{PairConfig, Pairing, QueuePair};
pub use shared_queue::SharedQueue;
pub use work::{Gather, PREFIX, ReceiveRequest, SendRequest, Verb};
pub use xrc::{XrcDomain, XrcTarget, is_number};

use prov_base::errno::{Errno, Result};

/// Converts the result of a function that returns an error number.
fn numbered(outcome: i32) -> Result {
    match outcome {
        0 => Ok(()),
        // Some functions return -1 with the number in errno.
        -1 => Err(Errno::last_os_error()),
        number => Err(Errno::new(number)),
    }
}
