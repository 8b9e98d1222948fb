//! Links of peers that no address vector knows, which anybody can make: how many of
//! them a process has, and which of them was used least recently.
//!
//! Each link costs a descriptor, and the application needs some, too. Each core has a
//! set of its own; the number is that of all cores of the process.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use slotmap::{Key, SecondaryMap};

/// Links that one core may have although others have used up the limit: else who
/// floods one endpoint would shut strangers out of all the others.
const LEAST: usize = 16;

/// See the [module](self) description.
pub struct Strangers<K: Key> {
    /// The links with the times of their last use that were noted, earliest first.
    by_use: BTreeSet<(Instant, K)>,
    /// The same times by link.
    used: SecondaryMap<K, Instant>,
    /// Links of all cores of the process.
    process: &'static AtomicUsize,
}

impl<K: Key> Strangers<K> {
    /// Without links; `process` counts those of all cores.
    pub fn new(process: &'static AtomicUsize) -> Self {
        Strangers {
            by_use: BTreeSet::new(),
            used: SecondaryMap::new(),
            process,
        }
    }

    /// Counts a link that was used at this time last, or notes the time for one that is
    /// counted.
    pub fn used(&mut self, link: K, at: Instant) {
        match self.used.insert(link, at) {
            Some(before) => _ = self.by_use.remove(&(before, link)),
            None => _ = self.process.fetch_add(1, Ordering::Relaxed),
        }
        self.by_use.insert((at, link));
    }

    /// Does not count a link any more: it has ended, or its peer is known now.
    pub fn remove(&mut self, link: K) {
        if let Some(at) = self.used.remove(link) {
            self.by_use.remove(&(at, link));
            self.process.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether there are more links than `limit` in the process, and this core has its
    /// part in that.
    pub fn are_too_many(&self, limit: usize) -> bool {
        self.process.load(Ordering::Relaxed) > limit && self.by_use.len() > LEAST
    }

    /// The link of this core whose noted time is the earliest, with that time.
    pub fn oldest(&self) -> Option<(K, Instant)> {
        self.by_use.first().map(|&(at, link)| (link, at))
    }
}

impl<K: Key> Drop for Strangers<K> {
    fn drop(&mut self) {
        self.process.fetch_sub(self.by_use.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slotmap::{SlotMap, new_key_type};

    use super::*;

    new_key_type! {
        struct LinkKey;
    }

    fn links(count: usize) -> Vec<LinkKey> {
        let mut all = SlotMap::with_key();
        (0..count).map(|_| all.insert(())).collect()
    }

    #[test]
    fn the_link_that_was_used_least_recently_is_the_oldest() {
        static PROCESS: AtomicUsize = AtomicUsize::new(0);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let links = links(3);
        let mut strangers = Strangers::new(&PROCESS);
        for (seconds, link) in links.iter().enumerate() {
            strangers.used(*link, at(seconds as u64));
        }
        assert_eq!(strangers.oldest(), Some((links[0], at(0))));
        strangers.used(links[0], at(9));
        assert_eq!(strangers.oldest(), Some((links[1], at(1))));
        strangers.remove(links[1]);
        assert_eq!(strangers.oldest(), Some((links[2], at(2))));
        assert_eq!(PROCESS.load(Ordering::Relaxed), 2);
        drop(strangers);
        assert_eq!(PROCESS.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_limit_is_for_the_process_and_each_core_may_have_a_few() {
        static PROCESS: AtomicUsize = AtomicUsize::new(0);
        let now = Instant::now();
        let links = links(100);
        let mut greedy = Strangers::new(&PROCESS);
        let mut modest = Strangers::new(&PROCESS);
        for link in &links {
            greedy.used(*link, now);
        }
        assert!(greedy.are_too_many(99) && !greedy.are_too_many(100));
        for link in &links[..LEAST] {
            modest.used(*link, now);
            assert!(!modest.are_too_many(99));
        }
        modest.used(links[LEAST], now);
        assert!(modest.are_too_many(99));
    }
}
