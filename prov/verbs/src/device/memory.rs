//! Protection domains and registered memory.

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::process::Process;
use prov_device::registrar::{Access, Region};
use prov_util::mr::{Dmabuf, Memory};

use super::{Context, numbered};
use crate::sys::ibverbs::*;

/// Groups objects of a device: a queue pair can access only memory of its own protection domain.
pub struct ProtectionDomain {
    pd: NonNull<ibv_pd>,
    context: Context,
    /// Only the process that created the object destroys it.
    process: Process,
}

// SAFETY: libibverbs and librdmacm permit calls for one object from several threads.
unsafe impl Send for ProtectionDomain {}
// SAFETY: a shared reference permits the same accesses, from several threads.
unsafe impl Sync for ProtectionDomain {}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a protection domain of {:?}", self.context)
    }
}

impl ProtectionDomain {
    /// Creates a protection domain.
    pub fn new(context: Context) -> Result<Arc<Self>> {
        // SAFETY: the device is open, as long as its `Context` exists.
        let pd = unsafe { (context.libraries.verbs().ibv_alloc_pd)(context.as_ptr()) };
        let pd = NonNull::new(pd).ok_or_else(Errno::last_os_error)?;
        Ok(Arc::new(ProtectionDomain {
            pd,
            context,
            process: Process::current(),
        }))
    }

    /// Returns its device.
    pub fn context(&self) -> Context {
        self.context
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        // SAFETY: the object is open, and all objects that were created in it are closed, since
        // each held a reference.
        let outcome = unsafe { (self.context.libraries.verbs().ibv_dealloc_pd)(self.as_ptr()) };
        if let Err(error) = numbered(outcome) {
            log::warn!(target: crate::LOG.domain, "ibv_dealloc_pd: {error}");
        }
    }
}

/// Returns permissions in the library's representation.
fn bits(access: Access) -> i32 {
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    let bits = bit(access.is_written(), IBV_ACCESS_LOCAL_WRITE)
        | bit(access.remote_read, IBV_ACCESS_REMOTE_READ)
        | bit(access.remote_write, IBV_ACCESS_REMOTE_WRITE)
        | bit(access.remote_atomic, IBV_ACCESS_REMOTE_ATOMIC);
    bits as i32
}

/// Memory that a device can access.
pub struct MemoryRegion {
    mr: NonNull<ibv_mr>,
    pd: Arc<ProtectionDomain>,
    /// Only the process that created the object destroys it.
    process: Process,
}

// SAFETY: a region is only read and closed, and libibverbs permits that from any thread.
unsafe impl Send for MemoryRegion {}
// SAFETY: a shared reference only permits to read the keys, which do not change.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers the first segment of `memory`.
    pub fn register(pd: &Arc<ProtectionDomain>, memory: &Memory, access: Access) -> Result<Self> {
        let address = std::ptr::with_exposed_provenance_mut(memory.address());
        // SAFETY: the application has guaranteed that the memory is valid (`Memory::new`); for a
        // range without memory the function returns an error.
        let mr = unsafe {
            let verbs = pd.context.libraries.verbs();
            (verbs.ibv_reg_mr)(pd.as_ptr(), address, memory.len(), bits(access))
        };
        Self::made(mr, pd)
    }

    /// Registers memory that a file represents (dma-buf).
    pub fn register_dmabuf(
        pd: &Arc<ProtectionDomain>,
        dmabuf: &Dmabuf,
        memory: &Memory,
        access: Access,
    ) -> Result<Self> {
        let verbs = pd.context.libraries.verbs();
        let register = verbs.ibv_reg_dmabuf_mr.ok_or(Errno::ENOSYS)?;
        // SAFETY: the file is open during the call, which uses no memory of this process.
        let mr = unsafe {
            register(
                pd.as_ptr(),
                dmabuf.offset,
                memory.len(),
                memory.address() as u64,
                dmabuf.fd,
                bits(access),
            )
        };
        Self::made(mr, pd)
    }

    fn made(mr: *mut ibv_mr, pd: &Arc<ProtectionDomain>) -> Result<Self> {
        let mr = NonNull::new(mr).ok_or_else(Errno::last_os_error)?;
        Ok(MemoryRegion {
            mr,
            pd: pd.clone(),
            process: Process::current(),
        })
    }
}

impl Region for MemoryRegion {
    fn local_key(&self) -> u32 {
        // SAFETY: the region is open until it is dropped, and its keys do not change.
        unsafe { (*self.mr.as_ptr()).lkey }
    }

    fn remote_key(&self) -> u32 {
        // SAFETY: the region is open until it is dropped, and its keys do not change.
        unsafe { (*self.mr.as_ptr()).rkey }
    }
}

/// Memory of the library that the device may write to and that is never read.
pub struct Scratch {
    region: MemoryRegion,
    /// Must be dropped after the region.
    memory: Box<UnsafeCell<[u64; Scratch::SIZE / size_of::<u64>()]>>,
}

// SAFETY: only the device accesses the memory, and libibverbs permits calls from any thread.
unsafe impl Send for Scratch {}
// SAFETY: a shared reference permits the same accesses, from several threads.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// Size of the memory in bytes.
    pub const SIZE: usize = 64;

    /// Allocates and registers the memory.
    pub fn new(pd: &Arc<ProtectionDomain>) -> Result<Self> {
        let memory = Box::new(UnsafeCell::new([0; Self::SIZE / size_of::<u64>()]));
        let access = Access {
            local_write: true,
            ..Access::default()
        };
        // SAFETY: the memory is freed after the region is closed, and only the device accesses it.
        let mr = unsafe {
            let verbs = pd.context.libraries.verbs();
            (verbs.ibv_reg_mr)(pd.as_ptr(), memory.get().cast(), Self::SIZE, bits(access))
        };
        let region = MemoryRegion::made(mr, pd)?;
        Ok(Scratch { region, memory })
    }

    /// Returns its first `len` bytes, for a work request.
    pub(super) fn piece(&self, len: usize) -> ibv_sge {
        ibv_sge {
            addr: self.memory.get().expose_provenance() as u64,
            length: len.min(Self::SIZE) as u32,
            lkey: self.region.local_key(),
        }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        // SAFETY: the region is open, and is closed once, by its owner.
        let outcome = unsafe { (self.pd.context.libraries.verbs().ibv_dereg_mr)(self.mr.as_ptr()) };
        if let Err(error) = numbered(outcome) {
            log::warn!(target: crate::LOG.mr, "ibv_dereg_mr: {error}");
        }
    }
}
