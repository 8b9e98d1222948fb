//! Messages that arrived before a receive for them was posted.
//!
//! All of them stand in one list in order of arrival. To find one among
//! thousands, each also stands in two bucket tables: by the part of its tag
//! that receives look at, and by that part and its source. Which part that is
//! (`ignored` below) is learnt from the receives: a lookup with a mask that the
//! tables do not serve searches the arrival list, and when such searches have
//! cost more than re-indexing would, the tables are rebuilt for that mask.

use super::arena::{Arena, Key, List, NIL};
use super::{ANY_SOURCE, Filter, Message, bucket_of, tags_match};

const ARRIVAL: usize = 0;
const BY_TAG: usize = 1;
const BY_PEER: usize = 2;

const FIRST_BUCKETS: usize = 16;
const MOST_BUCKETS: usize = 1 << 16;
/// Fruitless steps below which rebuilding the tables is not worth a thought.
const PATIENCE: usize = 256;

#[derive(Debug)]
struct Entry<U> {
    message: Message<U>,
    /// The context that a peek claimed the message for. A claimed message stands
    /// in the list of claimed ones, through its arrival link, and in no other.
    claimed: Option<usize>,
}

#[derive(Debug)]
pub(super) struct UnexpectedQueue<U> {
    entries: Arena<Entry<U>, 3>,
    arrival: List,
    claimed: List,
    claimed_len: usize,
    /// Tag bits that the tables leave out.
    ignored: u64,
    by_tag: Vec<List>,
    by_peer: Vec<List>,
    /// Entries that lookups looked at in vain since the tables were built.
    fruitless: usize,
}

impl<U> UnexpectedQueue<U> {
    /// `ignored`: the tag bits that most receives will ignore.
    pub fn new(ignored: u64) -> Self {
        UnexpectedQueue {
            entries: Arena::new(),
            arrival: List::EMPTY,
            claimed: List::EMPTY,
            claimed_len: 0,
            ignored,
            by_tag: Vec::new(),
            by_peer: Vec::new(),
            fruitless: 0,
        }
    }

