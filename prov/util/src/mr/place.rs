//! Where memory is (fi_mr(3), "iface", "device", "dmabuf").

use fabric_abi::*;

use crate::errno::Errno;

/// Where memory is, and who can reach it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Whose memory it is.
    pub interface: Interface,
    /// What it was allocated for.
    pub allocation: Allocation,
    /// The file that stands for it, where it comes by one (`FI_MR_DMABUF`).
    pub dmabuf: Option<Dmabuf>,
}

/// `enum fi_hmem_iface`, with the device where there are several.
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

/// Who can reach memory of a device interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// Not said.
    #[default]
    Any,
    /// `FI_HMEM_DEVICE_ONLY`: the device.
    Device,
    /// `FI_HMEM_HOST_ALLOC`: the host; it may depend whether the device can.
    Host,
}

/// `struct fi_mr_dmabuf`, but for the length: the memory's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dmabuf {
    /// The file; the application's, open during the call.
    pub fd: i32,
    /// Where in the file the memory begins.
    pub offset: u64,
    /// The address of the file's beginning in this process, 0 where it is not
    /// mapped. The memory's address is this and the offset.
    pub base: usize,
}

impl Place {
    /// Ordinary memory of this process.
    pub const SYSTEM: Place = Place {
        interface: Interface::System,
        allocation: Allocation::Any,
        dmabuf: None,
    };

    /// Whether this process can access the memory as it can its own. Who else can, which
    /// flags may say, matters for memory of devices only.
    pub fn is_ordinary(&self) -> bool {
        self.interface == Interface::System && self.dmabuf.is_none()
    }

    /// Whether it is a file of ordinary memory that this process has mapped.
    pub fn is_mapped(&self) -> bool {
        self.interface == Interface::System && self.dmabuf.is_some_and(|file| file.base != 0)
    }

    /// What a domain answers that cannot reach such memory: `-FI_EBADFLAGS`
    /// where it is a file, `-FI_ENOSYS` where an interface has it.
    pub fn refusal(&self) -> Errno {
        match self.dmabuf.is_none() {
            true => Errno::ENOSYS,
            false => Errno::EBADFLAGS,
        }
    }
}

impl Interface {
    /// The interface with this number; `None` for an unknown one.
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

impl Allocation {
    /// What the flags of a registration say: nothing where they contradict each other.
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
