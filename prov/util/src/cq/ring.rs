//! Completions, one after another.

use super::Completion;
use crate::errno::{Errno, Result};

/// A ring that grows when it is full: a completion is never dropped.
pub(super) struct Ring {
    /// A power of two of them.
    entries: Vec<Completion>,
    /// Entries that there is room for: all of them, or none if the ring is
    /// closed.
    room: u64,
    /// Entries ever taken out.
    head: u64,
    /// Entries ever put in, at most `entries.len()` more than `head`.
    tail: u64,
    /// What the ring goes back to when it has emptied.
    usual_capacity: usize,
    /// Whether there are more entries than that.
    has_grown: bool,
}

/// Memory is not set aside for more entries than these before they exist.
const MAX_USUAL_CAPACITY: usize = 1 << 14;

impl Ring {
    /// Room for `size` entries at least, before it has to grow.
    pub(super) fn new(size: usize) -> Result<Self> {
        let usual_capacity = size.clamp(2, MAX_USUAL_CAPACITY).next_power_of_two();
        Ok(Self {
            entries: vacant(usual_capacity)?,
            room: usual_capacity as u64,
            head: 0,
            tail: 0,
            usual_capacity,
            has_grown: false,
        })
    }

    /// Number of entries ever put in: the position of the next one.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Position of the entry that is read next.
    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// Adds an entry, unless the ring is full or closed; whether it did.
    #[inline(always)]
    pub(super) fn push_at_once(&mut self, make: impl FnOnce() -> Completion) -> bool {
        if self.tail.wrapping_sub(self.head) >= self.room {
            return false;
        }
        let slot = self.slot(self.tail);
        if let Some(entry) = self.entries.get_mut(slot) {
            *entry = make();
        }
        self.tail += 1;
        true
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `FI_ENOMEM` when the ring is full and cannot grow, or closed.
    pub(super) fn push(&mut self, completion: &Completion) -> Result {
        if self.push_at_once(|| *completion) {
            return Ok(());
        }
        if self.room == 0 {
            return Err(Errno::ENOMEM);
        }
        self.resize(2 * self.entries.len())?;
        match self.push_at_once(|| *completion) {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Takes no more entries from now on.
    pub(super) fn close(&mut self) {
        self.room = 0;
    }

    /// Takes out up to `count` entries before position `end`.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        count: usize,
        end: u64,
        mut sink: impl FnMut(&Completion),
    ) -> usize {
        let available = end.min(self.tail) - self.head;
        let count = count.min(available as usize);
        // Not in `self` meanwhile: the sink writes to memory that might be it,
        // as far as the compiler knows.
        let (entries, mut head) = (&self.entries[..], self.head);
        for _ in 0..count {
            if let Some(entry) = entries.get(head as usize & (entries.len() - 1)) {
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

    /// Takes out an entry before position `end`; `false` if there is none, or if
    /// there is more to do.
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
        position as usize & (self.entries.len() - 1)
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        if self.head != self.tail {
            return;
        }
        // Without memory for a small ring, the large one serves.
        let _ = self.resize(self.usual_capacity);
    }

    /// Moves the entries to a ring of `capacity`, a power of two that holds
    /// them.
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
        if self.room != 0 {
            self.room = capacity as u64;
        }
        self.has_grown = capacity > self.usual_capacity;
        Ok(())
    }
}

fn vacant(len: usize) -> Result<Vec<Completion>> {
    // The last entry is to share no cache line with whatever comes after it,
    // such as another queue's first.
    const APART: usize = 128_usize.div_ceil(size_of::<Completion>());
    let mut memory = Vec::new();
    memory
        .try_reserve_exact(len.saturating_add(APART))
        .map_err(|_| Errno::ENOMEM)?;
    memory.resize(len, Completion::new(std::ptr::null_mut(), 0));
    Ok(memory)
}
