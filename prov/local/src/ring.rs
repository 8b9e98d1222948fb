//! A bounded queue of slots between one producer and one consumer, without
//! locks and locked instructions. How long a message is and where its bytes
//! are, [`channel`](crate::channel) knows.
//!
//! Each slot has a word of its own, which publishes what is in it: half of it
//! says in which lap of the ring it was written, so that a slot's former
//! message is never taken for a new one. The consumer polls nothing else, and
//! tells now and then how far it is.
//!
//! The other side is another process, which may write anything at any time:
//! each word is read once, and what makes no sense is [`Broken`].

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

/// The other side has written what it never would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// The words that both sides look at.
pub trait Words {
    /// Slots in the ring, a power of two.
    const SLOTS: u64;

    /// What publishes a slot.
    fn published(&self, slot: usize) -> &AtomicU64;

    /// How many slots the consumer is done with, of all times.
    fn done(&self) -> &AtomicU64;
}

/// The half of a slot's word that says when it was written: in which lap.
#[inline(always)]
pub fn lap<W: Words>(position: u64) -> u32 {
    ((position / W::SLOTS) as u32).wrapping_add(1)
}

/// Where a position of all times is in the ring.
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
    /// Where it is in the ring.
    #[inline(always)]
    pub fn slot(&self) -> usize {
        self.slot
    }
}

/// Who fills slots.
#[derive(Debug, Default)]
pub struct Producer {
    /// Slots filled, of all times.
    filled: u64,
    /// How many of them the consumer was done with when this was last looked at.
    done: u64,
}

impl Producer {
    /// The slot to be filled next, if it is known to be free.
    #[inline(always)]
    pub fn free_slot<W: Words>(&self) -> Option<Free> {
        (self.filled - self.done < W::SLOTS).then(|| Free {
            slot: slot_of::<W>(self.filled),
        })
    }

    /// How many slots were filled, of all times.
    pub fn filled(&self) -> u64 {
        self.filled
    }

    /// How many slots the consumer was done with at the last look, of all times.
    #[inline(always)]
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Slots filled that the consumer was not done with at the last look.
    #[inline]
    pub fn filled_since_look(&self) -> u64 {
        self.filled - self.done
    }

    /// Looks how far the consumer is: the number of slots, of all times.
    pub fn look<W: Words>(&mut self, words: &W) -> Result<u64, Broken> {
        self.hear(words.done().load(Ordering::Acquire))
    }

    /// The consumer says how far it is, in its word or in some other way. It may
    /// have said more before, and the most counts. Returns that.
    #[inline(always)]
    pub fn hear(&mut self, done: u64) -> Result<u64, Broken> {
        if done > self.filled {
            return Err(Broken("position of the consumer"));
        }
        self.done = self.done.max(done);
        Ok(self.done)
    }

    /// Publishes the slot that [`Producer::free_slot`] named last, with half a
    /// word.
    #[inline(always)]
    pub fn publish<W: Words>(&mut self, words: &W, free: Free, half: u32) {
        debug_assert_eq!(free.slot, slot_of::<W>(self.filled));
        let word = u64::from(lap::<W>(self.filled)) << 32 | u64::from(half);
        words.published(free.slot).store(word, Ordering::Release);
        self.filled += 1;
    }
}

/// Who takes what is in them.
#[derive(Debug, Default)]
pub struct Consumer {
    /// Slots taken, of all times.
    taken: u64,
}

impl Consumer {
    /// The slot that is next and the half of its word, if it is published.
    #[inline(always)]
    pub fn next<W: Words>(&self, words: &W) -> Option<(usize, u32)> {
        let slot = slot_of::<W>(self.taken);
        let half = read_half(words, slot, lap::<W>(self.taken))?;
        Some((slot, half))
    }

    /// The half of the word of a slot so far behind the next one, if it is
    /// published.
    pub fn ahead<W: Words>(&self, words: &W, ahead: u64) -> Option<u32> {
        let at = self.taken + ahead;
        read_half(words, slot_of::<W>(at), lap::<W>(at))
    }

    /// The next slot is taken.
    #[inline(always)]
    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// How many slots were taken, of all times.
    #[inline(always)]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Tells the producer how far this is.
    #[inline(always)]
    pub fn tell<W: Words>(&self, words: &W) {
        words.done().store(self.taken, Ordering::Release);
    }
}

/// The half of a slot's word that was published in a lap.
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
