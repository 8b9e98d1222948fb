//! Memory for messages of the operations themselves, which is never shared with the application.

use std::cell::UnsafeCell;

use prov_base::buffer::AppIov;

/// A block of memory. Its owner keeps it until all operations end that use some of it.
pub struct Scratch(Box<[UnsafeCell<u8>]>);

// SAFETY: the memory is accessed through `AppIov` alone, which copies bytes and makes no references to them; its users
// order their accesses, as they do for the application's memory.
unsafe impl Send for Scratch {}
// SAFETY: a shared reference permits the same accesses, which are sound from any thread, as above.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// Allocates so many bytes, which are zero.
    pub fn new(bytes: usize) -> Self {
        Scratch((0..bytes).map(|_| UnsafeCell::new(0)).collect())
    }

    /// Lends all of it, for operations that end before this is dropped. `engine` keeps each
    /// operation until its messages have ended, and an endpoint's operations until the owner's
    /// endpoint, which ends its messages, is closed.
    pub fn lend(&self) -> AppIov {
        let base = self.0.as_ptr().cast_mut().cast();
        // SAFETY: the block is as long, stays where it is while this lives, and may be written through a shared
        // reference. That it outlives what it is lent to is the promise of this crate, told above.
        unsafe { AppIov::from_raw(base, self.0.len()) }
    }
}
