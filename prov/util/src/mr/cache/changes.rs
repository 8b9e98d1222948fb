//! What has become of memory: the last changes, which one thread tells all others
//! without a lock.
//!
//! They stand in a ring. For who comes too late for some of them, all memory has
//! changed: so nothing is allocated, and nobody waits for anybody.

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
    /// The one with number n is at n modulo `N`.
    ring: [Change; N],
    /// How many have been told.
    count: AtomicUsize,
}

struct Change {
    start: AtomicUsize,
    len: AtomicUsize,
}

/// The changes that somebody knows: how many.
#[derive(Clone, Copy)]
pub struct Known(usize);

/// What has changed meanwhile.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// These.
    Of(Vec<Interval>),
    /// Anything, as far as can be told.
    OfAll,
}

impl News {
    /// Whether this memory may not be what it was.
    pub fn concern(&self, memory: Interval) -> bool {
        match self {
            News::Of(changes) => changes.iter().any(|change| change.overlaps(&memory)),
            News::OfAll => true,
        }
    }
}

impl<const N: usize> Changes<N> {
    /// None yet.
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

    /// One more than the one thread that tells has `told`.
    pub fn tell(&self, told: &mut Known, memory: Interval) {
        let change = &self.ring[told.0 % N];
        // Who reads one of these knows the count before.
        change.start.store(memory.start(), Ordering::Release);
        change.len.store(memory.len(), Ordering::Release);
        told.0 += 1;
        self.count.store(told.0, Ordering::Release);
    }

    /// All that have been told.
    pub fn known(&self) -> Known {
        Known(self.count.load(Ordering::Acquire))
    }

    /// Those that are not `known`, which they are then.
    pub fn news(&self, known: &mut Known) -> News {
        let Known(count) = self.known();
        let first = std::mem::replace(&mut known.0, count);
        if count - first >= N {
            return News::OfAll;
        }
        let changes = (first..count).map(|number| {
            let change = &self.ring[number % N];
            let start = change.start.load(Ordering::Acquire);
            Interval::new(start, change.len.load(Ordering::Acquire))
        });
        let changes: Vec<_> = changes.collect();
        // The next one, perhaps half told, takes the place of the one `N` before.
        match self.count.load(Ordering::Relaxed) - first < N {
            true => News::Of(changes),
            false => News::OfAll,
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
    fn who_comes_often_enough_hears_of_each_change_once() {
        let changes = Changes::<4>::new();
        let (mut told, mut known) = (changes.known(), changes.known());
        for number in 0..100 {
            changes.tell(&mut told, change(number));
            if number % 3 == 2 {
                let news = (number - 2..=number).map(change).collect();
                assert_eq!(changes.news(&mut known), News::Of(news));
                assert_eq!(changes.news(&mut known), News::Of(Vec::new()));
            }
        }
    }

    #[test]
    fn for_who_comes_too_late_all_has_changed_up_to_then() {
        let changes = Changes::<4>::new();
        let (mut told, mut known) = (changes.known(), changes.known());
        for number in 0..4 {
            changes.tell(&mut told, change(number));
        }
        let news = changes.news(&mut known);
        assert_eq!(news, News::OfAll);
        assert!(news.concern(change(1000)));
        changes.tell(&mut told, change(5));
        let news = changes.news(&mut known);
        assert_eq!(news, News::Of(vec![change(5)]));
        assert!(news.concern(Interval::new(54, 100)));
        assert!(!news.concern(Interval::new(55, 100)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Never part of one and part of another.
    fn change(number: usize) -> Interval {
        Interval::new(number + 1, number + 1)
    }

    #[test]
    fn changes_are_heard_whole_and_none_is_left_out() {
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
                let Known(first) = known;
                let news = changes.news(&mut known);
                if let News::Of(heard) = news {
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
