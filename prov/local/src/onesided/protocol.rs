//! What the owner of a table of regions and an initiator write and read, in which order.
//!
//! An entry of the table is live or free; its *state* says which, and how often it was
//! filled. The owner alone writes entries. An initiator raises its *flight* word to an odd
//! number before it looks at the table, and to the next even one when it has copied. The
//! owner makes an entry free first and looks at the flight words then. Both have a full
//! barrier between the two steps, so that either the initiator sees that the entry is
//! free, or the owner sees the initiator and waits until its word changes. An entry is
//! filled again after that wait alone: what an initiator in flight has found stays.
//!
//! The owner tells an initiator in the *revoked* word that it may begin no more flights,
//! in the same way: when the link between them ends.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

use prov_util::mr::publish::Published;

/// An entry of the table: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Entry {
    /// Odd while the entry is live; raised with each change.
    state: AtomicU64,
    key: AtomicU64,
    base: AtomicU64,
    len: AtomicU64,
    addr: AtomicU64,
    access: AtomicU64,
    counted: AtomicU64,
}

impl Entry {
    /// A free entry.
    #[cfg(all(test, loom))]
    pub fn vacant() -> Self {
        let zero = || AtomicU64::new(0);
        Entry {
            state: zero(),
            key: zero(),
            base: zero(),
            len: zero(),
            addr: zero(),
            access: zero(),
            counted: zero(),
        }
    }

    /// Fills a free entry. For the owner, which has waited since it was live
    /// ([`Watched::wait`]).
    pub fn fill(&self, region: &Published) {
        let set = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        set(&self.key, region.key);
        set(&self.base, region.base);
        set(&self.len, region.len);
        set(&self.addr, region.addr);
        set(&self.access, region.access);
        set(&self.counted, region.counted);
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state.wrapping_add(1), Ordering::Release);
    }

    /// Which accesses are counted from now on. For the owner.
    pub fn count(&self, counted: u64) {
        self.counted.store(counted, Ordering::Relaxed);
    }

    /// Makes a live entry free. For the owner, which then waits for flights.
    pub fn free(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state.wrapping_add(1), Ordering::Relaxed);
    }

    /// The region in the entry, if it is live and has this key. For an initiator in
    /// flight. The owner may have written anything: what is found is checked against the
    /// access, and names memory of the owner alone.
    pub fn find(&self, key: u64) -> Option<Published> {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        if get(&self.key) != key {
            return None;
        }
        let state = self.state.load(Ordering::Acquire);
        let region = Published {
            key: get(&self.key),
            base: get(&self.base),
            len: get(&self.len),
            addr: get(&self.addr),
            access: get(&self.access),
            counted: get(&self.counted),
        };
        // The entry may be filled with another region while nobody is in flight that has
        // seen it live: then the state has changed.
        fence(Ordering::Acquire);
        let is_same = self.state.load(Ordering::Relaxed) == state;
        (is_same && state % 2 == 1 && region.key == key).then_some(region)
    }
}

/// The words in which an initiator and the owner meet.
pub trait Words {
    /// The flight word, which the initiator writes.
    fn flight(&self) -> &AtomicU64;

    /// The revoked word, which the owner writes: 0 until the link ends.
    fn revoked(&self) -> &AtomicU64;
}

/// An initiator's side of the words.
#[derive(Debug)]
pub struct Flights<W>(W);

/// An initiator is in flight until this is dropped.
#[derive(Debug)]
pub struct Flight<'a, W: Words> {
    words: &'a W,
    number: u64,
}

impl<W: Words> Flights<W> {
    pub fn new(words: W) -> Self {
        Flights(words)
    }

    /// Begins a flight; `None` where the owner permits none. A thread has one at a time.
    #[inline]
    pub fn begin(&mut self) -> Option<Flight<'_, W>> {
        let words = &self.0;
        // Nobody else writes it, and an owner that does harms itself.
        let number = words.flight().load(Ordering::Relaxed) | 1;
        // An owner that sees this has seen the end of the flight before.
        words.flight().store(number, Ordering::Release);
        let flight = Flight { words, number };
        fence(Ordering::SeqCst);
        (words.revoked().load(Ordering::Relaxed) == 0).then_some(flight)
    }
}

impl<W: Words> Drop for Flight<'_, W> {
    #[inline]
    fn drop(&mut self) {
        let number = self.number.wrapping_add(1);
        self.words.flight().store(number, Ordering::Release);
    }
}

/// The owner's side of the words.
#[derive(Debug)]
pub struct Watched<W>(W);

impl<W: Words> Watched<W> {
    pub fn new(words: W) -> Self {
        Watched(words)
    }

    /// Waits until a flight that may have seen an entry which was made free before is
    /// over. `goes_on` is asked between looks, with the number of times before, whether
    /// to look again: not if the initiator is gone.
    pub fn wait(&self, mut goes_on: impl FnMut(u32) -> bool) {
        fence(Ordering::SeqCst);
        let seen = self.0.flight().load(Ordering::Acquire);
        if seen.is_multiple_of(2) {
            return;
        }
        let mut turns = 0;
        while self.0.flight().load(Ordering::Acquire) == seen && goes_on(turns) {
            turns = turns.saturating_add(1);
        }
    }

    /// Permits no further flights.
    pub fn revoke(&self) {
        self.0.revoked().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether no flight is under way. After [`Watched::revoke`], none will be.
    pub fn is_idle(&self) -> bool {
        self.0.flight().load(Ordering::Acquire).is_multiple_of(2)
    }
}
