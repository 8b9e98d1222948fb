//! Open objects of the library, closed at the end.

use std::ptr::{self, NonNull};

use fabric_abi::{FI_EOTHER, fid};

use super::error::check;
use super::slot::close;
use super::{Failure, Result};

/// An object that begins with its fid.
pub(super) struct Object<T>(NonNull<T>);

impl<T> Object<T> {
    /// Opens an object with a call, which gets the place for it.
    ///
    /// # Safety
    /// `T` begins with a fid. The call returns a negative error, or has put an open object into
    /// the place, which nobody else closes.
    pub(super) unsafe fn open(
        call: &'static str,
        open: impl FnOnce(*mut *mut T) -> isize,
    ) -> Result<Self> {
        let mut raw = ptr::null_mut();
        check(call, open(&mut raw))?;
        let raw = NonNull::new(raw).ok_or(Failure {
            call,
            code: FI_EOTHER,
        })?;
        Ok(Object(raw))
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    pub(super) fn fid(&self) -> *mut fid {
        self.as_ptr().cast()
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: the object is open, and the objects that depend on it were closed before.
        unsafe { close(self.fid()) };
    }
}
