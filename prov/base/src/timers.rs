//! Points in time at which something is looked at again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// What is due when. Nothing is ever taken back: whoever is called looks
/// whether there is still something to do.
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
    /// Has `target` looked at when the time has come.
    pub fn set(&mut self, when: Instant, target: T) {
        self.heap.push(Reverse((when, target)));
    }

    /// The next thing that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        match self.heap.peek() {
            Some(&Reverse((when, target))) if when <= now => {
                self.heap.pop();
                Some(target)
            }
            _ => None,
        }
    }

    /// When the next thing is due.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|&Reverse((when, _))| when)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_due_comes_in_the_order_of_its_time() {
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
