//! CUDA (`FI_HMEM_CUDA`), by its driver's interface, libcuda.so.1.
//!
//! Copies run on streams of our own, which wait for no other stream: a kernel of the application that
//! waits for a message does not hold them up. A thread that waits for a copy asks its event again and
//! again. No function is called that may wait for the whole device, such as one that frees memory.

mod driver;
mod sharing;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prov_base::device_memory::handles::{Allocation, Handle};
use prov_base::device_memory::{Copier, Fetching, Underway};
use prov_base::errno::Result;

use self::driver::{Context, Direction, Driver, Entered, Lane, Pinned};
use super::{CUDA, Interface, LOG, Mapped, Owner};

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
        Ok(Arc::new(Device(Arc::new(State {
            driver: self.driver.clone(),
            context,
            number: device as u64,
            idle: Mutex::default(),
            pinned: Mutex::default(),
        }))))
    }

    fn owner(&self, address: usize) -> Owner {
        self.driver.owner(address)
    }

    fn open(&self, handle: &Handle) -> Result<(usize, Box<dyn Mapped>)> {
        sharing::open(&self.driver, self.devices, handle)
    }
}

/// One device.
struct Device(Arc<State>);

struct State {
    driver: Arc<Driver>,
    context: Context,
    number: u64,
    /// Streams that no thread uses.
    idle: Mutex<Vec<Lane>>,
    pinned: Mutex<Staging>,
}

/// Pinned memory for bytes on their way to the device.
#[derive(Default)]
struct Staging {
    idle: Vec<Pinned>,
    /// Those of reads that were given up while they were under way.
    abandoned: Vec<(Lane, Pinned)>,
    allocated: usize,
}

/// Streams that are kept for later copies.
const IDLE: usize = 8;

/// Buffers of pinned memory of one device, 8 MiB together: bytes for which there is none are copied
/// at once.
const PINNED: usize = 32;

impl State {
    fn lane(&self, entered: &Entered<'_>) -> Result<Lane> {
        let kept = locked(&self.idle).pop();
        kept.map_or_else(|| entered.lane(), Ok)
    }

    fn keep(&self, lane: Lane) {
        let mut idle = locked(&self.idle);
        if idle.len() < IDLE {
            idle.push(lane);
        }
    }

    /// Returns a buffer, if there is one.
    fn pinned(&self, entered: &Entered<'_>) -> Option<Pinned> {
        let mut staging = locked(&self.pinned);
        let ended = |(lane, _): &mut (Lane, Pinned)| entered.outcome(lane) == Some(Ok(()));
        let ended: Vec<_> = staging.abandoned.extract_if(.., ended).collect();
        for (lane, pinned) in ended {
            self.keep(lane);
            staging.idle.push(pinned);
        }
        if let Some(pinned) = staging.idle.pop() {
            return Some(pinned);
        }
        if staging.allocated == PINNED {
            return None;
        }
        let pinned = entered.pinned().ok()?;
        staging.allocated += 1;
        Some(pinned)
    }

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
        let lane = self.lane(&entered)?;
        // SAFETY: the caller guarantees that the ranges are valid, and the stream is of this context.
        unsafe { entered.copy(&lane, direction, from, to, len)? };
        self.keep(lane);
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy to the device. After a failure its stream and its buffer are not used again.
struct Write {
    device: Arc<State>,
    with: Option<(Lane, Pinned)>,
}

impl Underway for Write {
    fn poll(&mut self) -> Option<Result> {
        let Some((lane, _)) = &self.with else {
            return Some(Ok(()));
        };
        let entered = match self.device.driver.enter(self.device.context) {
            Ok(entered) => entered,
            Err(error) => return Some(Err(error)),
        };
        let outcome = entered.outcome(lane)?;
        if outcome.is_ok()
            && let Some((lane, pinned)) = self.with.take()
        {
            self.device.keep(lane);
            locked(&self.device.pinned).idle.push(pinned);
        }
        Some(outcome)
    }
}

/// A copy to the host. After a failure its stream and its buffer are not used again.
struct Read {
    device: Arc<State>,
    with: Option<(Lane, Pinned)>,
    is_done: bool,
}

impl Underway for Read {
    fn poll(&mut self) -> Option<Result> {
        let Some((lane, _)) = self.with.as_ref().filter(|_| !self.is_done) else {
            return Some(Ok(()));
        };
        let entered = match self.device.driver.enter(self.device.context) {
            Ok(entered) => entered,
            Err(error) => return Some(Err(error)),
        };
        let outcome = entered.outcome(lane)?;
        match outcome {
            Ok(()) => self.is_done = true,
            Err(_) => self.with = None,
        }
        Some(outcome)
    }
}

impl Fetching for Read {
    fn copy_out(&self, at: usize, to: &mut [u8]) {
        if let Some((_, pinned)) = self.with.as_ref().filter(|_| self.is_done) {
            // SAFETY: the copy has been made.
            unsafe { pinned.read(at, to) };
        }
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        let Some((lane, pinned)) = self.with.take() else {
            return;
        };
        if self.is_done {
            self.device.keep(lane);
            locked(&self.device.pinned).idle.push(pinned);
        } else {
            locked(&self.device.pinned).abandoned.push((lane, pinned));
        }
    }
}

impl Copier for Device {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        // SAFETY: the caller keeps the contract.
        unsafe { self.0.copy_in(Direction::ToHost, from, to, len) }
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        // SAFETY: the caller keeps the contract.
        unsafe { self.0.copy_in(Direction::ToDevice, from, to, len) }
    }

    unsafe fn begin_write(
        &self,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<Option<(usize, Box<dyn Underway>)>> {
        let entered = self.0.driver.enter(self.0.context)?;
        let Some(pinned) = self.0.pinned(&entered) else {
            return Ok(None);
        };
        let lane = self.0.lane(&entered)?;
        // SAFETY: the caller keeps the contract, and the result has the stream and the buffer.
        let begun = unsafe { entered.begin(&lane, &pinned, from, to, len)? };
        let copy = Write {
            device: self.0.clone(),
            with: Some((lane, pinned)),
        };
        Ok(Some((begun, Box::new(copy))))
    }

    unsafe fn begin_read(
        &self,
        from: *const u8,
        len: usize,
    ) -> Result<Option<(usize, Box<dyn Fetching>)>> {
        let entered = self.0.driver.enter(self.0.context)?;
        let Some(pinned) = self.0.pinned(&entered) else {
            return Ok(None);
        };
        let lane = self.0.lane(&entered)?;
        // SAFETY: the caller keeps the contract, and the result has the stream and the buffer.
        let begun = unsafe { entered.fetch(&lane, &pinned, from, len)? };
        let copy = Read {
            device: self.0.clone(),
            with: Some((lane, pinned)),
            is_done: false,
        };
        Ok(Some((begun, Box::new(copy))))
    }

    unsafe fn copy(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        // SAFETY: the caller keeps the contract.
        unsafe { self.0.copy_in(Direction::Within, from, to, len) }
    }

    fn allocation(&self, address: usize) -> Option<Allocation> {
        let entered = self.0.driver.enter(self.0.context).ok()?;
        entered.allocation(address)
    }

    fn handle(&self, allocation: Allocation) -> Result<Handle> {
        sharing::handle(&self.0.driver, self.0.context, self.0.number, allocation)
    }

    fn family(&self) -> Option<u32> {
        Some(CUDA)
    }

    fn identity(&self) -> (u32, u64) {
        (CUDA, self.0.number)
    }
}
