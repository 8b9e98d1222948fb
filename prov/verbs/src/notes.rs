//! What one thread leaves for another one that it does not wait for, and that may
//! sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use prov_base::errno::Result;
use rustix::event::{EventfdFlags, eventfd};

/// Notes that nobody has taken yet, in order; none is there twice.
pub struct Notes<T> {
    are_there: AtomicBool,
    list: Mutex<Vec<T>>,
    /// An eventfd, which is readable while there are any: who leaves one may do so
    /// after all that could wake a sleeper has been taken.
    bell: OwnedFd,
}

impl<T: PartialEq> Notes<T> {
    /// None yet.
    pub fn new() -> Result<Self> {
        Ok(Notes {
            are_there: AtomicBool::new(false),
            list: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Leaves one.
    pub fn add(&self, note: T) {
        let mut list = self.list.lock();
        if !list.contains(&note) {
            list.push(note);
        }
        if !self.are_there.swap(true, Ordering::Release) {
            // Fails only where it is readable already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Whether there are any.
    #[inline(always)]
    pub fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Relaxed)
    }

    /// Takes them.
    pub fn take(&self) -> Vec<T> {
        if !self.are_there() {
            return Vec::new();
        }
        let mut list = self.list.lock();
        self.are_there.store(false, Ordering::Relaxed);
        // Nothing to read is what is wanted.
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
