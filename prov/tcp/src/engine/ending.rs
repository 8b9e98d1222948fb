//! How connections and endpoints end.

pub mod closing;
pub mod silence;
