//! Allocations of other processes, by the handles of the driver (cuIpcGetMemHandle).

use std::sync::Arc;

use prov_base::device_memory::handles::{Allocation, Handle};
use prov_base::errno::{Errno, Result};

use super::super::{Mapped, closing};
use super::driver::{Context, Driver};

/// Opens another process's allocation on the device that it is of.
pub fn open(
    driver: &Arc<Driver>,
    devices: usize,
    handle: &Handle,
) -> Result<(usize, Box<dyn Mapped>)> {
    let mut all = 0..devices;
    let device = all.find(|device| driver.identification(*device) == Ok(handle.device));
    let device = device.ok_or(Errno::EINVAL)?;
    let context = driver.context(device)?;
    let entered = driver.enter(context)?;
    let address = entered.open(&handle.handle)?;
    let mut opened = OpenedHere {
        driver: driver.clone(),
        context,
        allocation: Allocation {
            base: address,
            len: 0,
            number: 0,
        },
    };
    // How long it is, the driver knows, not the peer.
    let found = entered.allocation(address).ok_or(Errno::EINVAL)?;
    let before = address.checked_sub(found.base).ok_or(Errno::EINVAL)?;
    opened.allocation.len = found.len.saturating_sub(before);
    opened.allocation.number = found.number;
    Ok((device, Box::new(opened)))
}

struct OpenedHere {
    driver: Arc<Driver>,
    context: Context,
    allocation: Allocation,
}

impl Mapped for OpenedHere {
    fn allocation(&self) -> Allocation {
        self.allocation
    }
}

impl Drop for OpenedHere {
    fn drop(&mut self) {
        let (driver, context, base) = (self.driver.clone(), self.context, self.allocation.base);
        closing::aside(move || {
            if let Ok(entered) = driver.enter(context) {
                // SAFETY: whoever copies from or to the allocation borrows the value, which is dropped.
                unsafe { entered.close(base) };
            }
        });
    }
}
