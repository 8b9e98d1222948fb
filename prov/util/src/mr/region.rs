//! One registered region.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fabric_abi::FI_MR_SINGLE_USE;
use parking_lot::Mutex;

use super::index::Keyed;
use super::publish::{Listing, Published};
use super::{Job, Memory, Place, REMOTE, Registration, Request};
use crate::errno::Result;
use crate::object::AnyFid;
use crate::process_memory::Seal;

/// Who wants to know of accesses by peers: a counter.
pub trait RemoteEvents: Send + Sync {
    /// A peer's access to so many bytes is complete.
    fn accessed(&self, bytes: usize);
}

/// One registered region.
pub struct Region {
    memory: Memory,
    place: Place,
    /// The device's, where it registers memory.
    registration: Option<Box<dyn Registration>>,
    key: u64,
    /// No other region of this process has or had it.
    id: u64,
    access: u64,
    /// Where the region begins in the peers' eyes: its address, or 0.
    base: u64,
    /// Whose peers may access it.
    job: Job,
    enabled: AtomicBool,
    single_use: bool,
    /// A single use region's only access has been granted: it is not found by
    /// its key any more.
    spent: AtomicBool,
    /// Counters with the accesses (`FI_REMOTE_*`) that they count.
    counters: Mutex<Vec<(u64, Arc<dyn RemoteEvents>)>>,
    /// Whether there is such a counter.
    counted: AtomicBool,
    /// Whether another process can copy all of it, once somebody has looked.
    can_be_copied: OnceLock<bool>,
    /// Vouches for the memory to other processes; none without random numbers.
    seal: OnceLock<Option<Seal>>,
    /// What peers that access memory by themselves were told.
    listing: Listing,
}

impl Region {
    /// A region that has to be opened.
    pub(super) fn new(
        request: &Request,
        key: u64,
        base: u64,
        job: Job,
        registration: Option<Box<dyn Registration>>,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Region {
            memory: request.memory,
            place: request.place,
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
        }
    }

    /// The key; [`super::NO_KEY`] for a region that peers cannot access.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Tells the region from every other of this process.
    #[inline]
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The permissions.
    pub fn access(&self) -> u64 {
        self.access
    }

    /// Where the region begins in the peers' eyes.
    #[inline]
    pub fn base(&self) -> u64 {
        self.base
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
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Where the memory is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What the device made of it, where it registers memory.
    pub fn registration(&self) -> Option<&dyn Registration> {
        self.registration.as_deref()
    }

    /// What stands for the region in requests: the device's descriptor, or an
    /// address behind which nobody looks; not 0.
    pub fn desc(&self) -> usize {
        match &self.registration {
            Some(registration) => registration.desc(),
            None => std::ptr::from_ref(self).addr(),
        }
    }

    /// The raw form of the key (`fi_mr_raw_attr`).
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

    /// Other pages may be behind these parts of the memory, or behind all of it
    /// where none is named. The software looks them up at each access.
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

    /// Lets the software access the region.
    pub(super) fn open(&self) {
        self.enabled.store(true, Ordering::Release);
    }

    /// Gives the device's registration back.
    pub(super) fn release(&self) -> Result {
        match &self.registration {
            Some(registration) => registration.close(),
            None => Ok(()),
        }
    }

    /// Whether the region can be accessed, and bound no more where it has to
    /// be set up first.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    /// Whether peers of this job may access the region.
    #[inline]
    pub(super) fn is_for(&self, job: Job) -> bool {
        self.job == Job::NONE || self.job == job
    }

    /// Counts accesses of the kinds `access` (`FI_REMOTE_*`) by way of the
    /// software from now on.
    pub(super) fn count_in(&self, access: u64, counter: Arc<dyn RemoteEvents>) {
        self.counters.lock().push((access, counter));
        self.counted.store(true, Ordering::Release);
    }

    /// Whether accesses are counted.
    #[inline]
    pub(super) fn is_counted(&self) -> bool {
        self.counted.load(Ordering::Acquire)
    }

    /// Tells the counters of an access.
    pub(super) fn count(&self, access: u64, bytes: usize) {
        for (counted, counter) in self.counters.lock().iter() {
            if counted & access != 0 {
                counter.accessed(bytes);
            }
        }
    }

    /// Which accesses are counted (`FI_REMOTE_*`).
    pub(super) fn counted(&self) -> u64 {
        let counters = self.counters.lock();
        counters.iter().fold(0, |all, (counted, _)| all | counted)
    }

    /// What peers that access memory by themselves were told of it.
    pub(super) fn listing(&self) -> &Listing {
        &self.listing
    }

    /// What they are to be told: `None` for a region that is accessed once, by some peers
    /// only, or not yet, and for memory that is not in one piece.
    pub(super) fn published(&self) -> Option<Published> {
        let mut pieces = self.memory.pieces();
        let (Some((addr, len)), None) = (pieces.next(), pieces.next()) else {
            return None;
        };
        let is_for_all = self.is_enabled() && !self.single_use && self.job == Job::NONE;
        is_for_all.then(|| Published {
            key: self.key,
            base: self.base,
            len: len as u64,
            addr: addr as u64,
            access: self.access & REMOTE,
            counted: self.counted(),
        })
    }

    /// Whether the only access to it has been granted.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        self.single_use && self.spent.load(Ordering::Relaxed)
    }

    /// Takes the only access where there is only one; `false` where somebody
    /// was faster.
    #[inline]
    pub(super) fn spend(&self) -> bool {
        !self.single_use || !self.spent.swap(true, Ordering::Relaxed)
    }

    /// See [`super::Held::can_be_copied`].
    pub(super) fn can_be_copied(&self) -> bool {
        let look = || self.memory.ends().all(|end| end.can_be_copied());
        *self.can_be_copied.get_or_init(look)
    }

    /// What vouches for the memory until it is closed.
    pub(super) fn seal(&self) -> Option<&Seal> {
        self.seal.get_or_init(|| Seal::new().ok()).as_ref()
    }

    /// Nobody accesses the region any more.
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
