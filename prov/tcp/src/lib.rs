//! The tcp provider.

pub mod engine;
pub mod params;
mod random;
mod signals;
pub mod toolkit;
pub mod wire;
