//! ROCr (`FI_HMEM_ROCR`), by the runtime's interface, libhsa-runtime64.so.1.
//!
//! Every copy passes through pinned memory of the host, except those from device to device, and has a
//! signal of its own, which is asked again and again. It waits for no queue of the application.

mod runtime;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prov_base::device_memory::{Copier, Fetching, Underway};
use prov_base::errno::Result;

use self::runtime::{Agent, Begun, Pinned, Runtime};
use super::{Interface, LOG, Owner, ROCR};

/// The runtime, which has started.
pub struct Rocr {
    runtime: Arc<Runtime>,
    host: Agent,
    devices: Vec<Agent>,
}

impl Rocr {
    /// Starts the runtime; `None` if it is not here, lacks a function, or cannot start, with a line in
    /// the log.
    pub fn start() -> Option<Box<dyn Interface>> {
        let runtime = match Runtime::load() {
            Ok(runtime) => runtime,
            Err(error) => {
                log::info!(target: LOG, "no ROCr: {error}");
                return None;
            }
        };
        let agents = match runtime.start() {
            Ok(agents) => agents,
            Err(error) => {
                log::warn!(target: LOG, "no ROCr: {error}");
                return None;
            }
        };
        let Some(host) = agents.host else {
            log::warn!(target: LOG, "no ROCr: the runtime knows no processor");
            return None;
        };
        log::info!(target: LOG, "ROCr has {} devices", agents.devices.len());
        Some(Box::new(Rocr {
            runtime: Arc::new(runtime),
            host,
            devices: agents.devices,
        }))
    }
}

impl Interface for Rocr {
    fn number(&self) -> u32 {
        ROCR
    }

    fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Programs do not say which device it is.
    fn has_numbers(&self) -> bool {
        false
    }

    fn copier(&self, device: usize) -> Result<Arc<dyn Copier>> {
        let agent = self.devices.get(device).copied();
        Ok(Arc::new(Device(Arc::new(State {
            runtime: self.runtime.clone(),
            host: self.host,
            agent: agent.ok_or(prov_base::errno::Errno::EINVAL)?,
            number: device as u64,
            pool: Mutex::default(),
        }))))
    }

    fn owner(&self, address: usize) -> Owner {
        match self.runtime.owner(address) {
            None => Owner::Unknown,
            Some(agent) => {
                let mut devices = self.devices.iter();
                let device = devices.position(|device| *device == agent);
                device.map_or(Owner::Host, Owner::Device)
            }
        }
    }
}

/// One device.
struct Device(Arc<State>);

struct State {
    runtime: Arc<Runtime>,
    host: Agent,
    agent: Agent,
    number: u64,
    pool: Mutex<Pool>,
}

/// Pinned memory.
#[derive(Default)]
struct Pool {
    idle: Vec<Pinned>,
    /// That of copies that were given up while they were under way.
    abandoned: Vec<(Begun, Pinned)>,
    allocated: usize,
}

/// Buffers of pinned memory of one device for copies that nobody waits for, 8 MiB together.
const PINNED: usize = 32;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Returns a buffer, if there is one, or one more, if it `must` be.
    fn pinned(&self, must: bool) -> Result<Option<Pinned>> {
        let mut pool = locked(&self.pool);
        let ended = |(begun, _): &mut (Begun, Pinned)| begun.outcome() == Some(Ok(()));
        let ended: Vec<_> = pool.abandoned.extract_if(.., ended).collect();
        pool.idle
            .extend(ended.into_iter().map(|(_, pinned)| pinned));
        if let Some(pinned) = pool.idle.pop() {
            return Ok(Some(pinned));
        }
        if pool.allocated >= PINNED && !must {
            return Ok(None);
        }
        let pinned = self.runtime.pin(self.agent)?;
        pool.allocated += 1;
        Ok(Some(pinned))
    }

    fn keep(&self, pinned: Pinned) {
        locked(&self.pool).idle.push(pinned);
    }

    /// Begins to copy from the device to a buffer.
    ///
    /// # Safety
    /// The range is memory of the device, and may be read until the copy has been made.
    unsafe fn fetch(self: &Arc<Self>, pinned: Pinned, from: *const u8, len: usize) -> Result<Copy> {
        let place = (pinned.for_device(), self.host);
        // SAFETY: the caller guarantees that the source is valid, and the result has the buffer.
        let begun = unsafe { self.runtime.copy(place, (from, self.agent), len)? };
        Ok(Copy::new(self, begun, pinned))
    }

    /// Takes bytes into a buffer, and begins to copy them to the device.
    ///
    /// # Safety
    /// The source is valid during the call, the target until the copy has been made.
    unsafe fn bring(
        self: &Arc<Self>,
        pinned: Pinned,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<Copy> {
        // SAFETY: the caller guarantees that both ranges are valid, and the result has the buffer.
        let begun = unsafe {
            pinned.fill(from, len);
            let source = (pinned.for_device().cast_const(), self.host);
            self.runtime.copy((to, self.agent), source, len)?
        };
        Ok(Copy::new(self, begun, pinned))
    }
}

