//! The layer below all objects of the interface: errors, the log, parameters, locks, threads,
//! sockets, names and memory. It uses the functions that the framework exports (`services`) and
//! depends on no object, request or provider.

#![deny(clippy::indexing_slicing)]
pub mod address_text;
pub mod arch;
pub mod atomic_ops;
pub mod bell;
pub mod bounds;
pub mod buffer;
pub mod checksum;
pub mod device_memory;
pub mod device_sharing;
pub mod errno;
pub mod file_limit;
pub mod kept_errno;
pub mod lately;
pub mod logging;
pub mod machine;
pub mod memory_file;
pub mod memory_limit;
pub mod netif;
pub mod own_file;
pub mod own_thread;
pub mod param;
pub mod poller;
pub mod process;
pub mod process_memory;
pub mod random;
pub mod resolve;
pub mod services;
pub mod shared_words;
pub mod siphash;
pub mod sockaddr;
pub mod socket;
pub mod stand_in;
pub mod sync;
mod system_calls;
pub mod timer_fd;
pub mod timers;
pub mod uncancelled;
