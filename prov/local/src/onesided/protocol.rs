//! The protocol of the owner of a table of regions and an initiator: their reads and writes, and
//! the order of these.
//!
//! An entry of the table is live or free; its *state* says which, and how often it was filled. Only
//! the owner writes entries. An initiator raises its *flight* word to an odd number before it reads
//! the table, and to the next even one when it has copied. The owner first frees an entry and then
//! reads the flight words. Both have a full barrier between the two steps, so that either the
//! initiator sees that the entry is free, or the owner sees the flight and waits until the word
//! changes. An entry is filled again only after that wait: what an initiator in flight has found
//! does not change.
//!
//! With the *revoked* word the owner forbids an initiator further flights, in the same way, when
//! the link between them ends.

use prov_base::shared_words::{AtomicU64, Ordering, fence};

use prov_base::arch::Line;
use prov_util::mr::publish::Published;

/// An entry of the table, in a cache line of its own.
#[derive(Debug)]
#[repr(C)]
pub struct Entry {
    line: [Line; 0],
    /// Odd while the entry is live; incremented with each change.
    state: AtomicU64,
    key: AtomicU64,
    base: AtomicU64,
    len: AtomicU64,
    addr: AtomicU64,
    access: AtomicU64,
    counted: AtomicU64,
}

impl Entry {
    /// Returns a free entry.
    #[cfg(all(test, loom))]
    pub fn vacant() -> Self {
        let zero = || AtomicU64::new(0);
        Entry {
            line: [],
            state: zero(),
            key: zero(),
            base: zero(),
            len: zero(),
            addr: zero(),
            access: zero(),
            counted: zero(),
        }
    }

    /// Fills a free entry. Called by the owner, which has waited since the entry was live
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

    /// Sets which accesses are counted from now on. Called by the owner.
    pub fn count(&self, counted: u64) {
        self.counted.store(counted, Ordering::Relaxed);
    }

    /// Frees a live entry. Called by the owner, which then waits for flights.
    pub fn free(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state.wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the region in the entry, if it is live and has this key. Called by an initiator in
    /// flight. The owner may have written anything: the result is checked against the access, and
    /// refers to memory of the owner only.
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
        // If no initiator that has seen the entry live is in flight, the entry may be filled with
        // another region: the state has changed then.
        fence(Ordering::Acquire);
        let is_same = self.state.load(Ordering::Relaxed) == state;
        (is_same && state % 2 == 1 && region.key == key).then_some(region)
    }
}

/// The words that an initiator and the owner share.
pub trait Words {
    /// Returns the flight word, which the initiator writes.
    fn flight(&self) -> &AtomicU64;

    /// Returns the revoked word, which the owner writes: 0 until the link ends.
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

    /// Begins a flight; `None` if the owner permits none. A thread has one at a time.
    #[inline]
    pub fn begin(&mut self) -> Option<Flight<'_, W>> {
        let words = &self.0;
        // Nobody else writes it, and an owner that does harms only itself.
        let number = words.flight().load(Ordering::Relaxed) | 1;
        // An owner that sees this has seen the end of the previous flight.
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

    /// Waits for the end of a flight that may have seen an entry which was freed before. Between
    /// tests, `goes_on` is called with the number of previous tests, and decides whether to
    /// continue: not if the initiator is gone.
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

    /// Forbids further flights.
    pub fn revoke(&self) {
        self.0.revoked().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether no flight is in progress. After [`Watched::revoke`], none will be.
    pub fn is_idle(&self) -> bool {
        self.0.flight().load(Ordering::Acquire).is_multiple_of(2)
    }
}
