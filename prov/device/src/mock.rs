//! A device without hardware, for tests and for the example of a provider: its queue pairs are those
//! of one process.
//!
//! It has what a lane relies on: queues that are full, requests that complete in order and without a
//! completion of their own, memory that must be registered unless it is sent inline, receives that
//! several queue pairs share, failures that end a connection and flush its requests, peers that are
//! gone, and a device that is removed. A test can stop it ([`Adapter::hold`]) and have requests fail
//! ([`Pair::fail_next`]).

mod adapter;
mod completions;
mod connector;
mod engine;
mod memory;
mod pair;
#[cfg(test)]
mod tests;

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::logging::Targets;
use rustix::event::{EventfdFlags, eventfd};

use crate::device::{Completion, Device};
use crate::failure::Failure;
use crate::lane::Ear;

pub use adapter::Adapter;
pub use completions::Queue;
pub use connector::{Bound, Connector, Incomer, Listener};
pub use memory::{Lent, RegisteredRegion, Registering};
pub use pair::{Pair, PairConfig, SharedReceives};

/// The kind of device.
pub enum Mock {}

impl Device for Mock {
    type Completion = WorkCompletion;
    type Queue = Queue;
    type Pair = Pair;
    type Shared = SharedReceives;
    type Local = Lent;
    type Destination = ();

    const LOG: Targets = prov_base::log_targets!("mock");
    const FLUSHED: Failure = Failure {
        error: Errno::ECANCELED,
        status: Status::Flushed as i32,
        vendor: 0,
    };

    fn error_text(status: i32) -> Option<&'static CStr> {
        let known = ALL.iter().find(|known| **known as i32 == status)?;
        Some(known.text())
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It has succeeded.
    #[default]
    Success,
    /// A message is longer than the receive.
    TooLong,
    /// Local memory is not registered with that key.
    LocalAccess,
    /// The connection has ended.
    Flushed,
    /// The peer's memory cannot be accessed in that way, with that key.
    RemoteAccess,
    /// The peer could not receive a message.
    RemoteReceive,
    /// The peer does not answer.
    Unreachable,
}

const ALL: [Status; 7] = [
    Status::Success,
    Status::TooLong,
    Status::LocalAccess,
    Status::Flushed,
    Status::RemoteAccess,
    Status::RemoteReceive,
    Status::Unreachable,
];

impl Status {
    fn text(self) -> &'static CStr {
        match self {
            Status::Success => c"success",
            Status::TooLong => c"the message is longer than the receive",
            Status::LocalAccess => c"local memory is not registered",
            Status::Flushed => c"the connection has ended",
            Status::RemoteAccess => c"the peer's memory cannot be accessed",
            Status::RemoteReceive => c"the peer could not receive the message",
            Status::Unreachable => c"the peer does not answer",
        }
    }

    fn failure(self) -> Option<Failure> {
        let error = match self {
            Status::Success => return None,
            Status::TooLong => Errno::ETRUNC,
            Status::Flushed => Errno::ECANCELED,
            Status::RemoteAccess => Errno::EACCES,
            Status::LocalAccess | Status::RemoteReceive | Status::Unreachable => Errno::EIO,
        };
        Some(Failure {
            error,
            status: self as i32,
            vendor: 0,
        })
    }
}

/// The completion of a request.
#[derive(Clone, Debug, Default)]
pub struct WorkCompletion {
    id: u64,
    pair: u32,
    status: Status,
    received: usize,
    is_write: bool,
    immediate: Option<u32>,
    /// Number of entries of the send queue that are free once this is polled.
    frees: usize,
}

impl Completion for WorkCompletion {
    fn id(&self) -> u64 {
        self.id
    }

    fn pair(&self) -> u32 {
        self.pair
    }

    fn failure(&self) -> Option<Failure> {
        self.status.failure()
    }

    fn receive_failure(&self) -> Option<Failure> {
        self.status.failure()
    }

    fn received(&self) -> usize {
        self.received
    }

    fn is_write(&self) -> bool {
        self.is_write
    }

    fn immediate(&self) -> Option<u32> {
        self.immediate
    }
}

/// An [`Ear`] for lanes without connections: there are no events.
pub struct NoEvents(OwnedFd);

impl NoEvents {
    /// Creates it.
    pub fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(NoEvents(eventfd(0, EventfdFlags::CLOEXEC)?)))
    }
}

impl Ear for NoEvents {
    fn hear(&self) {}

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
