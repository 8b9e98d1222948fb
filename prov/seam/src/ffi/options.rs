//! Values of fi_getopt(3) and fi_setopt(3) (fi_endpoint(3)).

use std::ffi::{c_int, c_void};

use fabric_abi::{
    FI_OPT_CUDA_API_PERMITTED, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, FI_OPT_SHARED_MEMORY_PERMITTED,
    fid_t,
};

use super::object::{Class, Handle};
use super::status;
use crate::endpoint::{OPT_ONLY_RENDEZVOUS, OptionValue};
use prov_base::errno::{Errno, Result};

/// An object with options.
pub(super) trait Options: Class {
    /// Returns the value of an option; `-FI_ENOPROTOOPT` for one that the object does not have.
    fn option(&self, name: c_int) -> Result<OptionValue>;

    /// Sets an option; the value has the option's type.
    fn set_option(&self, _name: c_int, _value: OptionValue) -> Result {
        Err(Errno::ENOPROTOOPT)
    }
}

/// `fi_ops_ep::getopt` of objects of `O`.
pub(super) unsafe extern "C" fn getopt<O: Options>(
    fid: fid_t,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut usize,
) -> c_int {
    // SAFETY: this function is only in the tables of objects of `O`; the application passes an open
    // one, and a buffer of `*length` bytes.
    status(unsafe {
        get(level, value, length, || {
            Handle::<O>::borrow(fid.cast()).option(name)
        })
    })
}

/// `fi_ops_ep::setopt` of objects of `O`.
pub(super) unsafe extern "C" fn setopt<O: Options>(
    fid: fid_t,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: as in `getopt`; `value` points to `length` bytes.
    status(unsafe {
        decode(level, name, value, length)
            .and_then(|value| Handle::<O>::borrow(fid.cast()).set_option(name, value))
    })
}

/// Writes an option's value to the caller's buffer; `-FI_ETOOSMALL`, with the required length, if
/// it does not fit.
///
/// # Safety
/// `value` and `length` are null or point to `*length` bytes and a `size_t`.
unsafe fn get(
    level: c_int,
    value: *mut c_void,
    length: *mut usize,
    option: impl FnOnce() -> Result<OptionValue>,
) -> Result {
    if level != FI_OPT_ENDPOINT {
        return Err(Errno::ENOPROTOOPT);
    }
    if value.is_null() || length.is_null() {
        return Err(Errno::EINVAL);
    }
    let (bytes, needed) = match option()? {
        OptionValue::Size(size) => (size.to_ne_bytes(), size_of::<usize>()),
        OptionValue::Int(int) => ((int as u32 as usize).to_le_bytes(), size_of::<c_int>()),
        OptionValue::Bool(on) => ((on as usize).to_le_bytes(), size_of::<bool>()),
    };
    // SAFETY: the caller guarantees that `length` is readable and writable, and that `value` has as
    // many bytes.
    unsafe {
        let room = length.replace(needed);
        if room < needed {
            return Err(Errno::ETOOSMALL);
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), needed);
    }
    Ok(())
}

/// Reads an option's value from the caller's buffer; `-FI_EINVAL` for a length other than the
/// option's, except that a size may be followed by more bytes.
///
/// # Safety
/// `value` is null or points to `length` bytes.
unsafe fn decode(
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: usize,
) -> Result<OptionValue> {
    if level != FI_OPT_ENDPOINT {
        return Err(Errno::ENOPROTOOPT);
    }
    if value.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller guarantees that there are `length` bytes, and each arm requires the length
    // of the type that it reads.
    unsafe {
        match (name, length) {
            (FI_OPT_FI_HMEM_P2P, 4) => Ok(OptionValue::Int(value.cast::<c_int>().read_unaligned())),
            (
                FI_OPT_CUDA_API_PERMITTED | FI_OPT_SHARED_MEMORY_PERMITTED | OPT_ONLY_RENDEZVOUS,
                1,
            ) => Ok(OptionValue::Bool(value.cast::<u8>().read() != 0)),
            (
                FI_OPT_FI_HMEM_P2P
                | FI_OPT_CUDA_API_PERMITTED
                | FI_OPT_SHARED_MEMORY_PERMITTED
                | OPT_ONLY_RENDEZVOUS,
                _,
            ) => Err(Errno::EINVAL),
            // The rest of a longer value is ignored.
            (_, 8..) => Ok(OptionValue::Size(value.cast::<usize>().read_unaligned())),
            _ => Err(Errno::EINVAL),
        }
    }
}
