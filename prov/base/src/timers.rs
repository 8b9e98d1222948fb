//! A queue of points in time.

use crate::bounded;
use crate::bounds::OPERATIONS;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Targets by the time at which they are due. Entries are never removed early: the caller checks
/// whether there is still something to do for a target.
pub struct Timers<T> {
    heap: BinaryHeap<Reverse<(Instant, T)>>,
}

impl<T: Ord> Default for Timers<T> {
    fn default() -> Self {
        Timers {
            heap: BinaryHeap::new(),
        }
    }
}

impl<T: Copy + Ord> Timers<T> {
    /// Adds a target that is due at `when`.
    pub fn set(&mut self, when: Instant, target: T) {
        self.heap.push(Reverse((when, target)));
        bounded!(self.heap, OPERATIONS);
    }

    /// Removes and returns the next target that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        match self.heap.peek() {
            Some(&Reverse((when, target))) if when <= now => {
                self.heap.pop();
                Some(target)
            }
            _ => None,
        }
    }

    /// Returns the time of the next target.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|&Reverse((when, _))| when)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn targets_are_due_in_the_order_of_their_times() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        assert_eq!(timers.next(), None);
        for (after, target) in [(3, 'c'), (1, 'a'), (2, 'b'), (1, 'a')] {
            timers.set(now + Duration::from_secs(after), target);
        }
        assert_eq!(timers.next(), Some(now + Duration::from_secs(1)));
        assert_eq!(timers.pop_due(now), None);
        let then = now + Duration::from_secs(2);
        let due: Vec<_> = std::iter::from_fn(|| timers.pop_due(then)).collect();
        assert_eq!(due, ['a', 'a', 'b']);
        assert_eq!(timers.next(), Some(now + Duration::from_secs(3)));
    }
}
