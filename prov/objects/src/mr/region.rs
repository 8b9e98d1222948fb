//! One registered region.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fabric_abi::FI_MR_SINGLE_USE;
use parking_lot::Mutex;

use super::index::Keyed;
use super::publish::{Listing, Published};
use super::{Job, Memory, MemoryKind, REMOTE, Registration, Request};
use crate::fid::AnyFid;
use prov_base::device_memory::Prepared;
use prov_base::device_sharing;
use prov_base::errno::Result;
use prov_base::process_memory::Seal;

/// An observer of accesses by peers: a counter.
pub trait RemoteEvents: Send + Sync {
    /// A peer's access to this many bytes is complete.
    fn accessed(&self, bytes: usize);
}

/// One registered region.
pub struct Region {
    memory: Memory,
    kind: MemoryKind,
    /// The device's registration, if it registers memory.
    registration: Option<Box<dyn Registration>>,
    key: u64,
    /// A number that no other region of this process ever has.
    id: u64,
    access: u64,
    /// Start of the region in the peers' addressing: its address, or 0.
    base: u64,
    /// The job whose peers may access it.
    job: Job,
    enabled: AtomicBool,
    single_use: bool,
    /// Whether the only access to a single-use region has been granted: it is then not found by its
    /// key.
    spent: AtomicBool,
    /// Counters, with the accesses (`FI_REMOTE_*`) that they count.
    counters: Mutex<Vec<(u64, Arc<dyn RemoteEvents>)>>,
    /// Whether `counters` is nonempty.
    counted: AtomicBool,
    /// Whether another process can copy all of it; determined on first use.
    can_be_copied: OnceLock<bool>,
    /// The seal by which other processes check the memory; `None` without random numbers.
    seal: OnceLock<Option<Seal>>,
    /// How it is published to peers that access memory by themselves.
    listing: Listing,
    /// What a device's copier has prepared for it.
    prepared: Mutex<Vec<Box<dyn Prepared>>>,
}

impl Region {
    /// Creates a region, which has to be opened.
    pub(super) fn new(
        request: &Request,
        key: u64,
        base: u64,
        job: Job,
        registration: Option<Box<dyn Registration>>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let kind = request.memory.kind();
        let pieces = request.memory.pieces();
        let prepared = pieces.filter_map(|(address, len)| kind.prepare(address, len));
        let prepared = match kind.is_host() {
            true => Vec::new(),
            false => prepared.collect(),
        };
        Region {
            memory: request.memory,
            kind: request.kind,
            registration,
            key,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            access: request.access,
            base,
            job,
            enabled: AtomicBool::new(false),
            single_use: request.flags & FI_MR_SINGLE_USE != 0,
            spent: AtomicBool::new(false),
            counters: Mutex::default(),
            counted: AtomicBool::new(false),
            can_be_copied: OnceLock::new(),
            seal: OnceLock::new(),
            listing: Listing::default(),
            prepared: Mutex::new(prepared),
        }
    }

    /// Returns the key; [`super::NO_KEY`] for a region that peers cannot access.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the region's unique number.
    #[inline]
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the access rights.
    pub fn access(&self) -> u64 {
        self.access
    }

    /// Returns the start of the region in the peers' addressing.
    #[inline]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory.
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the kind of memory.
    pub fn kind(&self) -> &MemoryKind {
        &self.kind
    }

    /// Returns the device's registration, if it registers memory.
    pub fn registration(&self) -> Option<&dyn Registration> {
        self.registration.as_deref()
    }

    /// Returns the descriptor of the region in requests: the device's, or an address that is never
    /// dereferenced; not 0.
    pub fn desc(&self) -> usize {
        match &self.registration {
            Some(registration) => registration.desc(),
            None => std::ptr::from_ref(self).addr(),
        }
    }

    /// Returns the raw form of the key (fi_mr_raw_attr(3)).
    pub fn raw_key(&self) -> Vec<u8> {
        match &self.registration {
            Some(registration) => registration.raw_key(),
            None => self.key.to_le_bytes().to_vec(),
        }
    }

    /// Restricts the region to an endpoint.
    pub fn bind(&self, endpoint: AnyFid<'_>) -> Result {
        match &self.registration {
            Some(registration) => registration.bind(endpoint),
            None => Ok(()),
        }
    }

