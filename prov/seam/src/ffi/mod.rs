//! The seam between C and Rust (FFI boundary): only this room, the object model,
//! [`marshal`](prov_layer::marshal) and, for other providers' objects, [`below`](prov_layer::below)
//! dereference an application's pointer or a `fid`.
//!
//! A call arrives at an `extern "C"` function of a table. The function converts its arguments to
//! types, calls a method of a trait or of a toolkit object, and converts the result to the call's
//! return value.

mod atomic;
pub mod av;
pub mod buffered;
mod call;
pub mod cancel;
mod cm;
pub mod cntr;
mod collective;
pub mod cq;
pub mod domain;
pub mod ends;
pub mod ep;
pub mod eq;
pub mod external;
pub mod fabric;
mod getinfo;
mod group;
pub mod linked;
mod message;
pub mod mr;
mod msg;
mod multicast;
mod names;
mod options;
mod peer;
pub mod pep;
pub mod poll;
pub mod provider;
mod rma;
pub mod srx;
pub mod stx;
mod tables;
mod tagged;
#[cfg(test)]
pub(crate) mod test_domain;
#[cfg(test)]
mod test_endpoint;
pub mod traits;
pub mod wait;
mod work;

pub use crate::object::{self, AnyFid, AnyUse, Class, FidRef, Handle, Use, missing, status};
pub use prov_layer::marshal::{bytes, string};

use std::ffi::c_int;

use prov_base::errno::{Errno, Result};

/// Converts the result of a data call that returns 0 for success.
#[inline(always)]
pub fn posted(outcome: Result) -> isize {
    match outcome {
        Ok(()) => 0,
        Err(error) => error.to_c() as isize,
    }
}

/// Converts the result of a call that returns a count.
#[inline(always)]
pub fn count(outcome: Result<usize>) -> isize {
    match outcome {
        Ok(count) => count as isize,
        Err(error) => error.to_c() as isize,
    }
}

/// Stores a new object in the application's variable; `-FI_EINVAL` for a null pointer.
///
/// # Safety
/// A `place` that is not null may be written.
pub unsafe fn deliver<T: Class>(place: *mut *mut T::Header, made: Result<Handle<T>>) -> c_int {
    if place.is_null() {
        return Errno::EINVAL.to_c();
    }
    // SAFETY: the caller guarantees that `place` is writable; it is not null, which was checked.
    status(made.map(|handle| unsafe { place.write(handle.into_c()) }))
}
