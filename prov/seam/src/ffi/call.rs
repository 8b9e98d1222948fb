//! The common part of the data calls of fi_msg(3), fi_tagged(3), fi_rma(3) and fi_atomic(3).

use std::ffi::c_void;

use fabric_abi::{FI_REMOTE_CQ_DATA, fi_addr_t};
use libc::iovec;

use super::ep::OperationFlags;
use super::posted;
use prov_base::buffer::{AppIov, IOV_LIMIT};
use prov_base::errno::{Errno, Result};
use prov_objects::desc::Descs;
use prov_objects::request::{RemoteIov, RemotePiece};

/// Creates functions for the slots of a table. Each is written as the names of its arguments, which
/// determine their types ([`argument`]), and a body; the slot that it is assigned to checks the
/// signature.
///
/// The bodies may dereference what the application passed: see the safety comment.
macro_rules! calls {
    ($(
        fn $name:ident<$object:ident: $bound:ident>(
            $($argument:ident $(: $type:ty)?),* $(,)?
        ) $body:block
    )*) => {
        $(
            unsafe extern "C" fn $name<$object: $bound>(
                $($argument: $crate::ffi::call::argument!($argument $(: $type)?)),*
            ) -> isize {
                $crate::ffi::call::answer(
                    #[inline(always)]
                    // SAFETY: this function is only in the tables of objects of this type, and the
                    // application passes what the manual page demands: an open object, vectors with
                    // the stated number of entries, and memory that it lends to the operation until
                    // it completes.
                    || unsafe { $body },
                )
            }
        )*
    };
}

/// The type of an argument of [`calls`].
macro_rules! argument {
    ($name:ident: $type:ty) => { $type };
    (ep) => { *mut fabric_abi::fid_ep };
    // Memory: one buffer that is read or written, or a vector of them.
    (buf) => { *const std::ffi::c_void };
    (room) => { *mut std::ffi::c_void };
    (len) => { usize };
    (count) => { usize };
    (iov) => { *const libc::iovec };
    (ioc) => { *const fabric_abi::fi_ioc };
    // Its descriptors: one, or as many as there are buffers.
    (desc) => { *mut std::ffi::c_void };
    (descs) => { *mut *mut std::ffi::c_void };
    // The parameters of the operation.
    (peer) => { fabric_abi::fi_addr_t };
    (tag) => { u64 };
    (ignore) => { u64 };
    (addr) => { u64 };
    (key) => { u64 };
    (datatype) => { fabric_abi::fi_datatype };
    (op) => { fabric_abi::fi_op };
    // Further memory of atomic operations.
    (compare) => { *const std::ffi::c_void };
    (compare_desc) => { *mut std::ffi::c_void };
    (comparev) => { *const fabric_abi::fi_ioc };
    (compare_descs) => { *mut *mut std::ffi::c_void };
    (compare_count) => { usize };
    (result) => { *mut std::ffi::c_void };
    (result_desc) => { *mut std::ffi::c_void };
    (resultv) => { *mut fabric_abi::fi_ioc };
    (result_descs) => { *mut *mut std::ffi::c_void };
    (result_count) => { usize };
    // The mode of the operation, and the contents of its completion.
    (data) => { u64 };
    (flags) => { u64 };
    (context) => { *mut std::ffi::c_void };
}

pub(super) use {argument, calls};

/// Returns the value of a call: the provider's result in C form, or the error that was found
/// before.
#[inline(always)]
pub(super) fn answer(call: impl FnOnce() -> Result<isize>) -> isize {
    call().unwrap_or_else(|error| posted(Err(error)))
}

/// The common arguments of all data calls.
pub(super) struct Call {
    /// The peer.
    pub peer: fi_addr_t,
    /// Immediate data, if there is any.
    data: Option<u64>,
    flags: Flags,
    /// The context of the completion.
    pub context: *mut c_void,
}

/// The source of a call's flags.
enum Flags {
    /// The call has no flags argument: the endpoint's default applies.
    Plain,
    /// The call's flags argument.
    Given(u64),
    /// An inject call.
    Inject,
}

