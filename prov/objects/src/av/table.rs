//! A table of addresses in this process's memory, with a hash table from addresses to indices.

use prov_base::bounded;
use prov_base::bounds::PEERS;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use hashbrown::DefaultHashBuilder;
use hashbrown::HashTable;

use super::entry::AddressSlot;
use super::slots::{Packed, Slots};

/// Limit of the slots of a table. Indices must fit `u32`.
pub const CAPACITY: usize = u32::MAX as usize;

/// Addresses by index, and indices by address.
pub struct Table<S> {
    slots: S,
    /// The used slots, by the hash of the address.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Free slots below the end, lowest first; empty in a table whose indices are given by the
    /// caller.
    free: BinaryHeap<Reverse<u32>>,
    /// The number of insertions of an address beyond the first.
    again: HashMap<u32, u32>,
}

/// Limit of the number of addresses for which memory is allocated in advance.
const MAX_EXPECTED: usize = 1 << 20;

impl<S: Slots> Table<S> {
    /// Creates an empty table for about this many addresses.
    pub fn expecting(count: usize, slots: S) -> Self {
        Table {
            slots,
            index: HashTable::with_capacity(count.min(MAX_EXPECTED)),
            hasher: DefaultHashBuilder::default(),
            free: BinaryHeap::new(),
            again: HashMap::new(),
        }
    }

    /// Returns the number of slots, used and free.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of addresses.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the address at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: u32) -> Option<S::Address<'_>> {
        self.slots.get(index as usize)
    }

    /// Returns the index of a slot that holds the same peer as `addr`.
    #[inline]
    pub fn find(&self, addr: S::Address<'_>) -> Option<u32> {
        self.find_accepted(self.hash(addr), addr, |_| true)
    }

    /// Returns the hash of an address, for [`Table::find_accepted`] and insertions.
    #[inline]
    pub fn hash(&self, addr: S::Address<'_>) -> u64 {
        S::hash(&self.hasher, addr)
    }

    /// [`Table::find`] for an address with a known hash, restricted to slots that `accept` agrees
    /// to.
    #[inline]
    pub fn find_accepted(
        &self,
        hash: u64,
        addr: S::Address<'_>,
        accept: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let is_it =
            |&index: &u32| self.get(index).is_some_and(|slot| S::same(slot, addr)) && accept(index);
        self.index.find(hash, is_it).copied()
    }

    /// Inserts an address into the lowest free slot; `None` if the table is full.
    #[inline]
    pub fn insert(&mut self, hash: u64, addr: S::Address<'_>) -> Option<u32> {
        let index = match self.free.pop() {
            Some(Reverse(index)) => {
                self.slots.set(index as usize, Some(addr));
                index
            }
            None => {
                let index = self.slots.len();
                if index >= CAPACITY {
                    return None;
                }
                self.slots.push(Some(addr));
                bounded!(self.slots, PEERS);
                index as u32
            }
        };
        self.enter(index, hash);
        Some(index)
    }

    /// Inserts an address into the free slot at `index`; all indices of this table are given by the
    /// caller.
    pub fn insert_at(&mut self, index: u32, hash: u64, addr: S::Address<'_>) {
        while self.slots.len() <= index as usize {
            self.slots.push(None);
            bounded!(self.slots, PEERS);
        }
        self.slots.set(index as usize, Some(addr));
        self.enter(index, hash);
    }

    /// Adds a used slot to the hash table.
    #[inline]
    fn enter(&mut self, index: u32, hash: u64) {
        if self.index.len() == self.index.capacity() {
            return self.grow();
        }
        let Table { slots, hasher, .. } = self;
        self.index.insert_unique(hash, index, |&index| {
            let known = slots.get(index as usize);
            known.map_or(0, |known| S::hash(hasher, known))
        });
    }

    /// Rebuilds the hash table from all used slots, with room for more. The slots contain
    /// everything, so the old hash table is dropped first, and reading the slots in order is faster
    /// than in hash order.
    #[cold]
    fn grow(&mut self) {
        let len = self.index.len();
        self.index = HashTable::new();
        self.index = HashTable::with_capacity(len + len / 2 + 4);
        for (index, addr) in self.slots.used() {
            let hash = S::hash(&self.hasher, addr);
            // The capacity is sufficient, so this does not rehash.
            self.index.insert_unique(hash, index as u32, |_| 0);
        }
    }

    /// Counts another insertion of the address at `index`.
    pub fn insert_again(&mut self, index: u32) {
        *self.again.entry(index).or_default() += 1;
        bounded!(self.again, PEERS);
    }

    /// Undoes one insertion: `Some(true)` if the slot is free, `Some(false)` if the address was
    /// inserted more often, `None` if there is no address. A free slot is reused if `reuse` is set.
    pub fn remove(&mut self, index: u32, reuse: bool) -> Option<bool> {
        let hash = S::hash(&self.hasher, self.get(index)?);
        if let Some(more) = self.again.get_mut(&index) {
            *more -= 1;
            if *more == 0 {
                self.again.remove(&index);
            }
            return Some(false);
        }
        if let Ok(found) = self.index.find_entry(hash, |&other| other == index) {
            found.remove();
        }
        self.slots.set(index as usize, None);
        if reuse {
            self.free.push(Reverse(index));
            bounded!(self.free, PEERS);
        }
        Some(true)
    }
}

