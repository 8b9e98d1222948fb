//! `ofi_hook_hmem`: memory of devices without descriptors.
//!
//! The providers of this library find out by its address whose memory an operation's buffer is, unless
//! the application has taken it upon itself to pass descriptors (`FI_MR_HMEM`). With this hook they
//! do so in any case, for applications that ask for that mode and do not keep to it.

use std::ffi::CStr;

use prov_base::device_memory;
use prov_base::errno::Result;

use crate::below::Below;
use crate::wrap::Hook;

/// The hook.
pub struct Hmem;

impl Hook for Hmem {
    const NAME: &'static CStr = c"ofi_hook_hmem";

    fn install(_below: Below) -> Result<Self> {
        device_memory::detect();
        Ok(Hmem)
    }
}
