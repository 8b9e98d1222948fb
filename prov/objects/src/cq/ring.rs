//! The ring buffer of a completion queue.

use super::Completion;
use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_base::errno::{Errno, Result};

/// A ring buffer that grows when it is full: a completion is never dropped.
pub(super) struct Ring {
    /// The slots that were ever filled. In the first round through a new ring they are added one after
    /// the other: a queue that has room for many entries takes memory for those that it gets.
    entries: Vec<Completion>,
    /// Number of slots less one: a power of two less one.
    mask: usize,
    /// Usable slots: all of them, or none if the ring is closed.
    room: u64,
    /// Number of entries ever removed.
    head: u64,
    /// Number of entries ever added, at most `entries.len()` more than `head`.
    tail: u64,
    /// The capacity to which the ring returns when it is empty.
    usual_capacity: usize,
    /// Whether the capacity exceeds `usual_capacity`.
    has_grown: bool,
}

/// Limit of the slots that are allocated in advance; larger queues grow on demand.
const MAX_USUAL_CAPACITY: usize = 1 << 14;

impl Ring {
    /// Creates a ring with at least `size` slots, before it has to grow.
    pub(super) fn new(size: usize) -> Result<Self> {
        let usual_capacity = size.clamp(2, MAX_USUAL_CAPACITY).next_power_of_two();
        Ok(Self {
            entries: unfilled(usual_capacity)?,
            mask: usual_capacity - 1,
            room: usual_capacity as u64,
            head: 0,
            tail: 0,
            usual_capacity,
            has_grown: false,
        })
    }

    /// Returns the number of entries ever added: the position of the next one.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the position of the entry that is read next.
    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// The fast path of `push`: adds an entry, unless the ring is full or closed. Returns whether
    /// it did.
    #[inline(always)]
    pub(super) fn push_fast(&mut self, make: impl FnOnce() -> Completion) -> bool {
        if self.tail.wrapping_sub(self.head) >= self.room {
            return false;
        }
        let slot = self.slot(self.tail);
        match self.entries.get_mut(slot) {
            Some(entry) => *entry = make(),
            None => self.add(make()),
        }
        self.tail += 1;
        true
    }

    /// Adds a slot, for which there is memory.
    #[cold]
    #[inline(never)]
    fn add(&mut self, entry: Completion) {
        self.entries.push(entry);
        bounded!(self.entries, OPERATIONS);
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `FI_ENOMEM` if the ring is full and cannot grow, or is closed.
    pub(super) fn push(&mut self, completion: &Completion) -> Result {
        if self.push_fast(|| *completion) {
            return Ok(());
        }
        if self.room == 0 {
            return Err(Errno::ENOMEM);
        }
        self.resize(2 * (self.mask + 1))?;
        bounded!(self.entries, OPERATIONS);
        match self.push_fast(|| *completion) {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Rejects all later entries.
    pub(super) fn close(&mut self) {
        self.room = 0;
    }

    /// Removes up to `count` entries before position `end`.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        count: usize,
        end: u64,
        mut sink: impl FnMut(&Completion),
    ) -> usize {
        let available = end.min(self.tail) - self.head;
        let count = count.min(available as usize);
        // Local copies: the sink writes to memory that, for all the compiler knows, may be `self`.
        let (entries, mask, mut head) = (&self.entries[..], self.mask, self.head);
        for _ in 0..count {
            if let Some(entry) = entries.get(head as usize & mask) {
                sink(entry);
            }
            head += 1;
        }
        self.head = head;
        if self.has_grown {
            self.shrink();
        }
        count
    }

    /// The fast path of `take`: removes one entry before position `end`. Returns `false` if there
    /// is none, or if the ring has to shrink.
    #[inline(always)]
    pub(super) fn take_single(&mut self, end: u64, sink: impl FnOnce(&Completion)) -> bool {
        if self.head == self.tail || self.head == end || self.has_grown {
            return false;
        }
        let slot = self.slot(self.head);
        let Some(entry) = self.entries.get(slot) else {
            return false;
        };
        self.head += 1;
        sink(entry);
        true
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> usize {
        position as usize & self.mask
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        if self.head != self.tail {
            return;
        }
        // If there is no memory for a small ring, the large one stays.
        let _ = self.resize(self.usual_capacity);
    }

    /// Moves the entries to a ring of `capacity`, a power of two that holds them.
    #[cold]
    #[inline(never)]
    #[allow(
        clippy::indexing_slicing,
        reason = "a slot is a position modulo the capacity"
    )]
    fn resize(&mut self, capacity: usize) -> Result {
        let mut entries = vacant(capacity)?;
        for position in self.head..self.tail {
            entries[position as usize & (capacity - 1)] = self.entries[self.slot(position)];
        }
        self.entries = entries;
        self.mask = capacity - 1;
        if self.room != 0 {
            self.room = capacity as u64;
        }
        self.has_grown = capacity > self.usual_capacity;
        Ok(())
    }
}

/// Returns `len` slots without an entry.
fn vacant(len: usize) -> Result<Vec<Completion>> {
    let mut memory = unfilled(len)?;
    memory.resize(len, Completion::new(std::ptr::null_mut(), 0));
    Ok(memory)
}

/// Returns room for `len` slots.
fn unfilled(len: usize) -> Result<Vec<Completion>> {
    // The padding keeps the last entry from sharing a cache line with other memory, such as the
    // first entry of another queue.
    const APART: usize = 128_usize.div_ceil(size_of::<Completion>());
    let mut memory = Vec::new();
    memory
        .try_reserve_exact(len.saturating_add(APART))
        .map_err(|_| Errno::ENOMEM)?;
    Ok(memory)
}
