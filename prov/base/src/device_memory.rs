//! Memory of devices, as far as the layers above have to know it: which segments of a loan are such
//! memory, and who copies their bytes.
//!
//! The processor reaches no byte of it. Whoever knows an interface (`prov_hmem`, or the application
//! with functions of its own) brings a [`Copier`]; a [`Kind`] is its number, one byte, which
//! [`Iov`](crate::buffer::Iov) keeps for each segment. A copy that fails is noted here with the
//! addresses concerned ([`take_failure`]), since the code that moves bytes counts them, and the code
//! that reports an operation asks afterwards.

pub mod handles;
mod underway;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use crate::errno::{Errno, Result};
use crate::warn_again;

use self::handles::{Allocation, Handle, Opened};
pub use self::underway::{Fetching, Underway, Waits, anybody_waits, keeps_up};
pub(crate) use self::underway::{is_settled, write_behind};

const LOG: &str = crate::logging::UTIL.mr;

/// Copies between memory of the host and memory of one device.
///
/// When another function than [`Copier::begin_write`] returns, the copy has been made, or has failed
/// for good: nothing accesses the memory any longer.
pub trait Copier: Send + Sync {
    /// Copies `len` bytes of the device's memory to the host.
    ///
    /// # Errors
    /// The device's; the bytes at `to` are arbitrary then.
    ///
    /// # Safety
    /// Both ranges are valid, and lent to an operation in progress.
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) -> Result;

    /// Copies `len` bytes of the host's to the device's memory.
    ///
    /// # Errors
    /// As for [`Copier::read`].
    ///
    /// # Safety
    /// As for [`Copier::read`].
    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) -> Result;

    /// Copies within the memory of devices of one interface ([`Copier::family`]).
    ///
    /// # Errors
    /// As for [`Copier::read`].
    ///
    /// # Safety
    /// As for [`Copier::read`].
    unsafe fn copy(&self, from: *const u8, to: *mut u8, len: usize) -> Result;

    /// Begins to copy up to `len` bytes of the host's to the device's memory: takes them into a
    /// buffer, and returns their number and the copy. `None` if there is no buffer.
    ///
    /// # Errors
    /// As for [`Copier::read`].
    ///
    /// # Safety
    /// The host's bytes are valid during the call, those of the device until the copy has been made.
    unsafe fn begin_write(
        &self,
        _from: *const u8,
        _to: *mut u8,
        _len: usize,
    ) -> Result<Option<(usize, Box<dyn Underway>)>> {
        Ok(None)
    }

    /// Begins to copy up to `len` bytes of the device's memory to a buffer of the copier's: returns their
    /// number and the copy. `None` if there is no buffer.
    ///
    /// # Errors
    /// As for [`Copier::read`].
    ///
    /// # Safety
    /// The range is memory of the device, which may be read until the copy has been made.
    unsafe fn begin_read(
        &self,
        _from: *const u8,
        _len: usize,
    ) -> Result<Option<(usize, Box<dyn Fetching>)>> {
        Ok(None)
    }

    /// Prepares for copies of memory that is registered, until the value is dropped: later copies may be
    /// faster. `None` if there is nothing to undo.
    fn prepare(&self, _address: usize, _len: usize) -> Option<Box<dyn Prepared>> {
        None
    }

    /// Returns the allocation that an address is in, for copiers that make handles of it.
    fn allocation(&self, _address: usize) -> Option<Allocation> {
        None
    }

    /// Makes the handle by which other processes of this host open an allocation.
    ///
    /// # Errors
    /// `-FI_ENOSYS` for a device without handles, and the driver's.
    fn handle(&self, _allocation: Allocation) -> Result<Handle> {
        Err(Errno::ENOSYS)
    }

    /// A number that copiers have in common which can copy to each other; `None` for one that cannot
    /// copy within its devices at all.
    fn family(&self) -> Option<u32>;

    /// Returns the interface (`fi_hmem_iface`) and the device, as memory is registered with another
    /// provider (fi_mr_regattr(3)).
    fn identity(&self) -> (u32, u64);
}

/// What a copier has prepared for memory ([`Copier::prepare`]).
pub trait Prepared: Send + Sync {}

