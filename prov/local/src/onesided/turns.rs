//! Who applies a write that travels in the ring of a channel: the owner of the memory, in its turn, or
//! the initiator, if the owner makes no progress.
//!
//! One word for each direction of a channel counts the writes that have been applied, by either side, and
//! says who is at it. The owner takes the word for each write, and gives it back with the next number.
//! The initiator takes it to apply all writes that are left, and gives it back with their number: the
//! owner, which comes to their records later, passes over them. A second word has a bit for each of the last
//! 64 writes: those that the owner has refused. Each side checks what the other one has
//! written there: an initiator that lies has its own writes left out, an owner that does so is found out.

use prov_base::shared_words::{AtomicU64, Ordering};

/// The lowest bits of the word: who is at it.
const OPEN: u64 = 0;
const OWNER: u64 = 1;
const INITIATOR: u64 = 2;
const STATE: u64 = 3;
/// Bits of the state, below the number of writes.
const SHIFT: u32 = 2;

const fn pack(applied: u64, state: u64) -> u64 {
    applied << SHIFT | state
}

/// What the owner does with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It applies the write, and calls [`Taking::applied`].
    Apply,
    /// The initiator has applied it.
    PassOver,
    /// The initiator is at it: the record is looked at again later.
    Wait,
}

/// Limit of writes of one direction that are in the ring and not known to be applied: the bits of the word
/// of those that were refused.
pub const MOST: usize = 64;

const fn bit(number: u64) -> u64 {
    1 << (number % MOST as u64)
}

/// The owner's side: the number of writes whose records it has handled, and the word of those that it
/// has refused.
#[derive(Default, Debug)]
pub struct Taking {
    handled: u64,
    refused: u64,
}

impl Taking {
    /// Called for the next record.
    pub fn begin(&mut self, word: &AtomicU64) -> Turn {
        let taken = word.compare_exchange(
            pack(self.handled, OPEN),
            pack(self.handled, OWNER),
            Ordering::Acquire,
            Ordering::Acquire,
        );
        match taken {
            Ok(_) => Turn::Apply,
            Err(now) if now >> SHIFT > self.handled => {
                self.handled = self.handled.wrapping_add(1);
                Turn::PassOver
            }
            Err(_) => Turn::Wait,
        }
    }

    /// The write is applied, or was refused.
    pub fn applied(&mut self, word: &AtomicU64, refusals: &AtomicU64, is_refused: bool) {
        let bit = bit(self.handled);
        if (self.refused & bit != 0) != is_refused {
            self.refused ^= bit;
            refusals.store(self.refused, Ordering::Relaxed);
        }
        self.handled = self.handled.wrapping_add(1);
        word.store(pack(self.handled, OPEN), Ordering::Release);
    }
}

/// The owner has written an invalid value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid;

/// The initiator's side: the number of writes in the ring, and of those that are known to be applied.
#[derive(Default, Debug)]
pub struct Giving {
    posted: u64,
    applied: u64,
}

impl Giving {
    /// A write is in the ring.
    pub fn posted(&mut self) {
        self.posted = self.posted.wrapping_add(1);
    }

    /// Returns the number of writes that have been applied since the last call.
    ///
    /// # Errors
    /// The owner has written an invalid number.
    #[inline]
    pub fn look(&mut self, word: &AtomicU64) -> Result<usize, Invalid> {
        self.hear(word.load(Ordering::Acquire))
    }

    fn hear(&mut self, word: u64) -> Result<usize, Invalid> {
        let applied = word >> SHIFT;
        if applied < self.applied || applied > self.posted {
            return Err(Invalid);
        }
        let more = applied - self.applied;
        self.applied = applied;
        usize::try_from(more).map_err(|_| Invalid)
    }

    /// Takes the word. Returns the number of writes that have been applied since the last call, and
    /// whether this side has the word: not while the owner applies one.
    ///
    /// # Errors
    /// As [`Giving::look`].
    pub fn take(&mut self, word: &AtomicU64) -> Result<(usize, bool), Invalid> {
        let now = word.load(Ordering::Acquire);
        let more = self.hear(now)?;
        let is_taken = now & STATE == OPEN
            && word
                .compare_exchange(
                    now,
                    pack(self.applied, INITIATOR),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok();
        Ok((more, is_taken))
    }

    /// Whether the owner has refused a write, by the number of writes that are known to be applied and
    /// were posted behind it.
    pub fn was_refused(&self, refusals: &AtomicU64, behind: usize) -> bool {
        let number = self.applied.wrapping_sub(behind as u64).wrapping_sub(1);
        refusals.load(Ordering::Relaxed) & bit(number) != 0
    }

    /// Gives the word back, after so many more writes were applied.
    pub fn give_back(&mut self, word: &AtomicU64, more: usize) {
        self.applied = self.applied.wrapping_add(more as u64);
        word.store(pack(self.applied, OPEN), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_applied_by_the_owner_in_its_turn_or_by_the_initiator_before() {
        let word = AtomicU64::new(0);
        let (mut giving, mut taking) = (Giving::default(), Taking::default());
        for _ in 0..3 {
            giving.posted();
        }
        assert_eq!(taking.begin(&word), Turn::Apply);
        assert_eq!(giving.take(&word), Ok((0, false)), "the owner is at it");
        taking.applied(&word, &AtomicU64::new(0), false);
        assert_eq!(giving.take(&word), Ok((1, true)));
        assert_eq!(taking.begin(&word), Turn::Wait);
        giving.give_back(&word, 2);
        assert_eq!([(); 2].map(|()| taking.begin(&word)), [Turn::PassOver; 2]);
        giving.posted();
        assert_eq!(taking.begin(&word), Turn::Apply);
        taking.applied(&word, &AtomicU64::new(0), false);
        assert_eq!(giving.look(&word), Ok(1));
    }

    #[test]
    fn numbers_that_cannot_be_are_found_out() {
        let (mut giving, mut taking) = (Giving::default(), Taking::default());
        giving.posted();
        for number in [2, u64::MAX >> SHIFT] {
            let word = AtomicU64::new(pack(number, OPEN));
            assert_eq!(giving.look(&word), Err(Invalid));
            assert_eq!(giving.take(&word), Err(Invalid));
        }
        let word = AtomicU64::new(pack(1, OPEN));
        assert_eq!(giving.look(&word), Ok(1));
        assert_eq!(giving.look(&AtomicU64::new(0)), Err(Invalid), "fewer");
        // An initiator that gives the word back with a lie, or never, harms only its writes.
        assert_eq!(taking.begin(&AtomicU64::new(u64::MAX)), Turn::PassOver);
        assert_eq!(
            taking.begin(&AtomicU64::new(pack(1, INITIATOR))),
            Turn::Wait
        );
        assert_eq!(taking.begin(&AtomicU64::new(pack(0, OPEN))), Turn::Wait);
    }
}
