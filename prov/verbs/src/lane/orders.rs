//! What other threads ask of a lane, whose lock may be none for them: whoever reads
//! the application's queue next does it.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Name;

/// Whose requests are to be reported as flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A sender's.
    Sender(Name),
    /// A receiver's.
    Receiver(Name),
    /// Everybody's, from now on: the device is gone.
    All,
}

/// Orders that nobody has followed yet, in order.
#[derive(Default)]
pub struct Orders {
    /// Whether there are any.
    are_given: AtomicBool,
    list: Mutex<Vec<Order>>,
}

impl Orders {
    /// Adds an order.
    pub fn give(&self, order: Order) {
        let mut list = self.list.lock();
        if !list.contains(&order) {
            list.push(order);
        }
        self.are_given.store(true, Ordering::Release);
    }

    /// Whether there is something to do.
    #[inline(always)]
    pub fn are_given(&self) -> bool {
        self.are_given.load(Ordering::Relaxed)
    }

    /// What is to be done. That a device is gone is said again to those who come
    /// later.
    pub fn take(&self) -> Vec<Order> {
        let mut list = self.list.lock();
        let all = list.contains(&Order::All).then_some(Order::All);
        self.are_given.store(all.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut *list, all.into_iter().collect())
    }
}