/// The interfaces of this process: what their drivers know.
pub trait Interfaces: Send + Sync {
    /// Returns the kind of memory of a device of an interface (`fi_hmem_iface`), whose range begins
    /// at `address`, as an application registers it (fi_mr_regattr(3)).
    ///
    /// # Errors
    /// `-FI_ENOSYS` if the interface is not here, `-FI_EINVAL` for a device that it does not have,
    /// and for memory that is not that device's; and the driver's.
    fn kind(&self, interface: u32, device: i32, address: usize) -> Result<Kind>;

    /// Returns the kind of the memory at an address: the host's, if no driver knows it.
    ///
    /// # Errors
    /// The driver's, for a device that cannot be used.
    fn owner(&self, address: usize) -> Result<Kind>;

    /// Whether an interface is here, with a device.
    fn has(&self, interface: u32) -> bool;

    /// Opens another process's allocation.
    ///
    /// # Errors
    /// `-FI_ENOSYS` if the interface is not here or cannot do that, `-FI_EINVAL` for a device that
    /// this process does not have, and the driver's.
    fn open(&self, handle: &Handle) -> Result<Box<dyn Opened>>;
}

static INTERFACES: OnceLock<&'static dyn Interfaces> = OnceLock::new();

/// Makes the interfaces known, once for the process.
pub fn install(interfaces: &'static dyn Interfaces) {
    let _ = INTERFACES.set(interfaces);
}

/// Returns the interfaces; `None` if none were made known, when all memory is the host's.
pub fn interfaces() -> Option<&'static dyn Interfaces> {
    INTERFACES.get().copied()
}

/// Whether memory is looked up by its address wherever it has no descriptor.
static DETECTS: AtomicBool = AtomicBool::new(false);

/// Has all domains that are opened from now on look memory without a descriptor up by its address
/// (fi_hook(7), hmem).
pub fn detect() {
    DETECTS.store(true, Ordering::Relaxed);
}

/// Whether [`detect`] was called.
pub fn detects() -> bool {
    DETECTS.load(Ordering::Relaxed)
}

/// Whose memory a segment is: the host's, or a device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kind(u8);

/// Number of [`Kind`]s, that of the host among them: they are one byte.
const KINDS: usize = 256;

/// The copiers, at the position of their number less one.
static COPIERS: RwLock<Vec<Option<Arc<dyn Copier>>>> = RwLock::new(Vec::new());

impl Kind {
    /// Memory of the host.
    pub const HOST: Kind = Kind(0);

    /// Returns the kind of memory that a copier reaches. It is in use until [`Kind::end`].
    ///
    /// # Errors
    /// `-FI_ENOMEM` if 255 are in use.
    pub fn new(copier: Arc<dyn Copier>) -> Result<Kind> {
        let mut copiers = COPIERS.write();
        let free = copiers.iter().position(Option::is_none);
        let position = free.unwrap_or(copiers.len());
        let number = u8::try_from(position + 1).map_err(|_| Errno::ENOMEM)?;
        match copiers.get_mut(position) {
            Some(place) => *place = Some(copier),
            None => copiers.push(Some(copier)),
        }
        const { assert!(KINDS == u8::MAX as usize + 1) };
        Ok(Kind(number))
    }

    /// Gives the number back. Memory of this kind must not be accessed any more; an access fails.
    pub fn end(self) {
        let mut copiers = COPIERS.write();
        if let Some(place) = self.position().and_then(|at| copiers.get_mut(at)) {
            *place = None;
        }
    }

    /// Returns the interface and the device; `None` for the host.
    pub fn identity(self) -> Option<(u32, u64)> {
        let copier = self.copier().ok().flatten();
        copier.map(|copier| copier.identity())
    }

    /// [`Copier::prepare`]
    pub fn prepare(self, address: usize, len: usize) -> Option<Box<dyn Prepared>> {
        let copier = self.copier().ok().flatten()?;
        copier.prepare(address, len)
    }

