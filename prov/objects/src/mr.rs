//! Registered memory (fi_mr(3)): what peers may access, under which key.
//!
//! A domain has one [`MrTable`], and each user of its regions an [`Accessor`] to it, which stands
//! between a peer's request and the application's memory: it checks key, access rights and range. A
//! granted access stays safe if the application closes the region meanwhile.
//!
//! If a device moves the data, it registers the memory as well: a [`Device`], alone or in addition
//! to the table ([`Registrar`]).

mod access;
mod barrier;
pub mod cache;
mod device;
mod grants;
mod index;
mod memory;
mod memory_kind;
pub mod publish;
mod region;

use std::sync::Arc;

use fabric_abi::*;
use parking_lot::RwLock;

use crate::attr::{MR_BASIC, MR_BASIC_BITS, MR_SCALABLE};
use crate::hmem::Hmem;
use prov_base::device_memory::Kind;
use prov_base::errno::{Errno, Result};
use prov_base::random;

pub use self::access::{Accessor, Grant, Held};
pub use self::device::{Device, Registrar, Registration};
pub use self::grants::Grants;
use self::index::Index;
pub use self::memory::Memory;
pub use self::memory_kind::{Allocation, Dmabuf, Interface, MemoryKind};
use self::publish::Publisher;
pub use self::region::{Region, RemoteEvents};

/// `FI_KEY_NOTAVAIL`: the key of a region that peers cannot access. An application may choose this
/// number as the key of a region that peers can access, where it has no special meaning.
pub const NO_KEY: u64 = u64::MAX;

/// The flag with which the C library's layered providers register if they cache registrations
/// themselves: the region is not cached here. Not for applications, and harmless.
pub const NOT_KEPT: u64 = 1 << 60;

/// The access rights of peers.
const REMOTE: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// How a domain registers memory.
#[derive(Clone)]
pub struct Config {
    /// The `mr_mode` of the domain, as returned by fi_getinfo(3).
    pub mr_mode: i32,
    /// Size of a key in bytes, 1 to 8.
    pub key_size: usize,
    /// The authorization key that peers must have proved for regions without their own key; see
    /// [`MrTable::job`].
    pub job: Option<Vec<u8>>,
    /// What registers memory: the software, a device, or both.
    pub registrar: Registrar,
    /// Publishes regions to peers that access memory by themselves.
    pub publisher: Option<Arc<dyn Publisher>>,
    /// Whether the software copies memory of devices (`FI_HMEM`).
    pub has_devices: bool,
    /// The log target.
    pub target: &'static str,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mr_mode: 0,
            key_size: 8,
            job: None,
            registrar: Registrar::Software,
            publisher: None,
            has_devices: false,
            target: prov_base::logging::UTIL.mr,
        }
    }
}

/// A set of peers and regions with the same authorization key, from [`MrTable::job`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job(u32);

impl Job {
    /// Without a key: regions for all peers, peers that have proved no key.
    pub const NONE: Job = Job(0);
}

/// The memory registrations of a domain.
pub struct MrTable {
    /// The regions that peers can access through the software.
    regions: Arc<Index<Region>>,
    registrar: Registrar,
    publisher: Option<Arc<dyn Publisher>>,
    /// Memory of devices, in a domain with `FI_HMEM`.
    hmem: Option<Arc<Hmem>>,
    /// The `FI_MR_*` bits that apply, with the old modes translated.
    mode: i32,
    /// The largest valid key.
    key_mask: u64,
    /// The authorization keys that have occurred; a [`Job`] is the index of one, from 1.
    jobs: RwLock<Vec<Vec<u8>>>,
    /// The job of regions without their own authorization key.
    default_job: Job,
    target: &'static str,
}

/// A registration request.
pub struct Request {
    /// The memory.
    pub memory: Memory,
    /// Access rights: `FI_SEND` to `FI_REMOTE_WRITE`.
    pub access: u64,
    /// The key, if the application chooses it.
    pub key: u64,
    /// `FI_RMA_EVENT`, `FI_RMA_PMEM`, `FI_MR_SINGLE_USE`, `FI_COLLECTIVE`.
    pub flags: u64,
    /// The kind of memory: system or device.
    pub kind: MemoryKind,
    /// The region that this one is a part of, which has the same kind of memory.
    pub part_of: Option<Arc<Region>>,
    /// The authorization key that peers must have proved; `None` for the domain's.
    pub auth_key: Option<Vec<u8>>,
}

impl Request {
    /// A request for system memory with the domain's authorization key.
    pub fn new(memory: Memory, access: u64, key: u64) -> Self {
        Request {
            memory,
            access,
            key,
            flags: 0,
            kind: MemoryKind::SYSTEM,
            part_of: None,
            auth_key: None,
        }
    }
}

