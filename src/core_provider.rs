//! The structure that represents the library itself where C code expects a provider, as the origin
//! of log messages.

use std::cell::UnsafeCell;

use fabric_abi::*;

use crate::provider::Provider;
use crate::version::Version;

/// The library as a provider. It is in no registry and opens nothing.
#[allow(clippy::expect_used, reason = "the address of a static is not null")]
pub fn get() -> Provider {
    // SAFETY: the structure is a static, so it is valid as long as the process.
    unsafe { Provider::from_raw(CORE.0.get()) }.expect("a static is never NULL")
}

/// Returns the provider at `pointer`, or the library if that is NULL.
///
/// # Safety
/// `pointer` is NULL or a provider's structure.
pub unsafe fn unless(pointer: *const fi_provider) -> Provider {
    // SAFETY: the caller guarantees that the pointer is NULL or refers to a provider's structure.
    unsafe { Provider::from_raw(pointer.cast_mut()) }.unwrap_or_else(get)
}

struct Static(UnsafeCell<fi_provider>);

// SAFETY: nothing writes to the structure after its initialization.
unsafe impl Sync for Static {}

static CORE: Static = Static(UnsafeCell::new(fi_provider {
    version: Version::LIBRARY.to_c(),
    fi_version: Version::LIBRARY.to_c(),
    context: fi_context {
        internal: [std::ptr::null_mut(); 4],
    },
    name: c"core".as_ptr(),
    getinfo: None,
    fabric: None,
    cleanup: None,
}));
