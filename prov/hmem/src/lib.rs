//! Interfaces to the memory of devices (fi_mr(3), "iface"): their drivers are opened when the first
//! domain with `FI_HMEM` asks for them, and never needed.
//!
//! An [`Interface`] says which addresses are its own and brings a [`Copier`] for each of its devices;
//! the toolkit asks through [`Interfaces`]. Memory of the host (`FI_HMEM_SYSTEM`) needs no
//! interface.

#![deny(clippy::indexing_slicing)]

mod closing;
mod cuda;
mod library;
mod rocr;
mod settings;
mod staged;
mod ze;

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use prov_base::device_memory::handles::{Allocation, Handle, Opened};
use prov_base::device_memory::{self, Copier, Interfaces, Kind};
use prov_base::errno::{Errno, Result};

use self::settings::Settings;

/// An interface of which the driver is here.
pub(crate) trait Interface: Send + Sync {
    /// Its value of `enum fi_hmem_iface`.
    fn number(&self) -> u32;

    /// Returns the number of its devices.
    fn devices(&self) -> usize;

    /// Whether programs name devices by numbers when they register memory.
    fn has_numbers(&self) -> bool {
        true
    }

    /// Returns what copies to and from the memory of a device.
    ///
    /// # Errors
    /// The driver's.
    fn copier(&self, device: usize) -> Result<Arc<dyn Copier>>;

    /// Returns whose memory an address is.
    fn owner(&self, address: usize) -> Owner;

    /// Opens another process's allocation; returns it and the device that it is of.
    ///
    /// # Errors
    /// `-FI_ENOSYS` without such handles, `-FI_EINVAL` for a device that is not here, and the driver's.
    fn open(&self, _handle: &Handle) -> Result<(usize, Box<dyn Mapped>)> {
        Err(Errno::ENOSYS)
    }
}

/// Another process's allocation, until it is dropped.
pub(crate) trait Mapped: Send + Sync {
    /// Returns where it is in this process.
    fn allocation(&self) -> Allocation;
}

/// The same with its kind.
struct OfKind {
    kind: Kind,
    mapped: Box<dyn Mapped>,
}

impl Opened for OfKind {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn allocation(&self) -> Allocation {
        self.mapped.allocation()
    }
}

/// Whose memory an address is, as a driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Not known to the driver: ordinary memory, or that of another interface.
    Unknown,
    /// The host's, allocated by the driver or made known to it.
    Host,
    /// That of a device, by its number.
    Device(usize),
}

/// `FI_HMEM_CUDA`
pub const CUDA: u32 = 1;
/// `FI_HMEM_ROCR`
pub const ROCR: u32 = 2;
/// `FI_HMEM_ZE`
pub const ZE: u32 = 3;

/// The interfaces of this process with their devices' kinds, which exist as long as the process.
struct Found {
    interface: Box<dyn Interface>,
    kinds: Mutex<Vec<Option<Kind>>>,
}

impl Found {
    fn kind(&self, device: usize) -> Result<Kind> {
        let mut kinds = self.kinds.lock();
        let place = kinds.get_mut(device).ok_or(Errno::EINVAL)?;
        match *place {
            Some(kind) => Ok(kind),
            None => {
                let kind = Kind::new(self.interface.copier(device)?)?;
                *place = Some(kind);
                Ok(kind)
            }
        }
    }
}

fn found() -> &'static [Found] {
    static FOUND: OnceLock<Vec<Found>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let settings = Settings::load();
        let mut found: Vec<Box<dyn Interface>> = Vec::new();
        if settings.wants("cuda") && settings.cuda_enable_xfer {
            found.extend(cuda::Cuda::start(&settings));
        }
        if settings.wants("rocr") {
            found.extend(rocr::Rocr::start());
        }
        if settings.wants("ze") {
            found.extend(ze::Ze::start(&settings));
        }
        let with_kinds = |interface: Box<dyn Interface>| Found {
            kinds: Mutex::new(vec![None; interface.devices()]),
            interface,
        };
        found.into_iter().map(with_kinds).collect()
    })
}

/// Bytes up to which copies are made through mappings of GDRCopy's by default: the C library's number
/// (`FI_SHM_MAX_GDRCOPY_SIZE`).
pub const GDRCOPY_LIMIT: usize = 3072;

pub use cuda::gdrcopy::limit as limit_gdrcopy;

/// Makes the interfaces known to the layers below. Their drivers are opened when they are asked.
pub fn install() {
    device_memory::install(&Drivers);
}

/// The interfaces whose drivers are here.
struct Drivers;

impl Interfaces for Drivers {
    fn kind(&self, interface: u32, device: i32, address: usize) -> Result<Kind> {
        kind(interface, device, address)
    }

    fn owner(&self, address: usize) -> Result<Kind> {
        owner(address)
    }

    fn has(&self, interface: u32) -> bool {
        let mut found = found().iter();
        found.any(|found| found.interface.number() == interface && found.interface.devices() != 0)
    }

    fn open(&self, handle: &Handle) -> Result<Box<dyn Opened>> {
        let mut found = found().iter();
        let this = found.find(|found| found.interface.number() == handle.interface);
        let this = this.ok_or(Errno::ENOSYS)?;
        let (device, mapped) = this.interface.open(handle)?;
        let kind = this.kind(device)?;
        Ok(Box::new(OfKind { kind, mapped }))
    }
}

fn kind(interface: u32, device: i32, address: usize) -> Result<Kind> {
    let found = found();
    let this = found
        .iter()
        .find(|found| found.interface.number() == interface);
    let this = this.ok_or(Errno::ENOSYS)?;
    match this.interface.owner(address) {
        Owner::Host => Ok(Kind::HOST),
        Owner::Device(owner)
            if !this.interface.has_numbers() || usize::try_from(device) == Ok(owner) =>
        {
            this.kind(owner)
        }
        owner => {
            log::warn!(
                target: LOG,
                "memory at {address:#x} was to be registered as that of device {device}: {owner:?}"
            );
            Err(Errno::EINVAL)
        }
    }
}

fn owner(address: usize) -> Result<Kind> {
    for found in found() {
        match found.interface.owner(address) {
            Owner::Unknown => {}
            Owner::Host => return Ok(Kind::HOST),
            Owner::Device(device) => return found.kind(device),
        }
    }
    Ok(Kind::HOST)
}

const LOG: &str = prov_base::logging::UTIL.mr;
