//! Handles by which another process opens memory of a device.

use super::Kind;

/// An allocation of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its first address.
    pub base: usize,
    /// Bytes.
    pub len: usize,
    /// The driver's number for it, which no other allocation of the process has had.
    pub number: u64,
}

/// Bytes of a driver's handle.
pub const HANDLE: usize = 64;
/// Bytes of a device's identification, which is the same in all processes.
pub const DEVICE: usize = 16;

/// What another process needs to open an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// `enum fi_hmem_iface`
    pub interface: u32,
    /// The device.
    pub device: [u8; DEVICE],
    /// The driver's handle.
    pub handle: [u8; HANDLE],
}

/// Another process's allocation, which this one has opened. It is closed when the value is dropped.
pub trait Opened: Send + Sync {
    /// Returns the kind of memory that it is in this process.
    fn kind(&self) -> Kind;

    /// Returns its range of addresses in this process, as the driver says.
    fn allocation(&self) -> Allocation;
}
