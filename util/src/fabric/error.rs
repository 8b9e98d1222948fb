//! Calls that failed.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;

use fabric_abi::symbols;

/// A call to the library that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Name of the C function.
    pub call: &'static str,
    /// A number of fi_errno(3), positive.
    pub code: c_int,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Returns the exit status of the tools: the number itself.
    pub fn exit_status(&self) -> i32 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.call, -self.code, strerror(self.code))
    }
}

impl std::error::Error for Failure {}

/// Converts the result of a call: a count, or a negated error number.
pub(super) fn check(call: &'static str, returned: isize) -> Result<usize> {
    usize::try_from(returned).map_err(|_| Failure {
        call,
        code: c_int::try_from(-returned).unwrap_or(fabric_abi::FI_EOTHER),
    })
}

/// The library's text for an error number, fi_strerror(3).
pub fn strerror(code: c_int) -> String {
    // SAFETY: fi_strerror accepts all numbers, and returns null or a constant text.
    let text = unsafe { symbols::fi_strerror(code) };
    if text.is_null() {
        return String::from("(null)");
    }
    // SAFETY: the pointer is not null, so it refers to a terminated text that lives as long as the
    // library.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Prints a provider's text about an error on stderr.
///
/// # Safety
/// `text` is null or a C string.
pub(super) unsafe fn explain(kind: &str, text: *const c_char) {
    if !text.is_null() {
        // SAFETY: the caller keeps the contract of this function, which is that of the called one.
        let text = unsafe { CStr::from_ptr(text) };
        eprintln!("{kind} error: {}", text.to_string_lossy());
    }
}
