//! One-sided access within a host: a process that writes to or reads from the registered memory of
//! another one makes the copy itself (process_vm_writev(2), process_vm_readv(2)), whatever the
//! other process does meanwhile.
//!
//! The owner of the memory publishes its regions in a [table](table::RegionTable) that others map
//! read-only. The process that accesses a region is the initiator: its end of the link is a
//! [`Window`](window::Window), which finds the region by its key, checks the access, checks that
//! the owner is alive, and copies. The two share a word for each link, in memory that both may
//! write to: the initiator announces there that it is reading the table and copying, and the owner
//! waits for that when it closes a region. [`protocol`] defines the order of these steps, and is
//! checked with loom.
//!
//! A short write may also travel in the ring of the channel, for the owner to apply in its turn
//! ([`ring_writes`](ring_writes::RingWrites)): that takes no system call. [`turns`] decides which of the
//! two applies it.

pub mod protocol;
#[cfg(not(loom))]
pub mod ring_writes;
#[cfg(not(loom))]
pub mod table;
pub mod turns;
#[cfg(not(loom))]
pub mod window;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
