//! ROCr (`FI_HMEM_ROCR`), by the runtime's interface, libhsa-runtime64.so.1.
//!
//! Every copy passes through pinned memory of the host, except those from device to device, and has a
//! signal of its own, which is asked again and again. It waits for no queue of the application.

mod runtime;
mod sharing;

use std::sync::Arc;

use prov_base::device_memory::Copier;
use prov_base::device_memory::handles::{Allocation, Handle};
use prov_base::errno::{Errno, Result};

use self::runtime::{Agent, Begun, Runtime};
use self::sharing::Sharing;
use super::staged::{Direction, Engine, Pinned, Staged};
use super::{Interface, LOG, Mapped, Owner, ROCR};

/// The runtime, which has started.
pub struct Rocr {
    runtime: Arc<Runtime>,
    sharing: Option<Arc<Sharing>>,
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
        let runtime = Arc::new(runtime);
        Some(Box::new(Rocr {
            sharing: Sharing::of(&runtime),
            runtime,
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
        let engine = Device {
            runtime: self.runtime.clone(),
            sharing: self.sharing.clone(),
            host: self.host,
            agent: agent.ok_or(Errno::EINVAL)?,
        };
        Ok(Arc::new(Staged::new(engine, device)))
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

    fn open(&self, handle: &Handle) -> Result<(usize, Box<dyn Mapped>)> {
        let sharing = self.sharing.as_ref().ok_or(Errno::ENOSYS)?;
        let mut all = self.devices.iter().enumerate();
        let found = all.find(|(_, agent)| {
            let identification = self.runtime.identification(**agent);
            identification == Ok(handle.device)
        });
        let (device, agent) = found.ok_or(Errno::EINVAL)?;
        Ok((device, sharing.open(*agent, handle)?))
    }
}

/// One device.
struct Device {
    runtime: Arc<Runtime>,
    sharing: Option<Arc<Sharing>>,
    host: Agent,
    agent: Agent,
}

impl Engine for Device {
    const INTERFACE: u32 = ROCR;
    type Begun = Begun;

    fn pin(&self) -> Result<Pinned> {
        self.runtime.pin(self.agent)
    }

    unsafe fn copy(
        &self,
        direction: Direction,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Result<Begun> {
        let (source, target) = match direction {
            Direction::ToHost => (self.agent, self.host),
            Direction::ToDevice => (self.host, self.agent),
            Direction::Within => {
                let target = self.runtime.owner(to.addr());
                (self.agent, target.unwrap_or(self.agent))
            }
        };
        // SAFETY: the caller keeps the contract.
        unsafe { self.runtime.copy((to, target), (from, source), len) }
    }

    fn allocation(&self, address: usize) -> Option<Allocation> {
        self.sharing.as_ref()?.allocation(address)
    }

    fn handle(&self, allocation: Allocation) -> Result<Handle> {
        let sharing = self.sharing.as_ref().ok_or(Errno::ENOSYS)?;
        let device = self.runtime.identification(self.agent)?;
        sharing.handle(device, allocation)
    }
}
