//! The adapter, which all objects of the device belong to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric_abi::FI_MR_PROV_KEY;
use parking_lot::{Mutex, MutexGuard};
use prov_base::errno::Result;
use prov_util::mr::{self, MrTable};
use rustix::event::{EventfdFlags, eventfd};

use super::Mock;
use super::engine::Engine;
use crate::device::Device;

/// An open device.
pub struct Adapter {
    engine: Mutex<Engine>,
    /// The memory that peers can access.
    pub(super) table: MrTable,
    is_gone: AtomicBool,
    /// Readable once the device is gone.
    end: OwnedFd,
}

impl Adapter {
    /// Opens a device.
    pub fn new() -> Result<Arc<Self>> {
        let table = MrTable::new(&mr::Config {
            mr_mode: FI_MR_PROV_KEY,
            key_size: size_of::<u32>(),
            target: Mock::LOG.mr,
            ..mr::Config::default()
        });
        Ok(Arc::new(Adapter {
            engine: Mutex::new(Engine::new(table.accessor())),
            table,
            is_gone: AtomicBool::new(false),
            end: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        }))
    }

    pub(super) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock()
    }

    /// Stops the device, whose requests wait until it goes on.
    pub fn hold(&self, is_held: bool) {
        self.engine().hold(is_held);
    }

    /// Removes the device: nothing completes any longer.
    pub fn remove(&self) {
        self.hold(true);
        self.is_gone.store(true, Ordering::Relaxed);
        // Fails only if it is readable already.
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

impl AsFd for Adapter {
    /// Readable once the device is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}
