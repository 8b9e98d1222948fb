//! What fi_info, fi_pingpong and fi_strerror are made of.
//!
//! [`fabric`] is a safe face of libfabric's C interface, as far as the tools need it; the tools
//! know nothing else of the library, so that they run on any libfabric.so.1.

pub mod arguments;
pub mod fabric;
pub mod names;
pub mod pingpong;
pub mod provenance;
pub mod tree;
pub mod why;
