//! Messages that are reported to the application without a posted receive (`FI_BUFFERED_RECV` of
//! the 1.x interface, fi_msg(3)). Each is identified by a `struct fi_recv_context`, by which it is
//! claimed or discarded.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;

use fabric_abi::fi_recv_context;

use super::FidRef;

/// The application's handle of a message.
pub struct Notice(Box<UnsafeCell<fi_recv_context>>);

// SAFETY: the pointers in the value are the application's, and are not dereferenced here.
unsafe impl Send for Notice {}

impl Notice {
    /// Creates the handle of a message that has arrived at an endpoint.
    pub fn new(endpoint: &FidRef) -> Self {
        Notice(Box::new(UnsafeCell::new(fi_recv_context {
            ep: endpoint.as_ptr().cast(),
            context: null_mut(),
        })))
    }

    /// Returns the context of the completion that reports the message. The application may write to
    /// it until it returns the message.
    pub fn address(&self) -> *mut c_void {
        self.0.get().cast()
    }

    /// Returns the context for the receive that claims the message.
    pub fn context(&self) -> *mut c_void {
        // SAFETY: this value owns the memory; the application, which may write to it, has returned
        // it with the call that leads here (fi_msg(3)).
        unsafe { (*self.0.get()).context }
    }
}
