//! The tcp provider.

pub mod wire;
