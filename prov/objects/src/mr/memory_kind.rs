//! The kind of memory of a region (fi_mr(3), "iface", "device", "dmabuf").

use fabric_abi::*;

use prov_base::errno::Errno;

/// The kind of memory, and the processors that can access it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryKind {
    /// The interface that it belongs to.
    pub interface: Interface,
    /// The intended access.
    pub allocation: Allocation,
    /// The dma-buf file of the memory, if it is given by one (`FI_MR_DMABUF`).
    pub dmabuf: Option<Dmabuf>,
}

/// `enum fi_hmem_iface`, with the device number if there can be several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// `FI_HMEM_SYSTEM`: ordinary memory.
    #[default]
    System,
    /// `FI_HMEM_CUDA`
    Cuda(i32),
    /// `FI_HMEM_ROCR`
    Rocr(i32),
    /// `FI_HMEM_ZE`
    Ze(i32),
    /// `FI_HMEM_NEURON`
    Neuron(i32),
    /// `FI_HMEM_SYNAPSEAI`
    Synapseai(i32),
}

/// The processors that can access memory of a device interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// Unspecified.
    #[default]
    Any,
    /// `FI_HMEM_DEVICE_ONLY`: only the device.
    Device,
    /// `FI_HMEM_HOST_ALLOC`: the host; the device in some cases.
    Host,
}

/// `struct fi_mr_dmabuf` without the length, which is that of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dmabuf {
    /// The application's file descriptor, open during the call.
    pub fd: i32,
    /// Offset of the memory in the file.
    pub offset: u64,
    /// Address of the start of the file in this process, 0 if it is not mapped. The memory's
    /// address is the sum of this and the offset.
    pub base: usize,
}

impl MemoryKind {
    /// Ordinary memory of this process.
    pub const SYSTEM: MemoryKind = MemoryKind {
        interface: Interface::System,
        allocation: Allocation::Any,
        dmabuf: None,
    };

    /// Returns whether this process can access the memory like its own. Allocation flags matter
    /// only for memory of devices.
    pub fn is_ordinary(&self) -> bool {
        self.interface == Interface::System && self.dmabuf.is_none()
    }

    /// Returns whether it is a file of ordinary memory that this process has mapped.
    pub fn is_mapped(&self) -> bool {
        self.interface == Interface::System && self.dmabuf.is_some_and(|file| file.base != 0)
    }

    /// Returns the error of a domain that cannot access such memory: `-FI_EBADFLAGS` for a file,
    /// `-FI_ENOSYS` for a device interface.
    pub fn refusal(&self) -> Errno {
        match self.dmabuf.is_none() {
            true => Errno::ENOSYS,
            false => Errno::EBADFLAGS,
        }
    }
}

impl Interface {
    /// Returns the interface with this number; `None` for an unknown one.
    pub fn new(number: fi_hmem_iface, device: i32) -> Option<Self> {
        match number {
            FI_HMEM_SYSTEM => Some(Interface::System),
            FI_HMEM_CUDA => Some(Interface::Cuda(device)),
            FI_HMEM_ROCR => Some(Interface::Rocr(device)),
            FI_HMEM_ZE => Some(Interface::Ze(device)),
            FI_HMEM_NEURON => Some(Interface::Neuron(device)),
            FI_HMEM_SYNAPSEAI => Some(Interface::Synapseai(device)),
            _ => None,
        }
    }
}

impl Interface {
    /// Returns the number of the interface and that of the device.
    pub fn number(self) -> (fi_hmem_iface, i32) {
        match self {
            Interface::System => (FI_HMEM_SYSTEM, 0),
            Interface::Cuda(device) => (FI_HMEM_CUDA, device),
            Interface::Rocr(device) => (FI_HMEM_ROCR, device),
            Interface::Ze(device) => (FI_HMEM_ZE, device),
            Interface::Neuron(device) => (FI_HMEM_NEURON, device),
            Interface::Synapseai(device) => (FI_HMEM_SYNAPSEAI, device),
        }
    }
}

impl Allocation {
    /// Decodes the flags of a registration; contradicting flags mean `Any`.
    pub fn from_flags(flags: u64) -> Self {
        match (
            flags & FI_HMEM_DEVICE_ONLY != 0,
            flags & FI_HMEM_HOST_ALLOC != 0,
        ) {
            (false, false) | (true, true) => Allocation::Any,
            (true, false) => Allocation::Device,
            (false, true) => Allocation::Host,
        }
    }
}
