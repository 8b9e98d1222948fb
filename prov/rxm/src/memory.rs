//! Registered memory (fi_mr(3)): the provider below registers it, too, as it is
//! what peers read and write.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_abi::*;
use prov_util::below::{Domain, Region};
use prov_util::errno::{Errno, Result};
use prov_util::mr::{Device, NO_KEY, Registration, Request};

/// The domain below, as far as it registers memory.
pub struct Below {
    domain: Arc<Domain>,
    /// Whether it wants the memory of all operations registered, and the
    /// application does that.
    is_local: bool,
    next_key: AtomicU64,
}

/// Keys for memory that the application has not registered for peers.
const FIRST_KEY: u64 = 1 << 31;
/// Keys that are tried.
const TRIES: usize = 1024;

impl Below {
    /// Memory of this domain; the application registers that of all operations,
    /// or only what peers access.
    pub fn new(domain: Arc<Domain>, is_local: bool) -> Arc<Self> {
        Arc::new(Below {
            domain,
            is_local,
            next_key: AtomicU64::new(FIRST_KEY),
        })
    }

    /// Registers memory under any key.
    ///
    /// # Errors
    /// What the provider below returns.
    pub fn register(
        &self,
        pieces: impl Iterator<Item = (usize, usize)> + Clone,
        access: u64,
    ) -> Result<Region> {
        let mut outcome = Err(Errno::ENOKEY);
        for _ in 0..TRIES {
            let key = self.next_key.fetch_add(1, Ordering::Relaxed) | FIRST_KEY;
            outcome = self.domain.register(pieces.clone(), access, key, 0);
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
        // Where memory is registered for messages, these may be long.
        let mut access = request.access;
        if self.is_local {
            if access & FI_SEND != 0 {
                access |= FI_REMOTE_READ | FI_WRITE;
            }
            if access & FI_RECV != 0 {
                access |= FI_READ | FI_REMOTE_WRITE;
            }
        }
        let pieces = request.memory.pieces();
        let region = match request.access & REMOTE != 0 {
            true => {
                let flags = request.flags & !FI_MR_SINGLE_USE;
                Some(self.domain.register(pieces, access, request.key, flags)?)
            }
            false if self.is_local => {
                let pieces: Vec<_> = pieces.collect();
                Some(Below::register(self, pieces.iter().copied(), access)?)
            }
            false => None,
        };
        Ok(Box::new(Registered {
            is_remote: request.access & REMOTE != 0,
            region,
        }))
    }
}

struct Registered {
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
            // Nobody looks behind it.
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

    fn close(&self) -> Result {
        self.region.as_ref().map_or(Ok(()), Region::close)
    }
}
