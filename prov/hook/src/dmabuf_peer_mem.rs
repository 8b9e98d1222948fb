//! `ofi_hook_dmabuf_peer_mem`: the place of the C library's hook of this name in the list of providers.
//!
//! That one informs a kernel module of dma-buf files, for network devices whose drivers do not accept
//! such files. The providers of this library pass them to the driver themselves (`FI_MR_DMABUF`),
//! so that the hook is not put over anything.

use std::ffi::CStr;

use prov_base::errno::{Errno, Result};

use crate::below::Below;
use crate::wrap::Hook;

const LOG: &str = prov_base::logging::UTIL.fabric;

/// The hook.
pub struct DmabufPeerMem;

impl Hook for DmabufPeerMem {
    const NAME: &'static CStr = c"ofi_hook_dmabuf_peer_mem";

    fn install(_below: Below) -> Result<Self> {
        log::warn!(
            target: LOG,
            "the hook dmabuf_peer_mem is not used: dma-buf files are registered with FI_MR_DMABUF"
        );
        Err(Errno::ENOSYS)
    }
}