impl MrTable {
    /// Creates a table without regions.
    pub fn new(config: &Config) -> Self {
        let mode = match config.mr_mode {
            MR_BASIC => MR_BASIC_BITS,
            MR_SCALABLE => 0,
            mode => mode & !(MR_BASIC | MR_SCALABLE),
        };
        let bits = (config.key_size.clamp(1, 8) * 8) as u32;
        let mut table = MrTable {
            regions: Arc::new(Index::new()),
            registrar: config.registrar.clone(),
            publisher: config.publisher.clone(),
            hmem: config
                .has_devices
                .then(|| Arc::new(Hmem::new(mode & FI_MR_HMEM != 0))),
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

    /// Returns the job of an authorization key.
    pub fn job(&self, auth_key: &[u8]) -> Job {
        let mut jobs = self.jobs.write();
        let position = jobs.iter().position(|known| known == auth_key);
        let position = position.unwrap_or_else(|| {
            jobs.push(auth_key.to_vec());
            jobs.len() - 1
        });
        Job(position as u32 + 1)
    }

    /// Returns what is known of memory of devices; `None` without `FI_HMEM`.
    pub fn hmem(&self) -> Option<&Arc<Hmem>> {
        self.hmem.as_ref()
    }

    /// Returns the `FI_MR_*` bits that apply, with the old modes translated.
    pub fn mode(&self) -> i32 {
        self.mode
    }

    /// Registers memory. Access bits and flags that have no meaning in fi_mr(3) are ignored, as in
    /// the C library: programs pass `FI_RMA` or `FI_MSG` there.
    ///
    /// # Errors `-FI_ENOKEY` for a key that is in use, `-FI_EKEYREJECTED` for a key larger than the
    /// key size allows, [`MemoryKind::refusal`] for memory that the domain cannot access, and those of
    /// the device.
    pub fn register(&self, mut request: Request) -> Result<Arc<Region>> {
        const ACCESS: u64 = FI_SEND
            | FI_RECV
            | FI_READ
            | FI_WRITE
            | FI_REMOTE_READ
            | FI_REMOTE_WRITE
            | FI_COLLECTIVE;
        request.access &= ACCESS;
        const FLAGS: u64 = FI_RMA_EVENT | FI_RMA_PMEM | FI_COLLECTIVE | FI_MR_SINGLE_USE | NOT_KEPT;
        request.flags &= FLAGS;
        if let Some(hmem) = &self.hmem {
            let kind = self.owner(hmem, &request)?;
            // SAFETY: the application registers the memory as such, or its driver says so.
            request.memory = unsafe { request.memory.of_kind(kind) };
            if !kind.is_host() || request.kind.interface != Interface::System {
                // This library copies its bytes.
                request.kind = MemoryKind::SYSTEM;
            }
        }
        let device = self.registrar.device();
        let reaches = |device: &Arc<dyn Device>| device.reaches(&request.kind);
        if !request.kind.is_ordinary() && !device.is_some_and(reaches) {
            if !self.registrar.is_software() || !request.kind.is_mapped() {
                return Err(request.kind.refusal());
            }
            // This process accesses device memory through its own mapping.
            request.kind = MemoryKind::SYSTEM;
        }
        let is_remote = request.access & REMOTE != 0;
        let chooses_key = is_remote && self.mode & FI_MR_PROV_KEY == 0;
        if chooses_key && request.key > self.key_mask {
            return Err(Errno::EKEYREJECTED);
        }
        let is_served = is_remote && self.registrar.is_software() && request.kind.is_ordinary();
        match device {
            Some(device) => self.register_with(&**device, &request, is_served),
            None if !is_remote => Ok(self.region(&request, NO_KEY, None)),
            None if chooses_key => self.publish(self.region(&request, request.key, None)),
            None => loop {
                let key = self.random_key()?;
                let region = self.region(&request, key, None);
                match self.publish(region) {
                    Err(Errno::ENOKEY) => {}
                    published => return published,
                }
            },
        }
    }

    /// Returns whose memory is to be registered, in a domain with `FI_HMEM`.
    fn owner(&self, hmem: &Hmem, request: &Request) -> Result<Kind> {
        let address = request.memory.address();
        if request.part_of.is_some() || request.kind.is_ordinary() {
            let whole = request.part_of.as_ref();
            return match whole.map(|whole| whole.memory().kind()) {
                Some(kind) => Ok(kind),
                None => hmem.owner(address),
            };
        }
        if request.kind.dmabuf.is_some_and(|file| file.base == 0) {
            // There is no address by which it could be copied.
            return Err(request.kind.refusal());
        }
        match request.kind.interface.number() {
            (FI_HMEM_SYSTEM, _) => Ok(Kind::HOST),
            (_, _) if request.kind.allocation == Allocation::Host => Ok(Kind::HOST),
            (interface, device) => hmem.kind(interface, device, address),
        }
    }

    fn register_with(
        &self,
        device: &dyn Device,
        request: &Request,
        is_served: bool,
    ) -> Result<Arc<Region>> {
        let registration = device.register(request)?;
        let key = registration.key();
        let region = self.region(request, key, Some(registration));
        if !is_served {
            return Ok(region);
        }
        self.publish(region.clone()).inspect_err(|_| {
            // The region cannot be used; an error of the device is of no help.
            let _ = region.release();
        })
    }

    fn region(
        &self,
        request: &Request,
        key: u64,
        registration: Option<Box<dyn Registration>>,
    ) -> Arc<Region> {
        let mode = |bit| self.mode & bit != 0;
        let base = match mode(FI_MR_VIRT_ADDR) {
            true => request.memory.address() as u64,
            false => 0,
        };
        let job = match &request.auth_key {
            Some(key) => self.job(key),
            None => self.default_job,
        };
        let waits_to_be_enabled =
            mode(FI_MR_ENDPOINT) || mode(FI_MR_RMA_EVENT) && request.flags & FI_RMA_EVENT != 0;
        let region = Arc::new(Region::new(request, key, base, job, registration));
        if !waits_to_be_enabled {
            region.open();
        }
        if let Some(hmem) = &self.hmem {
            hmem.note(region.desc(), request.memory.kind());
        }
        region
    }

    /// Adds a region to those that peers find; `-FI_ENOKEY` if its key is in use.
    fn publish(&self, region: Arc<Region>) -> Result<Arc<Region>> {
        let excludes = |other: &Region| !other.is_spent();
        match self.regions.insert(region.clone(), excludes) {
            true => {
                self.announce(&region);
                Ok(region)
            }
            false => Err(Errno::ENOKEY),
        }
    }

    /// Publishes a region to peers that access memory by themselves. Of a region that they may not
    /// access in this way, only its existence is published.
    fn announce(&self, region: &Region) {
        if let Some(publisher) = &self.publisher {
            region
                .listing()
                .set(publisher.publish(region.published().as_ref()));
        }
    }

    /// Undoes that. After it returns, no peer accesses the region by itself.
    fn withdraw(&self, region: &Region) {
        if let (Some(publisher), Some(place)) = (&self.publisher, region.listing().take()) {
            publisher.withdraw(place);
        }
    }

    /// Enables a region (`FI_MR_ENDPOINT`, `FI_MR_RMA_EVENT`), so that peers can access it.
    ///
    /// # Errors
    /// The device's.
    pub fn enable(&self, region: &Region) -> Result {
        region.enable()?;
        // Before this, only the region's existence was published.
        if region.listing().is_unlisted() && region.published().is_some() {
            self.withdraw(region);
            self.announce(region);
        }
        Ok(())
    }

    /// Requests that accesses of these kinds (`FI_REMOTE_*`) are counted for all regions, because
    /// an endpoint has a counter for them.
    pub fn count_all(&self, access: u64) {
        if let Some(publisher) = &self.publisher {
            publisher.count_all(access);
        }
    }

    /// Returns a random key, which peers cannot guess.
    fn random_key(&self) -> Result<u64> {
        let random = random::secret().inspect_err(|_| {
            log::warn!(target: self.target, "the system has no random numbers for a key");
        })?;
        Ok(random & self.key_mask)
    }

    /// Closes a region. After it returns, the memory is not accessed, and what another process is
    /// still copying from it is not taken for its content. Waits for accesses in progress, so it
    /// must not be called during one. An error comes from the device, and leaves the region open.
    pub fn close(&self, region: &Region) -> Result {
        region.release()?;
        if let Some(hmem) = &self.hmem {
            hmem.forget(region.desc());
        }
        self.regions.remove(region);
        self.withdraw(region);
        region.end();
        Ok(())
    }

    /// Creates an accessor for one user of the regions, such as a lane.
    pub fn accessor(&self) -> Accessor {
        Accessor::new(self.regions.reader(), self.target)
    }

    /// Returns the key for a raw key (fi_mr_map_raw(3)).
    ///
    /// # Errors `-FI_EINVAL` for an invalid raw key.
    pub fn map_raw(&self, base: u64, raw: &[u8]) -> Result<u64> {
        match self.registrar.device() {
            Some(device) => device.map_raw(base, raw),
            None => device::plain_key(raw),
        }
    }

    /// Releases a key from [`MrTable::map_raw`] (fi_mr_unmap_key(3)).
    pub fn unmap(&self, key: u64) -> Result {
        match self.registrar.device() {
            Some(device) => device.unmap(key),
            None => Ok(()),
        }
    }

    /// Counts accesses of the kinds `access` (`FI_REMOTE_*`) to a region.
    ///
    /// # Errors `-FI_ENOSYS` if the device does not support it.
    pub fn count_in(&self, region: &Region, access: u64, counter: Arc<dyn RemoteEvents>) -> Result {
        if let Some(registration) = region.registration() {
            match registration.count_in(access, counter.clone()) {
                // Only accesses through the software are counted then.
                Err(Errno::ENOSYS) if self.registrar.is_software() => {}
                outcome => outcome?,
            }
        }
        region.count_in(access, counter);
        if let (Some(publisher), Some(place)) = (&self.publisher, region.listing().place()) {
            publisher.count(place, region.counted());
        }
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
