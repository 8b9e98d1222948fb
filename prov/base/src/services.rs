//! The public C functions of the framework that the toolkit and the providers use. libfabric.so.1
//! exports them, whether it is this library or another.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use fabric_abi::symbols::*;
use fabric_abi::*;

use crate::logging::UTIL;

/// Defines a parameter. A parameter that is not defined cannot be read, and has its default.
pub fn define_param(provider: &fi_provider, name: &CStr, kind: fi_param_type, help: &str) {
    // The function expects a format string.
    let Ok(help) = CString::new(help.replace('%', "%%")) else {
        return;
    };
    // SAFETY: the texts are terminated, and the help text, which is a format, contains no
    // conversion but `%%`.
    let status = unsafe { fi_param_define(provider, name.as_ptr(), kind, help.as_ptr()) };
    if status != 0 {
        log::warn!(target: UTIL.core, "cannot define parameter {name:?}: {status}");
    }
}

/// Returns the value of a parameter, if the user set it.
///
/// # Safety
/// Its type is the one that is stored as a `T`.
unsafe fn param<T: Default>(provider: &fi_provider, name: &CStr) -> Option<T> {
    let mut value = T::default();
    // SAFETY: the caller guarantees that the parameter's value is stored as a `T`, and `value` is
    // one.
    let status = unsafe {
        fi_param_get(
            std::ptr::from_ref(provider).cast_mut(),
            name.as_ptr(),
            (&raw mut value).cast(),
        )
    };
    (status == 0).then_some(value)
}

/// Returns an integer parameter, if the user set it.
pub fn param_int(provider: &fi_provider, name: &CStr) -> Option<i32> {
    // SAFETY: the value of an integer parameter is stored as an `int`.
    unsafe { param::<c_int>(provider, name) }
}

/// Returns a size, if the user set it.
pub fn param_size(provider: &fi_provider, name: &CStr) -> Option<usize> {
    // SAFETY: the value of a size parameter is stored as a `size_t`.
    unsafe { param::<usize>(provider, name) }
}

/// Returns a boolean, if the user set it.
pub fn param_bool(provider: &fi_provider, name: &CStr) -> Option<bool> {
    // Booleans are stored as an `int`.
    param_int(provider, name).map(|value| value != 0)
}

/// Returns a boolean parameter of the framework itself (`FI_<NAME>`), if the user set it.
pub fn core_bool(name: &CStr) -> Option<bool> {
    let mut value: c_int = 0;
    // SAFETY: the value of a boolean parameter is stored as an `int`, and `value` is one.
    unsafe { core_param(name, (&raw mut value).cast()) }.then_some(value != 0)
}

/// Returns a size parameter of the framework itself, if the user set it.
pub fn core_size(name: &CStr) -> Option<usize> {
    let mut value: usize = 0;
    // SAFETY: the value of a size parameter is stored as a `size_t`, and `value` is one.
    unsafe { core_param(name, (&raw mut value).cast()) }.then_some(value)
}

/// Returns a text parameter of the framework itself, if the user set it.
pub fn core_text(name: &CStr) -> Option<String> {
    let mut value: *const c_char = std::ptr::null();
    // SAFETY: the value of a text parameter is stored as a pointer to a terminated text, which the
    // framework owns and does not free.
    unsafe {
        let is_set = core_param(name, (&raw mut value).cast()) && !value.is_null();
        is_set.then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
    }
}

/// Stores a parameter of the framework itself; returns whether it is set.
///
/// # Safety
/// `value` is a place for a value of the parameter's type.
unsafe fn core_param(name: &CStr, value: *mut std::ffi::c_void) -> bool {
    // SAFETY: the caller guarantees that `value` is writable and has the parameter's type; a NULL
    // provider selects the parameters of the framework.
    unsafe { fi_param_get(std::ptr::null_mut(), name.as_ptr(), value) == 0 }
}

/// Returns a text, if the user set it.
pub fn param_text(provider: &fi_provider, name: &CStr) -> Option<String> {
    let mut value: *const c_char = std::ptr::null();
    // SAFETY: the value of a text parameter is stored as a pointer to a terminated text, and
    // `value` is one.
    let status = unsafe {
        fi_param_get(
            std::ptr::from_ref(provider).cast_mut(),
            name.as_ptr(),
            (&raw mut value).cast(),
        )
    };
    if status != 0 || value.is_null() {
        return None;
    }
    // SAFETY: the pointer refers to a terminated text, which the framework owns and does not free.
    let text = unsafe { CStr::from_ptr(value) };
    Some(text.to_string_lossy().into_owned())
}

/// Returns the text of a positive error number (fi_errno(3)).
pub fn strerror(number: c_int) -> &'static CStr {
    // SAFETY: fi_strerror accepts all numbers, and returns NULL or a terminated text. The text is
    // constant, except that the C library returns strerror(3) for numbers without a name, whose
    // text is valid until the thread's next call.
    unsafe {
        let text = fi_strerror(number);
        if text.is_null() {
            return c"";
        }
        CStr::from_ptr(text)
    }
}

/// Returns the names of the bits or of the enumeration value `bits`, which is of the type `kind`
/// (`FI_TYPE_*`, fi_tostr(3)).
pub fn name_of(bits: u64, kind: fi_type) -> Option<String> {
    let wide = [
        FI_TYPE_CAPS,
        FI_TYPE_MODE,
        FI_TYPE_OP_FLAGS,
        FI_TYPE_MSG_ORDER,
    ];
    let narrow = bits as u32;
    let data: *const c_void = if wide.contains(&kind) {
        (&raw const bits).cast()
    } else {
        (&raw const narrow).cast()
    };
    let mut text = [0u8; 1024];
    // SAFETY: `data` points to a value of the width of `kind`, and `text` has
    // room for its length.
    let written = unsafe { fi_tostr_r(text.as_mut_ptr().cast(), text.len(), data, kind) };
    if written.is_null() {
        return None;
    }
    let text = CStr::from_bytes_until_nul(&text).ok()?;
    Some(text.to_string_lossy().trim_end().to_owned())
}

#[cfg(test)]
pub(crate) mod stand_in;
