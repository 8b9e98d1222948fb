//! Registered memory (fi_mr(3)): it is registered with the provider below as well, since peers
//! access it through that.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::*;
use prov_base::device_memory::Kind;
use prov_base::errno::{Errno, Result};
use prov_util::below::{Domain, Region};
use prov_util::hmem::Functions;
use prov_util::mr::{Device, NO_KEY, Registration, RemoteEvents, Request};

use crate::LOG;

/// The domain below, as far as it registers memory.
pub struct Below {
    domain: Arc<Domain>,
    /// Whether it requires the memory of all operations to be registered, by the application.
    is_local: bool,
    next_key: AtomicU64,
}

/// First key for memory that the application has not registered for peers.
const FIRST_KEY: u64 = 1 << 31;
/// Limit of attempts to find a free key.
const TRIES: usize = 1024;

impl Below {
    /// Creates it for this domain. The application registers the memory of all operations, or only
    /// the memory that peers access.
    pub fn new(domain: Arc<Domain>, is_local: bool) -> Arc<Self> {
        Arc::new(Below {
            domain,
            is_local,
            next_key: AtomicU64::new(FIRST_KEY),
        })
    }

    /// Has the provider below copy memory of devices with these functions.
    ///
    /// # Errors
    /// Those of the provider below.
    pub fn set_functions(&self, functions: Functions) -> Result {
        self.domain.set_functions(functions)
    }

    /// Registers memory with any key.
    ///
    /// # Errors
    /// Those of the provider below.
    pub fn register(
        &self,
        pieces: impl Iterator<Item = (usize, usize)> + Clone,
        access: u64,
        kind: Kind,
    ) -> Result<Region> {
        let mut outcome = Err(Errno::ENOKEY);
        for _ in 0..TRIES {
            let key = self.next_key.fetch_add(1, Ordering::Relaxed) | FIRST_KEY;
            outcome = self.domain.register(pieces.clone(), access, key, 0, kind);
            if !matches!(outcome, Err(Errno::ENOKEY)) {
                break;
            }
        }
        outcome
    }
}

impl Debug for Below {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Below").finish_non_exhaustive()
    }
}

impl Device for Below {
    fn register(&self, request: &Request) -> Result<Box<dyn Registration>> {
        const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;
        // Memory that is registered for messages may be used for long messages, by rendezvous.
        let mut access = request.access;
        if self.is_local {
            if access & FI_SEND != 0 {
                access |= FI_REMOTE_READ | FI_WRITE;
            }
            if access & FI_RECV != 0 {
                access |= FI_READ | FI_REMOTE_WRITE;
            }
        }
        let (pieces, kind) = (request.memory.pieces(), request.memory.kind());
        let region = match request.access & REMOTE != 0 {
            true => {
                let flags = request.flags & !FI_MR_SINGLE_USE;
                Some(
                    self.domain
                        .register(pieces, access, request.key, flags, kind)?,
                )
            }
            // Operations below need the descriptor of memory of a device.
            false if self.is_local || !kind.is_host() => {
                let pieces: Vec<_> = pieces.collect();
                Some(Below::register(self, pieces.iter().copied(), access, kind)?)
            }
            false => None,
        };
        Ok(Box::new(Registered {
            domain: self.domain.clone(),
            is_remote: request.access & REMOTE != 0,
            region,
        }))
    }
}

struct Registered {
    domain: Arc<Domain>,
    region: Option<Region>,
    is_remote: bool,
}

impl Registration for Registered {
    fn desc(&self) -> usize {
        let desc = self
            .region
            .as_ref()
            .map_or(0, |region| region.desc().addr());
        match desc {
            // The descriptor is never dereferenced.
            0 => std::ptr::from_ref(self).addr().max(1),
            desc => desc,
        }
    }

    fn key(&self) -> u64 {
        match &self.region {
            Some(region) if self.is_remote => region.key(),
            _ => NO_KEY,
        }
    }

    /// The provider below counts; if it cannot, only atomic operations are counted.
    fn count_in(&self, access: u64, counter: Arc<dyn RemoteEvents>) -> Result {
        let region = self.region.as_ref().ok_or(Errno::ENOSYS)?;
        let counter = self.domain.counter(move || counter.accessed(0));
        let counted = counter.and_then(|counter| region.count_in(&counter, access));
        counted.map_err(|error| {
            log::info!(
                target: LOG.mr,
                "the provider below counts no accesses to a region: {error}"
            );
            Errno::ENOSYS
        })
    }

    fn close(&self) -> Result {
        self.region.as_ref().map_or(Ok(()), Region::close)
    }
}
