//! A connection, what it is made of, and what belongs to it: state and sockets. Nothing
//! here knows the lane that it is in.

pub mod connection;
pub mod copies;
pub mod detours;
pub mod endpoint;
pub mod fault;
pub mod incoming;
pub mod keys;
pub mod listener;
pub mod messages;
pub mod narrow;
pub mod onesided;
pub mod post;
pub mod rdm;
pub mod socket;
