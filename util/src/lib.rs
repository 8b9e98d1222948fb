//! The library of fi_info, fi_pingpong and fi_strerror.
//!
//! [`fabric`] is a safe interface to the part of libfabric's C interface that the tools need; they
//! use nothing else of the library, so that they run on any libfabric.so.1.

pub mod arguments;
pub mod fabric;
pub mod names;
pub mod pingpong;
pub mod provenance;
pub mod tree;
pub mod why;
