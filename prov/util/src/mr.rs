//! Registered memory (fi_mr(3)): what peers may access, under which key.
//!
//! A domain has one [`MrTable`]. [`MrTable::resolve`] stands between every
//! request of a peer and the application's memory: it checks key, permission
//! and range. What it returns stays safe to use when the application closes
//! the region meanwhile.

mod memory;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fabric_abi::*;
use hashbrown::DefaultHashBuilder;
use parking_lot::RwLock;

use crate::attr::{MR_BASIC, MR_SCALABLE};
use crate::buffer::AppIov;
use crate::errno::{Errno, Result};
use crate::process_memory::{OtherIov, Seal};

pub use self::memory::Memory;

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
    regions: RwLock<HashMap<u64, Arc<Region>, DefaultHashBuilder>>,
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

/// Who wants to know of accesses by peers: a counter.
pub trait RemoteEvents: Send + Sync {
    /// A peer's access to so many bytes is complete.
    fn accessed(&self, bytes: usize);
}

/// One registered region.
pub struct Region {
    memory: Memory,
    /// See [`Grant::can_be_copied`].
    can_be_copied: OnceLock<bool>,
    /// Vouches for the memory to other processes; none without random numbers.
    seal: OnceLock<Option<Seal>>,
    access: u64,
    key: u64,
    /// Where the region begins in the peers' eyes: its address, or 0.
    base: u64,
    single_use: bool,
    /// Whose peers may access it.
    job: Job,
    enabled: AtomicBool,
    /// Taken for reading by whoever uses the memory; false once the
    /// application closed the region.
    open: RwLock<bool>,
    /// Counters with the accesses (`FI_REMOTE_*`) that they count.
    counters: RwLock<Vec<(u64, Arc<dyn RemoteEvents>)>>,
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
            regions: RwLock::default(),
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
        let region = |key| {
            Arc::new(Region {
                base,
                job,
                access: request.access,
                key,
                single_use: request.flags & FI_MR_SINGLE_USE != 0,
                enabled: AtomicBool::new(!waits_to_be_enabled),
                open: RwLock::new(true),
                counters: RwLock::default(),
                memory: request.memory,
                can_be_copied: OnceLock::new(),
                seal: OnceLock::new(),
            })
        };
        if request.access & REMOTE == 0 {
            return Ok(region(NO_KEY));
        }
        let mut regions = self.regions.write();
        let key = if mode(FI_MR_PROV_KEY) {
            loop {
                let key = self.random_key()?;
                if key != NO_KEY && !regions.contains_key(&key) {
                    break key;
                }
            }
        } else if request.key > self.key_mask {
            return Err(Errno::EKEYREJECTED);
        } else {
            request.key
        };
        match regions.entry(key) {
            Entry::Occupied(_) => Err(Errno::ENOKEY),
            Entry::Vacant(place) => Ok(place.insert(region(key)).clone()),
        }
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
    pub fn close(&self, region: &Region) {
        self.forget(region);
        *region.open.write() = false;
        if let Some(Some(seal)) = region.seal.get() {
            seal.destroy();
        }
        region.counters.write().clear();
    }

    /// Takes the region's key out of use.
    fn forget(&self, region: &Region) {
        let mut regions = self.regions.write();
        if let Entry::Occupied(place) = regions.entry(region.key)
            && std::ptr::eq(&**place.get(), region)
        {
            place.remove();
        }
    }

