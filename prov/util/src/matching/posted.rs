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
//!
//! So do all of them at first. Most programs post receives in the order in which
//! the messages come, and then that list is searched in no time, however long it
//! is. The first message that is not for one of its first [`FEW`] has them
//! hashed.

use fabric_abi::FI_MULTI_RECV;

use super::arena::{Arena, List};
use super::multi::MultiKey;
use super::{ANY_SOURCE, Filter, bucket_of, tags_match};

/// Distinct (mask, directed) pairs that are hashed at one time.
const CLASSES: usize = 8;
/// The class number of receives in the linear list.
const UNHASHED: u8 = CLASSES as u8;
/// Receives that are looked at faster in the linear list than by hashing.
const FEW: usize = 8;
const FIRST_BUCKETS: usize = 64;
const MOST_BUCKETS: usize = 1 << 16;

/// A waiting receive, without its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub context: usize,
    pub flags: u64,
    pub src: u64,
    pub tag: u64,
    pub ignore: u64,
    /// Rises with each receive posted to this queue.
    pub order: u64,
    class: u8,
    /// Whether its memory is a multi-receive buffer.
    is_multi: bool,
}

/// Where the message will go.
#[derive(Debug)]
pub(super) enum Space<B> {
    Single(B),
    Multi(MultiKey),
    /// Nothing waits in this slot.
    Vacant,
}

/// A receive that has left the queue, with a buffer for one message.
pub struct Single<'a, B> {
    /// See [`Receive::context`](super::Receive::context).
    pub context: usize,
    /// See [`Receive::flags`](super::Receive::flags).
    pub flags: u64,
    /// See [`Receive::buf`](super::Receive::buf).
    pub buf: &'a B,
}

impl Posted {
    #[inline]
    fn accepts(&self, src: u64, tag: u64) -> bool {
        tags_match(self.tag, tag, self.ignore) && (self.src == ANY_SOURCE || self.src == src)
    }
}

/// What a look at the first receives of the linear list has come to.
enum Search<'a> {
    Found(u32, &'a Posted),
    /// There are no more.
    Nothing,
    /// There are more than are worth looking at.
    Long,
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
    entries: Arena<Posted, 1>,
    /// The memory of each entry, under the same index. It stands apart so that
    /// it moves straight from the caller and straight back. Where nothing waits
    /// in a slot, what is here means nothing.
    spaces: Vec<Space<B>>,
    /// A power of two of them; a receive stands in the bucket of its class and key.
    buckets: Vec<List>,
    unhashed: List,
    /// Whether new receives go into buckets. From the first message that was not
    /// for one of the first [`FEW`] of the linear list until the queue is empty.
    hashing: bool,
    classes: [Class; CLASSES],
    /// Classes from here on have never been used.
    classes_used: usize,
    next_order: u64,
}

impl<B> PostedQueue<B> {
    pub fn new() -> Self {
        PostedQueue {
            entries: Arena::new(),
            spaces: Vec::new(),
            buckets: Vec::new(),
            unhashed: List::EMPTY,
            hashing: false,
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
    #[inline(always)]
    pub fn push(
        &mut self,
        context: usize,
        flags: u64,
        filter: Filter,
        put: impl FnOnce(Option<&mut Space<B>>) -> Option<Space<B>>,
    ) -> u32 {
        let Filter { src, tag, ignore } = filter;
        let class = match self.hashing {
            false => UNHASHED,
            true => self.join_class(ignore, src != ANY_SOURCE),
        };
        let order = self.next_order;
        self.next_order += 1;
        let index = self.entries.insert(Posted {
            context,
            flags,
            src,
            tag,
            ignore,
            order,
            class,
            is_multi: flags & FI_MULTI_RECV != 0,
        });
        // The arena may have grown by one slot.
        if let Some(space) = put(self.spaces.get_mut(index as usize)) {
            self.grow(space);
        }
        if class == UNHASHED {
            self.entries.push_back(0, &mut self.unhashed, index);
        } else {
            self.enter_bucket(index, tag & !ignore, src);
        }
        index
    }

    #[cold]
    fn grow(&mut self, space: Space<B>) {
        self.spaces.push(space);
    }

    /// The oldest receive that accepts a message with this source and tag.
    #[inline(always)]
    pub fn find(&mut self, src: u64, tag: u64) -> Option<u32> {
        if self.hashing {
            return self.find_hashed(src, tag);
        }
        match self.search_first(src, tag) {
            Search::Found(index, _) => Some(index),
            Search::Nothing => None,
            Search::Long => self.find_by_hashing(src, tag),
        }
    }

    /// The first receive of the linear list that accepts a message, if it is one
    /// of the first few.
    #[inline(always)]
    fn search_first(&self, src: u64, tag: u64) -> Search<'_> {
        let index = self.unhashed.head;
        match self.entries.get(index) {
            Some(posted) if posted.accepts(src, tag) => Search::Found(index, posted),
            _ => self.search_few(src, tag),
        }
    }

    #[inline(never)]
    fn search_few(&self, src: u64, tag: u64) -> Search<'_> {
        let mut index = self.unhashed.head;
        for _ in 0..FEW {
            match self.entries.get(index) {
                None => return Search::Nothing,
                Some(posted) if posted.accepts(src, tag) => return Search::Found(index, posted),
                Some(_) => index = self.entries.next(0, index),
            }
        }
        match self.entries.get(index) {
            None => Search::Nothing,
            Some(_) => Search::Long,
        }
    }

    #[cold]
    #[inline(never)]
    fn find_by_hashing(&mut self, src: u64, tag: u64) -> Option<u32> {
        self.start_hashing();
        self.find_hashed(src, tag)
    }

