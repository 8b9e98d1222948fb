//! Completions in the format that the application reads, one after another.

use super::{Completion, CqFormat};
use crate::errno::{Errno, Result};

/// A ring that grows when it is full: a completion is never dropped.
pub(super) struct Ring {
    /// `capacity * stride` words.
    words: Vec<u64>,
    /// Source addresses beside the entries; empty where nobody asked.
    sources: Vec<u64>,
    /// Words of an entry.
    stride: usize,
    /// Entries that fit, minus one; their number is a power of two.
    mask: usize,
    /// Entries ever taken out.
    head: u64,
    /// Entries ever put in, at most `mask + 1` more than `head`.
    tail: u64,
    /// What the ring goes back to when it has emptied.
    usual_capacity: usize,
}

/// Entries in application format, as they lie one after another.
pub struct Entries<'a> {
    /// Whole entries.
    pub words: &'a [u64],
    /// One source address per entry; empty where none are recorded.
    pub sources: &'a [u64],
    /// Number of entries.
    pub count: usize,
}

/// Memory is not set aside for more entries than these before they exist.
const MAX_USUAL_CAPACITY: usize = 1 << 14;

impl Ring {
    /// Room for `size` entries at least, before it has to grow.
    pub(super) fn new(format: CqFormat, size: usize, with_sources: bool) -> Result<Self> {
        let usual_capacity = size.clamp(2, MAX_USUAL_CAPACITY).next_power_of_two();
        let stride = format.words();
        Ok(Self {
            words: zeroed(usual_capacity * stride)?,
            sources: zeroed(if with_sources { usual_capacity } else { 0 })?,
            stride,
            mask: usual_capacity - 1,
            head: 0,
            tail: 0,
            usual_capacity,
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

    /// Adds an entry.
    ///
    /// # Errors
    /// `FI_ENOMEM` when the ring is full and cannot grow.
    #[inline(always)]
    pub(super) fn push(&mut self, completion: &Completion) -> Result {
        if self.tail.wrapping_sub(self.head) > self.mask as u64 {
            self.resize(2 * (self.mask + 1))?;
        }
        let slot = self.tail as usize & self.mask;
        let at = slot * self.stride;
        let entry = &mut self.words[at..at + self.stride];
        if let [context, more @ ..] = entry {
            *context = completion.context.expose_provenance() as u64;
            if let [flags, len, more @ ..] = more {
                *flags = completion.flags;
                *len = completion.len as u64;
                if let [buf, data, more @ ..] = more {
                    *buf = completion.buf.expose_provenance() as u64;
                    *data = completion.data;
                    if let [tag] = more {
                        *tag = completion.tag;
                    }
                }
            }
        }
        if let Some(source) = self.sources.get_mut(slot) {
            *source = completion.src;
        }
        self.tail += 1;
        Ok(())
    }

    /// Takes out up to `count` entries before position `end`, in at most two
    /// pieces.
    #[inline]
    pub(super) fn take(&mut self, count: usize, end: u64, mut sink: impl FnMut(Entries)) -> usize {
        let available = end.min(self.tail) - self.head;
        let count = count.min(available as usize);
        let mut left = count;
        while left > 0 {
            let slot = self.head as usize & self.mask;
            let piece = left.min(self.mask + 1 - slot);
            let sources = match self.sources.is_empty() {
                true => &[][..],
                false => &self.sources[slot..slot + piece],
            };
            sink(Entries {
                words: &self.words[slot * self.stride..(slot + piece) * self.stride],
                sources,
                count: piece,
            });
            self.head += piece as u64;
            left -= piece;
        }
        if self.head == self.tail && self.mask + 1 > self.usual_capacity {
            self.shrink();
        }
        count
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        // Without memory for a small ring, the large one serves.
        let _ = self.resize(self.usual_capacity);
    }

    /// Moves the entries to a ring of `capacity`, a power of two that holds
    /// them.
    #[cold]
    #[inline(never)]
    fn resize(&mut self, capacity: usize) -> Result {
        let words = capacity.checked_mul(self.stride).ok_or(Errno::ENOMEM)?;
        let mut words = zeroed(words)?;
        let mut sources = zeroed(if self.sources.is_empty() { 0 } else { capacity })?;
        for position in self.head..self.tail {
            let from = position as usize & self.mask;
            let to = position as usize & (capacity - 1);
            words[to * self.stride..][..self.stride]
                .copy_from_slice(&self.words[from * self.stride..][..self.stride]);
            if let Some(source) = sources.get_mut(to) {
                *source = self.sources[from];
            }
        }
        self.words = words;
        self.sources = sources;
        self.mask = capacity - 1;
        Ok(())
    }
}

fn zeroed(len: usize) -> Result<Vec<u64>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(len).map_err(|_| Errno::ENOMEM)?;
    memory.resize(len, 0);
    Ok(memory)
}
