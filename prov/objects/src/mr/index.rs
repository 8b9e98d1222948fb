//! A concurrent hash table of entries by key, in which readers take no lock and execute no atomic
//! read-modify-write instruction.
//!
//! Look-ups are frequent, by one thread per [`Reader`]; insertions and removals are rare. A reader
//! publishes in its own word what it does: nothing, searching, or using one entry (a hazard
//! pointer). A removal first takes the entry out of the table and then waits until no reader is
//! searching or using it. The barrier between a reader's store and its search is executed by the
//! remover ([`super::barrier`]).
//!
//! The table uses open addressing with linear probing. It is never more than half full, and peers
//! only look up keys, they do not choose them: the hash needs no secret.

#![allow(
    clippy::indexing_slicing,
    reason = "a place is a hash, masked by the number of places less one"
)]

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};

use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, PoisonError};

use super::barrier;

/// A type with a key.
pub(super) trait Keyed {
    /// Returns the key, which never changes.
    fn key(&self) -> u64;
}

/// See the module.
pub(super) struct Index<T> {
    /// From `Box::into_raw`; owned by the index.
    slots: AtomicPtr<Slots<T>>,
    writer: Mutex<Writer>,
    readers: Mutex<Vec<Arc<State>>>,
}

struct Slots<T> {
    /// A power of two of slots. Null: neither this slot nor those after it in a search contain the
    /// key. [`REMOVED`]: the slot of a removed entry. Otherwise an entry, from `Arc::into_raw`.
    slots: Box<[AtomicPtr<T>]>,
    /// Number of bits by which a hash is shifted to select a slot.
    shift: u32,
}

#[derive(Default)]
struct Writer {
    /// Number of entries.
    live: usize,
    /// Number of slots with [`REMOVED`].
    removed: usize,
}

/// A reader's state: [`IDLE`], [`LOOKING`], or the address of the entry that it uses. No other
/// thread writes this cache line.
#[repr(align(128))]
struct State(AtomicUsize);

const IDLE: usize = 0;
const LOOKING: usize = 1;
/// An address that no entry has.
const REMOVED: usize = 1;
/// Smallest number of slots.
const FEWEST: usize = 8;

impl<T: Keyed> Index<T> {
    /// Creates an index without entries and readers.
    pub(super) fn new() -> Self {
        const { assert!(align_of::<T>() > 1, "no entry is at the address 1") };
        barrier::prepare();
        Index {
            slots: AtomicPtr::new(Slots::allocate(FEWEST)),
            writer: Mutex::new(Writer::default()),
            readers: Mutex::new(Vec::new()),
        }
    }

    /// Creates a reader.
    pub(super) fn reader(self: &Arc<Self>) -> Reader<T> {
        let state = Arc::new(State(AtomicUsize::new(IDLE)));
        lock(&self.readers).push(state.clone());
        Reader {
            index: self.clone(),
            state,
        }
    }

    /// Adds an entry, unless an existing one excludes it. Returns whether it was added.
    pub(super) fn insert(&self, entry: Arc<T>, excludes: impl Fn(&T) -> bool) -> bool {
        let mut writer = lock(&self.writer);
        self.make_room(&mut writer);
        // SAFETY: the table is replaced and freed only with the writer's mutex, which is held here.
        let slots = unsafe { &*self.slots.load(Ordering::Relaxed) };
        let mut place = None;
        for slot in slots.search(entry.key()) {
            let found = slot.load(Ordering::Relaxed);
            if found.is_null() {
                place = place.or(Some(slot));
                break;
            }
            if found.addr() == REMOVED {
                place = place.or(Some(slot));
                continue;
            }
            // SAFETY: an entry is removed from the table, with the mutex held, before it is freed;
            // so an entry in the table is valid.
            let found = unsafe { &*found };
            if found.key() == entry.key() && excludes(found) {
                return false;
            }
        }
        // There is a free slot, since the table is never full.
        let Some(place) = place else {
            return false;
        };
        if place.load(Ordering::Relaxed).addr() == REMOVED {
            writer.removed -= 1;
        }
        writer.live += 1;
        place.store(Arc::into_raw(entry).cast_mut(), Ordering::Release);
        true
    }

    /// Removes an entry, if it is in the table. After this returns, no reader uses it.
    pub(super) fn remove(&self, entry: &T) {
        let taken = {
            let mut writer = lock(&self.writer);
            // SAFETY: the table is replaced and freed only with the writer's mutex, which this
            // thread holds.
            let slots = unsafe { &*self.slots.load(Ordering::Relaxed) };
            slots.take_out(entry, &mut writer)
        };
        let Some(taken) = taken else {
            return;
        };
        self.wait_for_readers(taken.addr());
        // SAFETY: the reference was the table's, was removed by this call, and no reader borrows
        // the entry any more.
        drop(unsafe { Arc::from_raw(taken.cast_const()) });
    }

    /// Waits until no reader is searching, or using the entry at this address, which was taken out
    /// of the table before.
    fn wait_for_readers(&self, address: usize) {
        barrier::heavy();
        let readers = lock(&self.readers).clone();
        for reader in readers {
            let mut turns = 0u32;
            loop {
                let state = reader.0.load(Ordering::Acquire);
                if state != LOOKING && state != address {
                    break;
                }
                turns += 1;
                wait_a_turn(turns);
            }
        }
    }

