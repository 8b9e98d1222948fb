//! GDRCopy, libgdrapi.so.2: the processor reaches memory of a device through a mapping, and copies short
//! pieces itself, sooner than the driver has begun to.
//!
//! Only memory that is registered is mapped, as long as it is. Its application frees it after that.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use prov_base::device_memory::Prepared;

use super::super::LOG;
use super::super::library::library;
use super::super::staged::Direction;

/// `gdr_mh_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pin(c_ulong);

/// `GPU_PAGE_SIZE`: a mapping has whole pages of the device.
const PAGE: usize = 64 << 10;

/// Bytes up to which a copy is made in this way: the processor reads a device's memory uncached, a few bytes
/// at a time.
static SHORT: AtomicUsize = AtomicUsize::new(super::super::GDRCOPY_LIMIT);

/// Has longer copies be made by the driver.
pub fn limit(bytes: usize) {
    SHORT.store(bytes, Ordering::Relaxed);
}

/// Mappings that are tried for one copy: the nearest that begin before it.
const TRIED: usize = 4;

library! {
    /// The functions that return 0 or an error.
    Functions in "libgdrapi.so.2" {
        pin as "gdr_pin_buffer"(*mut c_void, c_ulong, usize, u64, u32, *mut Pin);
        unpin as "gdr_unpin_buffer"(*mut c_void, Pin);
        map as "gdr_map"(*mut c_void, Pin, *mut *mut c_void, usize);
        unmap as "gdr_unmap"(*mut c_void, Pin, *mut c_void, usize);
        write as "gdr_copy_to_mapping"(Pin, *mut c_void, *const c_void, usize);
        read as "gdr_copy_from_mapping"(Pin, *mut c_void, *const c_void, usize);
    } -> c_int
}

library! {
    /// The one that returns a handle.
    Opening in "libgdrapi.so.2" {
        open as "gdr_open"();
    } -> *mut c_void
}

/// The library, opened.
pub struct Gdr {
    functions: Functions,
    handle: *mut c_void,
    /// Held for calls that map and unmap.
    changes: Mutex<()>,
    /// By the first address, and a number. A copy holds the lock, so that what it uses stays mapped.
    windows: RwLock<BTreeMap<(usize, u64), Window>>,
}

// SAFETY: the library's functions may be called by any thread; those that change the handle are called
// one at a time.
unsafe impl Send for Gdr {}
// SAFETY: as above.
unsafe impl Sync for Gdr {}

/// A mapping of a device's pages.
struct Window {
    pin: Pin,
    end: usize,
    mapped: *mut c_void,
    len: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gdr {
    /// Opens the library; `None` if it is not here, lacks a function, or its kernel module is not
    /// loaded, with a line in the log.
    pub fn open() -> Option<Arc<Gdr>> {
        let loaded = Functions::load().and_then(|functions| Ok((functions, Opening::load()?)));
        let (functions, opening) = loaded
            .inspect_err(|error| log::info!(target: LOG, "no GDRCopy: {error}"))
            .ok()?;
        // SAFETY: the function has no arguments.
        let handle = unsafe { (opening.open)() };
        if handle.is_null() {
            log::info!(target: LOG, "no GDRCopy: gdr_open has failed");
            return None;
        }
        log::info!(target: LOG, "GDRCopy is here");
        Some(Arc::new(Gdr {
            functions,
            handle,
            changes: Mutex::default(),
            windows: RwLock::default(),
        }))
    }

    /// Maps a range of a device's memory, until the value is dropped; `None` if that is not possible.
    pub fn window(self: &Arc<Self>, address: usize, len: usize) -> Option<Box<dyn Prepared>> {
        let start = address / PAGE * PAGE;
        let whole = address.checked_add(len)?.checked_next_multiple_of(PAGE)? - start;
        let (mut pin, mut mapped) = (Pin(0), null_mut());
        let _changes = locked(&self.changes);
        // SAFETY: the range is checked by the driver, the places are ones for the results, and what
        // cannot be mapped is not used.
        let status = unsafe {
            match (self.functions.pin)(self.handle, start as c_ulong, whole, 0, 0, &raw mut pin) {
                0 => match (self.functions.map)(self.handle, pin, &raw mut mapped, whole) {
                    0 => 0,
                    status => {
                        (self.functions.unpin)(self.handle, pin);
                        status
                    }
                },
                status => status,
            }
        };
        if status != 0 || mapped.is_null() {
            log::debug!(target: LOG, "GDRCopy does not map {whole} bytes at {start:#x}: {status}");
            return None;
        }
        let window = Window {
            pin,
            end: start + whole,
            mapped,
            len: whole,
        };
        let mut windows = self.windows.write().unwrap_or_else(PoisonError::into_inner);
        let last = windows.range(..=(start, u64::MAX)).next_back();
        let number = last.map_or(0, |(key, _)| key.1 + 1);
        windows.insert((start, number), window);
        // One for each region of the application's.
        bounded!(windows, OBJECTS);
        Some(Box::new(Mapped {
            gdr: self.clone(),
            key: (start, number),
        }))
    }

    /// Makes a short copy to or from memory that is mapped; `false` if it is none.
    ///
    /// # Safety
    /// Both ranges are valid, and of the kinds that the direction says.
    pub unsafe fn copy(
        &self,
        direction: Direction,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> bool {
        let address = match direction {
            Direction::ToDevice => to.addr(),
            Direction::ToHost => from.addr(),
            Direction::Within => return false,
        };
        if len > SHORT.load(Ordering::Relaxed) {
            return false;
        }
        let windows = self.windows.read().unwrap_or_else(PoisonError::into_inner);
        let before = windows.range(..=(address, u64::MAX)).rev().take(TRIED);
        let mut before = before.map(|((start, _), window)| (*start, window));
        let Some((start, window)) = before.find(|(_, it)| len <= it.end.saturating_sub(address))
        else {
            return false;
        };
        let mapped = window.mapped.wrapping_byte_add(address - start);
        // SAFETY: the range is within the mapping, which exists as long as the lock is held, and the
        // caller guarantees that the host's is valid.
        let status = unsafe {
            match direction {
                Direction::ToDevice => (self.functions.write)(window.pin, mapped, from.cast(), len),
                _ => (self.functions.read)(window.pin, to.cast(), mapped, len),
            }
        };
        status == 0
    }
}

/// A range that is mapped.
struct Mapped {
    gdr: Arc<Gdr>,
    key: (usize, u64),
}

impl Prepared for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        let Gdr {
            functions,
            handle,
            changes,
            windows,
        } = &*self.gdr;
        let mut windows = windows.write().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = windows.remove(&self.key) else {
            return;
        };
        drop(windows);
        let _changes = locked(changes);
        // SAFETY: nothing uses the mapping any more: who does holds the lock, and finds it in the list.
        unsafe {
            (functions.unmap)(*handle, window.pin, window.mapped, window.len);
            (functions.unpin)(*handle, window.pin);
        }
    }
}
