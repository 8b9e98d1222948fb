//! Memory from malloc(3) for the parts of C structures, which others may free.

use prov_base::errno::{Errno, Result};

/// # Safety
/// All zeros is a valid `T`.
pub(super) unsafe fn zeroed<T>() -> Result<*mut T> {
    // SAFETY: calloc(3) accepts all sizes, and its result is checked.
    let memory = unsafe { libc::calloc(1, size_of::<T>()) };
    if memory.is_null() {
        return Err(Errno::ENOMEM);
    }
    Ok(memory.cast())
}

/// Returns an allocated copy; null for no bytes.
pub(super) fn copy(bytes: &[u8]) -> Result<*mut u8> {
    if bytes.is_empty() {
        return Ok(std::ptr::null_mut());
    }
    // SAFETY: malloc(3) accepts all sizes, and its result is checked.
    let memory: *mut u8 = unsafe { libc::malloc(bytes.len()) }.cast();
    if memory.is_null() {
        return Err(Errno::ENOMEM);
    }
    // SAFETY: `memory` was just allocated with the length of the bytes.
    unsafe { memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(memory)
}
