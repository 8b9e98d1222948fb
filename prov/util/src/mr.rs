//! Registered memory (fi_mr(3)): what peers may access, under which key.
//!
//! A domain has one [`MrTable`], and whatever moves its data an [`Accessor`] of
//! it, which stands between every request of a peer and the application's
//! memory: it checks key, permission and range. What it grants stays safe to use
//! when the application closes the region meanwhile.

mod access;
mod grants;
mod index;
mod memory;
mod region;

use std::sync::Arc;

use fabric_abi::*;
use parking_lot::RwLock;

use crate::attr::{MR_BASIC, MR_SCALABLE};
use crate::errno::{Errno, Result};

pub use self::access::{Accessor, Grant, Held};
pub use self::grants::Grants;
use self::index::Index;
pub use self::memory::Memory;
pub use self::region::{Region, RemoteEvents};

/// `FI_KEY_NOTAVAIL`: the key of a region that peers cannot access.
pub const NO_KEY: u64 = u64::MAX;

/// What peers may do to a region.
const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// How a domain registers memory.
#[derive(Clone, Debug)]
pub struct Config {
    /// The `mr_mode` of the domain, as fi_getinfo(3) returned it.
    pub mr_mode: i32,
    /// Bytes of a key, 1 to 8.
    pub key_size: usize,
    /// What peers have to have proved for regions without an authorization
    /// key of their own; see [`MrTable::job`].
    pub job: Option<Vec<u8>>,
    /// Where to log.
    pub target: &'static str,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mr_mode: 0,
            key_size: 8,
            job: None,
            target: crate::logging::UTIL.mr,
        }
    }
}

/// Those who have an authorization key in common, a key that
/// [`MrTable::job`] was asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job(u32);

impl Job {
    /// Without a key: regions for anybody, peers that have proved nothing.
    pub const NONE: Job = Job(0);
}

/// The regions of a domain that peers can access, by key.
pub struct MrTable {
    regions: Arc<Index<Region>>,
    /// `FI_MR_*` bits that apply, the old modes translated.
    mode: i32,
    /// The largest key.
    key_mask: u64,
    /// The authorization keys that were seen; a [`Job`] is the position of one,
    /// from 1 on.
    jobs: RwLock<Vec<Vec<u8>>>,
    /// Of regions without an authorization key of their own.
    default_job: Job,
    target: &'static str,
}

/// What to register.
#[derive(Debug)]
pub struct Request {
    /// The memory.
    pub memory: Memory,
    /// `FI_SEND` ... `FI_REMOTE_WRITE`.
    pub access: u64,
    /// The key, where the application chooses it.
    pub key: u64,
    /// `FI_RMA_EVENT`, `FI_RMA_PMEM`, `FI_MR_SINGLE_USE`, `FI_COLLECTIVE`.
    pub flags: u64,
    /// The authorization key that peers must have proved; `None` for the
    /// domain's.
    pub auth_key: Option<Vec<u8>>,
}

impl MrTable {
    /// No regions yet.
    pub fn new(config: &Config) -> Self {
        let mode = match config.mr_mode {
            MR_BASIC => FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
            MR_SCALABLE => 0,
            mode => mode & !(MR_BASIC | MR_SCALABLE),
        };
        let bits = (config.key_size.clamp(1, 8) * 8) as u32;
        let mut table = MrTable {
            regions: Arc::new(Index::new()),
            mode,
            key_mask: u64::MAX >> (64 - bits),
            jobs: RwLock::default(),
            default_job: Job::NONE,
            target: config.target,
        };
        if let Some(key) = &config.job {
            table.default_job = table.job(key);
        }
        table
    }

    /// Those who have this authorization key.
    pub fn job(&self, auth_key: &[u8]) -> Job {
        let mut jobs = self.jobs.write();
        let position = jobs.iter().position(|known| known == auth_key);
        let position = position.unwrap_or_else(|| {
            jobs.push(auth_key.to_vec());
            jobs.len() - 1
        });
        Job(position as u32 + 1)
    }

    /// The `FI_MR_*` bits that apply; the old modes are translated.
    pub fn mode(&self) -> i32 {
        self.mode
    }

    /// Registers memory. `-FI_ENOKEY` for a key that is in use,
    /// `-FI_EKEYREJECTED` for one beyond the key size, `-FI_EBADFLAGS` for
    /// flags that are not supported.
    pub fn register(&self, request: Request) -> Result<Arc<Region>> {
        const FLAGS: u64 = FI_RMA_EVENT | FI_RMA_PMEM | FI_COLLECTIVE | FI_MR_SINGLE_USE;
        if request.flags & !FLAGS != 0 {
            return Err(Errno::EBADFLAGS);
        }
        let mode = |bit| self.mode & bit != 0;
        let base = if mode(FI_MR_VIRT_ADDR) {
            request.memory.address() as u64
        } else {
            0
        };
        let waits_to_be_enabled =
            mode(FI_MR_ENDPOINT) || mode(FI_MR_RMA_EVENT) && request.flags & FI_RMA_EVENT != 0;
        let job = match &request.auth_key {
            Some(key) => self.job(key),
            None => self.default_job,
        };
        let region = |key| Arc::new(Region::new(&request, key, base, job, !waits_to_be_enabled));
        if request.access & REMOTE == 0 {
            return Ok(region(NO_KEY));
        }
        if mode(FI_MR_PROV_KEY) {
            loop {
                let region = region(self.random_key()?);
                if region.key() != NO_KEY && self.publish(&region) {
                    return Ok(region);
                }
            }
        }
        if request.key > self.key_mask {
            return Err(Errno::EKEYREJECTED);
        }
        let region = region(request.key);
        match self.publish(&region) {
            true => Ok(region),
            false => Err(Errno::ENOKEY),
        }
    }

    /// Lets peers find a region; `false` where its key is in use.
    fn publish(&self, region: &Arc<Region>) -> bool {
        let excludes = |other: &Region| !other.is_spent();
        self.regions.insert(region.clone(), excludes)
    }

    /// A key that peers cannot guess.
    fn random_key(&self) -> Result<u64> {
        let random = getrandom::u64().map_err(|error| {
            log::warn!(target: self.target, "no random numbers for a key: {error}");
            Errno::EIO
        })?;
        Ok(random & self.key_mask)
    }

    /// Closes a region. When this returns, its memory is no longer accessed, and
    /// what another process still copies from it is not taken for its bytes.
    /// Waits for whoever is at the memory: not to be called by one who is.
    pub fn close(&self, region: &Region) {
        self.regions.remove(region);
        region.end();
    }

    /// Who looks up regions for the peers of one place, such as a lane.
    pub fn accessor(&self) -> Accessor {
        Accessor::new(self.regions.reader(), self.target)
    }

    /// The raw form of a region's key and its base address (fi_mr_raw_attr).
    pub fn raw_attr(&self, region: &Region) -> (u64, [u8; 8]) {
        (region.base(), region.key().to_le_bytes())
    }

    /// The key that a raw key stands for; `-FI_EINVAL` for another size.
    pub fn map_raw(&self, raw: &[u8]) -> Result<u64> {
        let bytes: [u8; 8] = raw.try_into().map_err(|_| Errno::EINVAL)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
