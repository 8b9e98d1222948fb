//! One-sided access within a host: who writes to or reads from the registered memory of
//! another process copies by itself (process_vm_writev(2), process_vm_readv(2)), whatever
//! the other process does meanwhile.
//!
//! The owner of the memory publishes its regions in a [table](table::RegionTable) that
//! others map to read. Who wants to access a region is the initiator: its end of the link
//! is a [`Window`](window::Window), which finds the region by its key, checks the access,
//! looks whether the owner lives, and copies. The two meet in a word for each link, in the
//! memory that both may write to: the initiator says there that it is looking and
//! copying, and the owner waits for that when it closes a region. [`protocol`] has the
//! order of it, checked with loom.

pub mod protocol;
#[cfg(not(loom))]
pub mod table;
#[cfg(not(loom))]
pub mod window;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
