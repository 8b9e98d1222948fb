//! Unexpected messages by tag, and by tag and source, for receives that ignore certain bits of the
//! tag.

#![allow(
    clippy::indexing_slicing,
    reason = "the table makes the indices: of its chains, buckets and links"
)]

use super::super::ANY_SOURCE;
use super::super::arena::{List, NIL};
use super::super::hash::HashKey;

const BY_TAG: usize = 0;
const BY_PEER: usize = 1;

#[derive(Clone, Copy, Debug)]
struct Links {
    prev: u32,
    next: u32,
}

const OPEN: Links = Links {
    prev: NIL,
    next: NIL,
};

/// Two bucket tables of the same messages; each bucket is a list in order of arrival. A message
/// whose source is unknown is only in the first one: a receive that names a source does not accept
/// it.
#[derive(Debug)]
pub(super) struct Table {
    /// The tag bits that are ignored.
    ignored: u64,
    buckets: [Vec<List>; 2],
    /// The links of each message, by its index.
    links: Vec<[Links; 2]>,
}

impl Table {
    /// Creates a table without buckets: it has to be [cleared](Table::clear) before it is used.
    pub fn new(ignored: u64) -> Self {
        Table {
            ignored,
            buckets: [Vec::new(), Vec::new()],
            links: Vec::new(),
        }
    }

    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Returns the number of buckets: 0 or a power of two.
    pub fn size(&self) -> usize {
        self.buckets[BY_TAG].len()
    }

    /// Empties the table, and gives it `size` buckets.
    pub fn clear(&mut self, size: usize) {
        for buckets in &mut self.buckets {
            buckets.clear();
            buckets.resize(size, List::EMPTY);
        }
    }

    fn bucket(&self, key: HashKey, tag: u64, src: u64) -> usize {
        key.bucket(tag & !self.ignored, src, self.size())
    }

    /// Returns a list with all messages that a receive may accept, and its first entry.
    pub fn candidates(&self, key: HashKey, src: u64, tag: u64) -> (usize, u32) {
        let chain = match src {
            ANY_SOURCE => BY_TAG,
            _ => BY_PEER,
        };
        let bucket = self.bucket(key, tag, src);
        (
            chain,
            self.buckets[chain]
                .get(bucket)
                .map_or(NIL, |list| list.head),
        )
    }

    /// Returns the entry after `index` in its list.
    pub fn next(&self, chain: usize, index: u32) -> u32 {
        let links = self.links.get(index as usize);
        links.map_or(NIL, |links| links[chain].next)
    }

    /// Adds a message that is newer than all others.
    pub fn enter(&mut self, key: HashKey, index: u32, tag: u64, src: u64) {
        if self.links.len() <= index as usize {
            self.links.resize(index as usize + 1, [OPEN; 2]);
        }
        let bucket = self.bucket(key, tag, ANY_SOURCE);
        self.insert_behind(BY_TAG, bucket, self.buckets[BY_TAG][bucket].tail, index);
        if src != ANY_SOURCE {
            let bucket = self.bucket(key, tag, src);
            self.insert_behind(BY_PEER, bucket, self.buckets[BY_PEER][bucket].tail, index);
        }
    }

    pub fn leave(&mut self, key: HashKey, index: u32, tag: u64, src: u64) {
        let bucket = self.bucket(key, tag, ANY_SOURCE);
        self.unlink(BY_TAG, bucket, index);
        if src != ANY_SOURCE {
            let bucket = self.bucket(key, tag, src);
            self.unlink(BY_PEER, bucket, index);
        }
    }

    /// Moves a message from the list of one source to that of another.
    pub fn change_source(
        &mut self,
        key: HashKey,
        index: u32,
        tag: u64,
        before: u64,
        after: u64,
        is_older: impl Fn(u32, u32) -> bool,
    ) {
        if before != ANY_SOURCE {
            let bucket = self.bucket(key, tag, before);
            self.unlink(BY_PEER, bucket, index);
        }
        if after == ANY_SOURCE {
            return;
        }
        let bucket = self.bucket(key, tag, after);
        // The list has newer messages if the peer had another connection in the meantime.
        let mut behind = self.buckets[BY_PEER][bucket].tail;
        while behind != NIL && is_older(index, behind) {
            behind = self.links[behind as usize][BY_PEER].prev;
        }
        self.insert_behind(BY_PEER, bucket, behind, index);
    }

    /// Inserts `index` after `prev`, or at the front for [`NIL`].
    fn insert_behind(&mut self, chain: usize, bucket: usize, prev: u32, index: u32) {
        let list = &mut self.buckets[chain][bucket];
        let next = match self.links.get_mut(prev as usize) {
            Some(links) => std::mem::replace(&mut links[chain].next, index),
            None => std::mem::replace(&mut list.head, index),
        };
        match self.links.get_mut(next as usize) {
            Some(links) => links[chain].prev = index,
            None => list.tail = index,
        }
        self.links[index as usize][chain] = Links { prev, next };
    }

    fn unlink(&mut self, chain: usize, bucket: usize, index: u32) {
        let list = &mut self.buckets[chain][bucket];
        let Links { prev, next } = self.links[index as usize][chain];
        match self.links.get_mut(prev as usize) {
            Some(links) => links[chain].next = next,
            None => list.head = next,
        }
        match self.links.get_mut(next as usize) {
            Some(links) => links[chain].prev = prev,
            None => list.tail = prev,
        }
    }
}
