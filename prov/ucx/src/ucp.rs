//! Contexts, workers and registrations of UCP, with a safe interface.
//!
//! A worker's functions and callbacks run in one thread at a time, since they need `&mut Worker`. An
//! operation in progress has a slot at a fixed address, which its callback gets; the callback
//! puts the outcome into the worker's sink, and [`Worker::next_done`] returns it with what the
//! caller had given for the operation.

mod context;
mod memory;
mod worker;

use std::ffi::{CStr, c_int};

use crate::sys::{Libucp, ucs_status_t};

pub use context::{Context, Settings};
pub use memory::Mapped;
pub use worker::{Arrived, Done, Message, Mode, Posted, Worker};

/// Returns UCX's text for an error number.
pub fn text(status: c_int) -> Option<&'static CStr> {
    let status = ucs_status_t::try_from(status)
        .ok()
        .filter(|status| *status < 0)?;
    let calls = Libucp::get().ok()?.functions();
    // SAFETY: the function takes any number, and returns a string that lives as long as the library.
    let text = unsafe { (calls.ucs_status_string)(status) };
    // SAFETY: as above.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}
