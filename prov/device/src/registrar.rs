//! fi_mr(3): memory registered with a device, whose registrations are kept for later ones.

use std::fmt;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use fabric_abi::{FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE};
use prov_base::errno::{Errno, Result};
use prov_util::mr::cache::{self, Cache, CacheLimits};
use prov_util::mr::{self, MemoryKind, NOT_KEPT, Registration, Request};

use crate::local_key::LocalKey;

/// What a device does to register memory.
pub trait Memory: fmt::Debug + Send + Sync + 'static {
    /// The device's registration, which ends when it is dropped.
    type Region: Region;

    /// Whether atomic operations of peers need a permission of their own.
    fn has_atomics(&self) -> bool {
        false
    }

    /// Whether the data of a read arrives as a write of the peer (iWARP).
    fn reads_by_writes(&self) -> bool {
        false
    }

    /// Whether it accepts this kind of memory, if it is not ordinary.
    fn reaches(&self, _kind: &MemoryKind) -> bool {
        false
    }

    /// Registers the first segment of the memory of a request with these permissions.
    fn register(&self, request: &Request, access: Access) -> Result<Self::Region>;
}

/// A device's registration.
pub trait Region: Send + Sync + 'static {
    /// Returns the key for requests of this process.
    fn local_key(&self) -> u32;

    /// Returns the key for peers.
    fn remote_key(&self) -> u32;
}

/// The permissions of registered memory. The device can always read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Access {
    pub local_write: bool,
    pub remote_read: bool,
    pub remote_write: bool,
    pub remote_atomic: bool,
}

impl Access {
    /// Whether peers have any permission.
    pub fn is_remote(self) -> bool {
        self.remote_read || self.remote_write || self.remote_atomic
    }

    /// Whether the device may write to the memory: without that peers cannot have a permission to.
    pub fn is_written(self) -> bool {
        self.local_write || self.remote_write || self.remote_atomic
    }

    /// Returns a number with a bit for each permission.
    fn number(self) -> u64 {
        let bits = [
            self.is_written(),
            self.remote_read,
            self.remote_write,
            self.remote_atomic,
        ];
        bits.iter()
            .fold(0, |number, bit| number << 1 | u64::from(*bit))
    }
}

/// Registers memory of a domain.
pub struct Registrar<M: Memory> {
    memory: M,
    /// Closed registrations of ordinary memory; `None` if they are not kept.
    cache: Option<Cache<M::Region>>,
}

impl<M: Memory> Registrar<M> {
    /// Creates a registrar, whose registrations are kept as far as the user permits it.
    pub fn new(memory: M) -> Self {
        Registrar {
            memory,
            cache: CacheLimits::of_user().and_then(Cache::new),
        }
    }

    fn access(&self, asked: u64) -> Access {
        let is_for = |access| asked & access != 0;
        Access {
            local_write: is_for(FI_RECV | FI_READ),
            remote_read: is_for(FI_REMOTE_READ),
            remote_write: is_for(FI_REMOTE_WRITE)
                || self.memory.reads_by_writes() && is_for(FI_READ),
            remote_atomic: self.memory.has_atomics() && is_for(FI_REMOTE_READ | FI_REMOTE_WRITE),
        }
    }
}

impl<M: Memory> fmt::Debug for Registrar<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "registrations in {:?}", self.memory)
    }
}

impl<M: Memory> mr::Device for Registrar<M> {
    fn reaches(&self, kind: &MemoryKind) -> bool {
        self.memory.reaches(kind)
    }

    fn register(&self, request: &Request) -> Result<Box<dyn Registration>> {
        if request.memory.pieces().len() != 1 {
            return Err(Errno::EINVAL);
        }
        let access = self.access(request.access);
        let register = || self.memory.register(request, access);
        // Memory that peers can access must be inaccessible once it is closed.
        let may_keep =
            request.kind.dmabuf.is_none() && !access.is_remote() && request.flags & NOT_KEPT == 0;
        let region = match &self.cache {
            Some(cache) if may_keep => {
                let (start, len) = (request.memory.address(), request.memory.len());
                InUse::Kept(cache.get(start, len, access.number(), register)?)
            }
            _ => InUse::Own(register()?),
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
enum InUse<R> {
    /// Used by one region only.
    Own(R),
    /// Possibly used by several regions, and reused later.
    Kept(cache::Registered<R>),
}

impl<R> Deref for InUse<R> {
    type Target = R;

    fn deref(&self) -> &R {
        match self {
            InUse::Own(region) => region,
            InUse::Kept(region) => region,
        }
    }
}

/// Registered memory, until it is closed.
struct Registered<R> {
    local: LocalKey,
    remote: u32,
    region: Mutex<Option<InUse<R>>>,
}

impl<R: Region> Registration for Registered<R> {
    fn desc(&self) -> usize {
        self.local.to_desc()
    }

    fn key(&self) -> u64 {
        self.remote.into()
    }

    fn close(&self) -> Result {
        let mut region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        let region = region.take();
        drop(region);
        Ok(())
    }
}
