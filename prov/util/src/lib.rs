//! What every provider is built from. See ARCHITECTURE.md for the map.

pub mod atomic_ops;
pub mod attr;
pub mod av;
pub mod buffer;
pub mod cntr;
pub mod cq;
pub mod domain;
pub mod drive;
pub mod endpoint;
pub mod eq;
pub mod errno;
pub mod ffi;
pub mod logging;
pub mod matching;
pub mod mr;
pub mod netif;
pub mod param;
pub mod poll_set;
pub mod process_memory;
pub mod progress;
pub mod request;
pub mod resolve;
pub mod sockaddr;
pub mod sync;
pub mod wait;
pub mod wait_set;