    #[inline(never)]
    fn find_hashed_single(&self, src: u64, tag: u64) -> Option<u32> {
        let index = self.find_hashed(src, tag)?;
        let posted = self.entries.get(index)?;
        (!posted.is_multi).then_some(index)
    }

    /// The oldest of the receives in the linear list and in the buckets.
    #[inline(never)]
    fn find_hashed(&self, src: u64, tag: u64) -> Option<u32> {
        let mut best = self.search(self.unhashed, src, tag, u64::MAX);
        for class in &self.classes[..self.classes_used] {
            if class.waiting == 0 || (class.directed && src == ANY_SOURCE) {
                continue;
            }
            let key_src = if class.directed { src } else { ANY_SOURCE };
            let bucket = bucket_of(tag & !class.ignore, key_src, self.buckets.len());
            let before = best.map_or(u64::MAX, |(_, posted)| posted.order);
            best = self.search(self.buckets[bucket], src, tag, before).or(best);
        }
        best.map(|(index, _)| index)
    }

    /// The first receive of `list` that accepts a message, if its order is below
    /// `before`.
    fn search(&self, list: List, src: u64, tag: u64, before: u64) -> Option<(u32, &Posted)> {
        let mut index = list.head;
        while let Some(posted) = self.entries.get(index) {
            if posted.order >= before {
                break;
            }
            if posted.accepts(src, tag) {
                return Some((index, posted));
            }
            index = self.entries.next(0, index);
        }
        None
    }

    #[inline]
    pub fn get(&self, index: u32) -> Option<&Posted> {
        self.entries.get(index)
    }

    /// Whether a receive's memory is a multi-receive buffer.
    #[inline]
    pub fn multi(&self, index: u32) -> Option<MultiKey> {
        match self.spaces.get(index as usize)? {
            Space::Multi(key) => Some(*key),
            Space::Single(_) | Space::Vacant => None,
        }
    }

    /// Takes the oldest receive that accepts a message off the queue, if it has a
    /// buffer of its own, which stays in its place until the next one is posted.
    #[inline(always)]
    pub fn take_single(&mut self, src: u64, tag: u64) -> Option<Single<'_, B>> {
        let index = match self.hashing {
            true => self.find_hashed_single(src, tag)?,
            false => match self.search_first(src, tag) {
                Search::Found(_, posted) if posted.is_multi => return None,
                Search::Found(index, _) => index,
                Search::Nothing => return None,
                Search::Long => {
                    self.start_hashing();
                    self.find_hashed_single(src, tag)?
                }
            },
        };
        let Posted { context, flags, .. } = self.unlist(index)?;
        match self.spaces.get(index as usize)? {
            Space::Single(buf) => Some(Single {
                context,
                flags,
                buf,
            }),
            Space::Multi(_) | Space::Vacant => None,
        }
    }

    /// Takes a receive off the queue. What [`PostedQueue::get`] returned for it
    /// is the rest of it.
    #[inline]
    pub fn remove(&mut self, index: u32) -> Space<B> {
        self.unlist(index);
        match self.spaces.get_mut(index as usize) {
            Some(space) => std::mem::replace(space, Space::Vacant),
            None => Space::Vacant,
        }
    }

    /// Frees a receive's entry, but not its space.
    #[inline(always)]
    fn unlist(&mut self, index: u32) -> Option<Posted> {
        let posted = if self.hashing {
            self.unlist_hashed(index)?
        } else {
            self.entries.take_from(0, &mut self.unhashed, index)?
        };
        if self.hashing && self.entries.len() == 0 {
            self.hashing = false;
            self.classes_used = 0;
        }
        Some(posted)
    }

    #[inline(never)]
    fn unlist_hashed(&mut self, index: u32) -> Option<Posted> {
        let &Posted {
            class,
            src,
            tag,
            ignore,
            ..
        } = self.entries.get(index)?;
        if class == UNHASHED {
            return self.entries.take_from(0, &mut self.unhashed, index);
        }
        self.classes[class as usize].waiting -= 1;
        let bucket = bucket_of(tag & !ignore, src, self.buckets.len());
        self.entries.take_from(0, &mut self.buckets[bucket], index)
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
    #[inline(never)]
    fn join_class(&mut self, ignore: u64, directed: bool) -> u8 {
        if self.entries.len() >= self.buckets.len() && self.buckets.len() < MOST_BUCKETS {
            self.double_buckets();
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

    #[inline(never)]
    fn enter_bucket(&mut self, index: u32, tag: u64, src: u64) {
        let bucket = bucket_of(tag, src, self.buckets.len());
        let list = &mut self.buckets[bucket];
        self.entries.push_back(0, list, index);
    }

    /// Moves what waits in the linear list into buckets.
    #[cold]
    fn start_hashing(&mut self) {
        self.hashing = true;
        if self.buckets.is_empty() {
            self.buckets = vec![List::EMPTY; FIRST_BUCKETS];
        }
        let mut index = std::mem::replace(&mut self.unhashed, List::EMPTY).head;
        while let Some(&Posted {
            src, tag, ignore, ..
        }) = self.entries.get(index)
        {
            let next = self.entries.next(0, index);
            let class = self.join_class(ignore, src != ANY_SOURCE);
            if let Some(posted) = self.entries.get_mut(index) {
                posted.class = class;
            }
            if class == UNHASHED {
                self.entries.push_back(0, &mut self.unhashed, index);
            } else {
                self.enter_bucket(index, tag & !ignore, src);
            }
            index = next;
        }
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
