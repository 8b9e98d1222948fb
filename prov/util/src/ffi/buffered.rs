//! Messages that the application hears of without having posted a receive
//! (`FI_BUFFERED_RECV` of the 1.x interface, fi_msg(3)): each is known by a `struct
//! fi_recv_context`, with which it is claimed or discarded.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;

use fabric_abi::fi_recv_context;

use super::FidRef;

/// What the application knows a message by.
pub struct Notice(Box<UnsafeCell<fi_recv_context>>);

// SAFETY: the pointers in it are the application's, and are not followed here.
unsafe impl Send for Notice {}

impl Notice {
    /// Of a message that has come to an endpoint.
    pub fn new(endpoint: &FidRef) -> Self {
        Notice(Box::new(UnsafeCell::new(fi_recv_context {
            ep: endpoint.as_ptr().cast(),
            context: null_mut(),
        })))
    }

    /// The context of the completion that tells of the message. It is the
    /// application's to write to until it gives the message back.
    pub fn address(&self) -> *mut c_void {
        self.0.get().cast()
    }

    /// The context that the application wants for the receive that claims the
    /// message.
    pub fn context(&self) -> *mut c_void {
        // SAFETY: the memory is this value's; the application, which may write to
        // it, has given it back with the call that leads here (fi_msg(3)).
        unsafe { (*self.0.get()).context }
    }
}
