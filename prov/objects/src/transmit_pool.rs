//! Operations that several endpoints may have outstanding together (fi_endpoint(3),
//! shared transmit contexts).

use std::sync::atomic::{AtomicUsize, Ordering};

/// Transmit operations that endpoints of different threads have outstanding together.
/// Each looks whether there is room before it posts an operation. Threads that post the
/// last ones at the same time go beyond the limit, by one operation each.
#[derive(Debug)]
pub struct TransmitPool {
    limit: usize,
    taken: AtomicUsize,
}

impl TransmitPool {
    /// Up to `limit` operations.
    pub fn new(limit: usize) -> Self {
        TransmitPool {
            limit,
            taken: AtomicUsize::new(0),
        }
    }

    /// Returns whether another operation may be posted.
    pub fn has_room(&self) -> bool {
        self.taken.load(Ordering::Relaxed) < self.limit
    }

    /// Counts operations that have been posted.
    pub fn take(&self, count: usize) {
        self.taken.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes operations off the count that were taken before.
    pub fn give_back(&self, count: usize) {
        let before = self.taken.fetch_sub(count, Ordering::Relaxed);
        debug_assert!(before >= count, "{count} of {before} given back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_up_to_the_limit_and_again_afterwards() {
        let pool = TransmitPool::new(3);
        pool.take(2);
        assert!(pool.has_room());
        pool.take(1);
        assert!(!pool.has_room());
        pool.take(1);
        pool.give_back(1);
        assert!(!pool.has_room());
        pool.give_back(1);
        assert!(pool.has_room());
    }
}
