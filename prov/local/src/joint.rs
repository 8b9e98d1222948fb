//! Copies that both processes of a pair make, each from its end: who is to have
//! the bytes (the owner of the copy) from the front, who has them (the helper)
//! from the back, where it has nothing else to do. Which parts are whose is in one
//! word of memory that they share.
//!
//! The owner opens a copy, takes parts until none is left, and waits for those
//! that the helper has taken: these may be written to as long as the helper's
//! process lives, so that the memory is not the application's again before the
//! helper has said that they are done. The helper takes parts from a copy that is
//! open only.
//!
//! The helper puts its parts of one copy either where they go (process_vm_writev(2)),
//! or, one by one, into slots of memory that both share ([`Bounce`]), from where the
//! owner takes them in the same order. While both are at it, that is two plain
//! copies at the same time, which mostly cost less than one that the system makes,
//! page by page, but not where memory is in large pages. The owner, who sees what
//! both take, says which it is to be.
//!
//! Each side counts for itself what it has taken, and takes what the other one
//! has written for what it is: the owner that the words fit what it has opened,
//! the helper that it is asked for bytes that it has.

#[cfg(not(loom))]
mod board;
#[cfg(not(loom))]
mod bounce;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(not(loom))]
mod pace;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(loom))]
pub use self::board::{BOARD, Board, Joint};
#[cfg(not(loom))]
pub use self::bounce::{BOUNCE, Bounce, Turn, Way};
#[cfg(not(loom))]
pub use self::pace::{LONG_ACCESS, Pace, Store};
use crate::ring::Broken;

/// Bytes of a part at most, unless there would be too many.
const PART: u64 = 32 << 10;
/// And at least.
const SMALL: u64 = 8 << 10;
/// Parts of a copy in which these are shorter.
const PARTS: u64 = 4;
/// Slots for parts on their way.
const SLOTS: u16 = 64;
/// Parts are no smaller than a page, and a multiple of that.
const PAGE: u64 = 4 << 10;
/// Attempts to take a part while the owner takes others.
const ATTEMPTS: u32 = 16;

/// In the helper's word: it could not do a part that it has taken.
const FAILED: u64 = 1 << 31;
/// Its parts go through slots.
const BOUNCED: u64 = 1 << 30;
/// How many are done.
const COUNT: u64 = BOUNCED - 1;

/// A copy, as the owner describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// The helper's name for the bytes.
    pub name: u64,
    /// Where they go in the owner's memory, all together; 0 if the helper cannot put
    /// them there.
    pub addr: u64,
    /// How many they are.
    pub len: u64,
    /// The slot that the helper's first part goes into; the next ones follow.
    pub first: u64,
    /// How many slots are used, in turn; none if the helper is to put its parts where
    /// they go.
    pub slots: u64,
}

impl What {
    /// Whether the helper is to put its parts into slots, if it has some.
    pub fn wants_slots(&self) -> bool {
        self.slots != 0
    }

    /// The slot for one of the helper's parts, by the order in which it takes them.
    fn slot(&self, number: u64) -> u64 {
        self.first.wrapping_add(number) % self.slots()
    }

    fn slots(&self) -> u64 {
        self.slots.clamp(1, SLOTS.into())
    }
}

/// How a copy is cut into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    len: u64,
    part: u64,
}

impl Cut {
    /// Both sides cut so many bytes in the same way.
    pub fn of(len: u64) -> Cut {
        let part = (len / PARTS).clamp(SMALL, PART);
        let least = len.div_ceil(u16::MAX.into()).max(part);
        let part = least.checked_next_multiple_of(PAGE).unwrap_or(least);
        Cut { len, part }
    }

    /// How many parts.
    pub fn count(&self) -> u16 {
        self.len.div_ceil(self.part) as u16
    }

    /// Whether a part goes into a slot.
    pub fn fits_slots(&self) -> bool {
        self.part <= PART
    }

