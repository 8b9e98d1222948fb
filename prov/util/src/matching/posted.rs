//! Posted receives that wait for a message, found by tag and source in a time
//! that does not grow with their number.
//!
//! Middleware posts receives with very few distinct ignore masks (a bit or two
//! of its own protocol, "any tag", "any source"), but with many tags. So each
//! mask, with and without a directed source, is a *class*; within a class a
//! message can only match one key (its tag without the ignored bits, and its
//! source if directed), and that key is hashed. A message looks into one bucket
//! per class in use and takes the oldest candidate. Receives whose class finds
//! no room among [`CLASSES`] wait in a plain list that is searched linearly.

use super::arena::{Arena, List, NIL};
use super::multi::MultiKey;
use super::{ANY_SOURCE, bucket_of, tags_match};

/// Distinct (mask, directed) pairs that are hashed at one time.
const CLASSES: usize = 8;
/// The class number of receives in the linear list.
const UNHASHED: u8 = CLASSES as u8;
const FIRST_BUCKETS: usize = 16;
const MOST_BUCKETS: usize = 1 << 16;

/// A waiting receive.
#[derive(Debug)]
pub(super) struct Posted<B> {
    pub context: usize,
    pub flags: u64,
    pub src: u64,
    pub tag: u64,
    pub ignore: u64,
    pub space: Space<B>,
    /// Rises with each receive posted to this queue.
    pub order: u64,
    class: u8,
}

/// Where the message will go.
#[derive(Debug)]
pub(super) enum Space<B> {
    Single(B),
    Multi(MultiKey),
}

impl<B> Posted<B> {
    #[inline]
    fn accepts(&self, src: u64, tag: u64) -> bool {
        tags_match(self.tag, tag, self.ignore) && (self.src == ANY_SOURCE || self.src == src)
    }
}

#[derive(Clone, Copy, Debug)]
struct Class {
    ignore: u64,
    directed: bool,
    /// Receives of this class in the buckets; the class is free at 0.
    waiting: u32,
}

#[derive(Debug)]
pub(super) struct PostedQueue<B> {
    entries: Arena<Posted<B>, 1>,
    /// A power of two of them; a receive stands in the bucket of its class and key.
    buckets: Vec<List>,
    unhashed: List,
    classes: [Class; CLASSES],
    /// Classes from here on have never been used.
    classes_used: usize,
    next_order: u64,
}

impl<B> PostedQueue<B> {
    pub fn new() -> Self {
        PostedQueue {
            entries: Arena::new(),
            buckets: vec![List::EMPTY; FIRST_BUCKETS],
            unhashed: List::EMPTY,
            classes: [Class {
                ignore: 0,
                directed: false,
                waiting: 0,
            }; CLASSES],
            classes_used: 0,
            next_order: 0,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a receive behind all others.
    #[inline]
    pub fn push(
        &mut self,
        context: usize,
        flags: u64,
        src: u64,
        tag: u64,
        ignore: u64,
        space: Space<B>,
    ) -> u32 {
        if self.entries.len() >= self.buckets.len() && self.buckets.len() < MOST_BUCKETS {
            self.double_buckets();
        }
        let class = self.join_class(ignore, src != ANY_SOURCE);
        let order = self.next_order;
        self.next_order += 1;
        let index = self.entries.insert(Posted {
            context,
            flags,
            src,
            tag,
            ignore,
            space,
            order,
            class,
        });
        let list = if class == UNHASHED {
            &mut self.unhashed
        } else {
            let bucket = bucket_of(tag & !ignore, src, self.buckets.len());
            &mut self.buckets[bucket]
        };
        self.entries.push_back(0, list, index);
        index
    }

    /// The oldest receive that accepts a message with this source and tag.
    #[inline]
    pub fn find(&self, src: u64, tag: u64) -> Option<u32> {
        if self.entries.len() == 0 {
            return None;
        }
        let mut best = NIL;
        let mut best_order = u64::MAX;
        for class in &self.classes[..self.classes_used] {
            if class.waiting == 0 || (class.directed && src == ANY_SOURCE) {
                continue;
            }
            let key_src = if class.directed { src } else { ANY_SOURCE };
            let bucket = bucket_of(tag & !class.ignore, key_src, self.buckets.len());
            self.search(self.buckets[bucket], src, tag, &mut best, &mut best_order);
        }
        if self.unhashed.head != NIL {
            self.search(self.unhashed, src, tag, &mut best, &mut best_order);
        }
        (best != NIL).then_some(best)
    }

    /// Moves `best` to the first acceptable receive of `list` if that is older.
    #[inline]
    fn search(&self, list: List, src: u64, tag: u64, best: &mut u32, best_order: &mut u64) {
        let mut index = list.head;
        while let Some(posted) = self.entries.get(index) {
            if posted.order >= *best_order {
                return;
            }
            if posted.accepts(src, tag) {
                *best = index;
                *best_order = posted.order;
                return;
            }
            index = self.entries.next(0, index);
        }
    }

    #[inline]
    pub fn get(&self, index: u32) -> Option<&Posted<B>> {
        self.entries.get(index)
    }

    /// Takes a receive off the queue.
    #[inline]
    pub fn remove(&mut self, index: u32) -> Option<Posted<B>> {
        let posted = self.entries.get(index)?;
        let list = if posted.class == UNHASHED {
            &mut self.unhashed
        } else {
            self.classes[posted.class as usize].waiting -= 1;
            let bucket = bucket_of(posted.tag & !posted.ignore, posted.src, self.buckets.len());
            &mut self.buckets[bucket]
        };
        self.entries.unlink(0, list, index);
        self.entries.remove(index)
    }

    /// The oldest receive posted with `context`.
    pub fn find_context(&self, context: usize) -> Option<u32> {
        self.entries
            .iter()
            .filter(|(_, posted)| posted.context == context)
            .min_by_key(|(_, posted)| posted.order)
            .map(|(index, _)| index)
    }

    /// All receives, oldest first.
    pub fn in_order(&self) -> Vec<u32> {
        let mut all: Vec<_> = self
            .entries
            .iter()
            .map(|(index, posted)| (posted.order, index))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, index)| index).collect()
    }

    /// The class of a receive about to be queued, counted in.
    #[inline]
    fn join_class(&mut self, ignore: u64, directed: bool) -> u8 {
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

    #[cold]
    fn double_buckets(&mut self) {
        let size = self.buckets.len() * 2;
        let old = std::mem::replace(&mut self.buckets, vec![List::EMPTY; size]);
        // What shares a new bucket came from one old bucket, so it stays in order.
        for list in old {
            let mut index = list.head;
            while let Some(posted) = self.entries.get(index) {
                let bucket = bucket_of(posted.tag & !posted.ignore, posted.src, size);
                let next = self.entries.next(0, index);
                self.entries.push_back(0, &mut self.buckets[bucket], index);
                index = next;
            }
        }
    }
}
