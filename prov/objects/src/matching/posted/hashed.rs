//! Posted receives in a hash table of tags and sources.
//!
//! Middleware posts receives with very few distinct ignore masks (a bit or two of its own protocol,
//! "any tag", "any source"), but with many tags. So each mask, with and without a directed source,
//! is a *class*; within a class, a message can match only one key (its tag without the ignored
//! bits, and its source if directed), and that key is hashed. A message is looked up in one bucket
//! per class in use, and matches the oldest candidate. Receives whose class finds no place among
//! [`CLASSES`] are in a list that is searched linearly.

#![allow(
    clippy::indexing_slicing,
    reason = "the table makes the indices: of its classes and buckets"
)]

use super::super::ANY_SOURCE;
use super::super::arena::{Arena, List, NIL};
use super::super::hash::HashKey;
use super::{Index, Posted, Space};

/// Number of distinct pairs of mask and directedness that are hashed at a time: it bounds the
/// number of buckets per lookup.
const CLASSES: usize = 8;
/// The class number of receives in the linear list.
const UNHASHED: u8 = CLASSES as u8;
const FIRST_BUCKETS: usize = 64;
/// Number of receives up to which one is searched by its context without an index.
const FEW: usize = if cfg!(test) { 4 } else { 64 };
/// Number of slots above which the memory of the empty table is given back: 12 MB.
const KEPT: usize = if cfg!(test) { 32 } else { 1 << 16 };
/// The link of entries in the list of their bucket.
const BY_KEY: usize = 0;
/// The link of entries in the list of their context.
const BY_CONTEXT: usize = 1;

#[derive(Clone, Copy, Debug)]
struct HashedReceive {
    posted: Posted,
    /// Increases with each receive.
    order: u64,
    class: u8,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    ignore: u64,
    directed: bool,
    /// Number of receives of this class in the buckets; at 0 the class can be reused.
    waiting: u32,
}

#[derive(Debug)]
pub(super) struct Hashed<B> {
    /// The posted receives; an [`Index`] is an index of this arena.
    entries: Arena<HashedReceive, 2>,
    /// The buffer of each entry, at the same index. Undefined for free entries.
    spaces: Vec<Space<B>>,
    /// Empty at first, then a power of two of buckets; a receive is in the bucket of its class and
    /// key.
    buckets: Vec<List>,
    unhashed: List,
    /// The same for contexts, in order of posting: an index for fi_cancel(3), which is empty until
    /// a receive is searched among many.
    contexts: Vec<List>,
    classes: [Class; CLASSES],
    /// Number of classes that have ever been used.
    classes_used: usize,
    next_order: u64,
    /// The receive that was posted last, if it is still there.
    newest: Index,
    key: HashKey,
}