    /// How many parts have no more bytes than that together, but one at least.
    pub fn within(&self, bytes: u64) -> u16 {
        (bytes / self.part).clamp(1, u16::MAX.into()) as u16
    }

    /// The first byte of a part, and how many it has; none beyond the end.
    pub fn part(&self, number: u16) -> (u64, u64) {
        self.parts(number..number.saturating_add(1))
    }

    /// The same of parts that follow each other.
    pub fn parts(&self, numbers: Range<u16>) -> (u64, u64) {
        let [at, end] = [numbers.start, numbers.end]
            .map(|number| u64::from(number).saturating_mul(self.part).min(self.len));
        (at, end - at)
    }
}

/// Cache lines of the one side that the other one's are not fetched with.
#[repr(C, align(128))]
struct Line<T>(T);

/// What the two sides share of the copies of one of them.
#[repr(C)]
pub struct Record {
    /// What is copied, and through which slots ([`What`]). Written by the owner while no part
    /// can be taken.
    what: Line<[AtomicU64; 5]>,
    /// A [`Claim`].
    claim: Line<AtomicU64>,
    /// Which copy the helper helps with, and how many parts of it are done.
    helped: Line<AtomicU64>,
    /// Of which copy the owner has taken parts out of slots, and how many.
    received: Line<AtomicU64>,
    /// Where the helper's seal is, and its number.
    witness: Line<[AtomicU64; 2]>,
}

/// The word of the parts that nobody has taken.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Claim {
    /// Which copy.
    generation: u32,
    /// How many parts the owner has taken.
    front: u16,
    /// How many parts there are without those that the helper has taken.
    back: u16,
}

impl Claim {
    fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.front) << 16 | u64::from(self.back)
    }

    fn unpack(word: u64) -> Claim {
        Claim {
            generation: (word >> 32) as u32,
            front: (word >> 16) as u16,
            back: word as u16,
        }
    }

    fn has_parts(self) -> bool {
        self.front < self.back
    }
}

/// A copy that its owner has opened.
#[derive(Debug)]
pub struct Open {
    generation: u32,
    /// Parts of all.
    parts: u16,
    /// Parts that the owner has taken.
    own: u16,
    /// How many there are without those that the helper is known to have taken.
    back: u16,
    /// Parts that were taken out of slots.
    received: u16,
    /// What is copied.
    what: What,
}

/// How far the helper is with what it has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helped {
    /// It is at work.
    NotYet,
    /// All is in its place.
    All,
    /// It could not, and has stopped.
    Failed,
}

impl Open {
    /// Opens the copy of this generation, which is another one than that before,
    /// of so many parts.
    pub fn new(record: &Record, generation: u32, what: &What, parts: u16) -> Open {
        let words = [what.name, what.addr, what.len, what.first, what.slots];
        for (place, word) in record.what.0.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        let claim = Claim {
            generation,
            front: 0,
            back: parts,
        };
        record.claim.0.store(claim.pack(), Ordering::Release);
        Open {
            generation,
            parts,
            own: 0,
            back: parts,
            received: 0,
            what: *what,
        }
    }

    /// Takes the next parts from the front, half of those that are left but no more
    /// than `most`, so that an owner who gets no help makes few calls of the kernel;
    /// none if all are taken.
    ///
    /// # Errors
    /// The helper has broken the record, here as below.
    pub fn claim(&mut self, record: &Record, most: u16) -> Result<Range<u16>, Broken> {
        let first = self.own;
        let taken = self.take(record, |left| left.div_ceil(2).min(most))?;
        Ok(first..first + taken)
    }

    /// Takes the next parts from the front, as many as are left but no more than
    /// `most`.
    ///
    /// # Errors
    /// As above.
    pub fn claim_at_once(&mut self, record: &Record, most: u16) -> Result<Range<u16>, Broken> {
        let first = self.own;
        let taken = self.take(record, |left| left.min(most))?;
        Ok(first..first + taken)
    }

