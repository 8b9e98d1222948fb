//! `ucp_mem_h` and `ucp_rkey_h`: registered memory, and the keys to that of peers.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_util::mr::Memory;

use super::Context;
use crate::status::result;
use crate::sys::*;

/// Memory that peers can access, until the value is dropped.
pub struct Mapped {
    raw: NonNull<ucp_mem>,
    context: Arc<Context>,
}

// SAFETY: a registration belongs to its context, which any thread may use.
unsafe impl Send for Mapped {}
// SAFETY: a shared reference permits to pack its key, which the context's lock orders.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Registers memory.
    ///
    /// # Errors
    /// `-FI_EINVAL` for several segments, and those of UCX.
    pub fn map(context: &Arc<Context>, memory: &Memory) -> Result<Self> {
        if memory.pieces().len() != 1 {
            return Err(Errno::EINVAL);
        }
        let params = ucp_mem_map_params_t {
            field_mask: UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
            address: with_exposed_provenance_mut(memory.address()),
            length: memory.len(),
            flags: 0,
            prot: 0,
            memory_type: 0,
        };
        let mut raw = null_mut();
        // SAFETY: the parameters have the fields of the mask. The application keeps the memory
        // valid until it closes the region (`Memory::new`), which drops the result.
        let mapped = context.registering(|calls| unsafe {
            (calls.ucp_mem_map)(context.raw(), &raw const params, &raw mut raw)
        });
        result(mapped)?;
        Ok(Mapped {
            raw: NonNull::new(raw).ok_or(Errno::EINVAL)?,
            context: context.clone(),
        })
    }

    /// Returns the key that peers need.
    ///
    /// # Errors
    /// Those of UCX.
    pub fn packed(&self) -> Result<Vec<u8>> {
        let (mut buffer, mut len): (*mut c_void, usize) = (null_mut(), 0);
        self.context.registering(|calls| {
            let (context, raw) = (self.context.raw(), self.raw.as_ptr());
            // SAFETY: the registration is one of the context, and the places for the results are
            // writable.
            let packed =
                unsafe { (calls.ucp_rkey_pack)(context, raw, &raw mut buffer, &raw mut len) };
            result(packed)?;
            // SAFETY: UCP has returned a buffer of this length.
            let key = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) }.to_vec();
            // SAFETY: the buffer is UCP's, and not used any more.
            unsafe { (calls.ucp_rkey_buffer_release)(buffer) };
            Ok(key)
        })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let (context, raw) = (self.context.raw(), self.raw.as_ptr());
        // SAFETY: the registration is one of the context, and ends here.
        let unmapped = self
            .context
            .registering(|calls| unsafe { (calls.ucp_mem_unmap)(context, raw) });
        if let Err(error) = result(unmapped) {
            log::warn!(target: crate::LOG.mr, "UCX keeps memory registered: {error}");
        }
    }
}

/// A peer's key, as the worker's endpoint for that peer uses it. Only while the worker exists.
pub struct RemoteKey {
    pub(super) raw: NonNull<ucp_rkey>,
    ucp: Libucp,
}

// SAFETY: the key is used and dropped by who has the worker.
unsafe impl Send for RemoteKey {}
// SAFETY: a shared reference permits nothing without the worker.
unsafe impl Sync for RemoteKey {}

impl RemoteKey {
    /// Unpacks a key.
    ///
    /// # Safety
    /// `ep` is an endpoint of a worker that exists longer than the result.
    pub(super) unsafe fn unpack(ucp: Libucp, ep: NonNull<ucp_ep>, packed: &[u8]) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: the caller guarantees that the endpoint exists; the key is readable, and the place
        // for the result writable.
        let unpacked = unsafe {
            let calls = ucp.functions();
            (calls.ucp_ep_rkey_unpack)(ep.as_ptr(), packed.as_ptr().cast(), &raw mut raw)
        };
        result(unpacked)?;
        let raw = NonNull::new(raw).ok_or(Errno::EINVAL)?;
        Ok(RemoteKey { raw, ucp })
    }
}

impl Drop for RemoteKey {
    fn drop(&mut self) {
        let calls = self.ucp.functions();
        // SAFETY: no operation uses the key, since it would have a reference to this value, and the
        // worker exists.
        unsafe { (calls.ucp_rkey_destroy)(self.raw.as_ptr()) };
    }
}
