//! Objects that an application passes to a call.

use std::marker::PhantomData;
use std::ptr::NonNull;

use fabric_abi::fid;
use prov_base::errno::{Errno, Result};

/// An open object that an application passed to a call, of unknown class and origin. It is open for
/// `'a`, which is at most the call.
#[derive(Clone, Copy)]
pub struct AnyFid<'a>(NonNull<fid>, PhantomData<&'a fid>);

impl AnyFid<'_> {
    /// `-FI_EINVAL` for a null pointer.
    ///
    /// # Safety
    /// A `fid` that is not null is an open object's for the lifetime of the result.
    pub unsafe fn new(fid: *mut fid) -> Result<Self> {
        let fid = NonNull::new(fid).ok_or(Errno::EINVAL)?;
        Ok(AnyFid(fid, PhantomData))
    }

    /// `FI_CLASS_*`.
    pub fn class(self) -> usize {
        // SAFETY: the caller of `AnyFid::new` has guaranteed that the object is open.
        unsafe { (*self.0.as_ptr()).fclass }
    }

    /// Returns the pointer, for a call into the provider that created the object.
    pub fn as_ptr(self) -> *mut fid {
        self.0.as_ptr()
    }
}