    /// Handles that the pages of these parts of the memory, or of all of it if there are none, may
    /// have changed. The software uses addresses, so only a device has to act.
    pub fn refresh(&self, parts: &[Memory]) -> Result {
        match &self.registration {
            Some(registration) => registration.refresh(parts),
            None => Ok(()),
        }
    }

    /// See [`MrTable::enable`](super::MrTable::enable).
    pub(super) fn enable(&self) -> Result {
        if let Some(registration) = &self.registration {
            registration.enable()?;
        }
        self.open();
        Ok(())
    }

    /// Allows the software to access the region.
    pub(super) fn open(&self) {
        self.enabled.store(true, Ordering::Release);
    }

    /// Closes the device's registration.
    pub(super) fn release(&self) -> Result {
        drop(std::mem::take(&mut *self.prepared.lock()));
        match &self.registration {
            Some(registration) => registration.close(),
            None => Ok(()),
        }
    }

    /// Returns whether the region can be accessed; from then on it cannot be bound.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Returns whether peers of this job may access the region.
    #[inline]
    pub(super) fn is_for(&self, job: Job) -> bool {
        self.job == Job::NONE || self.job == job
    }

    /// Counts accesses of the kinds `access` (`FI_REMOTE_*`) through the software.
    pub(super) fn count_in(&self, access: u64, counter: Arc<dyn RemoteEvents>) {
        self.counters.lock().push((access, counter));
        self.counted.store(true, Ordering::Release);
    }

    /// Returns whether accesses are counted.
    #[inline]
    pub(super) fn is_counted(&self) -> bool {
        self.counted.load(Ordering::Acquire)
    }

    /// Informs the counters of an access.
    pub(super) fn count(&self, access: u64, bytes: usize) {
        for (counted, counter) in self.counters.lock().iter() {
            if counted & access != 0 {
                counter.accessed(bytes);
            }
        }
    }

    /// Returns the accesses that are counted (`FI_REMOTE_*`).
    pub(super) fn counted(&self) -> u64 {
        let counters = self.counters.lock();
        counters.iter().fold(0, |all, (counted, _)| all | counted)
    }

    /// Returns how it is published to peers that access memory by themselves.
    pub(super) fn listing(&self) -> &Listing {
        &self.listing
    }

    /// Returns what to publish: `None` for a region that is single-use, restricted to some peers,
    /// or not enabled, and for memory that is not contiguous, or of a device and cannot be opened by
    /// other processes.
    pub(super) fn published(&self) -> Option<Published> {
        let mut pieces = self.memory.pieces();
        let (Some((addr, len)), None) = (pieces.next(), pieces.next()) else {
            return None;
        };
        if !self.is_enabled() || self.single_use || self.job != Job::NONE {
            return None;
        }
        let kind = self.memory.kind();
        let addr = match kind.is_host() {
            true => addr as u64,
            false => device_sharing::export(kind, addr, len)?,
        };
        Some(Published {
            key: self.key,
            base: self.base,
            len: len as u64,
            addr,
            access: self.access & REMOTE,
            counted: self.counted(),
        })
    }

    /// Returns whether the only access to it has been granted.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        self.single_use && self.spent.load(Ordering::Relaxed)
    }

    /// Takes the only access of a single-use region. Returns `false` if it was taken before.
    #[inline]
    pub(super) fn spend(&self) -> bool {
        !self.single_use || !self.spent.swap(true, Ordering::Relaxed)
    }

    /// See [`super::Held::can_be_copied`].
    pub(super) fn can_be_copied(&self) -> bool {
        let look = || {
            let is_host = self.memory.kind().is_host();
            is_host && self.memory.ends().all(|end| end.can_be_copied())
        };
        *self.can_be_copied.get_or_init(look)
    }

    /// Returns the seal of the memory, which is valid until the region is closed.
    pub(super) fn seal(&self) -> Option<&Seal> {
        self.seal.get_or_init(|| Seal::new().ok()).as_ref()
    }

    /// Called when no access to the region is possible any more.
    pub(super) fn end(&self) {
        if let Some(Some(seal)) = self.seal.get() {
            seal.destroy();
        }
        self.counters.lock().clear();
    }
}

impl Keyed for Region {
    #[inline]
    fn key(&self) -> u64 {
        self.key
    }
}
