//! The common part of the ways of sharing objects between providers (fi_peer(3)).

#[cfg(test)]
mod tests;

use std::ffi::c_void;

use fabric_abi::*;

use prov_base::errno::{Errno, Result};

/// A `fi_peer_*_context`, which is passed to an opening call with `FI_PEER`.
///
/// # Safety
/// Implementors are `repr(C)` and begin with their size.
pub(super) unsafe trait PeerContext {}

macro_rules! contexts {
    ($($name:ident),*) => {
        $(
            // SAFETY: the first member of the structure is `size`.
            unsafe impl PeerContext for $name {}
            const _: () = assert!(std::mem::offset_of!($name, size) == 0);
        )*
    };
}

contexts!(
    fi_peer_cq_context,
    fi_peer_cntr_context,
    fi_peer_eq_context,
    fi_peer_domain_context,
    fi_peer_transfer_context,
    fi_peer_srx_context
);

/// Returns the context of an opening call with `FI_PEER`; `-FI_EINVAL` if it is missing, or from an
/// earlier interface.
///
/// # Safety
/// `context` is null or a `T` of the size that it contains, and not used by others during the call.
pub(super) unsafe fn context<'a, T: PeerContext>(context: *mut c_void) -> Result<&'a mut T> {
    // SAFETY: the caller guarantees that the context is null or a structure of the size that it
    // begins with, and has no other users during the call.
    unsafe {
        if context.is_null() || *context.cast::<usize>() < size_of::<T>() {
            return Err(Errno::EINVAL);
        }
        Ok(&mut *context.cast())
    }
}
