//! A bounded queue of slots between one producer and one consumer (SPSC), without locks and locked
//! instructions. [`channel`](crate::channel) defines the lengths of messages and the locations of
//! their bytes.
//!
//! Each slot has a word of its own, which publishes its contents: half of it says in which lap of
//! the ring it was written, so that a slot's previous message is never mistaken for a new one. The
//! consumer polls only these words, and periodically reports how far it has read.
//!
//! The other side is another process, which may write anything at any time: each word is read once,
//! and an invalid value is [`Broken`].

use prov_base::shared_words::{AtomicU64, Ordering};

/// The other side has written an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// The words that both sides share.
pub trait Words {
    /// Number of slots of the ring, a power of two.
    const SLOTS: u64;

    /// Returns the word that publishes a slot.
    fn published(&self, slot: usize) -> &AtomicU64;

    /// Returns the total number of slots that the consumer has freed.
    fn done(&self) -> &AtomicU64;
}

/// Returns the half of a slot's word that identifies the lap in which it was written.
#[inline(always)]
pub fn lap<W: Words>(position: u64) -> u32 {
    ((position / W::SLOTS) as u32).wrapping_add(1)
}

/// Returns the index in the ring of a position.
#[inline(always)]
fn slot_of<W: Words>(position: u64) -> usize {
    (position % W::SLOTS) as usize
}

/// A slot that is free, until it is published.
#[derive(Debug, PartialEq, Eq)]
pub struct Free {
    slot: usize,
}

impl Free {
    /// Returns its index in the ring.
    #[inline(always)]
    pub fn slot(&self) -> usize {
        self.slot
    }
}

/// The side that fills slots.
#[derive(Debug, Default)]
pub struct Producer {
    /// Total number of slots filled.
    filled: u64,
    /// Total number of slots that the consumer had freed when that was last read.
    done: u64,
}

impl Producer {
    /// Returns the next slot to fill, if it is known to be free.
    #[inline(always)]
    pub fn free_slot<W: Words>(&self) -> Option<Free> {
        (self.filled - self.done < W::SLOTS).then(|| Free {
            slot: slot_of::<W>(self.filled),
        })
    }

    /// Returns the total number of slots filled.
    pub fn filled(&self) -> u64 {
        self.filled
    }

    /// Returns the total number of slots that the consumer had freed when that was last read.
    #[inline(always)]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Returns the number of filled slots that the consumer had not freed when that was last read.
    #[inline]
    pub fn filled_since_look(&self) -> u64 {
        self.filled - self.done
    }

    /// Reads how far the consumer is; returns the total number of freed slots.
    pub fn look<W: Words>(&mut self, words: &W) -> Result<u64, Broken> {
        self.hear(words.done().load(Ordering::Acquire))
    }

    /// Handles the consumer's report of its progress, from its word or received in another way.
    /// Reports may arrive out of order, and the largest counts. Returns that.
    #[inline(always)]
    pub fn hear(&mut self, done: u64) -> Result<u64, Broken> {
        if done > self.filled {
            return Err(Broken("position of the consumer"));
        }
        self.done = self.done.max(done);
        Ok(self.done)
    }

    /// Publishes the slot that [`Producer::free_slot`] returned last, with half a word.
    #[inline(always)]
    pub fn publish<W: Words>(&mut self, words: &W, free: Free, half: u32) {
        debug_assert_eq!(free.slot, slot_of::<W>(self.filled));
        let word = u64::from(lap::<W>(self.filled)) << 32 | u64::from(half);
        words.published(free.slot).store(word, Ordering::Release);
        self.filled += 1;
    }
}

/// The side that reads slots.
#[derive(Debug, Default)]
pub struct Consumer {
    /// Total number of slots read.
    taken: u64,
}

impl Consumer {
    /// Returns the next slot and the half of its word, if it is published.
    #[inline(always)]
    pub fn next<W: Words>(&self, words: &W) -> Option<(usize, u32)> {
        let slot = slot_of::<W>(self.taken);
        let half = read_half(words, slot, lap::<W>(self.taken))?;
        Some((slot, half))
    }

    /// Returns the half of the word of a slot so far after the next one, if it is published.
    pub fn ahead<W: Words>(&self, words: &W, ahead: u64) -> Option<u32> {
        let at = self.taken + ahead;
        read_half(words, slot_of::<W>(at), lap::<W>(at))
    }

    /// Notes that the next slot has been read.
    #[inline(always)]
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// Returns the total number of slots read.
    #[inline(always)]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Reports this side's progress to the producer.
    #[inline(always)]
    pub fn tell<W: Words>(&self, words: &W) {
        words.done().store(self.taken, Ordering::Release);
    }
}

/// Returns the half of a slot's word that was published in a lap.
#[inline(always)]
fn read_half<W: Words>(words: &W, slot: usize, lap: u32) -> Option<u32> {
    let word = words.published(slot).load(Ordering::Acquire);
    ((word >> 32) as u32 == lap).then_some(word as u32)
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
