//! The list of the last changes of memory, which one thread writes for all others without a lock.
//!
//! It is a ring. For a reader that is too late for some changes, all memory has changed: so nothing
//! is allocated, and no thread waits for another.

#![allow(
    clippy::indexing_slicing,
    reason = "a number is taken modulo the size of the ring"
)]

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

use super::intervals::Interval;

/// The last changes, fewer than `N`.
pub struct Changes<const N: usize> {
    /// The change with number n is at index n modulo `N`.
    ring: [Change; N],
    /// Number of changes that were published.
    count: AtomicUsize,
}

struct Change {
    start: AtomicUsize,
    len: AtomicUsize,
}

/// A reader's position: the number of changes that it has seen.
#[derive(Clone, Copy)]
pub struct ReadPosition(usize);

/// The changes since a position.
#[derive(Debug, PartialEq, Eq)]
pub enum ChangesSince {
    /// These intervals.
    Of(Vec<Interval>),
    /// Possibly all memory.
    OfAll,
}

impl ChangesSince {
    /// Returns whether this memory may have changed.
    pub fn concern(&self, memory: Interval) -> bool {
        match self {
            ChangesSince::Of(changes) => changes.iter().any(|change| change.overlaps(&memory)),
            ChangesSince::OfAll => true,
        }
    }
}

impl<const N: usize> Changes<N> {
    /// Creates an empty list.
    pub fn new() -> Self {
        let none = |_| Change {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
        };
        Changes {
            ring: std::array::from_fn(none),
            count: AtomicUsize::new(0),
        }
    }

    /// Publishes a change; `told` is the position of the single writing thread.
    pub fn tell(&self, told: &mut ReadPosition, memory: Interval) {
        let change = &self.ring[told.0 % N];
        // A reader that sees one of these values also sees the count stored before.
        change.start.store(memory.start(), Ordering::Release);
        change.len.store(memory.len(), Ordering::Release);
        told.0 += 1;
        self.count.store(told.0, Ordering::Release);
    }

    /// Returns the current position.
    pub fn known(&self) -> ReadPosition {
        ReadPosition(self.count.load(Ordering::Acquire))
    }

    /// Returns the changes after the position `known`, and advances it.
    pub fn news(&self, known: &mut ReadPosition) -> ChangesSince {
        let ReadPosition(count) = self.known();
        let first = std::mem::replace(&mut known.0, count);
        if count - first >= N {
            return ChangesSince::OfAll;
        }
        let changes = (first..count).map(|number| {
            let change = &self.ring[number % N];
            let start = change.start.load(Ordering::Acquire);
            Interval::new(start, change.len.load(Ordering::Acquire))
        });
        let changes: Vec<_> = changes.collect();
        // The next change, possibly half written, overwrites the one `N` positions before it.
        match self.count.load(Ordering::Relaxed) - first < N {
            true => ChangesSince::Of(changes),
            false => ChangesSince::OfAll,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn change(number: usize) -> Interval {
        Interval::new(number * 10, number)
    }

    #[test]
    fn a_frequent_reader_sees_each_change_once() {
        let changes = Changes::<4>::new();
        let (mut told, mut known) = (changes.known(), changes.known());
        for number in 0..100 {
            changes.tell(&mut told, change(number));
            if number % 3 == 2 {
                let news = (number - 2..=number).map(change).collect();
                assert_eq!(changes.news(&mut known), ChangesSince::Of(news));
                assert_eq!(changes.news(&mut known), ChangesSince::Of(Vec::new()));
            }
        }
    }

    #[test]
    fn for_a_late_reader_all_memory_has_changed() {
        let changes = Changes::<4>::new();
        let (mut told, mut known) = (changes.known(), changes.known());
        for number in 0..4 {
            changes.tell(&mut told, change(number));
        }
        let news = changes.news(&mut known);
        assert_eq!(news, ChangesSince::OfAll);
        assert!(news.concern(change(1000)));
        changes.tell(&mut told, change(5));
        let news = changes.news(&mut known);
        assert_eq!(news, ChangesSince::Of(vec![change(5)]));
        assert!(news.concern(Interval::new(54, 100)));
        assert!(!news.concern(Interval::new(55, 100)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Intervals without common parts, so that a mix of two of them is recognised.
    fn change(number: usize) -> Interval {
        Interval::new(number + 1, number + 1)
    }

    #[test]
    fn changes_are_read_whole_and_none_is_missed() {
        loom::model(|| {
            const ALL: usize = 3;
            let changes = Arc::new(Changes::<2>::new());
            let mut known = changes.known();
            let telling = {
                let changes = changes.clone();
                let mut told = known;
                loom::thread::spawn(move || {
                    for number in 0..ALL {
                        changes.tell(&mut told, change(number));
                    }
                })
            };
            let mut hear = || {
                let ReadPosition(first) = known;
                let news = changes.news(&mut known);
                if let ChangesSince::Of(heard) = news {
                    let expected: Vec<_> = (first..known.0).map(change).collect();
                    assert_eq!(heard, expected);
                }
                known.0
            };
            hear();
            hear();
            telling.join().unwrap();
            assert_eq!(hear(), ALL);
        });
    }
}
