//! Memory for messages of the operations themselves, which is never shared with the application.

use std::cell::UnsafeCell;

use prov_base::buffer::{AppIov, Iov};
use prov_base::errno::{Errno, Result};

/// A block of memory. Its owner keeps it until all operations end that use some of it.
pub struct Scratch(Box<[UnsafeCell<u8>]>);

// SAFETY: the memory is accessed only through `Iov`, which copies bytes and makes no references to
// them, and an operation orders its accesses: it waits for a message before it uses the same bytes
// again.
unsafe impl Send for Scratch {}
// SAFETY: a shared reference only permits the same accesses, whatever the thread.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// Allocates so many bytes, which are zero.
    ///
    /// # Errors
    /// `-FI_ENOMEM` if there is not so much memory.
    pub fn new(bytes: usize) -> Result<Self> {
        let mut block = Vec::new();
        block.try_reserve_exact(bytes).map_err(|_| Errno::ENOMEM)?;
        block.resize_with(bytes, || UnsafeCell::new(0));
        Ok(Scratch(block.into()))
    }

    /// Returns all of it.
    pub fn memory(&self) -> Iov<'_> {
        let base = self.0.as_ptr().cast_mut().cast();
        // SAFETY: the block has this length, and is made of `UnsafeCell`, so that it may be written
        // through a shared reference. The result borrows it.
        unsafe { Iov::from_raw(base, self.0.len()) }
    }

    /// Returns `len` bytes from `start` on, for a message that outlives the borrow. What is not in
    /// the block is left out.
    ///
    /// # Safety
    /// The block is dropped only after the last use of the result.
    pub unsafe fn lend(&self, start: usize, len: usize) -> AppIov {
        let start = start.min(self.0.len());
        let len = len.min(self.0.len() - start);
        let base: *mut u8 = self.0.as_ptr().cast_mut().cast();
        // SAFETY: the range is within the block, which does not move and may be written as above; the
        // caller guarantees that it lives as long as the result is used.
        unsafe { AppIov::from_raw(base.add(start), len) }
    }
}
