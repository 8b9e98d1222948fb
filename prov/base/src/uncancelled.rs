//! Calls other libraries' functions with cancellation disabled (pthread_setcancelstate(3)).

use std::ffi::c_int;

/// Cancellation of this thread is disabled while the value lives: for calls of other libraries'
/// functions that may be cancellation points, such as getaddrinfo(3) and those of other providers.
/// A pending cancellation takes effect at a later cancellation point of the application.
#[must_use]
pub struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    /// Disables cancellation of the calling thread, until the value is dropped.
    pub fn begin() -> Self {
        let mut before = CANCEL_ENABLE;
        // SAFETY: `before` is writable, and the state is one that the function defines.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state is the one that the function has returned; the second argument may be
        // null.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

/// `PTHREAD_CANCEL_ENABLE` and `PTHREAD_CANCEL_DISABLE` of pthread.h on Linux.
const CANCEL_ENABLE: c_int = 0;
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}
