//! Conversion between C structures and Rust values: `fi_info` with everything it points to, in all
//! of its historical layouts, and the caller's strings and bytes. The seam (`ffi`) and the layer
//! kit (`below`) are built on it.

mod allocated;
pub mod info;
pub mod layout;
mod nic;

use std::ffi::{CStr, c_char, c_void};

/// Returns the caller's C string; `None` for a null pointer.
///
/// # Safety
/// A `string` that is not null is a C string that outlives `'a`.
pub unsafe fn string<'a>(string: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller guarantees that the text is terminated and lives for 'a.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) })
}

/// Returns `len` bytes of the caller; empty for a null pointer.
///
/// # Safety
/// A `data` that is not null points to `len` bytes that outlive `'a`.
pub unsafe fn bytes<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees that there are `len` bytes that live for 'a.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}
