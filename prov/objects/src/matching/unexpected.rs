//! The queue of unexpected messages: those that arrived before a matching receive was posted.
//!
//! All of them are in one list in order of arrival. To find one among thousands, each is also in
//! [`Table`]s, each of which serves the receives that ignore certain bits of the tag. These bits
//! are learnt from the receives: a lookup with a mask that no table serves searches the arrival
//! list, and when such searches have cost more than building a table, a table for that mask is
//! built in addition to the existing ones. Receives with different masks therefore do not displace
//! each other's tables.
//!
//! Each message is also in the list of its *origin*, a small number that the provider assigns to a
//! connection. The cost of ending or naming a connection depends only on the messages that it has
//! left.

#![allow(
    clippy::indexing_slicing,
    reason = "the queue makes the indices, and room for them"
)]

mod table;

use self::table::Table;
use super::arena::{Arena, Key, List, NIL};
use super::hash::HashKey;
use super::{ANY_SOURCE, Filter, Message, tags_match};
use prov_base::bounded;

const ARRIVAL: usize = 0;
const BY_ORIGIN: usize = 1;

/// The origin of a message that is in no origin's list.
pub(super) const NO_ORIGIN: u32 = u32::MAX;

/// Bit in the number of an origin that has inherited the messages of one that has ended.
pub const HEIR: u32 = 1 << 31;

/// Returns which of the two lists of origins contains this one, and its index there.
fn place_of(origin: u32) -> (usize, usize) {
    (usize::from(origin & HEIR != 0), (origin & !HEIR) as usize)
}

const FIRST_BUCKETS: usize = 16;
const MOST_BUCKETS: usize = 1 << 16;
/// Number of unsuccessful steps below which building a table is not considered.
const PATIENCE: usize = 256;
/// Limit of masks that have a table at a time. Programs use two or three. Beyond this, the least
/// recently used table is replaced by the new one, after as many unsuccessful steps as building it
/// costs.
const MOST_TABLES: usize = 8;

#[derive(Debug)]
struct UnexpectedEntry<U> {
    message: Message<U>,
    /// The context that a peek claimed the message for. A claimed message is in the list of claimed
    /// ones, by its arrival link, and in no table.
    claimed: Option<usize>,
    /// The origin in whose list it is, or [`NO_ORIGIN`].
    origin: u32,
    /// Increases with each message.
    order: u64,
}

#[derive(Debug)]
pub(super) struct UnexpectedQueue<U> {
    entries: Arena<UnexpectedEntry<U>, 2>,
    arrival: List,
    claimed: List,
    claimed_len: usize,
    /// The messages of each origin, including claimed ones, in order of arrival: `[0]` for ordinary
    /// origins, `[1]` for those with [`HEIR`] in their numbers.
    origins: [Vec<List>; 2],
    next_order: u64,
    key: HashKey,
    /// The most recently used table is first. There is always one.
    tables: Vec<Table>,
    /// Number of entries that lookups examined unsuccessfully since a table was last built.
    fruitless: usize,
    /// Number of entries that were examined or moved, for tests of the cost of operations.
    #[cfg(test)]
    pub steps: usize,
}

impl<U> UnexpectedQueue<U> {
    /// `ignored`: the tag bits that most receives will ignore.
    pub fn new(ignored: u64) -> Self {
        UnexpectedQueue {
            entries: Arena::new(),
            arrival: List::EMPTY,
            claimed: List::EMPTY,
            claimed_len: 0,
            origins: [Vec::new(), Vec::new()],
            next_order: 0,
            key: HashKey::of_process(),
            tables: vec![Table::new(ignored)],
            fruitless: 0,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Returns the number of unexpected messages, without claimed ones.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len() - self.claimed_len
    }

    pub fn claimed_len(&self) -> usize {
        self.claimed_len
    }

    /// Adds a message of `origin`, which may be [`NO_ORIGIN`].
    pub fn push(&mut self, origin: u32, message: Message<U>) -> Key {
        let order = self.next_order;
        self.next_order += 1;
        let index = self.entries.insert(UnexpectedEntry {
            message,
            claimed: None,
            origin,
            order,
        });
        self.entries.push_back(ARRIVAL, &mut self.arrival, index);
        if origin != NO_ORIGIN {
            self.enter_origin(origin, index);
        }
        let size = self.tables.first().map_or(0, Table::size);
        if self.len() > size && size < MOST_BUCKETS {
            self.rebuild_all((size * 2).max(FIRST_BUCKETS));
        } else {
            self.enter_tables(index);
        }
        self.entries.key(index)
    }

    /// Returns whether there are no unexpected messages.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.arrival.head == NIL
    }

