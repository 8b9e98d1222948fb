//! Hints of fi_getinfo(3).

use std::ffi::{CString, c_int};
use std::ptr::NonNull;

use fabric_abi::{
    FI_EINVAL, FI_ENOMEM, FI_MR_BASIC, FI_MR_SCALABLE, fi_domain_attr, fi_ep_attr, fi_ep_type,
    fi_fabric_attr, fi_info, symbols,
};

use super::{Failure, Result};

/// An `fi_info` with all attribute structures for requests.
pub struct Hints {
    /// From fi_dupinfo, not shared; its attribute pointers are not null.
    raw: NonNull<fi_info>,
}

impl Hints {
    /// Creates hints that request nothing and accept no mode.
    pub fn new() -> Result<Hints> {
        // SAFETY: fi_dupinfo accepts NULL, for which it returns an empty entry.
        let raw = unsafe { symbols::fi_dupinfo(std::ptr::null()) };
        let failed = Failure {
            call: "fi_allocinfo",
            code: FI_ENOMEM,
        };
        let raw = NonNull::new(raw).ok_or(failed)?;
        let hints = Hints { raw };
        let info = hints.info();
        if info.ep_attr.is_null() || info.domain_attr.is_null() || info.fabric_attr.is_null() {
            return Err(failed);
        }
        Ok(hints)
    }

    /// Accepts every mode and every memory registration mode bit.
    pub fn accept_all_modes(&mut self) {
        self.info_mut().mode = u64::MAX;
        self.domain_mut().mode = u64::MAX;
        self.domain_mut().mr_mode = !(FI_MR_BASIC | FI_MR_SCALABLE);
    }

    pub fn set_modes(&mut self, modes: u64) {
        self.info_mut().mode = modes;
    }

    pub fn set_mr_mode(&mut self, bits: c_int) {
        self.domain_mut().mr_mode = bits;
    }

    pub fn set_caps(&mut self, caps: u64) {
        self.info_mut().caps = caps;
    }

    pub fn caps(&self) -> u64 {
        self.info().caps
    }

    pub fn set_endpoint_type(&mut self, kind: fi_ep_type) {
        self.endpoint_mut().type_ = kind;
    }

    pub fn endpoint_type(&self) -> fi_ep_type {
        // SAFETY: the attributes are not null, and belong to the hints.
        unsafe { (*self.info().ep_attr).type_ }
    }

    /// Requests messages of at least this many bytes.
    pub fn set_max_msg_size(&mut self, bytes: usize) {
        self.endpoint_mut().max_msg_size = bytes;
    }

    pub fn set_address_format(&mut self, format: u32) {
        self.info_mut().addr_format = format;
    }

    pub fn set_provider(&mut self, name: &str) -> Result<()> {
        let name = allocate(name)?;
        // SAFETY: the old name is null or from malloc(3), like the new one, and is replaced
        // immediately.
        unsafe { libc::free(self.fabric_mut().prov_name.cast()) };
        self.fabric_mut().prov_name = name.cast();
        Ok(())
    }

    pub fn set_fabric(&mut self, name: &str) -> Result<()> {
        let name = allocate(name)?;
        // SAFETY: the old name is null or from malloc(3), like the new one, and is replaced
        // immediately.
        unsafe { libc::free(self.fabric_mut().name.cast()) };
        self.fabric_mut().name = name.cast();
        Ok(())
    }

    pub fn set_domain(&mut self, name: &str) -> Result<()> {
        let name = allocate(name)?;
        // SAFETY: the old name is null or from malloc(3), like the new one, and is replaced
        // immediately.
        unsafe { libc::free(self.domain_mut().name.cast()) };
        self.domain_mut().name = name.cast();
        Ok(())
    }

    /// Sets the address of the local endpoint, in the hints' address format.
    pub fn set_source(&mut self, address: &[u8]) -> Result<()> {
        let copy = allocate_bytes(address)?;
        let info = self.info_mut();
        // SAFETY: the old address is null or from malloc(3), like the new one, and is replaced
        // immediately.
        unsafe { libc::free(info.src_addr) };
        info.src_addr = copy;
        info.src_addrlen = address.len();
        Ok(())
    }

    /// Sets the address of the peer, in the hints' address format.
    pub fn set_destination(&mut self, address: &[u8]) -> Result<()> {
        let copy = allocate_bytes(address)?;
        let info = self.info_mut();
        // SAFETY: the old address is null or from malloc(3), like the new one, and is replaced
        // immediately.
        unsafe { libc::free(info.dest_addr) };
        info.dest_addr = copy;
        info.dest_addrlen = address.len();
        Ok(())
    }

    pub(super) fn as_ptr(&self) -> *const fi_info {
        self.raw.as_ptr()
    }

    fn info(&self) -> &fi_info {
        // SAFETY: the structure is valid and has no other users, as the field's comment says.
        unsafe { self.raw.as_ref() }
    }

    fn info_mut(&mut self) -> &mut fi_info {
        // SAFETY: the structure is valid and has no other users, as the field's comment says.
        unsafe { self.raw.as_mut() }
    }

    fn endpoint_mut(&mut self) -> &mut fi_ep_attr {
        // SAFETY: the attributes are not null, as the field's comment says, and belong to the
        // hints.
        unsafe { &mut *self.info_mut().ep_attr }
    }

    fn domain_mut(&mut self) -> &mut fi_domain_attr {
        // SAFETY: the attributes are not null, as the field's comment says, and belong to the
        // hints.
        unsafe { &mut *self.info_mut().domain_attr }
    }

    fn fabric_mut(&mut self) -> &mut fi_fabric_attr {
        // SAFETY: the attributes are not null, as the field's comment says, and belong to the
        // hints.
        unsafe { &mut *self.info_mut().fabric_attr }
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        // SAFETY: the structure is from fi_dupinfo, and the parts that were set are from malloc(3),
        // as fi_freeinfo expects.
        unsafe { symbols::fi_freeinfo(self.raw.as_ptr()) };
    }
}

/// A C string that fi_freeinfo can free.
fn allocate(text: &str) -> Result<*mut libc::c_void> {
    let text = CString::new(text).map_err(|_| Failure {
        call: "fi_getinfo",
        code: FI_EINVAL,
    })?;
    allocate_bytes(text.as_bytes_with_nul())
}

/// A copy that fi_freeinfo can free.
fn allocate_bytes(bytes: &[u8]) -> Result<*mut libc::c_void> {
    // SAFETY: malloc(3) accepts all sizes, and its result is checked.
    let copy = unsafe { libc::malloc(bytes.len().max(1)) };
    if copy.is_null() {
        return Err(Failure {
            call: "malloc",
            code: FI_ENOMEM,
        });
    }
    // SAFETY: the copy was just allocated with the length of the bytes.
    unsafe {
        copy.cast::<u8>()
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
    };
    Ok(copy)
}