    /// The memory that a peer's request for `len` bytes at `addr` means, if
    /// the region with this key permits `access` (`FI_REMOTE_READ`,
    /// `FI_REMOTE_WRITE`) to all of it, to a peer that is one of `job`.
    /// `-FI_ENOKEY` for an unknown key, `-FI_EACCES` for what the region does
    /// not permit.
    pub fn resolve(&self, key: u64, addr: u64, len: u64, access: u64, job: Job) -> Result<Grant> {
        let region = {
            let regions = self.regions.read();
            regions.get(&key).cloned()
        };
        let refuse = |error, reason: &str| {
            log::warn!(
                target: self.target,
                "refused a peer's access to {len} bytes at {addr:#x}: {reason}"
            );
            Err(error)
        };
        let Some(region) = region else {
            return refuse(Errno::ENOKEY, "unknown key");
        };
        if region.job != Job::NONE && region.job != job {
            return refuse(Errno::EACCES, "the peer has another authorization key");
        }
        if access & !region.access != 0 {
            return refuse(Errno::EACCES, "the region does not permit it");
        }
        if !region.enabled.load(Ordering::Acquire) {
            return refuse(Errno::EACCES, "the region is not enabled");
        }
        let Some(memory) = region.range(addr, len) else {
            return refuse(Errno::EACCES, "it is not within the region");
        };
        if region.single_use {
            self.forget(&region);
        }
        Ok(Grant {
            memory,
            region,
            access,
        })
    }

    /// The raw form of a region's key and its base address (fi_mr_raw_attr).
    pub fn raw_attr(&self, region: &Region) -> (u64, [u8; 8]) {
        (region.base, region.key.to_le_bytes())
    }

    /// The key that a raw key stands for; `-FI_EINVAL` for another size.
    pub fn map_raw(&self, raw: &[u8]) -> Result<u64> {
        let bytes: [u8; 8] = raw.try_into().map_err(|_| Errno::EINVAL)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl Region {
    /// The key; [`NO_KEY`] for a region that peers cannot access.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The permissions.
    pub fn access(&self) -> u64 {
        self.access
    }

    /// Bytes in the region.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Lets peers access the region, where it had to be set up first.
    pub fn enable(&self) {
        self.enabled.store(true, Ordering::Release);
    }

    /// Whether the region can be accessed, and bound no more where it has to
    /// be set up first.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Counts accesses of the kinds `access` (`FI_REMOTE_*`) from now on.
    pub fn count_in(&self, access: u64, counter: Arc<dyn RemoteEvents>) {
        let mut counters = self.counters.write();
        counters.push((access, counter));
    }

    fn range(&self, addr: u64, len: u64) -> Option<AppIov> {
        let offset = usize::try_from(addr.checked_sub(self.base)?).ok()?;
        self.memory.slice(offset, usize::try_from(len).ok()?)
    }
}

/// A peer's access to memory, as [`MrTable::resolve`] granted it.
#[derive(Clone)]
pub struct Grant {
    memory: AppIov,
    region: Arc<Region>,
    access: u64,
}

impl Grant {
    /// Bytes that are accessed.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Whether another process can copy the memory, if that is certain. It is
    /// looked at once per region, at the ends of its pieces.
    pub fn can_be_copied(&self) -> bool {
        let region = &*self.region;
        let look = || region.memory.ends().all(|end| end.can_be_copied());
        *region.can_be_copied.get_or_init(look)
    }

    /// Adds the memory, sealed, to what another process may copy; `false` where
    /// it does not fit, once the region is closed, and without a seal.
    pub fn offer(&self, list: &mut OtherIov) -> bool {
        let offered = self.with(|memory| {
            let seal = self.region.seal.get_or_init(|| Seal::new().ok());
            let token = seal.as_ref().map(Seal::token);
            token.is_some() && list.push_own(memory, token)
        });
        offered == Some(true)
    }

    /// Calls `work` with the memory; `None` once the region is closed. The
    /// close waits for `work`, which must therefore neither block nor enter
    /// the same region again.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&AppIov) -> R) -> Option<R> {
        let open = self.region.open.read();
        open.then(|| work(&self.memory))
    }

    /// Tells the counters bound to the region that the access is complete.
    pub fn complete(&self) {
        let counters = self.region.counters.read();
        for (access, counter) in counters.iter() {
            if access & self.access != 0 {
                counter.accessed(self.len());
            }
        }
    }
}

#[cfg(test)]
mod tests;