    /// Returns the oldest message that `filter` accepts.
    #[inline]
    pub fn find(&mut self, filter: Filter) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        self.search(filter)
    }

    fn search(&mut self, filter: Filter) -> Option<u32> {
        let Filter { src, tag, ignore } = filter;
        let accepts = |message: &Message<U>| {
            tags_match(tag, message.tag, ignore) && (src == ANY_SOURCE || src == message.src)
        };
        let mut steps = 0;
        let mut found = None;
        match self.choose_table(ignore).then(|| self.tables.first()) {
            Some(Some(table)) => {
                let (chain, mut index) = table.candidates(self.key, src, tag);
                while let Some(UnexpectedEntry { message, .. }) = self.entries.get(index) {
                    if accepts(message) {
                        found = Some(index);
                        break;
                    }
                    steps += 1;
                    index = table.next(chain, index);
                }
            }
            _ => {
                let mut index = self.arrival.head;
                while let Some(UnexpectedEntry { message, .. }) = self.entries.get(index) {
                    if accepts(message) {
                        found = Some(index);
                        break;
                    }
                    steps += 1;
                    index = self.entries.next(ARRIVAL, index);
                }
            }
        }
        self.count_steps(steps);
        self.fruitless += steps;
        if self.fruitless > PATIENCE.max(2 * self.len()) {
            self.fruitless = 0;
            self.learn(ignore);
        }
        found
    }

    /// Moves the table for receives that ignore these bits to the front: the table with this mask,
    /// otherwise the one that ignores the fewest additional bits. Returns whether there is one.
    fn choose_table(&mut self, ignore: u64) -> bool {
        let first = self.tables.first();
        if first.is_some_and(|first| first.ignored() == ignore) {
            return true;
        }
        let serving = self.tables.iter().enumerate();
        let serving = serving.filter(|(_, table)| ignore & !table.ignored() == 0);
        let Some((place, _)) = serving.min_by_key(|(_, table)| table.ignored().count_ones()) else {
            return false;
        };
        self.tables[..=place].rotate_right(1);
        true
    }

    /// Builds a table for this mask, if there is none.
    #[cold]
    fn learn(&mut self, ignore: u64) {
        if self.tables.iter().any(|table| table.ignored() == ignore) {
            return;
        }
        let size = self.tables.first().map_or(FIRST_BUCKETS, Table::size);
        self.tables.truncate(MOST_TABLES - 1);
        self.tables.insert(0, Table::new(ignore));
        bounded!(self.tables, MOST_TABLES);
        self.rebuild(0, size);
    }

    pub fn get(&self, index: u32) -> Option<&Message<U>> {
        self.entries.get(index).map(|entry| &entry.message)
    }

    /// Returns the index of a message that still exists, claimed or not.
    pub fn index_of(&self, key: Key) -> Option<u32> {
        self.entries.find(key)
    }

    pub fn payload_mut(&mut self, index: u32) -> Option<&mut U> {
        self.entries
            .get_mut(index)
            .map(|entry| &mut entry.message.payload)
    }

    /// Removes a message, claimed or not.
    pub fn remove(&mut self, index: u32) -> Option<Message<U>> {
        if self.entries.get(index)?.claimed.is_some() {
            self.entries.unlink(ARRIVAL, &mut self.claimed, index);
            self.claimed_len -= 1;
        } else {
            self.entries.unlink(ARRIVAL, &mut self.arrival, index);
            self.leave_tables(index);
        }
        self.leave_origin(index);
        self.count_steps(1);
        let entry = self.entries.remove(index)?;
        if self.is_empty() {
            // The masks may belong to a previous phase of the program.
            self.tables.truncate(1);
        }
        Some(entry.message)
    }

    /// Sets a message aside for the receive that will claim it.
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

    /// Returns the first message that was set aside for `context`.
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

    /// Changes the source of a message. Returns whether it differs from the old one, and the
    /// message is not claimed.
    pub fn set_source(&mut self, index: u32, src: u64) -> bool {
        self.count_steps(1);
        let Some(UnexpectedEntry {
            message, claimed, ..
        }) = self.entries.get_mut(index)
        else {
            return false;
        };
        let before = std::mem::replace(&mut message.src, src);
        if before == src || claimed.is_some() {
            return false;
        }
        let (tag, key) = (message.tag, self.key);
        let entries = &self.entries;
        let is_older = |a: u32, b: u32| {
            let order = |index| entries.get(index).map(|entry| entry.order);
            order(a) < order(b)
        };
        for table in &mut self.tables {
            table.change_source(key, index, tag, before, src, is_older);
        }
        true
    }

    /// Returns the messages of an origin, including claimed ones, oldest first.
    pub fn of_origin(&self, origin: u32) -> Vec<u32> {
        match self.list_of(origin) {
            Some(&list) => self.listed(BY_ORIGIN, list),
            None => Vec::new(),
        }
    }

    fn list_of(&self, origin: u32) -> Option<&List> {
        let (which, place) = place_of(origin);
        self.origins[which].get(place)
    }

    /// Returns whether there is a message of an origin.
    pub fn has_of(&self, origin: u32) -> bool {
        self.list_of(origin).is_some_and(|list| list.head != NIL)
    }

    #[inline]
    fn enter_origin(&mut self, origin: u32, index: u32) {
        let (which, place) = place_of(origin);
        let origins = &mut self.origins[which];
        if place >= origins.len() {
            origins.resize(place + 1, List::EMPTY);
        }
        self.entries
            .push_back(BY_ORIGIN, &mut origins[place], index);
    }

    /// Moves the messages of an origin to another one.
    pub fn pass_on(&mut self, origin: u32, heir: u32) {
        for index in self.of_origin(origin) {
            self.leave_origin(index);
            if let Some(entry) = self.entries.get_mut(index) {
                entry.origin = heir;
                self.enter_origin(heir, index);
            }
        }
    }

    /// Removes a message from its origin's list.
    fn leave_origin(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        let origin = std::mem::replace(&mut entry.origin, NO_ORIGIN);
        let (which, place) = place_of(origin);
        if let Some(list) = self.origins[which].get_mut(place) {
            self.entries.unlink(BY_ORIGIN, list, index);
        }
    }

    /// Returns the unclaimed messages, oldest first.
    pub fn waiting(&self) -> Vec<u32> {
        self.listed(ARRIVAL, self.arrival)
    }

    /// Returns the unclaimed messages, oldest first, followed by the claimed ones.
    pub fn waiting_and_claimed(&self) -> Vec<u32> {
        let mut all = self.waiting();
        all.append(&mut self.listed(ARRIVAL, self.claimed));
        all
    }

    fn listed(&self, which: usize, list: List) -> Vec<u32> {
        let mut indices = Vec::new();
        let mut index = list.head;
        while index != NIL {
            indices.push(index);
            index = self.entries.next(which, index);
        }
        indices
    }

    fn enter_tables(&mut self, index: u32) {
        if let Some(UnexpectedEntry { message, .. }) = self.entries.get(index) {
            for table in &mut self.tables {
                table.enter(self.key, index, message.tag, message.src);
            }
        }
    }

    fn leave_tables(&mut self, index: u32) {
        if let Some(UnexpectedEntry { message, .. }) = self.entries.get(index) {
            for table in &mut self.tables {
                table.leave(self.key, index, message.tag, message.src);
            }
        }
    }

    fn rebuild_all(&mut self, size: usize) {
        for place in 0..self.tables.len() {
            self.rebuild(place, size);
        }
    }

    fn rebuild(&mut self, place: usize, size: usize) {
        self.count_steps(self.len());
        let Some(table) = self.tables.get_mut(place) else {
            return;
        };
        table.clear(size);
        let mut index = self.arrival.head;
        while let Some(UnexpectedEntry { message, .. }) = self.entries.get(index) {
            table.enter(self.key, index, message.tag, message.src);
            index = self.entries.next(ARRIVAL, index);
        }
    }

    #[inline(always)]
    fn count_steps(&mut self, _steps: usize) {
        #[cfg(test)]
        {
            self.steps += _steps;
        }
    }
}
