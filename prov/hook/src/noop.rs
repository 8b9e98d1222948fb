//! `ofi_hook_noop`: a layer that only passes calls on.

use std::ffi::CStr;

use prov_base::errno::Result;

use crate::below::Below;
use crate::wrap::Hook;

/// The hook.
pub struct Noop;

impl Hook for Noop {
    const NAME: &'static CStr = c"ofi_hook_noop";

    fn install(_below: Below) -> Result<Self> {
        Ok(Noop)
    }
}
