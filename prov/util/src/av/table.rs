//! A table of addresses in this process's memory, with the way back from an
//! address to its index.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use hashbrown::HashTable;

use super::entry::Entry;

/// Slots in one piece of storage. Storage grows piece by piece: it never moves
/// and wastes at most one piece.
const PIECE: usize = 1024;

/// Most slots a table can have. Indices must fit `u32`.
pub const CAPACITY: usize = u32::MAX as usize;

/// Addresses by index, and indices by address.
pub struct Table<E> {
    /// All pieces but the last are full.
    pieces: Vec<Vec<E>>,
    /// The used slots, by the hash of their address.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Free slots below the end, lowest first.
    free: BinaryHeap<Reverse<u32>>,
    /// How often, beyond the first time, an address was inserted.
    again: HashMap<u32, u32>,
}

impl<E: Entry> Default for Table<E> {
    fn default() -> Self {
        Table {
            pieces: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            free: BinaryHeap::new(),
            again: HashMap::new(),
        }
    }
}

/// Most addresses that room is made for before they come.
const MAX_EXPECTED: usize = 1 << 20;

impl<E: Entry> Table<E> {
    /// An empty table for about so many addresses.
    pub fn expecting(count: usize) -> Self {
        Table {
            index: HashTable::with_capacity(count.min(MAX_EXPECTED)),
            ..Table::default()
        }
    }

    /// Slots, used and free.
    pub fn slots(&self) -> usize {
        match self.pieces.split_last() {
            Some((last, full)) => full.len() * PIECE + last.len(),
            None => 0,
        }
    }

    /// Addresses in the table.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// The slot at `index`, which may be free; `None` beyond the end.
    pub fn get(&self, index: u32) -> Option<E> {
        let index = index as usize;
        self.pieces.get(index / PIECE)?.get(index % PIECE).copied()
    }

    /// The index of a slot that holds the same peer as `entry` and that
    /// `accept` agrees to.
    pub fn find(&self, entry: E, accept: impl Fn(u32) -> bool) -> Option<u32> {
        self.index
            .find(self.hasher.hash_one(entry.key()), |&index| {
                self.get(index).is_some_and(|slot| slot.same(entry)) && accept(index)
            })
            .copied()
    }

    /// Puts an address into the lowest free slot; `None` when the table is
    /// full.
    pub fn insert(&mut self, entry: E) -> Option<u32> {
        let index = match self.free.pop() {
            Some(Reverse(index)) => {
                self.pieces[index as usize / PIECE][index as usize % PIECE] = entry;
                index
            }
            None => self.push(entry)?,
        };
        self.enter(index, entry);
        Some(index)
    }

    /// Enters a slot, which is used already, into the index.
    fn enter(&mut self, index: u32, entry: E) {
        if self.index.len() == self.index.capacity() {
            return self.grow();
        }
        let Table { pieces, hasher, .. } = self;
        let hash = hasher.hash_one(entry.key());
        self.index.insert_unique(hash, index, |&index| {
            let slot = pieces[index as usize / PIECE][index as usize % PIECE];
            hasher.hash_one(slot.key())
        });
    }

    /// Makes the index anew from all used slots, with room for more. The slots know
    /// all that it holds, so the old one can go first, and reading the slots
    /// in order is faster than in the order of the old one.
    fn grow(&mut self) {
        let len = self.index.len();
        self.index = HashTable::new();
        self.index = HashTable::with_capacity(len + len / 2 + 4);
        for (index, entry) in (0..).zip(self.pieces.iter().flatten()) {
            if entry.is_used() {
                let hash = self.hasher.hash_one(entry.key());
                // There is room for all of them.
                self.index.insert_unique(hash, index, |_| 0);
            }
        }
    }

    fn push(&mut self, entry: E) -> Option<u32> {
        let index = self.slots();
        if index >= CAPACITY {
            return None;
        }
        if index.is_multiple_of(PIECE) {
            // The first piece grows, so that a small table stays small.
            let room = if index == 0 { 4 } else { PIECE };
            self.pieces.push(Vec::with_capacity(room));
        }
        self.pieces.last_mut()?.push(entry);
        u32::try_from(index).ok()
    }