/// A copy between a device and a buffer. After a failure the buffer is not used again.
struct Copy {
    device: Arc<State>,
    with: Option<(Begun, Pinned)>,
    is_done: bool,
}

impl Copy {
    fn new(device: &Arc<State>, begun: Begun, pinned: Pinned) -> Self {
        Copy {
            device: device.clone(),
            with: Some((begun, pinned)),
            is_done: false,
        }
    }

    fn wait(&mut self) -> Result {
        loop {
            match self.poll() {
                Some(outcome) => return outcome,
                None => std::thread::yield_now(),
            }
        }
    }
}

impl Underway for Copy {
    fn poll(&mut self) -> Option<Result> {
        let Some((begun, _)) = self.with.as_mut().filter(|_| !self.is_done) else {
            return Some(Ok(()));
        };
        let outcome = begun.outcome()?;
        match outcome {
            Ok(()) => self.is_done = true,
            Err(_) => self.with = None,
        }
        Some(outcome)
    }
}

impl Fetching for Copy {
    fn copy_out(&self, at: usize, to: &mut [u8]) {
        if let Some((_, pinned)) = self.with.as_ref().filter(|_| self.is_done) {
            // SAFETY: the copy has been made.
            unsafe { pinned.read(at, to) };
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        match self.with.take() {
            Some((_, pinned)) if self.is_done => self.device.keep(pinned),
            Some(with) => locked(&self.device.pool).abandoned.push(with),
            None => {}
        }
    }
}

impl Copier for Device {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        let mut at = 0;
        while at < len {
            let part = (len - at).min(Pinned::LEN);
            let Some(pinned) = self.0.pinned(true)? else {
                break;
            };
            // SAFETY: the caller guarantees that both ranges are valid for `len` bytes.
            unsafe {
                let mut copy = self.0.fetch(pinned, from.add(at), part)?;
                copy.wait()?;
                copy.copy_out(0, std::slice::from_raw_parts_mut(to.add(at), part));
            }
            at += part;
        }
        Ok(())
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        let mut at = 0;
        while at < len {
            let part = (len - at).min(Pinned::LEN);
            let Some(pinned) = self.0.pinned(true)? else {
                break;
            };
            // SAFETY: the caller guarantees that both ranges are valid for `len` bytes.
            unsafe {
                let mut copy = self.0.bring(pinned, from.add(at), to.add(at), part)?;
                copy.wait()?;
            }
            at += part;
        }
        Ok(())
    }

    unsafe fn begin_write(
        &self,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<Option<(usize, Box<dyn Underway>)>> {
        let Some(pinned) = self.0.pinned(false)? else {
            return Ok(None);
        };
        let len = len.min(Pinned::LEN);
        // SAFETY: the caller keeps the contract.
        let copy = unsafe { self.0.bring(pinned, from, to, len)? };
        Ok(Some((len, Box::new(copy))))
    }

    unsafe fn begin_read(
        &self,
        from: *const u8,
        len: usize,
    ) -> Result<Option<(usize, Box<dyn Fetching>)>> {
        let Some(pinned) = self.0.pinned(false)? else {
            return Ok(None);
        };
        let len = len.min(Pinned::LEN);
        // SAFETY: the caller keeps the contract.
        let copy = unsafe { self.0.fetch(pinned, from, len)? };
        Ok(Some((len, Box::new(copy))))
    }

    unsafe fn copy(&self, from: *const u8, to: *mut u8, len: usize) -> Result {
        let target = self.0.runtime.owner(to.addr()).unwrap_or(self.0.agent);
        // SAFETY: the caller guarantees that both ranges are valid, and the call waits for the copy.
        let mut begun = unsafe {
            self.0
                .runtime
                .copy((to, target), (from, self.0.agent), len)?
        };
        loop {
            match begun.outcome() {
                Some(outcome) => return outcome,
                None => std::thread::yield_now(),
            }
        }
    }

    fn family(&self) -> Option<u32> {
        Some(ROCR)
    }

    fn identity(&self) -> (u32, u64) {
        (ROCR, self.0.number)
    }
}
