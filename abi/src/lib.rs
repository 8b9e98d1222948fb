//! The C interface of libfabric as Rust types and constants. No logic.
