//! The lanes of RDMA devices: see [`prov_device::lane`].

#[cfg(test)]
pub mod tests;

use prov_device::lane;

pub use prov_device::Ear;

use crate::device::Rdma;

/// The members of one completion queue of a device.
pub type Lane = lane::Lane<Rdma>;
/// A member of a lane.
pub type Seat = lane::Seat<Rdma>;
/// The members of a queue pair.
pub type Seats = lane::Seats<Rdma>;
/// Receives that several endpoints share.
pub type Shared = lane::Shared<Rdma>;
/// A request of a sender.
pub type Work<'a> = lane::Work<'a, Rdma>;
/// A shared receive context.
pub type SharedReceive = prov_device::SharedReceive<Rdma>;
