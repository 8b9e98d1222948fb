//! Memory for messages of the operations themselves, which is never shared with the application.

use std::cell::UnsafeCell;

use prov_base::buffer::AppIov;
use prov_base::errno::{Errno, Result};

/// A block of memory. Its owner keeps it until all operations end that use some of it.
pub struct Scratch(Box<[UnsafeCell<u8>]>);

// SAFETY: the memory is accessed only through `AppIov`, which copies bytes and makes no references to
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

    /// Lends all of it, for operations that end before this is dropped. `engine` keeps each
    /// operation until its messages have ended, and an endpoint's operations until the owner's
    /// endpoint, which ends its messages, is closed.
    pub fn lend(&self) -> AppIov {
        let base = self.0.as_ptr().cast_mut().cast();
        // SAFETY: the block has this length, does not move, and is made of `UnsafeCell`, so that it may be
        // written through a shared reference. It outlives the result: only this crate calls the method,
        // and keeps an operation with its block until its messages have ended (see above).
        unsafe { AppIov::from_raw(base, self.0.len()) }
    }
}
