//! A connection, its parts, and its state and sockets. Independent of the lane that it is in.

pub mod access;
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
pub mod outstanding;
pub mod post;
pub mod rdm;
pub mod ready;
pub mod socket;
pub mod stillness;
