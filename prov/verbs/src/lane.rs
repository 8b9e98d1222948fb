//! The lanes of RDMA devices: see [`prov_device::lane`].

#[cfg(test)]
pub mod tests;

use prov_device::lane;

pub use prov_device::Ear;
pub use prov_device::lane::Operation;

use crate::device::Rdma;

/// The members of one completion queue of a device.
pub type Lane = lane::Lane<Rdma>;
/// A member of a lane.
pub type Seat = lane::Seat<Rdma>;
/// The members of a queue pair.
pub type Seats = lane::Seats<Rdma>;
/// The send queue of an endpoint.
pub type Sender = lane::Sender<Rdma>;
/// The receive queue of an endpoint.
pub type Receiver = lane::Receiver<Rdma>;
/// Receives that several endpoints share.
pub type Shared = lane::Shared<Rdma>;
/// A request of a sender.
pub type Work<'a> = lane::Work<'a, Rdma>;
