//! Allocations of other processes, by the handles of the drivers (zeMemGetIpcHandle).
//!
//! Such a handle begins with a descriptor of the process that made it, in whose place the process that
//! opens it has a duplicate.

use std::ffi::c_void;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;

use prov_base::device_memory::handles::{Allocation, DEVICE, HANDLE, Handle};
use prov_base::errno::{Errno, Result};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::super::library::library;
use super::super::{LOG, Mapped, ZE, closing};
use super::loader::{Gpu, Loader, SUCCESS, Status};

/// `ze_ipc_mem_handle_t`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle([u8; HANDLE]);

/// `ze_device_properties_t`: its beginning up to the identification, and room for the rest.
#[repr(C)]
struct DeviceProperties {
    kind: u32,
    next: *mut c_void,
    /// Numbers about the device.
    before: [u64; 10],
    uuid: [u8; DEVICE],
    name: [u8; 256],
}

/// `ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES`
const DEVICE_PROPERTIES: u32 = 3;

const _: () = assert!(std::mem::offset_of!(DeviceProperties, uuid) == 96);

library! {
    /// The loader's functions for handles.
    Functions in "libze_loader.so.1" {
        device as "zeDeviceGetProperties"(*mut c_void, *mut c_void);
        range as "zeMemGetAddressRange"(
            *mut c_void, *const c_void, *mut *mut c_void, *mut usize
        );
        get as "zeMemGetIpcHandle"(*mut c_void, *const c_void, *mut IpcHandle);
        open as "zeMemOpenIpcHandle"(*mut c_void, *mut c_void, IpcHandle, u32, *mut *mut c_void);
        close as "zeMemCloseIpcHandle"(*mut c_void, *const c_void);
    } -> Status
}

/// What makes and opens handles.
pub struct Sharing {
    loader: Arc<Loader>,
    functions: Functions,
}

fn refused(call: &str, status: Status) -> bool {
    if status != SUCCESS {
        log::debug!(target: LOG, "Level Zero: {call}: status {status:#x}");
    }
    status != SUCCESS
}

impl Sharing {
    /// Returns it for the drivers of a loader; `None` for one that lacks the functions.
    pub fn of(loader: &Arc<Loader>) -> Option<Arc<Sharing>> {
        let functions = Functions::load().inspect_err(
            |error| log::info!(target: LOG, "Level Zero opens no memory of other processes: {error}"),
        );
        Some(Arc::new(Sharing {
            loader: loader.clone(),
            functions: functions.ok()?,
        }))
    }

    /// Returns what a device is called in all processes.
    pub fn identification(&self, gpu: Gpu) -> Result<[u8; DEVICE]> {
        let mut properties = DeviceProperties {
            kind: DEVICE_PROPERTIES,
            next: null_mut(),
            before: [0; 10],
            uuid: [0; DEVICE],
            name: [0; 256],
        };
        // SAFETY: the device is one that was returned, and the place is one for its properties.
        let told = unsafe { (self.functions.device)(gpu.device, (&raw mut properties).cast()) };
        match refused("zeDeviceGetProperties", told) {
            true => Err(Errno::ENOSYS),
            false => Ok(properties.uuid),
        }
    }

    /// Returns the allocation that an address is in.
    pub fn allocation(&self, gpu: Gpu, address: usize) -> Option<Allocation> {
        let place = std::ptr::without_provenance(address);
        let (mut base, mut len) = (null_mut::<c_void>(), 0);
        // SAFETY: both are places for the results, and the function checks the address.
        let told =
            unsafe { (self.functions.range)(gpu.context, place, &raw mut base, &raw mut len) };
        if refused("zeMemGetAddressRange", told) {
            return None;
        }
        Some(Allocation {
            base: base.expose_provenance(),
            len,
            number: self.loader.number(gpu, address)?,
        })
    }

    /// Makes the handle of an allocation of a device.
    pub fn handle(&self, gpu: Gpu, allocation: Allocation) -> Result<Handle> {
        let mut handle = IpcHandle([0; HANDLE]);
        let base = std::ptr::without_provenance(allocation.base);
        // SAFETY: the place is one for the result; the function checks the address.
        let made = unsafe { (self.functions.get)(gpu.context, base, &raw mut handle) };
        if refused("zeMemGetIpcHandle", made) {
            return Err(Errno::ENOSYS);
        }
        Ok(Handle {
            interface: ZE,
            device: self.identification(gpu)?,
            handle: handle.0,
        })
    }

    /// Opens an allocation of a process for a device.
    pub fn open(
        self: &Arc<Self>,
        gpu: Gpu,
        handle: &Handle,
        owner: u32,
    ) -> Result<Box<dyn Mapped>> {
        let mut own = IpcHandle(handle.handle);
        let (number, _) = own.0.split_first_chunk_mut::<4>().ok_or(Errno::EINVAL)?;
        let duplicate = duplicate(owner, i32::from_ne_bytes(*number))?;
        *number = duplicate.as_raw_fd().to_ne_bytes();
        let mut address = null_mut();
        // SAFETY: context and device belong together, the place is one for the result, and the function
        // checks the handle. The mapping does not need the descriptor any longer.
        let opened =
            unsafe { (self.functions.open)(gpu.context, gpu.device, own, 0, &raw mut address) };
        drop(duplicate);
        if refused("zeMemOpenIpcHandle", opened) {
            return Err(Errno::EINVAL);
        }
        let base = address.expose_provenance();
        let mut opened = OpenedHere {
            sharing: self.clone(),
            gpu,
            allocation: Allocation {
                base,
                len: 0,
                number: 0,
            },
        };
        // How long it is, the driver knows, not the peer.
        let found = self.allocation(gpu, base).ok_or(Errno::EINVAL)?;
        let before = base.checked_sub(found.base).ok_or(Errno::EINVAL)?;
        opened.allocation.len = found.len.saturating_sub(before);
        opened.allocation.number = found.number;
        Ok(Box::new(opened))
    }

    /// Closes an allocation.
    ///
    /// # Safety
    /// It was opened, and nothing accesses it any longer.
    unsafe fn close(&self, gpu: Gpu, base: usize) {
        let place = std::ptr::with_exposed_provenance(base);
        // SAFETY: the caller keeps the contract.
        let status = unsafe { (self.functions.close)(gpu.context, place) };
        refused("zeMemCloseIpcHandle", status);
    }
}

/// Duplicates a descriptor of another process, which the system permits to who may read its memory
/// (pidfd_getfd(2)).
fn duplicate(owner: u32, number: i32) -> Result<OwnedFd> {
    let pid = i32::try_from(owner).ok().and_then(Pid::from_raw);
    let process = pidfd_open(pid.ok_or(Errno::EINVAL)?, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

struct OpenedHere {
    sharing: Arc<Sharing>,
    gpu: Gpu,
    allocation: Allocation,
}

impl Mapped for OpenedHere {
    fn allocation(&self) -> Allocation {
        self.allocation
    }
}

impl Drop for OpenedHere {
    fn drop(&mut self) {
        let (sharing, gpu, base) = (self.sharing.clone(), self.gpu, self.allocation.base);
        // SAFETY: whoever copies from or to the allocation borrows the value, which is dropped.
        closing::aside(move || unsafe { sharing.close(gpu, base) });
    }
}
