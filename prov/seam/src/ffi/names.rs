//! Addresses as C passes them: names that are given out, and socket addresses.

use std::ffi::c_void;

use super::bytes;
use prov_base::errno::{Errno, Result};
use prov_base::sockaddr;

/// Writes a name to the caller's buffer, truncated to its size: `-FI_ETOOSMALL` if it was
/// truncated, with the whole length in `length`.
///
/// # Safety
/// `length` is null or a `size_t`; `room` is null or has that many bytes.
pub(super) unsafe fn give_name(
    name: Result<Vec<u8>>,
    room: *mut c_void,
    length: *mut usize,
) -> Result {
    // SAFETY: the caller guarantees that `length` is null or writable.
    let length = unsafe { length.as_mut() }.ok_or(Errno::EINVAL)?;
    let name = name?;
    let fits = if room.is_null() { 0 } else { *length };
    let part = fits.min(name.len());
    if part != 0 {
        // SAFETY: the caller guarantees that `room` has `*length` bytes, which are not fewer than
        // `part`.
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), room.cast(), part) };
    }
    *length = name.len();
    if part < name.len() {
        return Err(Errno::ETOOSMALL);
    }
    Ok(())
}

/// `AF_IB`
const FAMILY_INFINIBAND: u16 = 27;
/// Size of a `struct sockaddr_ib` in bytes.
const SIZE_INFINIBAND: usize = 48;

/// Returns the bytes of a socket address, as many as its family has.
///
/// # Safety
/// `addr` is null or a socket address that outlives `'a`.
pub(super) unsafe fn address<'a>(addr: *const c_void) -> Result<&'a [u8]> {
    if addr.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller guarantees that the pointer is null or a socket address, which begins with
    // its family, and the family determines its length.
    unsafe {
        let family = addr.cast::<u16>().read_unaligned();
        let size = match family {
            FAMILY_INFINIBAND => Some(SIZE_INFINIBAND),
            family => sockaddr::size_of_family(family),
        };
        let size = size.ok_or(Errno::EAFNOSUPPORT)?;
        Ok(bytes(addr, size))
    }
}