    /// Makes sure that the table is at most half full after one more insertion.
    fn make_room(&self, writer: &mut Writer) {
        let old = self.slots.load(Ordering::Relaxed);
        // SAFETY: the table is replaced and freed only with the writer's mutex, which the caller
        // holds.
        let slots = unsafe { &*old };
        if (writer.live + writer.removed + 1) * 2 <= slots.slots.len() {
            return;
        }
        let capacity = ((writer.live + 1) * 4).next_power_of_two().max(FEWEST);
        let new = Slots::allocate(capacity);
        for slot in &slots.slots {
            let entry = slot.load(Ordering::Relaxed);
            if entry.is_null() || entry.addr() == REMOVED {
                continue;
            }
            // SAFETY: `new` has no other users yet, and entries in the table are valid.
            let (new, entry_key) = unsafe { (&*new, (*entry).key()) };
            let free = |slot: &&AtomicPtr<T>| slot.load(Ordering::Relaxed).is_null();
            if let Some(slot) = new.search(entry_key).find(free) {
                slot.store(entry, Ordering::Relaxed);
            }
        }
        self.slots.store(new, Ordering::Release);
        writer.removed = 0;
        self.wait_for_readers(LOOKING);
        // SAFETY: readers that begin later find the new table, and no earlier reader was seen
        // searching, so that this is the last reference. The old table does not own its entries.
        drop(unsafe { Box::from_raw(old) });
    }
}

impl<T> Slots<T> {
    fn allocate(capacity: usize) -> *mut Self {
        let empty = || AtomicPtr::new(ptr::null_mut());
        Box::into_raw(Box::new(Slots {
            slots: (0..capacity).map(|_| empty()).collect(),
            shift: u64::BITS - capacity.ilog2(),
        }))
    }

    /// Iterates over all slots, in the search order of a key.
    #[inline(always)]
    fn search(&self, key: u64) -> impl Iterator<Item = &AtomicPtr<T>> {
        let slots = &*self.slots;
        let mask = slots.len() - 1;
        // Multiplication by 2^64 divided by the golden ratio spreads similar keys in the upper
        // bits.
        let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
        (0..slots.len()).map(move |step| &slots[(start + step) & mask])
    }

    /// Takes an entry out of its slot in the table.
    fn take_out(&self, entry: &T, writer: &mut Writer) -> Option<*mut T>
    where
        T: Keyed,
    {
        let mut search = self.search(entry.key());
        let slot = search
            .by_ref()
            .take_while(|slot| !is_end(slot))
            .find(|slot| ptr::eq(slot.load(Ordering::Relaxed), entry))?;
        let taken = slot.load(Ordering::Relaxed);
        if search.next().is_none_or(is_end) {
            // A search that would stop at the next slot may stop here.
            slot.store(ptr::null_mut(), Ordering::Release);
        } else {
            slot.store(ptr::without_provenance_mut(REMOVED), Ordering::Release);
            writer.removed += 1;
        }
        writer.live -= 1;
        Some(taken)
    }
}

fn is_end<T>(slot: &AtomicPtr<T>) -> bool {
    slot.load(Ordering::Relaxed).is_null()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Yields to a reader, which may need the processor to continue.
fn wait_a_turn(turns: u32) {
    #[cfg(loom)]
    {
        let _ = turns;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    match turns {
        0..=64 => std::hint::spin_loop(),
        65..=128 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(20)),
    }
}

impl<T> Drop for Index<T> {
    fn drop(&mut self) {
        // SAFETY: the table is a Box that the index owns; there are no readers, since each keeps
        // the index.
        let slots = unsafe { Box::from_raw(self.slots.load(Ordering::Relaxed)) };
        for slot in &slots.slots {
            let entry = slot.load(Ordering::Relaxed);
            if !entry.is_null() && entry.addr() != REMOVED {
                // SAFETY: the reference is the table's own.
                drop(unsafe { Arc::from_raw(entry.cast_const()) });
            }
        }
    }
}

/// A reader, which looks up one entry at a time.
pub(super) struct Reader<T> {
    index: Arc<Index<T>>,
    state: Arc<State>,
}

// SAFETY: the index gives any thread shared references to entries and drops entries in any thread,
// for which the bounds suffice; all other state is atomic or behind a mutex.
unsafe impl<T: Send + Sync> Send for Index<T> {}
// SAFETY: a shared reference permits the same operations, for which the bounds suffice, as above.
unsafe impl<T: Send + Sync> Sync for Index<T> {}

impl<T: Keyed> Reader<T> {
    /// Returns the first entry with this key for which `wanted` is true.
    #[inline(always)]
    pub(super) fn find(&mut self, key: u64, wanted: impl Fn(&T) -> bool) -> Option<Found<'_, T>> {
        let state = &*self.state;
        state.0.store(LOOKING, Ordering::Relaxed);
        barrier::light();
        let slots = self.index.slots.load(Ordering::Acquire);
        // SAFETY: a replaced table is freed only after no reader was seen searching. This reader
        // has announced that it searches before it has loaded the table: either the writer sees the
        // announcement, or this reader has loaded the new table.
        for slot in unsafe { &*slots }.search(key) {
            let entry = slot.load(Ordering::Acquire);
            if entry.is_null() {
                break;
            }
            if entry.addr() == REMOVED {
                continue;
            }
            // SAFETY: an entry is freed only after it was removed from the table and no reader was
            // seen searching or using it; this reader has announced its search, as above.
            let found = unsafe { &*entry };
            if found.key() == key && wanted(found) {
                // A thread that sees that this reader is not searching may free the table.
                state.0.store(entry.addr(), Ordering::Release);
                return Some(Found {
                    entry: found,
                    state,
                });
            }
        }
        state.0.store(IDLE, Ordering::Release);
        None
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        lock(&self.index.readers).retain(|state| !Arc::ptr_eq(state, &self.state));
    }
}

/// An entry in use: [`Index::remove`] waits until this is dropped.
pub(super) struct Found<'a, T> {
    entry: &'a T,
    state: &'a State,
}

impl<T> Deref for Found<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.entry
    }
}

impl<T> Drop for Found<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.state.0.store(IDLE, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
