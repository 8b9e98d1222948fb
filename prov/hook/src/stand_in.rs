//! The framework's functions for the unit tests. What is logged can be looked at.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};

use fabric_abi::*;

thread_local! {
    static LOGGED: RefCell<Vec<(fi_log_level, String)>> = const { RefCell::new(Vec::new()) };
}

/// Takes what this thread has logged.
pub fn logged() -> Vec<(fi_log_level, String)> {
    LOGGED.take()
}

#[unsafe(no_mangle)]
extern "C" fn fi_log_enabled(_: *const fi_provider, _: fi_log_level, _: fi_log_subsys) -> c_int {
    1
}

/// The function has variable arguments, of which hooks pass one; on x86-64 that is passed in the
/// same way as a seventh one.
#[unsafe(no_mangle)]
extern "C" fn fi_log(
    _: *const fi_provider,
    level: fi_log_level,
    _: fi_log_subsys,
    _: *const c_char,
    _: c_int,
    _: *const c_char,
    message: *const c_char,
) {
    // SAFETY: hooks pass a C string.
    let message = unsafe { CStr::from_ptr(message) };
    let message = message.to_string_lossy().into_owned();
    LOGGED.with_borrow_mut(|logged| logged.push((level, message)));
}

prov_base::stand_in!();
