//! Declarations of `<rdma/providers/fi_prov.h>`.

use crate::*;
use core::ffi::{c_char, c_int, c_void};

/// A provider: what `fi_prov_ini` of an external provider returns, fi_provider(3).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fi_provider {
    /// The provider's own version.
    pub version: u32,
    /// The interface version that the provider was built for.
    pub fi_version: u32,
    /// Used by the library only.
    pub context: fi_context,
    pub name: *const c_char,
    pub getinfo: Option<
        unsafe extern "C" fn(
            version: u32,
            node: *const c_char,
            service: *const c_char,
            flags: u64,
            hints: *const fi_info,
            info: *mut *mut fi_info,
        ) -> c_int,
    >,
    pub fabric: Option<
        unsafe extern "C" fn(
            attr: *mut fi_fabric_attr,
            fabric: *mut *mut fid_fabric,
            context: *mut c_void,
        ) -> c_int,
    >,
    /// Called when the library is unloaded.
    pub cleanup: Option<unsafe extern "C" fn()>,
}

zero_is_valid!(fi_provider);
