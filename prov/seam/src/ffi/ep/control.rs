//! The commands of fi_control(3) that endpoints and scalable endpoints have in common.

use std::ffi::{c_int, c_void};

use fabric_abi::{FI_GETOPSFLAG, FI_SETOPSFLAG, fi_alias};

use super::super::object::{Class, Handle};
use super::operations::split_direction;
use prov_base::errno::{Errno, Result};

/// `FI_ALIAS`: opens another object of the same, with these flags.
///
/// # Safety
/// `arg` is null or a `struct fi_alias`, whose `fid` is null or a place for a pointer.
pub(super) unsafe fn alias<T: Class>(
    arg: *mut c_void,
    open: impl FnOnce(u64) -> Result<Handle<T>>,
) -> Result<c_int> {
    // SAFETY: the caller vouches for the structure and the place.
    unsafe {
        let request = arg.cast::<fi_alias>().as_ref().ok_or(Errno::EINVAL)?;
        if request.fid.is_null() {
            return Err(Errno::EINVAL);
        }
        request.fid.write(open(request.flags)?.into_c().cast());
    }
    Ok(0)
}

/// `FI_GETOPSFLAG` and `FI_SETOPSFLAG`: reads the default flags of a direction
/// (`FI_TRANSMIT`, `FI_RECV`), or sets them.
///
/// # Safety
/// `arg` is null or a `uint64_t`.
pub(super) unsafe fn operation_flags(
    command: c_int,
    arg: *mut c_void,
    get: impl FnOnce(u64) -> u64,
    set: impl FnOnce(u64, u64) -> Result,
) -> Result<c_int> {
    debug_assert!(matches!(command, FI_GETOPSFLAG | FI_SETOPSFLAG));
    // SAFETY: the caller vouches for the argument.
    let flags = unsafe { arg.cast::<u64>().as_mut() }.ok_or(Errno::EINVAL)?;
    let (direction, asked) = split_direction(*flags)?;
    match command {
        FI_SETOPSFLAG => set(direction, asked)?,
        _ => *flags = get(direction),
    }
    Ok(0)
}
