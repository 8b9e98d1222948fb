//! Notes of one thread for another one that it does not wait for, and that may sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use prov_base::errno::Result;
use rustix::event::{EventfdFlags, eventfd};

/// Notes that have not been taken, in order, without duplicates.
pub struct Notes<T> {
    are_there: AtomicBool,
    list: Mutex<Vec<T>>,
    /// An eventfd, which is readable while there are any: a note may be left after a thread has
    /// processed everything else that could wake it.
    bell: OwnedFd,
}

impl<T: PartialEq> Notes<T> {
    /// Creates an empty list.
    pub fn new() -> Result<Self> {
        Ok(Notes {
            are_there: AtomicBool::new(false),
            list: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Adds a note.
    pub fn add(&self, note: T) {
        let mut list = self.list.lock();
        if !list.contains(&note) {
            list.push(note);
        }
        if !self.are_there.swap(true, Ordering::Release) {
            // Fails only if it is readable already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Whether there are any.
    #[inline(always)]
    pub fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Relaxed)
    }

    /// Removes and returns all notes.
    pub fn take(&self) -> Vec<T> {
        if !self.are_there() {
            return Vec::new();
        }
        let mut list = self.list.lock();
        self.are_there.store(false, Ordering::Relaxed);
        // An error means that there is nothing to read, which is fine.
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        std::mem::take(&mut *list)
    }
}

impl<T> AsFd for Notes<T> {
    /// Readable while there are any.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
