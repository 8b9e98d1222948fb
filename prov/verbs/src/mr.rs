//! fi_mr(3): memory registered with the device.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use fabric_abi::{FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::errno::{Errno, Result};
use prov_util::mr::cache::{self, Cache, CacheLimits};
use prov_util::mr::{Device, MemoryKind, NOT_KEPT, Registration, Request};

use crate::device::{Access, LocalKey, MemoryRegion, ProtectionDomain};

/// Registers memory of a domain.
pub struct Registrar {
    pd: Arc<ProtectionDomain>,
    has_atomics: bool,
    /// Whether memory that a file represents is registered as dma-buf.
    uses_dmabuf: bool,
    is_iwarp: bool,
    /// Closed registrations of ordinary memory; `None` if they are not kept.
    cache: Option<Cache<MemoryRegion>>,
}

impl Registrar {
    /// Creates the registrar of this protection domain.
    pub fn new(pd: Arc<ProtectionDomain>, has_atomics: bool, uses_dmabuf: bool) -> Self {
        Registrar {
            is_iwarp: pd.context().is_iwarp(),
            cache: CacheLimits::of_user().and_then(Cache::new),
            pd,
            has_atomics,
            uses_dmabuf,
        }
    }

    fn access(&self, asked: u64) -> Access {
        let is_for = |access| asked & access != 0;
        Access {
            local_write: is_for(FI_RECV | FI_READ),
            remote_read: is_for(FI_REMOTE_READ),
            // With iWARP, the data of a read arrives as a write of the peer.
            remote_write: is_for(FI_REMOTE_WRITE) || self.is_iwarp && is_for(FI_READ),
            remote_atomic: self.has_atomics && is_for(FI_REMOTE_READ | FI_REMOTE_WRITE),
        }
    }
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "registrations in {:?}", self.pd)
    }
}

impl Device for Registrar {
    fn reaches(&self, kind: &MemoryKind) -> bool {
        self.uses_dmabuf && kind.dmabuf.is_some()
    }

    fn register(&self, request: &Request) -> Result<Box<dyn Registration>> {
        if request.memory.pieces().len() != 1 {
            return Err(Errno::EINVAL);
        }
        let access = self.access(request.access);
        let memory = &request.memory;
        let register = || MemoryRegion::register(&self.pd, memory, access);
        let region = match (&request.kind.dmabuf, &self.cache) {
            (Some(dmabuf), _) => Region::Own(MemoryRegion::register_dmabuf(
                &self.pd, dmabuf, memory, access,
            )?),
            // Memory that peers can access must be inaccessible once it is closed.
            (None, Some(cache)) if !access.is_remote() && request.flags & NOT_KEPT == 0 => {
                let (start, len) = (memory.address(), memory.len());
                Region::Kept(cache.get(start, len, access.number(), register)?)
            }
            (None, _) => Region::Own(register()?),
        };
        Ok(Box::new(Registered {
            local: LocalKey {
                key: region.local_key(),
                is_readable: request.kind.is_ordinary(),
            },
            remote: region.remote_key(),
            region: Mutex::new(Some(region)),
        }))
    }
}

/// The device's registration of memory.
enum Region {
    /// Used by one region only.
    Own(MemoryRegion),
    /// Possibly used by several regions, and reused later.
    Kept(cache::Registered<MemoryRegion>),
}

impl Deref for Region {
    type Target = MemoryRegion;

    fn deref(&self) -> &MemoryRegion {
        match self {
            Region::Own(region) => region,
            Region::Kept(region) => region,
        }
    }
}

/// Registered memory, until it is closed.
struct Registered {
    local: LocalKey,
    remote: u32,
    region: Mutex<Option<Region>>,
}

impl Registration for Registered {
    fn desc(&self) -> usize {
        self.local.to_desc()
    }

    fn key(&self) -> u64 {
        self.remote.into()
    }

    fn close(&self) -> Result {
        let region = self
            .region
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(region);
        Ok(())
    }
}
