//! Text of fi_tostr(3).

use std::ffi::{CStr, c_void};

use fabric_abi::{FI_TYPE_EP_TYPE, FI_TYPE_PROTOCOL, FI_TYPE_VERSION, fi_type, symbols};

/// Longer than any text of the library about one entry.
const LONGEST: usize = 64 << 10;

/// Returns the library's text for a value.
///
/// # Safety
/// `data` points to what `kind` says.
pub(super) unsafe fn of(data: *const c_void, kind: fi_type) -> Vec<u8> {
    let mut buffer = vec![0u8; LONGEST];
    // SAFETY: the caller guarantees that the data has the type, and the buffer has the stated
    // length.
    unsafe { symbols::fi_tostr_r(buffer.as_mut_ptr().cast(), buffer.len(), data, kind) };
    let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
    text.to_bytes().to_vec()
}

/// Name of an endpoint type.
pub fn endpoint_type(kind: u32) -> Vec<u8> {
    // SAFETY: the data is an enumerator, as FI_TYPE_EP_TYPE requires.
    unsafe { of((&raw const kind).cast(), FI_TYPE_EP_TYPE) }
}

/// Name of a protocol.
pub fn protocol(number: u32) -> Vec<u8> {
    // SAFETY: the data is a 32-bit number, as FI_TYPE_PROTOCOL requires.
    unsafe { of((&raw const number).cast(), FI_TYPE_PROTOCOL) }
}

/// Returns the library's version as text.
pub fn library_version() -> Vec<u8> {
    // SAFETY: the data is a text, as FI_TYPE_VERSION permits, which does not use it.
    unsafe { of(c"1".as_ptr().cast(), FI_TYPE_VERSION) }
}

/// Returns the file that the library was loaded from.
pub fn library_file() -> Option<String> {
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = symbols::fi_getinfo as *const c_void;
    // SAFETY: dladdr(3) accepts all addresses, and `found` is writable.
    if unsafe { libc::dladdr(address, &mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null, so it refers to a terminated text that lives as long as the
    // library is loaded.
    let file = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(file.to_string_lossy().into_owned())
}