impl<B> Hashed<B> {
    pub fn new() -> Self {
        Hashed {
            entries: Arena::new(),
            spaces: Vec::new(),
            buckets: Vec::new(),
            unhashed: List::EMPTY,
            contexts: Vec::new(),
            classes: [Class {
                ignore: 0,
                directed: false,
                waiting: 0,
            }; CLASSES],
            classes_used: 0,
            next_order: 0,
            newest: NIL,
            key: HashKey::of_process(),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends a receive.
    pub fn push(&mut self, posted: Posted, space: Space<B>) -> Index {
        let class = self.join_class(posted.ignore, posted.src != ANY_SOURCE);
        let order = self.next_order;
        self.next_order += 1;
        let index = self.entries.insert(HashedReceive {
            posted,
            order,
            class,
        });
        // The arena may have grown by one slot.
        match self.spaces.get_mut(index as usize) {
            Some(place) => *place = space,
            None => self.spaces.push(space),
        }
        let list = match class {
            UNHASHED => &mut self.unhashed,
            _ => {
                let tag = posted.tag & !posted.ignore;
                let bucket = self.key.bucket(tag, posted.src, self.buckets.len());
                &mut self.buckets[bucket]
            }
        };
        self.entries.push_back(BY_KEY, list, index);
        self.newest = index;
        if !self.contexts.is_empty() {
            self.list_context(index);
        }
        index
    }

    /// Returns the oldest receive that accepts a message, in the linear list and in the buckets.
    #[inline(never)]
    pub fn find(&self, src: u64, tag: u64) -> Option<Index> {
        let mut best = self.search(self.unhashed, src, tag, u64::MAX);
        for class in &self.classes[..self.classes_used] {
            if class.waiting == 0 || (class.directed && src == ANY_SOURCE) {
                continue;
            }
            let key_src = if class.directed { src } else { ANY_SOURCE };
            let bucket = self
                .key
                .bucket(tag & !class.ignore, key_src, self.buckets.len());
            let before = best.map_or(u64::MAX, |(_, order)| order);
            best = self.search(self.buckets[bucket], src, tag, before).or(best);
        }
        best.map(|(index, _)| index)
    }

    /// Returns the first receive of `list` that accepts a message, if its order is below `before`,
    /// and that order.
    fn search(&self, list: List, src: u64, tag: u64, before: u64) -> Option<(Index, u64)> {
        let mut index = list.head;
        while let Some(entry) = self.entries.get(index) {
            if entry.order >= before {
                break;
            }
            if entry.posted.accepts(src, tag) {
                return Some((index, entry.order));
            }
            index = self.entries.next(BY_KEY, index);
        }
        None
    }

    #[inline]
    pub fn get(&self, index: Index) -> Option<&Posted> {
        Some(&self.entries.get(index)?.posted)
    }

    #[inline]
    pub fn space(&self, index: Index) -> Option<&Space<B>> {
        self.spaces.get(index as usize)
    }

    pub fn space_mut(&mut self, index: Index) -> Option<&mut Space<B>> {
        self.spaces.get_mut(index as usize)
    }

    /// Removes a receive, and returns its buffer.
    pub fn remove(&mut self, index: Index) -> Space<B> {
        self.unlist(index);
        match self.spaces.get_mut(index as usize) {
            Some(space) => std::mem::replace(space, Space::Vacant),
            None => Space::Vacant,
        }
    }

    /// Removes a receive, and leaves its buffer in its slot until the next one is posted.
    pub fn unlist(&mut self, index: Index) -> Option<Posted> {
        let &HashedReceive { posted, class, .. } = self.entries.get(index)?;
        if !self.contexts.is_empty() {
            let bucket = self.context_bucket(posted.context);
            let list = &mut self.contexts[bucket];
            self.entries.unlink(BY_CONTEXT, list, index);
        }
        let list = match class {
            UNHASHED => &mut self.unhashed,
            _ => {
                self.classes[class as usize].waiting -= 1;
                let tag = posted.tag & !posted.ignore;
                let bucket = self.key.bucket(tag, posted.src, self.buckets.len());
                &mut self.buckets[bucket]
            }
        };
        self.entries.take_from(BY_KEY, list, index);
        Some(posted)
    }

    /// Returns the oldest receive posted with `context`.
    pub fn find_context(&mut self, context: usize) -> Option<Index> {
        if self.contexts.is_empty() {
            if self.entries.len() <= FEW {
                let all = self.entries.iter();
                return all
                    .filter(|(_, entry)| entry.posted.context == context)
                    .min_by_key(|(_, entry)| entry.order)
                    .map(|(index, _)| index);
            }
            self.index_contexts();
        }
        let mut index = self.contexts[self.context_bucket(context)].head;
        while let Some(entry) = self.entries.get(index) {
            if entry.posted.context == context {
                return Some(index);
            }
            index = self.entries.next(BY_CONTEXT, index);
        }
        None
    }

    fn context_bucket(&self, context: usize) -> usize {
        self.key
            .bucket(context as u64, ANY_SOURCE, self.contexts.len())
    }

    /// Adds the newest receive to the index of contexts.
    #[cold]
    fn list_context(&mut self, index: Index) {
        if self.entries.len() > 2 * self.contexts.len() {
            return self.index_contexts();
        }
        if let Some(entry) = self.entries.get(index) {
            let bucket = self.context_bucket(entry.posted.context);
            let list = &mut self.contexts[bucket];
            self.entries.push_back(BY_CONTEXT, list, index);
        }
    }

    /// Creates the index of contexts, or a larger one.
    #[cold]
    fn index_contexts(&mut self) {
        self.contexts = vec![List::EMPTY; self.entries.len().next_power_of_two()];
        for index in self.in_order(|_| true) {
            self.list_context(index);
        }
    }

    /// The receives, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (Index, &Posted)> {
        let entries = self.entries.iter();
        entries.map(|(index, entry)| (index, &entry.posted))
    }

    /// Returns a receive for whose buffer `is_it` is true. Fast for the one that was posted last.
    pub fn find_space(&self, is_it: impl Fn(&Space<B>) -> bool) -> Option<Index> {
        let newest = self.entries.get(self.newest).map(|_| self.newest);
        let all = self.entries.iter().map(|(index, _)| index);
        newest
            .into_iter()
            .chain(all)
            .find(|&index| self.space(index).is_some_and(&is_it))
    }

    /// Returns the receives for which `select` is true, oldest first.
    pub fn in_order(&self, select: impl Fn(&Posted) -> bool) -> Vec<Index> {
        let mut all: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| select(&entry.posted))
            .map(|(index, entry)| (entry.order, index))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, index)| index).collect()
    }

    /// Resets the classes and the index of contexts, when no receive is left. The buffer of the last
    /// one stays in its slot.
    pub fn reset(&mut self) {
        self.classes_used = 0;
        self.contexts = Vec::new();
    }

    /// Returns whether the empty table has the memory of many receives.
    pub fn is_large(&self) -> bool {
        self.spaces.len() > KEPT
    }

    /// Gives back the memory of the empty table.
    #[cold]
    pub fn release(&mut self) {
        self.entries = Arena::new();
        self.spaces = Vec::new();
        self.buckets = Vec::new();
    }

    /// Adds a new receive to its class, and returns the class.
    fn join_class(&mut self, ignore: u64, directed: bool) -> u8 {
        if self.entries.len() >= self.buckets.len() {
            self.add_buckets();
        }
        let used = &mut self.classes[..self.classes_used];
        for (number, class) in used.iter_mut().enumerate() {
            if class.ignore == ignore && class.directed == directed {
                class.waiting += 1;
                return number as u8;
            }
        }
        self.open_class(ignore, directed)
    }

    #[cold]
    fn open_class(&mut self, ignore: u64, directed: bool) -> u8 {
        let idle = self.classes[..self.classes_used]
            .iter()
            .position(|class| class.waiting == 0);
        let number = match idle {
            Some(number) => number,
            None if self.classes_used < CLASSES => {
                self.classes_used += 1;
                self.classes_used - 1
            }
            None => return UNHASHED,
        };
        self.classes[number] = Class {
            ignore,
            directed,
            waiting: 1,
        };
        number as u8
    }

    /// Doubles the number of buckets, or creates the first ones.
    #[cold]
    fn add_buckets(&mut self) {
        let size = (self.buckets.len() * 2).max(FIRST_BUCKETS);
        let old = std::mem::replace(&mut self.buckets, vec![List::EMPTY; size]);
        // All receives of a new bucket come from one old bucket, so they stay in order.
        for list in old {
            let mut index = list.head;
            while let Some(HashedReceive { posted, .. }) = self.entries.get(index) {
                let bucket = self
                    .key
                    .bucket(posted.tag & !posted.ignore, posted.src, size);
                let next = self.entries.next(BY_KEY, index);
                self.entries
                    .push_back(BY_KEY, &mut self.buckets[bucket], index);
                index = next;
            }
        }
    }
}
