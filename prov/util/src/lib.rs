//! What every provider is built from. See ARCHITECTURE.md for the map.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo,
        clippy::unimplemented
    )
)]
pub mod address_text;
pub mod atomic_ops;
pub mod attr;
pub mod av;
pub mod buffer;
pub mod cntr;
pub mod cq;
pub mod desc;
pub mod domain;
pub mod drive;
pub mod endpoint;
pub mod eq;
pub mod errno;
pub mod ffi;
pub mod lately;
pub mod logging;
pub mod matching;
pub mod memory_file;
pub mod memory_limit;
pub mod mr;
pub mod netif;
pub mod own_file;
pub mod own_thread;
pub mod param;
pub mod poll_set;
pub mod poller;
pub mod process;
pub mod process_memory;
pub mod progress;
pub mod provider;
pub mod random;
pub mod request;
pub mod resolve;
pub mod sockaddr;
pub mod socket;
pub mod stand_in;
pub mod sync;
pub mod timers;
pub mod wait;
pub mod wait_set;
