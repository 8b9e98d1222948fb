//! Connections that requests have failed of: the lane that hears of it waits for no
//! manager, whose next turn ends them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use prov_util::errno::Result;
use rustix::event::{EventfdFlags, eventfd};

use super::EndKey;

/// Those of a manager that it has not ended yet.
pub struct Lost {
    are_there: AtomicBool,
    list: Mutex<Vec<EndKey>>,
    /// An eventfd, which is readable while there are any.
    bell: OwnedFd,
}

impl Lost {
    /// None yet.
    pub fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Lost {
            are_there: AtomicBool::new(false),
            list: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        }))
    }

    /// A request of this one has failed.
    pub fn add(&self, key: EndKey) {
        let mut list = self.list.lock();
        list.push(key);
        if !self.are_there.swap(true, Ordering::Relaxed) {
            // Fails only where it is readable already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes those that there are.
    pub fn take(&self) -> Vec<EndKey> {
        if !self.are_there.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut list = self.list.lock();
        self.are_there.store(false, Ordering::Relaxed);
        // Nothing to read is what is wanted.
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        std::mem::take(&mut *list)
    }
}

impl AsFd for Lost {
    /// Readable while there are any.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
