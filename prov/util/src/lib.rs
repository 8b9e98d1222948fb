//! What every provider is built from. See ARCHITECTURE.md for the map.

pub mod atomic_ops;
pub mod buffer;
pub mod buffer_pool;
pub mod errno;
pub mod ffi;
pub mod matching;
pub mod progress;