impl<E: AddressSlot> Table<Packed<E>> {
    /// Converts the table to slots of another kind, which must be able to hold every address of
    /// this one.
    pub fn convert<F: AddressSlot>(&self) -> Table<Packed<F>> {
        let mut table = Table::expecting(self.len(), Packed::default());
        table.free = self.free.clone();
        table.again = self.again.clone();
        for (index, entry) in self.slots.used() {
            if let Some(entry) = entry.unpack().and_then(|addr| F::pack(&addr)) {
                table.insert_at(index as u32, table.hash(entry), entry);
            }
        }
        while table.slots.len() < self.slots.len() {
            table.slots.push(None);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{V4Entry, V6Entry};
    use super::super::slots::{Fixed, Varied};
    use super::*;
    use std::net::SocketAddr;

    fn addr(n: u32) -> SocketAddr {
        SocketAddr::new(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into(), 7)
    }

    fn insert<S: Slots>(table: &mut Table<S>, addr: S::Address<'_>) -> Option<u32> {
        table.insert(table.hash(addr), addr)
    }

    fn entry(n: u32) -> V4Entry {
        V4Entry::pack(&addr(n)).unwrap()
    }

    fn empty() -> Table<Packed<V4Entry>> {
        Table::expecting(0, Packed::default())
    }

    #[test]
    fn indices_ascend_and_freed_ones_are_reused_lowest_first() {
        let mut table = empty();
        for n in 0..3000 {
            assert_eq!(insert(&mut table, entry(n)), Some(n));
        }
        assert_eq!(table.remove(2000, true), Some(true));
        assert_eq!(table.remove(5, true), Some(true));
        assert_eq!(table.remove(5, true), None);
        assert_eq!(insert(&mut table, entry(10_000)), Some(5));
        assert_eq!(insert(&mut table, entry(10_001)), Some(2000));
        assert_eq!(insert(&mut table, entry(10_002)), Some(3000));
        assert_eq!((table.len(), table.slots.len()), (3001, 3001));
    }

    #[test]
    fn addresses_lead_back_to_their_index() {
        let mut table = empty();
        for n in 0..5000 {
            insert(&mut table, entry(n));
        }
        table.remove(77, true);
        for n in 0..5000 {
            let expected = (n != 77).then_some(n);
            assert_eq!(table.find(entry(n)), expected);
            assert_eq!(
                table.get(n).and_then(AddressSlot::unpack),
                expected.map(addr)
            );
        }
        assert!(table.get(5000).is_none());
        let hash = table.hash(entry(1));
        assert_eq!(table.find_accepted(hash, entry(1), |_| false), None);
    }

    #[test]
    fn addresses_of_any_kind_of_slots_lead_back_to_their_index() {
        fn check<S>(mut table: Table<S>, addr: impl Fn(u32) -> Vec<u8>)
        where
            S: for<'a> Slots<Address<'a> = &'a [u8]> + 'static,
        {
            for n in 0..3000 {
                assert_eq!(insert(&mut table, &addr(n)), Some(n));
            }
            table.remove(0, true);
            table.remove(2999, true);
            for n in 0..3000 {
                let expected = (n != 0 && n != 2999).then_some(n);
                assert_eq!(table.find(&addr(n)), expected);
                assert_eq!(table.get(n), expected.map(&addr).as_deref());
            }
            assert_eq!(insert(&mut table, &addr(7000)), Some(0));
            assert_eq!(table.get(0), Some(&*addr(7000)));
            assert_eq!(table.len(), 2999);
        }
        let gid = |n: u32| u128::from(n).to_be_bytes().to_vec();
        check(Table::expecting(0, Fixed::new(16)), gid);
        let name = |n: u32| format!("fi_shm://{n}").into_bytes();
        check(Table::expecting(0, Varied::default()), name);
    }

    #[test]
    fn slots_of_given_indices_are_not_used_again_by_themselves() {
        let mut table = empty();
        table.insert_at(5, table.hash(entry(5)), entry(5));
        table.insert_at(2, table.hash(entry(2)), entry(2));
        assert_eq!(table.find(entry(5)), Some(5));
        assert_eq!(table.remove(5, false), Some(true));
        assert_eq!((table.get(5), table.get(0)), (None, None));
        table.insert_at(5, table.hash(entry(7)), entry(7));
        assert_eq!(table.find(entry(7)), Some(5));
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn an_address_leaves_with_its_last_insertion() {
        let mut table = empty();
        insert(&mut table, entry(1));
        table.insert_again(0);
        assert_eq!(table.remove(0, true), Some(false));
        assert_eq!(table.remove(0, true), Some(true));
        assert_eq!(table.remove(0, true), None);
    }

    #[test]
    fn conversion_keeps_indices_and_gaps() {
        let mut table = empty();
        for n in 0..10 {
            insert(&mut table, entry(n));
        }
        table.remove(4, true);
        let mut wide: Table<Packed<V6Entry>> = table.convert();
        for n in 0..10 {
            let expected = (n != 4).then_some(n);
            let packed = V6Entry::pack(&addr(n)).unwrap();
            assert_eq!(wide.find(packed), expected);
        }
        let v6 = V6Entry::pack(&"[::1]:5".parse().unwrap()).unwrap();
        assert_eq!(insert(&mut wide, v6), Some(4));
        assert_eq!(
            insert(&mut wide, V6Entry::pack(&addr(99)).unwrap()),
            Some(10)
        );
    }
}