    /// Takes all that are left, so that the helper takes no more; how many.
    ///
    /// # Errors
    /// As above.
    pub fn close(&mut self, record: &Record) -> Result<u16, Broken> {
        self.take(record, |left| left)
    }

    /// What is left, by the record's word.
    fn see(&mut self, word: u64) -> Result<Claim, Broken> {
        let claim = Claim::unpack(word);
        let fits = claim.generation == self.generation
            && claim.front == self.own
            && (self.own..=self.back).contains(&claim.back);
        if !fits {
            return Err(Broken("parts of a copy"));
        }
        self.back = claim.back;
        Ok(claim)
    }

    /// The next part that the helper has put into a slot, and which slot that is;
    /// none if that has not come.
    ///
    /// # Errors
    /// As above.
    pub fn in_slot(&mut self, record: &Record) -> Result<Option<(u16, u64)>, Broken> {
        let word = record.helped.0.load(Ordering::Acquire);
        let is_bounced = (word >> 32) as u32 == self.generation && word & BOUNCED != 0;
        if !is_bounced || word & FAILED != 0 || word & COUNT <= self.received.into() {
            return Ok(None);
        }
        if self.received >= self.parts - self.back {
            self.see(record.claim.0.load(Ordering::Acquire))?;
        }
        if self.received >= self.parts - self.back {
            return Err(Broken("parts of a copy in slots"));
        }
        let slot = self.what.slot(self.received.into());
        Ok(Some((self.parts - 1 - self.received, slot)))
    }

    /// What [`Open::in_slot`] said was taken out of there.
    pub fn was_received(&mut self, record: &Record) {
        self.received += 1;
        let word = u64::from(self.generation) << 32 | u64::from(self.received);
        record.received.0.store(word, Ordering::Release);
    }

    /// How many parts were taken out of slots.
    pub fn received(&self) -> u16 {
        self.received
    }

    fn take(&mut self, record: &Record, of: impl Fn(u16) -> u16) -> Result<u16, Broken> {
        let mut word = record.claim.0.load(Ordering::Acquire);
        // Each attempt in vain is a part that the helper has taken.
        loop {
            let claim = self.see(word)?;
            let taken = of(claim.back - claim.front);
            if taken == 0 {
                return Ok(0);
            }
            let claimed = Claim {
                front: claim.front + taken,
                ..claim
            };
            let swapped = record.claim.0.compare_exchange(
                word,
                claimed.pack(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match swapped {
                Ok(_) => {
                    self.own = claimed.front;
                    return Ok(taken);
                }
                Err(now) => word = now,
            }
        }
    }

    /// The parts that nobody has taken, as far as is known.
    pub fn left(&self) -> Range<u16> {
        self.own..self.back
    }

    /// Whether the helper is known to have taken some.
    pub fn is_helped(&self) -> bool {
        self.back < self.parts
    }

    /// How many parts the owner has taken.
    pub fn own(&self) -> u16 {
        self.own
    }

    /// Once no part is left: how far the helper is.
    ///
    /// # Errors
    /// As above.
    pub fn helped(&self, record: &Record) -> Result<Helped, Broken> {
        let taken = u64::from(self.parts - self.back);
        if taken == 0 {
            return Ok(Helped::All);
        }
        let word = record.helped.0.load(Ordering::Acquire);
        if (word >> 32) as u32 != self.generation {
            return Ok(Helped::NotYet);
        }
        let done = word & COUNT;
        match done.cmp(&taken) {
            std::cmp::Ordering::Greater => Err(Broken("parts of a copy that are done")),
            std::cmp::Ordering::Less => Ok(Helped::NotYet),
            std::cmp::Ordering::Equal if word & FAILED != 0 => Ok(Helped::Failed),
            std::cmp::Ordering::Equal if word & BOUNCED != 0 && done > self.received.into() => {
                Ok(Helped::NotYet)
            }
            std::cmp::Ordering::Equal => Ok(Helped::All),
        }
    }
}

/// A copy that the helper has found open.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    generation: u32,
    /// What the owner says of it.
    pub what: What,
}

impl Seen {
    /// Whether it is one and the same copy, as the owner counts them.
    pub fn is_same(&self, other: &Seen) -> bool {
        self.generation == other.generation
    }
}

impl Record {
    /// Whether there are parts to be taken. Costs a cache line of this side's as
    /// long as there are none.
    #[inline]
    pub fn is_open(&self) -> bool {
        Claim::unpack(self.claim.0.load(Ordering::Relaxed)).has_parts()
    }