    /// Whether it is memory of the host.
    pub fn is_host(self) -> bool {
        self == Kind::HOST
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn from_number(number: u8) -> Kind {
        Kind(number)
    }

    fn position(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }

    /// Returns the copier, `None` for the host's memory. It is not called with the table's lock.
    pub(crate) fn copier(self) -> Result<Option<Arc<dyn Copier>>> {
        let Some(position) = self.position() else {
            return Ok(None);
        };
        let copier = COPIERS.read().get(position).cloned().flatten();
        copier.map(Some).ok_or(Errno::EINVAL)
    }
}

impl Kind {
    /// [`Copier::begin_read`]; a failure is in the log.
    ///
    /// # Safety
    /// As there, and the memory is of this kind.
    pub(crate) unsafe fn begin_read(
        self,
        from: *const u8,
        len: usize,
    ) -> Result<Option<(usize, Box<dyn Fetching>)>> {
        let Some(copier) = self.copier()? else {
            return Ok(None);
        };
        // SAFETY: the caller keeps the contract.
        let begun = unsafe { copier.begin_read(from, len) };
        begun.inspect_err(|error| {
            warn_again!(target: LOG, "reading {len} bytes of a device at {from:p} failed: {error}");
        })
    }
}

/// One side of a copy.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub kind: Kind,
    pub address: *mut u8,
}

/// Bytes that pass through the host at a time where no copier reaches both sides.
const BOUNCED: usize = 64 << 10;

/// Copies between memory of any two kinds; notes a failure for both sides that are a device's.
///
/// # Safety
/// Both ranges are valid for `len` bytes, and of the kind that is given.
pub(crate) unsafe fn copy(from: Place, to: Place, len: usize) -> Result {
    // SAFETY: the caller's guarantee is that of the called function.
    let copied = unsafe { copy_checked(from, to, len) };
    if let Err(error) = copied {
        warn_again!(
            target: LOG,
            "copying {len} bytes between {:?} at {:p} and {:?} at {:p} failed: {error}",
            from.kind, from.address, to.kind, to.address
        );
        for place in [from, to] {
            if !place.kind.is_host() {
                note_failure(place.address.addr(), len);
            }
        }
    }
    copied
}

/// # Safety
/// As for [`copy`].
unsafe fn copy_checked(from: Place, to: Place, len: usize) -> Result {
    // SAFETY: the caller guarantees that both ranges are valid, and which device reaches them; the
    // buffer in between is as long as the parts.
    unsafe {
        match (from.kind.copier()?, to.kind.copier()?) {
            (None, None) => std::ptr::copy(from.address, to.address, len),
            (Some(device), None) => device.read(from.address, to.address, len)?,
            (None, Some(device)) => device.write(from.address, to.address, len)?,
            (Some(near), Some(far)) if near.family().is_some() && near.family() == far.family() => {
                near.copy(from.address, to.address, len)?;
            }
            (Some(near), Some(far)) => {
                let mut bounce = vec![0; len.min(BOUNCED)];
                let mut at = 0;
                while at < len {
                    let part = bounce.len().min(len - at);
                    near.read(from.address.add(at), bounce.as_mut_ptr(), part)?;
                    far.write(bounce.as_ptr(), to.address.add(at), part)?;
                    at += part;
                }
            }
        }
    }
    Ok(())
}

/// Device addresses of copies that failed, and their lengths.
static FAILED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
/// Whether there are any: asked without the lock.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);
/// Failures that are kept: beyond that the oldest is dropped, whose operation has ended without
/// having asked.
const FAILURES: usize = 1024;

fn note_failure(address: usize, len: usize) {
    let mut failed = FAILED.lock();
    if failed.len() == FAILURES {
        failed.remove(0);
    }
    failed.push((address, len));
    HAS_FAILED.store(true, Ordering::Release);
}

/// Whether there are failures that nobody has asked for. Cheap.
#[inline(always)]
pub fn has_failures() -> bool {
    HAS_FAILED.load(Ordering::Acquire)
}

/// Returns `-FI_EIO` if a copy from or to this memory of a device has failed since the last call for
/// it.
pub(crate) fn take_failure(address: usize, len: usize) -> Result {
    if !has_failures() {
        return Ok(());
    }
    let mut failed = FAILED.lock();
    let before = failed.len();
    failed.retain(|&(at, count)| {
        at.saturating_add(count) <= address || address.saturating_add(len) <= at
    });
    HAS_FAILED.store(!failed.is_empty(), Ordering::Release);
    match failed.len() == before {
        true => Ok(()),
        false => Err(Errno::EIO),
    }
}