    /// Counts one more insertion of the address at `index`.
    pub fn insert_again(&mut self, index: u32) {
        *self.again.entry(index).or_default() += 1;
    }

    /// Takes one insertion back: `Some(true)` where the slot is free now,
    /// `Some(false)` where the address had been inserted more often, `None`
    /// where there is none.
    pub fn remove(&mut self, index: u32) -> Option<bool> {
        let entry = self.get(index).filter(|slot| slot.is_used())?;
        if let Some(more) = self.again.get_mut(&index) {
            *more -= 1;
            if *more == 0 {
                self.again.remove(&index);
            }
            return Some(false);
        }
        let hash = self.hasher.hash_one(entry.key());
        if let Ok(found) = self.index.find_entry(hash, |&other| other == index) {
            found.remove();
        }
        self.pieces[index as usize / PIECE][index as usize % PIECE] = E::FREE;
        self.free.push(Reverse(index));
        Some(true)
    }

    /// The same table with slots of another kind, which must hold every
    /// address of this one.
    pub fn convert<F: Entry>(&self) -> Table<F> {
        let mut table = Table::<F> {
            free: self.free.clone(),
            again: self.again.clone(),
            ..Table::default()
        };
        for index in 0..self.slots() as u32 {
            let addr = self.get(index).and_then(E::unpack);
            let entry = addr.and_then(|addr| F::pack(&addr));
            table.push(entry.unwrap_or(F::FREE));
            if let Some(entry) = entry {
                table.enter(index, entry);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{V4Entry, V6Entry};
    use super::*;
    use std::net::SocketAddr;

    fn addr(n: u32) -> SocketAddr {
        SocketAddr::new(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into(), 7)
    }

    fn entry(n: u32) -> V4Entry {
        V4Entry::pack(&addr(n)).unwrap()
    }

    #[test]
    fn indices_count_up_and_freed_ones_come_back_lowest_first() {
        let mut table = Table::default();
        for n in 0..3000 {
            assert_eq!(table.insert(entry(n)), Some(n));
        }
        assert_eq!(table.remove(2000), Some(true));
        assert_eq!(table.remove(5), Some(true));
        assert_eq!(table.remove(5), None);
        assert_eq!(table.insert(entry(10_000)), Some(5));
        assert_eq!(table.insert(entry(10_001)), Some(2000));
        assert_eq!(table.insert(entry(10_002)), Some(3000));
        assert_eq!((table.len(), table.slots()), (3001, 3001));
    }

    #[test]
    fn addresses_lead_back_to_their_index() {
        let mut table = Table::default();
        for n in 0..5000 {
            table.insert(entry(n));
        }
        table.remove(77);
        for n in 0..5000 {
            let expected = (n != 77).then_some(n);
            assert_eq!(table.find(entry(n), |_| true), expected);
            assert_eq!(table.get(n).unwrap().unpack(), expected.map(addr));
        }
        assert!(table.get(5000).is_none());
        assert_eq!(table.find(entry(1), |_| false), None);
    }

    #[test]
    fn an_address_leaves_with_its_last_insertion() {
        let mut table = Table::default();
        table.insert(entry(1));
        table.insert_again(0);
        assert_eq!(table.remove(0), Some(false));
        assert_eq!(table.remove(0), Some(true));
        assert_eq!(table.remove(0), None);
    }

    #[test]
    fn conversion_keeps_indices_and_gaps() {
        let mut table = Table::default();
        for n in 0..10 {
            table.insert(entry(n));
        }
        table.remove(4);
        let mut wide: Table<V6Entry> = table.convert();
        for n in 0..10 {
            let expected = (n != 4).then_some(n);
            let packed = V6Entry::pack(&addr(n)).unwrap();
            assert_eq!(wide.find(packed, |_| true), expected);
        }
        let v6 = V6Entry::pack(&"[::1]:5".parse().unwrap()).unwrap();
        assert_eq!(wide.insert(v6), Some(4));
        assert_eq!(wide.insert(V6Entry::pack(&addr(99)).unwrap()), Some(10));
    }
}
