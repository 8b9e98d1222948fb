//! A collection of values by memory intervals, which may overlap.

use prov_base::bounded;
use prov_base::bounds::OBJECTS;
use std::collections::BTreeMap;

/// A half-open interval of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    start: usize,
    /// The address after the last byte.
    end: usize,
}

impl Interval {
    /// Creates the interval of `len` bytes at `start`, truncated at the end of the address space.
    pub fn new(start: usize, len: usize) -> Self {
        Interval {
            start,
            end: start.saturating_add(len),
        }
    }

    /// Returns the address of the first byte.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Returns the address after the last byte.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    fn contains(&self, other: &Interval) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Returns whether the two have a common byte.
    pub fn overlaps(&self, other: &Interval) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// See the module.
pub struct Intervals<T> {
    /// Sorted by start, and a number that distinguishes entries with the same start.
    entries: BTreeMap<(usize, u64), (usize, T)>,
    next: u64,
    bytes: usize,
    /// Upper limit of the lengths of all entries ever: entries that reach an address start at most
    /// this far before it.
    longest: usize,
}

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Intervals {
            entries: BTreeMap::new(),
            next: 0,
            bytes: 0,
            longest: 0,
        }
    }
}

impl<T> Intervals<T> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the sum of their lengths.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a value.
    pub fn insert(&mut self, interval: Interval, value: T) {
        let key = (interval.start, self.next);
        self.next += 1;
        self.bytes = self.bytes.saturating_add(interval.len());
        self.longest = self.longest.max(interval.len());
        self.entries.insert(key, (interval.end, value));
        bounded!(self.entries, OBJECTS);
    }

    /// Returns a value whose interval contains all of `asked`, and for which `fits` is true.
    pub fn find(&self, asked: Interval, fits: impl Fn(&T) -> bool) -> Option<&T> {
        let first = asked.start.saturating_sub(self.longest);
        let near = self
            .entries
            .range((first, 0)..=(asked.start, u64::MAX))
            .rev();
        let mut found =
            near.map(|(&(start, _), (end, value))| (Interval { start, end: *end }, value));
        found
            .find(|(interval, value)| interval.contains(&asked) && fits(value))
            .map(|(_, value)| value)
    }

    /// Removes all entries that overlap `memory`.
    pub fn take_overlapping(&mut self, memory: Interval) -> Vec<T> {
        let first = memory.start.saturating_sub(self.longest);
        let near = self.entries.range((first, 0)..(memory.end, 0));
        let keys: Vec<_> = near
            .filter(|&(&(start, _), &(end, _))| Interval { start, end }.overlaps(&memory))
            .map(|(&key, _)| key)
            .collect();
        keys.into_iter()
            .filter_map(|key| self.remove(key))
            .collect()
    }

    /// Removes all entries.
    pub fn take_all(&mut self) -> Vec<T> {
        self.bytes = 0;
        let all = std::mem::take(&mut self.entries);
        all.into_values().map(|(_, value)| value).collect()
    }

    /// Removes the entry with the lowest rank, of those that have one.
    pub fn take_least(&mut self, rank: impl Fn(&T) -> Option<usize>) -> Option<T> {
        let ranked = self.entries.iter();
        let ranked = ranked.filter_map(|(&key, (_, value))| Some((rank(value)?, key)));
        let (_, key) = ranked.min()?;
        self.remove(key)
    }

    fn remove(&mut self, key: (usize, u64)) -> Option<T> {
        let (end, value) = self.entries.remove(&key)?;
        self.bytes = self.bytes.saturating_sub(end - key.0);
        Some(value)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a linear search.
        #[test]
        fn overlapping_intervals_are_found_and_no_others(
            all in proptest::collection::vec((0usize..200, 1usize..60), 0..40),
            asked in (0usize..200, 1usize..60),
        ) {
            let asked = Interval::new(asked.0, asked.1);
            let mut intervals = Intervals::default();
            for &(start, len) in &all {
                intervals.insert(Interval::new(start, len), (start, len));
            }
            let contained = |&(start, len): &(usize, usize)| {
                Interval::new(start, len).contains(&asked)
            };
            let found = intervals.find(asked, |_| true).copied();
            prop_assert_eq!(found.is_some(), all.iter().any(contained));
            prop_assert!(found.is_none_or(|found| contained(&found)));
            let mut gone = intervals.take_overlapping(asked);
            let overlaps = |&&(start, len): &&(usize, usize)| {
                Interval::new(start, len).overlaps(&asked)
            };
            let mut expected: Vec<_> = all.iter().filter(overlaps).copied().collect();
            gone.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(&gone, &expected);
            prop_assert_eq!(intervals.len(), all.len() - expected.len());
            let left: usize = all.iter().map(|(_, len)| len).sum::<usize>()
                - expected.iter().map(|(_, len)| len).sum::<usize>();
            prop_assert_eq!(intervals.bytes(), left);
        }
    }

    #[test]
    fn the_lowest_rank_is_removed_first_and_entries_without_rank_stay() {
        let mut intervals = Intervals::default();
        for value in [5, 3, 9, 4] {
            intervals.insert(Interval::new(value, 1), value);
        }
        let rank = |&value: &usize| (value != 3).then_some(value);
        assert_eq!(intervals.take_least(rank), Some(4));
        assert_eq!(intervals.take_least(rank), Some(5));
        assert_eq!(intervals.take_least(rank), Some(9));
        assert_eq!(intervals.take_least(rank), None);
        assert_eq!(intervals.take_all(), [3]);
        assert_eq!((intervals.len(), intervals.bytes()), (0, 0));
    }

    #[test]
    fn the_end_of_the_address_space_is_no_beginning() {
        let last = Interval::new(usize::MAX - 3, 100);
        assert_eq!((last.len(), last.end()), (3, usize::MAX));
    }
}
