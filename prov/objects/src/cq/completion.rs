//! The content of completions and error entries.

use std::ffi::c_void;

use fabric_abi::{FI_ADDR_NOTAVAIL, fi_addr_t};

use prov_base::errno::Errno;

/// The completion of a successful operation. It begins with a `struct fi_cq_tagged_entry`
/// (fi_cq(3)), and therefore with the entries of all other formats, which are prefixes of that one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Completion {
    /// The operation's context; null if it had none.
    pub context: *mut c_void,
    /// The kind of operation: `FI_SEND | FI_MSG` and the like.
    pub flags: u64,
    /// Number of bytes received.
    pub len: usize,
    /// Start of the data in a multi-receive buffer.
    pub buf: *mut c_void,
    /// Immediate data, if `flags` has `FI_REMOTE_CQ_DATA`.
    pub data: u64,
    /// Tag of a received tagged message.
    pub tag: u64,
    /// Sender of a received message, or `FI_ADDR_NOTAVAIL`.
    pub src: fi_addr_t,
}

// SAFETY: `context` and `buf` are pointers of the application, which this library returns and never
// dereferences.
unsafe impl Send for Completion {}
// SAFETY: a shared reference permits to copy the pointers, which this library never dereferences.
unsafe impl Sync for Completion {}

impl Completion {
    /// Creates a completion with a context and flags.
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

/// The completion of a failed operation (`struct fi_cq_err_entry`).
#[derive(Clone, Debug)]
pub struct ErrorCompletion {
    /// The operation.
    pub completion: Completion,
    /// Number of bytes of the message that did not fit.
    pub olen: usize,
    /// The error.
    pub err: Errno,
    /// The provider-specific error number.
    pub prov_errno: i32,
    /// Additional data, whose form depends on the error.
    pub err_data: Box<[u8]>,
}

impl ErrorCompletion {
    /// Creates an entry for an operation that failed with `err`, without further information.
    pub fn new(completion: Completion, err: Errno) -> Self {
        Self {
            completion,
            olen: 0,
            err,
            prov_errno: err.number(),
            err_data: Box::default(),
        }
    }

    /// Creates an entry for a message of which `olen` bytes did not fit.
    pub fn truncated(completion: Completion, olen: usize) -> Self {
        Self {
            olen,
            ..Self::new(completion, Errno::ETRUNC)
        }
    }
}
