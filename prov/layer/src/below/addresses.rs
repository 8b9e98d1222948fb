//! Address vectors of the provider below (fi_av(3)).

use std::ptr::null_mut;
use std::sync::Arc;

use fabric_abi::*;

use super::{Domain, LONGEST_ADDRESS, Object, done};
use prov_base::errno::{Errno, Result};

/// An address vector; closed when it is dropped, which must be after the endpoints that are bound
/// to it.
pub struct Addresses {
    object: Object<fid_av>,
    _domain: Arc<Domain>,
}

impl Addresses {
    /// Opens an empty vector of the type that the provider prefers.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn open(domain: &Arc<Domain>) -> Result<Arc<Addresses>> {
        // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
        let mut attr: fi_av_attr = unsafe { std::mem::zeroed() };
        let mut av = null_mut();
        // SAFETY: the domain is open, and the attributes are valid during the call.
        let object = unsafe {
            let open = (*(*domain.as_c()).ops).av_open.ok_or(Errno::ENOSYS)?;
            let status = open(domain.as_c(), &mut attr, &mut av, null_mut());
            Object::opened(status, av)?
        };
        Ok(Arc::new(Addresses {
            object,
            _domain: domain.clone(),
        }))
    }

    pub(super) fn fid(&self) -> *mut fid {
        self.object.fid()
    }

    /// Inserts an address, which is as long as the provider's addresses are. Returns its number.
    ///
    /// # Errors
    /// `-FI_EINVAL` for an address that the provider refuses, and what it returns.
    pub fn insert(&self, address: &[u8]) -> Result<fi_addr_t> {
        self.insert_with(address, FI_ADDR_NOTAVAIL as fi_addr_t, 0)
    }

    /// The same for a provider that reports messages of this address as those of `source`
    /// (`FI_AV_USER_ID`).
    ///
    /// # Errors
    /// Those of [`Addresses::insert`].
    pub fn insert_as(&self, address: &[u8], source: fi_addr_t) -> Result<fi_addr_t> {
        self.insert_with(address, source, FI_AV_USER_ID)
    }

    fn insert_with(&self, address: &[u8], source: fi_addr_t, flags: u64) -> Result<fi_addr_t> {
        // The provider may read more bytes than the address has, depending on its contents.
        let mut padded = [0_u8; LONGEST_ADDRESS];
        let place = padded.get_mut(..address.len()).ok_or(Errno::EINVAL)?;
        place.copy_from_slice(address);
        let mut number = source;
        // SAFETY: the vector is open; the address is longer than any that the provider reads, and
        // `number` is writable.
        let inserted = unsafe {
            let insert = (*(*self.object.as_ptr()).ops).insert;
            insert.ok_or(Errno::ENOSYS)?(
                self.object.as_ptr(),
                padded.as_ptr().cast(),
                1,
                &mut number,
                flags,
                null_mut(),
            )
        };
        match inserted {
            1 if number != FI_ADDR_NOTAVAIL as fi_addr_t => Ok(number),
            error if error < 0 => Err(Errno::new(error)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Removes the address with this number.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn remove(&self, mut number: fi_addr_t) -> Result {
        // SAFETY: the vector is open, and `number` is valid during the call.
        let status = unsafe {
            let remove = (*(*self.object.as_ptr()).ops).remove;
            remove.ok_or(Errno::ENOSYS)?(self.object.as_ptr(), &mut number, 1, 0)
        };
        done(status)
    }

    /// Returns the address with this number.
    ///
    /// # Errors
    /// What the provider returns.
    pub fn lookup(&self, number: fi_addr_t) -> Result<Vec<u8>> {
        let mut bytes = vec![0_u8; LONGEST_ADDRESS];
        let mut len = bytes.len();
        // SAFETY: the vector is open, and `bytes` has `len` bytes.
        let status = unsafe {
            let lookup = (*(*self.object.as_ptr()).ops).lookup;
            lookup.ok_or(Errno::ENOSYS)?(
                self.object.as_ptr(),
                number,
                bytes.as_mut_ptr().cast(),
                &mut len,
            )
        };
        done(status)?;
        bytes.truncate(len);
        Ok(bytes)
    }
}
