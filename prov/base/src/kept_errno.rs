//! `errno` of calls that succeed although a part of them failed.

use std::ffi::c_int;

/// Sets the calling thread's `errno` back to the value that it had, when it is dropped.
#[must_use]
pub struct KeptErrno {
    before: c_int,
}

impl KeptErrno {
    /// Remembers the value.
    pub fn begin() -> Self {
        // SAFETY: the function returns the place of this thread's `errno`, which is valid.
        let before = unsafe { *libc::__errno_location() };
        KeptErrno { before }
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.before };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_what_it_was() {
        let _ = std::fs::File::open("/no/such/file");
        let before = KeptErrno::begin().before;
        {
            let _kept = KeptErrno::begin();
            let _ = std::fs::File::open("/dev/null/neither");
        }
        assert_eq!(
            (before, KeptErrno::begin().before),
            (libc::ENOENT, libc::ENOENT)
        );
    }
}