    /// Messages that wait for a receive; claimed ones are not among them.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len() - self.claimed_len
    }

    pub fn claimed_len(&self) -> usize {
        self.claimed_len
    }

    pub fn push(&mut self, message: Message<U>) -> Key {
        let index = self.entries.insert(Entry {
            message,
            claimed: None,
        });
        self.entries.push_back(ARRIVAL, &mut self.arrival, index);
        if self.len() > self.by_tag.len() && self.by_tag.len() < MOST_BUCKETS {
            let size = (self.by_tag.len() * 2).max(FIRST_BUCKETS);
            self.rebuild(self.ignored, size);
        } else {
            self.enter_tables(index);
        }
        self.entries.key(index)
    }

    /// Whether no message waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.arrival.head == NIL
    }

    /// The oldest message that `filter` accepts.
    #[inline]
    pub fn find(&mut self, filter: Filter) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        self.search(filter)
    }

    fn search(&mut self, filter: Filter) -> Option<u32> {
        let Filter { src, tag, ignore } = filter;
        let size = self.by_tag.len();
        let key = tag & !self.ignored;
        let (which, list) = if ignore & self.ignored != ignore {
            (ARRIVAL, self.arrival)
        } else if src == ANY_SOURCE {
            (BY_TAG, self.by_tag[bucket_of(key, ANY_SOURCE, size)])
        } else {
            (BY_PEER, self.by_peer[bucket_of(key, src, size)])
        };
        let mut steps = 0;
        let mut found = None;
        let mut index = list.head;
        while let Some(Entry { message, .. }) = self.entries.get(index) {
            if tags_match(tag, message.tag, ignore) && (src == ANY_SOURCE || src == message.src) {
                found = Some(index);
                break;
            }
            steps += 1;
            index = self.entries.next(which, index);
        }
        self.fruitless += steps;
        if self.fruitless > PATIENCE.max(2 * self.len()) {
            if self.ignored != ignore {
                self.rebuild(ignore, size);
            }
            self.fruitless = 0;
        }
        found
    }

    pub fn get(&self, index: u32) -> Option<&Message<U>> {
        self.entries.get(index).map(|entry| &entry.message)
    }

    /// The index of a message that is still here, waiting or claimed.
    pub fn index_of(&self, key: Key) -> Option<u32> {
        self.entries.find(key)
    }

    pub fn payload_mut(&mut self, index: u32) -> Option<&mut U> {
        self.entries
            .get_mut(index)
            .map(|entry| &mut entry.message.payload)
    }

    /// Takes a message out, waiting or claimed.
    pub fn remove(&mut self, index: u32) -> Option<Message<U>> {
        if self.entries.get(index)?.claimed.is_some() {
            self.entries.unlink(ARRIVAL, &mut self.claimed, index);
            self.claimed_len -= 1;
        } else {
            self.entries.unlink(ARRIVAL, &mut self.arrival, index);
            self.leave_tables(index);
        }
        self.entries.remove(index).map(|entry| entry.message)
    }

    /// Sets a waiting message aside for the receive that will claim it.
    pub fn claim_for(&mut self, index: u32, context: usize) {
        match self.entries.get_mut(index) {
            Some(entry) if entry.claimed.is_none() => entry.claimed = Some(context),
            _ => return,
        }
        self.entries.unlink(ARRIVAL, &mut self.arrival, index);
        self.leave_tables(index);
        self.entries.push_back(ARRIVAL, &mut self.claimed, index);
        self.claimed_len += 1;
    }

    /// The message that was set aside first for `context`.
    pub fn find_claimed(&self, context: usize) -> Option<u32> {
        let mut index = self.claimed.head;
        while let Some(entry) = self.entries.get(index) {
            if entry.claimed == Some(context) {
                return Some(index);
            }
            index = self.entries.next(ARRIVAL, index);
        }
        None
    }

    /// Gives messages the source that `source` returns for them, where it
    /// returns one; whether that changed any message that waits.
    pub fn relabel(&mut self, mut source: impl FnMut(&Message<U>) -> Option<u64>) -> bool {
        let mut changed = false;
        for list in [self.arrival, self.claimed] {
            let mut index = list.head;
            while let Some(Entry { message, claimed }) = self.entries.get_mut(index) {
                if let Some(src) = source(message).filter(|&src| src != message.src) {
                    message.src = src;
                    changed |= claimed.is_none();
                }
                index = self.entries.next(ARRIVAL, index);
            }
        }
        if changed {
            // Entering them anew is what keeps messages of one source in order.
            self.rebuild(self.ignored, self.by_tag.len());
        }
        changed
    }

    /// Waiting messages, oldest first.
    pub fn waiting(&self) -> Vec<u32> {
        self.listed(self.arrival)
    }

    /// Waiting messages, oldest first, then claimed ones.
    pub fn waiting_and_claimed(&self) -> Vec<u32> {
        let mut all = self.listed(self.arrival);
        all.append(&mut self.listed(self.claimed));
        all
    }

    fn listed(&self, list: List) -> Vec<u32> {
        let mut indices = Vec::new();
        let mut index = list.head;
        while index != NIL {
            indices.push(index);
            index = self.entries.next(ARRIVAL, index);
        }
        indices
    }

    fn enter_tables(&mut self, index: u32) {
        let Some(Entry { message, .. }) = self.entries.get(index) else {
            return;
        };
        let (key, src, size) = (message.tag & !self.ignored, message.src, self.by_tag.len());
        let list = &mut self.by_tag[bucket_of(key, ANY_SOURCE, size)];
        self.entries.push_back(BY_TAG, list, index);
        let list = &mut self.by_peer[bucket_of(key, src, size)];
        self.entries.push_back(BY_PEER, list, index);
    }

    fn leave_tables(&mut self, index: u32) {
        let Some(Entry { message, .. }) = self.entries.get(index) else {
            return;
        };
        let (key, src, size) = (message.tag & !self.ignored, message.src, self.by_tag.len());
        let list = &mut self.by_tag[bucket_of(key, ANY_SOURCE, size)];
        self.entries.unlink(BY_TAG, list, index);
        let list = &mut self.by_peer[bucket_of(key, src, size)];
        self.entries.unlink(BY_PEER, list, index);
    }

    fn rebuild(&mut self, ignored: u64, size: usize) {
        self.ignored = ignored;
        self.by_tag.clear();
        self.by_tag.resize(size, List::EMPTY);
        self.by_peer.clear();
        self.by_peer.resize(size, List::EMPTY);
        let mut index = self.arrival.head;
        while index != NIL {
            self.enter_tables(index);
            index = self.entries.next(ARRIVAL, index);
        }
    }
}
