//! CUDA (`FI_HMEM_CUDA`), by its driver's interface, libcuda.so.1.
//!
//! Copies run on streams of our own, which wait for no other stream: a kernel of the application that
//! waits for a message does not hold them up. A thread that waits for a copy asks its event again and
//! again. No function is called that may wait for the whole device, such as one that frees memory.

mod driver;

use std::sync::{Arc, Mutex, PoisonError};

use prov_base::device_memory::Copier;
use prov_base::errno::Result;

use self::driver::{Context, Direction, Driver, Lane};
use super::{CUDA, Interface, LOG, Owner};

/// The driver, which has started.
pub struct Cuda {
    driver: Arc<Driver>,
    devices: usize,
}

impl Cuda {
    /// Starts the driver; `None` if it is not here, lacks a function, or cannot start, with a line in
    /// the log.
    pub fn start() -> Option<Box<dyn Interface>> {
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
        let context = self.driver.context(device)?;
        Ok(Arc::new(Device {
            driver: self.driver.clone(),
            context,
            number: device as u64,
            idle: Mutex::default(),
        }))
    }

    fn owner(&self, address: usize) -> Owner {
        self.driver.owner(address)
    }
}

/// One device.
struct Device {
    driver: Arc<Driver>,
    context: Context,
    number: u64,
    /// Streams that no thread uses.
    idle: Mutex<Vec<Lane>>,
}

/// Streams that are kept for later copies.
const IDLE: usize = 8;

impl Device {
    /// Makes one copy, and waits for it. After a failure its stream is not used again.
    ///
    /// # Safety
    /// Both ranges are valid, and of the kinds that the direction says.
    unsafe fn copy_in(
        &self,
        direction: Direction,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result {
        let entered = self.driver.enter(self.context)?;
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let lane = match kept {
            Some(lane) => lane,
            None => entered.lane()?,
        };
        // SAFETY: the caller guarantees that the ranges are valid, and the stream is of this context.
        unsafe { entered.copy(&lane, direction, from, to, len)? };
        let mut idle = idle();
        if idle.len() < IDLE {
            idle.push(lane);
        }
        Ok(())
    }
}

impl Copier for Device {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        // SAFETY: the caller keeps the contract.
        unsafe { self.copy_in(Direction::ToHost, from, to, len) }
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        // SAFETY: the caller keeps the contract.
        unsafe { self.copy_in(Direction::ToDevice, from, to, len) }
    }

    unsafe fn copy(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        // SAFETY: the caller keeps the contract.
        unsafe { self.copy_in(Direction::Within, from, to, len) }
    }

    fn family(&self) -> Option<u32> {
        Some(CUDA)
    }

    fn identity(&self) -> (u32, u64) {
        (CUDA, self.number)
    }
}
