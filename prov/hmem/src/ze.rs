//! Level Zero (`FI_HMEM_ZE`), by its loader, libze_loader.so.1.
//!
//! Copies are commands of immediate lists of our own, each with an event that is asked again and again.

mod loader;

use std::sync::Arc;

use prov_base::device_memory::Copier;
use prov_base::errno::{Errno, Result};

use self::loader::{Begun, Gpu, Loader};
use super::settings::Settings;
use super::staged::{Direction, Engine, Pinned, Staged};
use super::{Interface, LOG, Owner, ZE};

/// The drivers, which have started.
pub struct Ze {
    loader: Arc<Loader>,
    devices: Vec<Gpu>,
}

impl Ze {
    /// Starts the drivers; `None` if the loader is not here, lacks a function, or cannot start, with a line
    /// in the log.
    pub fn start(settings: &Settings) -> Option<Box<dyn Interface>> {
        let loader = match Loader::load(settings.ze_copy_engine) {
            Ok(loader) => loader,
            Err(error) => {
                log::info!(target: LOG, "no Level Zero: {error}");
                return None;
            }
        };
        match loader.start() {
            Ok(devices) => {
                log::info!(target: LOG, "Level Zero has {} devices", devices.len());
                Some(Box::new(Ze {
                    loader: Arc::new(loader),
                    devices,
                }))
            }
            Err(error) => {
                log::warn!(target: LOG, "no Level Zero: {error}");
                None
            }
        }
    }
}

impl Interface for Ze {
    fn number(&self) -> u32 {
        ZE
    }

    fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Programs name a driver and a device, and not all of them do.
    fn has_numbers(&self) -> bool {
        false
    }

    fn copier(&self, device: usize) -> Result<Arc<dyn Copier>> {
        let gpu = self.devices.get(device).copied();
        let engine = Device {
            loader: self.loader.clone(),
            gpu: gpu.ok_or(Errno::EINVAL)?,
        };
        Ok(Arc::new(Staged::new(engine, device)))
    }

    fn owner(&self, address: usize) -> Owner {
        self.loader.owner(&self.devices, address)
    }
}

/// One device.
struct Device {
    loader: Arc<Loader>,
    gpu: Gpu,
}

impl Engine for Device {
    const INTERFACE: u32 = ZE;
    type Begun = Begun;

    fn pin(&self) -> Result<Pinned> {
        self.loader.pin(self.gpu)
    }

    unsafe fn copy(&self, _: Direction, from: *const u8, to: *mut u8, len: usize) -> Result<Begun> {
        // SAFETY: the caller keeps the contract; the driver finds the direction out by the addresses.
        unsafe { self.loader.copy(self.gpu, from, to, len) }
    }
}
