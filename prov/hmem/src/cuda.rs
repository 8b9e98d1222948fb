//! CUDA (`FI_HMEM_CUDA`), by its driver's interface, libcuda.so.1.
//!
//! Copies run on streams of our own, which wait for no other stream: a kernel of the application that
//! waits for a message does not hold them up. Each has an event behind it, which is asked again and
//! again. No function is called that may wait for the whole device, such as one that frees memory.

mod driver;
pub mod gdrcopy;
mod sharing;

use std::sync::Arc;

use prov_base::device_memory::handles::{Allocation, Handle};
use prov_base::device_memory::{Copier, Prepared};
use prov_base::errno::Result;

use self::driver::{Begun, Driver, Queue};
use self::gdrcopy::Gdr;
use super::settings::Settings;
use super::staged::{Direction, Engine, Pinned, Staged};
use super::{CUDA, Interface, LOG, Mapped, Owner};

/// The driver, which has started.
pub struct Cuda {
    driver: Arc<Driver>,
    gdr: Option<Arc<Gdr>>,
    devices: usize,
}

impl Cuda {
    /// Starts the driver; `None` if it is not here, lacks a function, or cannot start, with a line in
    /// the log.
    pub fn start(settings: &Settings) -> Option<Box<dyn Interface>> {
        let driver = match Driver::load() {
            Ok(driver) => driver,
            Err(error) => {
                log::info!(target: LOG, "no CUDA: {error}");
                return None;
            }
        };
        let devices = match driver.start() {
            Ok(devices) => devices,
            Err(error) => {
                log::warn!(target: LOG, "no CUDA: {error}");
                return None;
            }
        };
        log::info!(target: LOG, "CUDA has {devices} devices");
        Some(Box::new(Cuda {
            driver: Arc::new(driver),
            gdr: match settings.cuda_use_gdrcopy && devices != 0 {
                true => Gdr::open(),
                false => None,
            },
            devices,
        }))
    }
}

impl Interface for Cuda {
    fn number(&self) -> u32 {
        CUDA
    }

    fn devices(&self) -> usize {
        self.devices
    }

    fn copier(&self, device: usize) -> Result<Arc<dyn Copier>> {
        let engine = Device {
            queue: Queue::new(&self.driver, self.driver.context(device)?),
            driver: self.driver.clone(),
            gdr: self.gdr.clone(),
            number: device,
        };
        Ok(Arc::new(Staged::new(engine, device)))
    }

    fn owner(&self, address: usize) -> Owner {
        self.driver.owner(address)
    }

    fn open(&self, handle: &Handle) -> Result<(usize, Box<dyn Mapped>)> {
        sharing::open(&self.driver, self.devices, handle)
    }
}

/// One device.
struct Device {
    driver: Arc<Driver>,
    queue: Queue,
    gdr: Option<Arc<Gdr>>,
    number: usize,
}

impl Engine for Device {
    const INTERFACE: u32 = CUDA;
    type Begun = Begun;

    fn pin(&self) -> Result<Pinned> {
        self.queue.enter()?.pinned()
    }

    unsafe fn copy(
        &self,
        direction: Direction,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<Begun> {
        // SAFETY: the caller keeps the contract.
        unsafe { self.queue.copy(direction, from, to, len) }
    }

    unsafe fn short(&self, direction: Direction, from: *const u8, to: *mut u8, len: usize) -> bool {
        // SAFETY: the caller keeps the contract.
        let copy = |gdr: &Arc<Gdr>| unsafe { gdr.copy(direction, from, to, len) };
        self.gdr.as_ref().is_some_and(copy)
    }

    /// What the application copies itself, with calls that promise to have done so, is there before a
    /// stream of this library's reads it.
    fn prepare(&self, address: usize, len: usize) -> Option<Box<dyn Prepared>> {
        if let Ok(entered) = self.queue.enter() {
            entered.synchronize_copies(address);
        }
        self.gdr.as_ref()?.window(address, len)
    }

    fn allocation(&self, address: usize) -> Option<Allocation> {
        self.queue.enter().ok()?.allocation(address)
    }

    fn handle(&self, allocation: Allocation) -> Result<Handle> {
        Ok(Handle {
            interface: CUDA,
            device: self.driver.identification(self.number)?,
            handle: self.queue.enter()?.handle(allocation.base)?,
        })
    }
}
