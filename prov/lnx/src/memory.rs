//! Registered memory (fi_mr(3)): it is registered with all linked providers under one key, since a
//! peer may use any of them.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use fabric_abi::*;
use prov_base::errno::{Errno, Result};
use prov_base::random;
use prov_util::below::{Domain, Region};
use prov_util::mr::{Device, NO_KEY, Registration, RemoteEvents, Request};

use crate::LOG;

/// The linked domains, as far as they register memory.
pub struct Linked {
    domains: Vec<Arc<Domain>>,
    /// Whether keys are chosen here, instead of by the application.
    chooses_keys: bool,
    /// The largest key.
    key_mask: u64,
}

/// Limit of attempts to find a key that is free in all domains.
const TRIES: usize = 1024;
const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

impl Linked {
    /// Creates it for these domains, with keys of `key_size` bytes.
    pub fn new(domains: Vec<Arc<Domain>>, chooses_keys: bool, key_size: usize) -> Arc<Self> {
        let bits = (key_size.clamp(1, 8) * 8) as u32;
        Arc::new(Linked {
            domains,
            chooses_keys,
            key_mask: u64::MAX >> (64 - bits),
        })
    }

    /// Registers with all domains under this key.
    fn register_as(&self, request: &Request, key: u64) -> Result<Vec<Region>> {
        let flags = request.flags & !FI_MR_SINGLE_USE;
        let register = |domain: &Arc<Domain>| {
            let (pieces, kind) = (request.memory.pieces(), request.memory.kind());
            let region = domain.register(pieces, request.access, key, flags, kind)?;
            match region.key() == key {
                true => Ok(region),
                // Peers could not know it.
                false => Err(Errno::EKEYREJECTED),
            }
        };
        self.domains.iter().map(register).collect()
    }

    fn register_anyhow(&self, request: &Request) -> Result<Vec<Region>> {
        for _ in 0..TRIES {
            let key = random::secret()? & self.key_mask;
            match self.register_as(request, key) {
                Err(Errno::ENOKEY) => {}
                outcome => return outcome,
            }
        }
        Err(Errno::ENOKEY)
    }
}

impl Debug for Linked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linked").finish_non_exhaustive()
    }
}

impl Device for Linked {
    fn register(&self, request: &Request) -> Result<Box<dyn Registration>> {
        let regions = match request.access & REMOTE {
            // No linked provider needs memory of its own operations to be registered.
            0 => Vec::new(),
            _ if self.chooses_keys => self.register_anyhow(request)?,
            _ => self.register_as(request, request.key)?,
        };
        Ok(Box::new(Registered {
            regions,
            domains: self.domains.clone(),
        }))
    }
}

struct Registered {
    regions: Vec<Region>,
    domains: Vec<Arc<Domain>>,
}

impl Registration for Registered {
    /// A value that means nothing to the linked providers, which need no descriptors.
    fn desc(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn key(&self) -> u64 {
        self.regions.first().map_or(NO_KEY, Region::key)
    }

    fn count_in(&self, access: u64, counter: Arc<dyn RemoteEvents>) -> Result {
        for (domain, region) in self.domains.iter().zip(&self.regions) {
            let accessed = counter.clone();
            let counter = domain.counter(move || accessed.accessed(0));
            let counted = counter.and_then(|counter| region.count_in(&counter, access));
            counted.inspect_err(|error| {
                log::info!(
                    target: LOG.mr,
                    "a linked provider counts no accesses to a region: {error}"
                );
            })?;
        }
        Ok(())
    }

    fn close(&self) -> Result {
        self.regions.iter().try_for_each(Region::close)
    }
}
