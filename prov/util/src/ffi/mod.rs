//! The seam between C and Rust: nothing outside this module dereferences an
//! application's pointer or a `fid`.
//!
//! A call arrives at an `extern "C"` function of a table, which turns its
//! arguments into types, calls a method of a trait or of a toolkit object, and
//! turns the result into the call's return value.

mod atomic;
pub mod av;
pub mod below;
pub mod buffered;
mod call;
pub mod cancel;
mod cm;
pub mod cntr;
mod collective;
pub mod cq;
pub mod domain;
pub mod ep;
pub mod eq;
pub mod external;
pub mod fabric;
mod getinfo;
pub mod info;
pub mod layout;
mod message;
pub mod mr;
mod msg;
mod nic;
mod options;
mod peer;
pub mod pep;
pub mod poll;
pub mod provider;
mod rma;
pub mod srx;
mod tagged;
#[cfg(test)]
mod test_domain;
#[cfg(test)]
mod test_endpoint;
pub mod traits;
pub mod wait;

pub use crate::object::{self, AnyFid, AnyUse, Class, FidRef, Handle, Use, missing, status};

use std::ffi::{c_char, c_int};

use crate::errno::{Errno, Result};

/// The return value of a data call that succeeds with 0.
#[inline(always)]
pub fn posted(outcome: Result) -> isize {
    match outcome {
        Ok(()) => 0,
        Err(error) => error.to_c() as isize,
    }
}

/// The return value of a call that succeeds with a count.
#[inline(always)]
pub fn count(outcome: Result<usize>) -> isize {
    match outcome {
        Ok(count) => count as isize,
        Err(error) => error.to_c() as isize,
    }
}

/// The caller's C string; `None` for a null pointer.
///
/// # Safety
/// A `string` that is not null is a C string that outlives `'a`.
pub unsafe fn string<'a>(string: *const c_char) -> Option<&'a std::ffi::CStr> {
    // SAFETY: the caller vouches for the string.
    (!string.is_null()).then(|| unsafe { std::ffi::CStr::from_ptr(string) })
}

/// Stores a new object where the application wants it; `-FI_EINVAL` where it
/// gave no place.
///
/// # Safety
/// A `place` that is not null may be written.
pub unsafe fn deliver<T: Class>(place: *mut *mut T::Header, made: Result<Handle<T>>) -> c_int {
    if place.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller vouches for the place.
    status(made.map(|handle| unsafe { place.write(handle.into_c()) }))
}

/// `len` bytes of the caller; empty for a null pointer.
///
/// # Safety
/// A `data` that is not null points to `len` bytes that outlive `'a`.
pub unsafe fn bytes<'a>(data: *const std::ffi::c_void, len: usize) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller vouches for the memory.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}