    /// The copy that is open.
    #[allow(
        clippy::indexing_slicing,
        reason = "the offsets are constants within the array"
    )]
    pub fn look(&self) -> Option<Seen> {
        let claim = Claim::unpack(self.claim.0.load(Ordering::Acquire));
        if !claim.has_parts() {
            return None;
        }
        let word = |at: usize| self.what.0[at].load(Ordering::Relaxed);
        Some(Seen {
            generation: claim.generation,
            what: What {
                name: word(0),
                addr: word(1),
                len: word(2),
                first: word(3),
                slots: word(4),
            },
        })
    }

    /// Takes parts from the back of what was seen, no more than `most`, and half of
    /// those that are left unless the owner has as many; `None` if there is none left.
    /// The owner waits for them until [`Record::done`].
    pub fn claim(&self, seen: &Seen, most: u16) -> Option<Range<u16>> {
        let mut word = self.claim.0.load(Ordering::Relaxed);
        for _ in 0..ATTEMPTS {
            let claim = Claim::unpack(word);
            if claim.generation != seen.generation || !claim.has_parts() {
                return None;
            }
            let left = claim.back - claim.front;
            let taken = match left <= claim.front {
                true => left,
                false => left.div_ceil(2),
            };
            let taken = taken.min(most);
            let claimed = Claim {
                back: claim.back - taken,
                ..claim
            };
            // Released, so that what was seen was read before the owner can put
            // another copy in its place.
            let swapped = self.claim.0.compare_exchange(
                word,
                claimed.pack(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => return Some(claimed.back..claim.back),
                Err(now) => word = now,
            }
        }
        None
    }

    /// The slot for the next part that the helper takes of what was seen, none if
    /// all are full.
    pub fn free_slot(&self, seen: &Seen) -> Option<u64> {
        let done = self.done_of(seen) & COUNT;
        let received = self.received.0.load(Ordering::Acquire);
        let received = match (received >> 32) as u32 == seen.generation {
            true => u64::from(received as u32),
            false => 0,
        };
        let is_free = done.wrapping_sub(received) < seen.what.slots();
        is_free.then(|| seen.what.slot(done))
    }

    /// What the helper has said of the copy.
    fn done_of(&self, seen: &Seen) -> u64 {
        let word = self.helped.0.load(Ordering::Relaxed);
        match (word >> 32) as u32 == seen.generation {
            true => word & u64::from(u32::MAX),
            false => 0,
        }
    }

    /// So many parts that were taken last are in their place, or could not be.
    pub fn done(&self, seen: &Seen, parts: u16, is_done: bool) {
        self.say(seen, parts, if is_done { 0 } else { FAILED });
    }

    /// The part that was taken last is in its slot, or could not be; as it is with
    /// all of this copy.
    pub fn bounced(&self, seen: &Seen, is_done: bool) {
        self.say(seen, 1, BOUNCED | if is_done { 0 } else { FAILED });
    }

    fn say(&self, seen: &Seen, parts: u16, flags: u64) {
        let before = self.done_of(seen);
        // As many as there are parts, so that they never reach the flags.
        let count = ((before & COUNT) + u64::from(parts)).min(COUNT);
        let half = before & !COUNT | flags | count;
        let word = u64::from(seen.generation) << 32 | half;
        self.helped.0.store(word, Ordering::Release);
    }
}
