//! System calls that are not cancellation points (pthreads(7)).
//!
//! The C library's functions for these system calls would end a cancelled thread under the Rust
//! frames of their callers, even in the standard library. The library and the providers as
//! libraries of their own are linked such that each reference to one of them refers to the function
//! of [`arch`](crate::arch) (`--wrap` of ld(1); `prov_external::system_calls` has the names). A
//! cancelled thread ends in one of the blocking calls (`ffi::cancel`), or in the application.

use std::ffi::c_int;

/// Ends a call that the kernel refused with the negative error number.
pub extern "C" fn set_errno(negative: c_int) -> isize {
    // SAFETY: the C library returns the address of this thread's `errno`.
    unsafe { *libc::__errno_location() = -negative };
    -1
}
