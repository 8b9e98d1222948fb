//! Text of fi_tostr(3).

use std::ffi::{CStr, c_void};

use fabric_abi::{FI_TYPE_EP_TYPE, FI_TYPE_PROTOCOL, FI_TYPE_VERSION, fi_type, symbols};

/// Longer than any text that the library writes about one entry.
const LONGEST: usize = 64 << 10;

/// The library's text for a value.
///
/// # Safety
/// `data` points to what `kind` says.
pub(super) unsafe fn of(data: *const c_void, kind: fi_type) -> Vec<u8> {
    let mut buffer = vec![0u8; LONGEST];
    // SAFETY: the caller's promise; the buffer is as long as said.
    unsafe { symbols::fi_tostr_r(buffer.as_mut_ptr().cast(), buffer.len(), data, kind) };
    let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
    text.to_bytes().to_vec()
}

/// Name of an endpoint type.
pub fn endpoint_type(kind: u32) -> Vec<u8> {
    // SAFETY: FI_TYPE_EP_TYPE takes an enumerator.
    unsafe { of((&raw const kind).cast(), FI_TYPE_EP_TYPE) }
}

/// Name of a protocol.
pub fn protocol(number: u32) -> Vec<u8> {
    // SAFETY: FI_TYPE_PROTOCOL takes a 32-bit number.
    unsafe { of((&raw const number).cast(), FI_TYPE_PROTOCOL) }
}

/// The library's version in words.
pub fn library_version() -> Vec<u8> {
    // SAFETY: FI_TYPE_VERSION takes a string, and does not look at it.
    unsafe { of(c"1".as_ptr().cast(), FI_TYPE_VERSION) }
}