impl Call {
    /// A call without a flags argument.
    #[inline(always)]
    pub fn plain(peer: fi_addr_t, context: *mut c_void) -> Self {
        Call {
            peer,
            data: None,
            flags: Flags::Plain,
            context,
        }
    }

    /// An inject call.
    #[inline(always)]
    pub fn inject(peer: fi_addr_t) -> Self {
        Call {
            flags: Flags::Inject,
            ..Self::plain(peer, std::ptr::null_mut())
        }
    }

    /// A call with a flags argument, which says whether `data` is valid.
    #[inline(always)]
    pub fn message(peer: fi_addr_t, flags: u64, data: u64, context: *mut c_void) -> Self {
        Call {
            data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(data),
            flags: Flags::Given(flags),
            ..Self::plain(peer, context)
        }
    }

    /// The same, with immediate data.
    #[inline(always)]
    pub fn with_data(self, data: u64) -> Self {
        Call {
            data: Some(data),
            ..self
        }
    }

    /// Returns the immediate data, 0 for none.
    #[inline(always)]
    pub fn data(&self) -> u64 {
        self.data.unwrap_or(0)
    }

    /// Returns all flags of the operation, on an endpoint with these additional flags.
    #[inline(always)]
    pub fn flags(&self, of: &OperationFlags) -> u64 {
        let flags = match self.flags {
            Flags::Plain => of.plain(),
            Flags::Given(flags) => of.with(flags),
            Flags::Inject => of.inject(),
        };
        flags | self.data.map_or(0, |_| FI_REMOTE_CQ_DATA)
    }
}

/// Local memory as a call passes it.
pub(super) struct Local {
    pub buffers: AppIov,
    /// Descriptors of `buffers`.
    pub desc: Descs,
}

impl Local {
    /// No memory.
    pub const NONE: Local = Local {
        buffers: AppIov::EMPTY,
        desc: Descs::NONE,
    };

    /// One buffer and its descriptor.
    ///
    /// # Safety
    /// The application lends `len` bytes at `base`.
    #[inline(always)]
    pub unsafe fn one(base: *const c_void, len: usize, desc: *mut c_void) -> Self {
        Local {
            // SAFETY: the caller guarantees that the application lends `len` bytes of memory to the
            // operation.
            buffers: unsafe { AppIov::from_raw(base.cast_mut().cast(), len) },
            desc: Descs::one(desc),
        }
    }

    /// A vector of buffers and their descriptors; `-FI_EINVAL` for more than one operation
    /// supports.
    ///
    /// # Safety
    /// `iov` is null or points to `count` entries of memory that the
    /// application lends, `descs` is null or points to as many.
    #[inline(always)]
    pub unsafe fn vector(
        iov: *const iovec,
        descs: *const *mut c_void,
        count: usize,
    ) -> Result<Self> {
        // SAFETY: the caller guarantees that the vectors are null or have `count` entries, of which
        // only these are read; `from_iov` refuses a null `iov` unless `count` is 0.
        unsafe {
            let buffers = AppIov::from_iov(iov, count)?;
            let desc = if descs.is_null() {
                Descs::NONE
            } else {
                // Empty buffers are omitted from the segments.
                let pieces = (0..count).filter(|&i| (*iov.add(i)).iov_len != 0);
                Descs::each(pieces.map(|i| *descs.add(i)))
            };
            Ok(Local { buffers, desc })
        }
    }
}

/// Returns the remote memory of a message, a segment for each entry; `-FI_EINVAL` for more entries
/// than one operation supports, and for an invalid entry.
///
/// # Safety
/// `entries` is null or points to `count` entries.
#[inline(always)]
pub(super) unsafe fn remote<T>(
    entries: *const T,
    count: usize,
    piece: impl Fn(&T) -> Option<RemotePiece>,
) -> Result<RemoteIov> {
    if count > IOV_LIMIT || (entries.is_null() && count != 0) {
        return Err(Errno::EINVAL);
    }
    let mut remote = RemoteIov::default();
    for i in 0..count {
        // SAFETY: `i` is less than `count`, and the caller guarantees that there are `count` valid
        // entries.
        let piece = piece(unsafe { &*entries.add(i) }).ok_or(Errno::EINVAL)?;
        remote.push(piece);
    }
    Ok(remote)
}

#[cfg(test)]
mod tests;
