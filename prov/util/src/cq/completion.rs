//! What a provider reports about an operation.

use std::ffi::c_void;

use fabric_abi::{FI_ADDR_NOTAVAIL, fi_addr_t};

use crate::errno::Errno;

/// An operation that succeeded. It begins with a `struct fi_cq_tagged_entry`
/// (fi_cq(3)), and so with the entries of all other formats, which are that one
/// cut short.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Completion {
    /// The operation's context; null where it had none.
    pub context: *mut c_void,
    /// What was completed: `FI_SEND | FI_MSG` and the like.
    pub flags: u64,
    /// Bytes received.
    pub len: usize,
    /// Start of the data in a multi-receive buffer.
    pub buf: *mut c_void,
    /// Data that came with the message, where `flags` has `FI_REMOTE_CQ_DATA`.
    pub data: u64,
    /// Tag of a received tagged message.
    pub tag: u64,
    /// Sender of a received message, or `FI_ADDR_NOTAVAIL`.
    pub src: fi_addr_t,
}

// SAFETY: `context` and `buf` are the application's; this library hands them
// back and never follows them.
unsafe impl Send for Completion {}
// SAFETY: as above.
unsafe impl Sync for Completion {}

impl Completion {
    /// Nothing but a context and flags.
    #[inline]
    pub const fn new(context: *mut c_void, flags: u64) -> Self {
        Self {
            context,
            flags,
            len: 0,
            buf: std::ptr::null_mut(),
            data: 0,
            tag: 0,
            src: FI_ADDR_NOTAVAIL,
        }
    }
}

const _: () = {
    use std::mem::offset_of;

    use fabric_abi::fi_cq_tagged_entry as entry;
    assert!(offset_of!(Completion, context) == offset_of!(entry, op_context));
    assert!(offset_of!(Completion, flags) == offset_of!(entry, flags));
    assert!(offset_of!(Completion, len) == offset_of!(entry, len));
    assert!(offset_of!(Completion, buf) == offset_of!(entry, buf));
    assert!(offset_of!(Completion, data) == offset_of!(entry, data));
    assert!(offset_of!(Completion, tag) == offset_of!(entry, tag));
    assert!(offset_of!(Completion, src) == size_of::<entry>());
};

/// An operation that failed (`struct fi_cq_err_entry`).
#[derive(Clone, Debug)]
pub struct ErrorCompletion {
    /// What is known about the operation.
    pub completion: Completion,
    /// Bytes of the message that found no room.
    pub olen: usize,
    /// Why it failed.
    pub err: Errno,
    /// The provider's own number for that.
    pub prov_errno: i32,
    /// More about it, in a form that depends on the error.
    pub err_data: Box<[u8]>,
}

impl ErrorCompletion {
    /// `completion` failed with `err`, and nothing more is known.
    pub fn new(completion: Completion, err: Errno) -> Self {
        Self {
            completion,
            olen: 0,
            err,
            prov_errno: err.number(),
            err_data: Box::default(),
        }
    }

    /// A message of which `olen` bytes found no room.
    pub fn truncated(completion: Completion, olen: usize) -> Self {
        Self {
            olen,
            ..Self::new(completion, Errno::ETRUNC)
        }
    }
}
