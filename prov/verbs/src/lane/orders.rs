//! What other threads ask of a lane, whose lock may be none for them: whoever reads
//! the application's queue next does it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use prov_util::errno::Result;
use rustix::event::{EventfdFlags, eventfd};

use super::Name;

/// Whose requests are to be reported as flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A sender's.
    Sender(Name),
    /// A receiver's, and those that it shares with others.
    Receiver(Name),
    /// Those that a receiver shares with others.
    Shared(Name),
}

/// Orders that nobody has followed yet, in order.
pub struct Orders {
    /// Whether there are any.
    are_given: AtomicBool,
    list: Mutex<Vec<Order>>,
    /// An eventfd, which is readable while there are any: who gives one may do so
    /// after all that could wake a sleeper has been taken.
    bell: OwnedFd,
}

impl Orders {
    /// None yet.
    pub fn new() -> Result<Self> {
        Ok(Orders {
            are_given: AtomicBool::new(false),
            list: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Adds an order.
    pub fn give(&self, order: Order) {
        let mut list = self.list.lock();
        if !list.contains(&order) {
            list.push(order);
        }
        if !self.are_given.swap(true, Ordering::Release) {
            // Fails only where it is readable already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Whether there is something to do.
    #[inline(always)]
    pub fn are_given(&self) -> bool {
        self.are_given.load(Ordering::Relaxed)
    }

    /// What is to be done.
    pub fn take(&self) -> Vec<Order> {
        let mut list = self.list.lock();
        self.are_given.store(false, Ordering::Relaxed);
        // Nothing to read is what is wanted.
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        std::mem::take(&mut *list)
    }
}

impl AsFd for Orders {
    /// Readable while there is something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
