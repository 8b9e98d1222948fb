//! The parameters that a user can set, fi_getparams(3).

use std::ffi::{CStr, c_char, c_int};

use fabric_abi::{fi_param, fi_param_type, symbols};

use super::Result;
use super::error::check;

/// All parameters of the library and its providers.
pub struct Parameters {
    /// An array of `count` elements, or null.
    first: *mut fi_param,
    count: usize,
}

/// One parameter.
pub struct Parameter<'a> {
    /// Name of the environment variable.
    pub name: &'a [u8],
    pub kind: fi_param_type,
    pub help: &'a [u8],
    /// The current value of the environment variable.
    pub value: Option<&'a [u8]>,
}

impl Parameters {
    pub fn query() -> Result<Parameters> {
        let mut first = std::ptr::null_mut();
        let mut count: c_int = 0;
        // SAFETY: `first` and `count` are writable.
        let returned = unsafe { symbols::fi_getparams(&mut first, &mut count) };
        check("fi_getparams", returned as isize)?;
        let count = usize::try_from(count).unwrap_or(0);
        Ok(Parameters {
            first,
            count: if first.is_null() { 0 } else { count },
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = Parameter<'_>> {
        (0..self.count).map(|index| {
            // SAFETY: the index is below the count, so it is inside the array that fi_getparams
            // returned.
            let raw = unsafe { &*self.first.add(index) };
            Parameter {
                // SAFETY: the texts of a parameter are null or terminated, and live as long as
                // `self`.
                name: unsafe { bytes(raw.name) }.unwrap_or_default(),
                kind: raw.type_,
                // SAFETY: the texts of a parameter are null or terminated, and live as long as
                // `self`.
                help: unsafe { bytes(raw.help_string) }.unwrap_or(b"(null)"),
                // SAFETY: the texts of a parameter are null or terminated, and live as long as
                // `self`.
                value: unsafe { bytes(raw.value) },
            }
        })
    }
}

impl Drop for Parameters {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: the array is from fi_getparams, and is freed once.
            unsafe { symbols::fi_freeparams(self.first) };
        }
    }
}

/// # Safety
/// `text` is null or a C string that lives for 'a.
unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller keeps the contract of this function, which is that of the called one.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}
