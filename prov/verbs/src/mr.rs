//! fi_mr(3): memory registered with the device.

use std::sync::Arc;

use prov_base::errno::Result;
use prov_device::registrar::{Access, Memory};
use prov_util::mr::{MemoryKind, Request};

use crate::device::{MemoryRegion, ProtectionDomain};

/// Registers memory of a protection domain.
#[derive(Debug)]
pub struct Registering {
    pub pd: Arc<ProtectionDomain>,
    pub has_atomics: bool,
    /// Whether memory that a file represents is registered as dma-buf.
    pub uses_dmabuf: bool,
}

impl Memory for Registering {
    type Region = MemoryRegion;

    fn has_atomics(&self) -> bool {
        self.has_atomics
    }

    fn reads_by_writes(&self) -> bool {
        self.pd.context().is_iwarp()
    }

    fn reaches(&self, kind: &MemoryKind) -> bool {
        self.uses_dmabuf && kind.dmabuf.is_some()
    }

    fn register(&self, request: &Request, access: Access) -> Result<MemoryRegion> {
        let memory = &request.memory;
        match &request.kind.dmabuf {
            Some(dmabuf) => MemoryRegion::register_dmabuf(&self.pd, dmabuf, memory, access),
            None => MemoryRegion::register(&self.pd, memory, access),
        }
    }
}
