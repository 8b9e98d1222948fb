//! Storage of queue entries: slots that are reused without allocation, and doubly linked lists that
//! connect them by index.
//!
//! The ends of a list are stored by its owner (a bucket table, a field); the links are stored in
//! the slots, `N` per slot, so that an entry can be in `N` lists at a time.

#![allow(
    clippy::indexing_slicing,
    reason = "the arena makes the indices, and slots stay"
)]

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;

/// The index that means "no entry".
pub const NIL: u32 = u32::MAX;

/// The first and last entry of a list; both are [`NIL`] if it is empty.
#[derive(Clone, Copy, Debug)]
pub struct List {
    pub head: u32,
    pub tail: u32,
}

impl List {
    /// A list without entries.
    pub const EMPTY: List = List {
        head: NIL,
        tail: NIL,
    };
}

#[derive(Clone, Copy, Debug)]
struct ListLinks {
    prev: u32,
    next: u32,
}

impl ListLinks {
    const OPEN: ListLinks = ListLinks {
        prev: NIL,
        next: NIL,
    };
}

#[derive(Debug)]
struct Slot<T, const N: usize> {
    /// `None` while the slot is free; `links[0].next` is then the next free slot.
    value: Option<T>,
    links: [ListLinks; N],
    /// Counts the uses of this slot, so that an old [`Key`] does not find a new entry.
    generation: u32,
}

/// Identifies an entry during its lifetime: the key of a removed entry finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The key as an integer, for interfaces that accept only that.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key with this integer value.
    pub fn from_bits(bits: u64) -> Self {
        Key {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// Entries of type `T`, each of which can be in `N` lists.
#[derive(Debug)]
pub struct Arena<T, const N: usize> {
    slots: Vec<Slot<T, N>>,
    free: u32,
    len: usize,
}

impl<T, const N: usize> Default for Arena<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> Arena<T, N> {
    /// Creates one without entries.
    pub fn new() -> Self {
        const { assert!(N > 0, "the free list uses the first link") };
        Arena {
            slots: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    /// Returns the number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores an entry, which is in no list.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> u32 {
        if self.free == NIL {
            self.grow();
        }
        self.len += 1;
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        self.free = slot.links[0].next;
        slot.value = Some(value);
        slot.links = [ListLinks::OPEN; N];
        index
    }

    /// Adds a free slot.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        assert!(
            self.slots.len() < NIL as usize,
            "more than 2^32 - 1 queue entries"
        );
        self.free = self.slots.len() as u32;
        self.slots.push(Slot {
            value: None,
            links: [ListLinks::OPEN; N],
            generation: 0,
        });
        bounded!(self.slots, OPERATIONS);
    }

    /// Removes an entry, which must be in no list.
    #[inline]
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.slots.get_mut(index as usize)?.value.take()?;
        self.retire(index);
        Some(value)
    }

    /// Removes an entry from `list`, like [`Arena::unlink`], and from the arena.
    #[inline(always)]
    pub fn take_from(&mut self, which: usize, list: &mut List, index: u32) -> Option<T>
    where
        T: Copy,
    {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value?;
        slot.value = None;
        let ListLinks { prev, next } = slot.links[which];
        slot.generation = slot.generation.wrapping_add(1);
        slot.links[0].next = self.free;
        self.free = index;
        self.len -= 1;
        self.join(which, list, prev, next);
        Some(value)
    }

    #[inline(always)]
    fn retire(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.links[0].next = self.free;
        self.free = index;
        self.len -= 1;
    }

    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// Returns the key of a stored entry.
    #[inline]
    pub fn key(&self, index: u32) -> Key {
        Key {
            index,
            generation: self
                .slots
                .get(index as usize)
                .map_or(0, |slot| slot.generation),
        }
    }

    /// Returns the index of the entry with this key, if it still exists.
    #[inline]
    pub fn find(&self, key: Key) -> Option<u32> {
        let slot = self.slots.get(key.index as usize)?;
        (slot.value.is_some() && slot.generation == key.generation).then_some(key.index)
    }

    /// Iterates over the entries in slot order, which is unrelated to their age.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| Some((index as u32, slot.value.as_ref()?)))
    }

    /// Returns the entry after `index` in the list that uses link `which`.
    #[inline]
    pub fn next(&self, which: usize, index: u32) -> u32 {
        self.slots
            .get(index as usize)
            .map_or(NIL, |slot| slot.links[which].next)
    }

    /// Appends an entry to `list`, using link `which`.
    #[inline(always)]
    pub fn push_back(&mut self, which: usize, list: &mut List, index: u32) {
        let prev = list.tail;
        self.slots[index as usize].links[which] = ListLinks { prev, next: NIL };
        list.tail = index;
        match self.slots.get_mut(prev as usize) {
            Some(slot) => slot.links[which].next = index,
            None => list.head = index,
        }
    }

    /// Removes an entry from `list`, in which it is by link `which`.
    #[inline(always)]
    pub fn unlink(&mut self, which: usize, list: &mut List, index: u32) {
        let ListLinks { prev, next } = self.slots[index as usize].links[which];
        self.join(which, list, prev, next);
    }

    /// Connects the two neighbours of a removed entry.
    #[inline(always)]
    fn join(&mut self, which: usize, list: &mut List, prev: u32, next: u32) {
        match self.slots.get_mut(prev as usize) {
            Some(slot) => slot.links[which].next = next,
            None => list.head = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(slot) => slot.links[which].prev = prev,
            None => list.tail = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(arena: &Arena<char, 2>, which: usize, list: &List) -> String {
        let mut text = String::new();
        let mut index = list.head;
        while let Some(value) = arena.get(index) {
            text.push(*value);
            index = arena.next(which, index);
        }
        text
    }

    #[test]
    fn an_entry_stands_in_two_lists_independently() {
        let mut arena: Arena<char, 2> = Arena::new();
        let (mut first, mut second) = (List::EMPTY, List::EMPTY);
        let a = arena.insert('a');
        let b = arena.insert('b');
        let c = arena.insert('c');
        for index in [a, b, c] {
            arena.push_back(0, &mut first, index);
        }
        for index in [c, a, b] {
            arena.push_back(1, &mut second, index);
        }
        arena.unlink(0, &mut first, b);
        assert_eq!(listed(&arena, 0, &first), "ac");
        assert_eq!(listed(&arena, 1, &second), "cab");
        arena.unlink(1, &mut second, c);
        arena.unlink(1, &mut second, b);
        assert_eq!(listed(&arena, 1, &second), "a");
        arena.unlink(1, &mut second, a);
        assert_eq!((second.head, second.tail), (NIL, NIL));
    }

    #[test]
    fn slots_are_reused_and_old_keys_find_nothing() {
        let mut arena: Arena<char, 2> = Arena::new();
        let a = arena.insert('a');
        let key = arena.key(a);
        assert_eq!(arena.find(key), Some(a));
        assert_eq!(arena.remove(a), Some('a'));
        assert_eq!(arena.find(key), None);
        let b = arena.insert('b');
        assert_eq!(b, a, "the freed slot comes first");
        assert_eq!(arena.find(key), None);
        assert_eq!(arena.remove(b), Some('b'));
        assert_eq!(arena.remove(b), None);
        assert_eq!(arena.len(), 0);
    }
}
