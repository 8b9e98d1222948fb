//! How connections and endpoints end.

pub mod closing;
pub mod lost;
pub mod silence;
