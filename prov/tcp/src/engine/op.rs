//! Operations of the application that transmit.

use std::ffi::c_void;

use fabric_abi::{FI_ATOMIC, FI_MSG, FI_READ, FI_RMA, FI_SEND, FI_TAGGED, FI_WRITE};

use super::keys::EpKey;

/// What kind of operation, for completion flags and counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpClass {
    /// fi_msg(3)
    Send,
    /// fi_tagged(3)
    TaggedSend,
    /// fi_rma(3) read
    Read,
    /// fi_rma(3) write
    Write,
    /// fi_atomic(3) without a result
    Atomic,
    /// fi_atomic(3) with a result
    FetchAtomic,
}

impl OpClass {
    /// Flags of the operation's completion.
    #[inline]
    pub fn completion_flags(self) -> u64 {
        match self {
            OpClass::Send => FI_MSG | FI_SEND,
            OpClass::TaggedSend => FI_TAGGED | FI_SEND,
            OpClass::Read => FI_RMA | FI_READ,
            OpClass::Write => FI_RMA | FI_WRITE,
            OpClass::Atomic => FI_ATOMIC | FI_WRITE,
            OpClass::FetchAtomic => FI_ATOMIC | FI_READ,
        }
    }
}

/// What is left to tell the application about an operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The endpoint that it was posted to.
    pub ep: EpKey,
    /// Its kind.
    pub class: OpClass,
    /// Whether success is reported on the completion queue; failure always is,
    /// unless `is_inject`.
    pub report: bool,
    /// Whether the application has already forgotten it.
    pub is_inject: bool,
    /// Bytes that it transfers.
    pub len: usize,
    /// The application's context.
    pub context: Context,
}

/// The application's context pointer, handed back and never followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context(pub usize);

impl Context {
    /// From the call.
    #[inline]
    pub fn of(context: *mut c_void) -> Self {
        Context(context.expose_provenance())
    }

    /// For the completion.
    #[inline]
    pub fn pointer(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}
