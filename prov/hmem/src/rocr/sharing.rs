//! Allocations of other processes, by the handles of the runtime (hsa_amd_ipc_memory_create).
//!
//! The runtime has no numbers that tell an allocation from a later one at its address. They are given here:
//! the runtime says when an allocation ends.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use prov_base::device_memory::handles::{Allocation, DEVICE, HANDLE, Handle};
use prov_base::errno::{Errno, Result};

use super::super::library::library;
use super::super::{LOG, Mapped, ROCR, closing};
use super::runtime::{Agent, Runtime, SUCCESS, Status};

/// `hsa_amd_ipc_memory_t`
type IpcHandle = [u32; 8];

/// A function that hears of the end of an allocation.
type OnEnd = unsafe extern "C" fn(*mut c_void, *mut c_void);

library! {
    /// The runtime's functions for handles.
    Functions in "libhsa-runtime64.so.1" {
        create as "hsa_amd_ipc_memory_create"(*mut c_void, usize, *mut IpcHandle);
        attach as "hsa_amd_ipc_memory_attach"(
            *const IpcHandle, usize, u32, *const Agent, *mut *mut c_void
        );
        detach as "hsa_amd_ipc_memory_detach"(*mut c_void);
        on_end as "hsa_amd_register_deallocation_callback"(*mut c_void, OnEnd, *mut c_void);
    } -> Status
}

/// What makes and opens handles.
pub struct Sharing {
    runtime: Arc<Runtime>,
    functions: Functions,
}

/// The numbers of allocations that were shared and have not ended, by their first address.
static NUMBERS: LazyLock<Mutex<HashMap<usize, u64>>> = LazyLock::new(Mutex::default);

fn numbers() -> MutexGuard<'static, HashMap<usize, u64>> {
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn has_ended(base: *mut c_void, _: *mut c_void) {
    numbers().remove(&base.addr());
}

fn refused(call: &str, status: Status) -> bool {
    if status != SUCCESS {
        log::debug!(target: LOG, "ROCr: {call}: status {status:#x}");
    }
    status != SUCCESS
}

impl Sharing {
    /// Returns it for a runtime; `None` for one that lacks the functions.
    pub fn of(runtime: &Arc<Runtime>) -> Option<Arc<Sharing>> {
        let functions = Functions::load();
        let functions = functions.inspect_err(
            |error| log::info!(target: LOG, "ROCr opens no memory of other processes: {error}"),
        );
        Some(Arc::new(Sharing {
            runtime: runtime.clone(),
            functions: functions.ok()?,
        }))
    }

    /// Returns the allocation that an address is in.
    pub fn allocation(&self, address: usize) -> Option<Allocation> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (base, len) = self.runtime.range(address)?;
        if let Some(&number) = numbers().get(&base) {
            return Some(Allocation { base, len, number });
        }
        // It may end meanwhile, which is heard of only behind this.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut known = numbers();
        known.insert(base, number);
        bounded!(known, OBJECTS);
        drop(known);
        let place = std::ptr::with_exposed_provenance_mut(base);
        // SAFETY: the address is that of an allocation, or refused; the function accepts any value with it.
        let status = unsafe { (self.functions.on_end)(place, has_ended, std::ptr::null_mut()) };
        if refused("hsa_amd_register_deallocation_callback", status) {
            numbers().remove(&base);
            return None;
        }
        Some(Allocation { base, len, number })
    }

    /// Makes the handle of an allocation of a device.
    pub fn handle(&self, device: [u8; DEVICE], allocation: Allocation) -> Result<Handle> {
        let mut words = IpcHandle::default();
        let base = std::ptr::with_exposed_provenance_mut(allocation.base);
        // SAFETY: the place is one for the result; the function checks the range.
        let made = unsafe { (self.functions.create)(base, allocation.len, &raw mut words) };
        if refused("hsa_amd_ipc_memory_create", made) {
            return Err(Errno::ENOSYS);
        }
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        let len = (allocation.len as u64).to_ne_bytes();
        let mut handle = [0; HANDLE];
        for (place, byte) in handle.iter_mut().zip(words.chain(len)) {
            *place = byte;
        }
        Ok(Handle {
            interface: ROCR,
            device,
            handle,
        })
    }

    /// Opens another process's allocation of a device. How long it is, the peer says, and the runtime checks.
    pub fn open(self: &Arc<Self>, agent: Agent, handle: &Handle) -> Result<Box<dyn Mapped>> {
        let (chunks, _) = handle.handle.as_chunks::<4>();
        let mut words = IpcHandle::default();
        for (word, bytes) in words.iter_mut().zip(chunks) {
            *word = u32::from_ne_bytes(*bytes);
        }
        let (_, rest) = handle.handle.split_at(size_of::<IpcHandle>());
        let len = rest
            .first_chunk::<8>()
            .map_or(0, |len| u64::from_ne_bytes(*len));
        let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the place is one for the result; the function checks the handle and the length.
        let attached = unsafe {
            (self.functions.attach)(&raw const words, len, 1, &raw const agent, &raw mut address)
        };
        if refused("hsa_amd_ipc_memory_attach", attached) {
            return Err(Errno::EINVAL);
        }
        let mut opened = OpenedHere {
            sharing: self.clone(),
            allocation: Allocation {
                base: address.expose_provenance(),
                len: 0,
                number: 0,
            },
        };
        let (base, found) = self
            .runtime
            .range(opened.allocation.base)
            .ok_or(Errno::EINVAL)?;
        let before = opened
            .allocation
            .base
            .checked_sub(base)
            .ok_or(Errno::EINVAL)?;
        opened.allocation.len = found.saturating_sub(before).min(len);
        Ok(Box::new(opened))
    }
}

struct OpenedHere {
    sharing: Arc<Sharing>,
    allocation: Allocation,
}

impl Mapped for OpenedHere {
    fn allocation(&self) -> Allocation {
        self.allocation
    }
}

impl Drop for OpenedHere {
    fn drop(&mut self) {
        let (sharing, base) = (self.sharing.clone(), self.allocation.base);
        closing::aside(move || {
            let place = std::ptr::with_exposed_provenance_mut(base);
            // SAFETY: whoever copies from or to the allocation borrows the value, which is dropped.
            let status = unsafe { (sharing.functions.detach)(place) };
            refused("hsa_amd_ipc_memory_detach", status);
        });
    }
}
