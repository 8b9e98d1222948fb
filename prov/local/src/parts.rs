//! A long payload in parts, through slots of memory that sender and receiver share: both
//! copy at the same time, the sender into one slot, the receiver out of another.
//!
//! The receiver asks for the bytes of one payload at a time ([`Request`]), and may stop at
//! any time, to copy the rest in another way or not at all. The sender fills the slots in
//! turn. Each side writes words of its own in the [`Record`]:
//!
//! - the receiver the request, under a *generation* that is odd while the request stands and
//!   raised with each change, and how many parts of this generation it has taken;
//! - the sender how many parts of a generation it has put into slots.
//!
//! What belongs to another generation is ignored, so that a sender that comes late with a part
//! does no harm. Slots are reused by the next generation without a handshake: the sender is
//! one thread at a time, which publishes under a new generation only when it has finished
//! with the old one, and the receiver reads published slots only.
//!
//! Either side takes the other one's words for what they are: the receiver accepts no more
//! parts than there are and than there are slots, the sender no request that its own record
//! of the payload does not cover.

#[cfg(not(loom))]
mod flow;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub use self::flow::{Inflow, Outflow, PATIENCE};
#[cfg(not(loom))]
pub(crate) use self::flow::{RECORD, SPACE};
use crate::ring::Broken;

/// Bytes of a part. The handshake costs a few cache lines, less than a tenth of the time to
/// copy so many bytes, and one part does not delay other messages for long.
pub const PART: usize = 64 << 10;
/// Slots of a direction: 1 MiB, so that the lines of a slot that is filled again are not in
/// the receiver's second-level cache any more, which would have to give them up one by one.
/// With 4 slots, a stream of long messages took more than twice as long. Models of the protocol
/// have fewer states with two.
pub const SLOTS: u64 = if cfg!(loom) { 2 } else { 16 };

/// In the sender's word, for a number of parts: it cannot deliver the payload in parts.
const REFUSED: u32 = u32::MAX;

/// What the receiver asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The sender's name for the payload.
    pub name: u64,
    /// The first byte that is asked for.
    pub at: u64,
    /// Bytes from there on.
    pub len: u64,
}

impl Request {
    /// Parts of so many bytes; `None` if they cannot be counted.
    fn parts(&self) -> Option<u32> {
        let parts = u32::try_from(self.len.div_ceil(PART as u64)).ok()?;
        (parts < REFUSED).then_some(parts)
    }

    /// The part of this number.
    fn part(&self, number: u32) -> Part {
        let done = u64::from(number) * PART as u64;
        Part {
            slot: u64::from(number) % SLOTS,
            at: self.at.saturating_add(done),
            len: self.len.saturating_sub(done).min(PART as u64) as usize,
        }
    }
}

/// A part of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The slot that it goes through.
    pub slot: u64,
    /// The offset of its first byte in the payload.
    pub at: u64,
    /// Bytes.
    pub len: usize,
}

/// Two cache lines, since processors fetch them in pairs.
#[repr(C, align(128))]
struct Line<T>(T);

/// The words of one direction. Zero is a valid record without a request.
#[repr(C)]
pub struct Record {
    /// Written by the receiver: the generation, and name, offset and length of the request.
    request: Line<[AtomicU64; 4]>,
    /// Written by the receiver: the generation, and how many parts of it were taken.
    taken: Line<AtomicU64>,
    /// Written by the sender: the generation, and how many parts of it were filled.
    filled: Line<AtomicU64>,
}

/// A number of parts under a generation, in one word.
fn pack(generation: u32, parts: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(parts)
}

/// The number of parts, if it is of this generation.
fn parts_of(word: u64, generation: u32) -> Option<u32> {
    ((word >> 32) as u32 == generation).then_some(word as u32)
}

/// How the receiver finds its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The next part is in its slot.
    Part(Part),
    /// The sender is at it, and the next part has not come.
    NotYet,
    /// The sender has not begun.
    NotBegun,
    /// The sender cannot deliver parts.
    Refused,
}

/// The receiver's side of a record.
#[derive(Debug, Default)]
pub struct Receiving {
    generation: u32,
    request: Option<(Request, u32)>,
    taken: u32,
}

impl Receiving {
    /// Whether a request stands.
    pub fn is_open(&self) -> bool {
        self.request.is_some()
    }

    /// Asks for bytes; `false` if they are too many, or a request stands.
    pub fn open(&mut self, record: &Record, request: Request) -> bool {
        let Some(parts) = request.parts() else {
            return false;
        };
        if self.is_open() {
            return false;
        }
        self.generation = self.generation.wrapping_add(1) | 1;
        (self.request, self.taken) = (Some((request, parts)), 0);
        // A sender that reads one of these words finds a generation that is not the one
        // before.
        fence(Ordering::Release);
        let [generation, words @ ..] = &record.request.0;
        for (place, word) in words.iter().zip([request.name, request.at, request.len]) {
            place.store(word, Ordering::Relaxed);
        }
        generation.store(self.generation.into(), Ordering::Release);
        true
    }

    /// What has become of the request.
    ///
    /// # Errors
    /// The sender has broken the record.
    pub fn look(&self, record: &Record) -> Result<Arrived, Broken> {
        let Some((request, parts)) = &self.request else {
            return Ok(Arrived::NotBegun);
        };
        let word = record.filled.0.load(Ordering::Acquire);
        match parts_of(word, self.generation) {
            None => Ok(Arrived::NotBegun),
            Some(REFUSED) => Ok(Arrived::Refused),
            Some(filled) => match filled.checked_sub(self.taken) {
                Some(0) => Ok(Arrived::NotYet),
                Some(ahead) if u64::from(ahead) <= SLOTS && filled <= *parts => {
                    Ok(Arrived::Part(request.part(self.taken)))
                }
                _ => Err(Broken("parts of a payload")),
            },
        }
    }

    /// The part that [`Receiving::look`] has found is copied, and its slot free again.
    pub fn took(&mut self, record: &Record) {
        self.taken = self.taken.saturating_add(1);
        let word = pack(self.generation, self.taken);
        record.taken.0.store(word, Ordering::Release);
    }

    /// Withdraws the request: no more parts are wanted.
    pub fn close(&mut self, record: &Record) {
        if self.request.take().is_some() {
            self.generation = self.generation.wrapping_add(1);
            let [generation, ..] = &record.request.0;
            generation.store(self.generation.into(), Ordering::Release);
        }
    }
}

/// The sender's side of a record.
#[derive(Debug, Default)]
pub struct Sending {
    /// The request that parts were last put into slots for, and how many.
    current: Option<(u32, Request)>,
    filled: u32,
}

impl Sending {
    /// The request that stands and is not the last one. [`Sending::begin`] or
    /// [`Sending::refuse`] answers it.
    #[inline]
    pub fn find(&self, record: &Record) -> Option<(u32, Request)> {
        let [generation, name, at, len] = &record.request.0;
        let seen = generation.load(Ordering::Acquire);
        let number = u32::try_from(seen).ok()?;
        if number.is_multiple_of(2) || self.is_at(number) {
            return None;
        }
        let [name, at, len] = [name, at, len].map(|word| word.load(Ordering::Relaxed));
        // Another request may have been written meanwhile.
        fence(Ordering::Acquire);
        let is_same = generation.load(Ordering::Relaxed) == seen;
        is_same.then_some((number, Request { name, at, len }))
    }

    fn is_at(&self, generation: u32) -> bool {
        matches!(self.current, Some((current, _)) if current == generation)
    }

    /// Tells the receiver that parts will come.
    pub fn begin(&mut self, record: &Record, (generation, request): (u32, Request)) {
        (self.current, self.filled) = (Some((generation, request)), 0);
        record
            .filled
            .0
            .store(pack(generation, 0), Ordering::Release);
    }

    /// Tells the receiver that no parts will come, or no more.
    pub fn refuse(&mut self, record: &Record, generation: u32, request: Request) {
        self.current = Some((generation, Request { len: 0, ..request }));
        let word = pack(generation, REFUSED);
        record.filled.0.store(word, Ordering::Release);
    }

    /// The part that is to be filled next, of the payload of this name; `None` while no slot
    /// is free, and when the request is withdrawn or complete.
    pub fn next_part(&self, record: &Record) -> Option<(u64, Part)> {
        let (generation, request) = self.current?;
        if self.filled >= request.parts()? || self.is_withdrawn(record, generation) {
            return None;
        }
        let taken = record.taken.0.load(Ordering::Acquire);
        let taken = parts_of(taken, generation).unwrap_or(0);
        let is_free = u64::from(self.filled.wrapping_sub(taken)) < SLOTS;
        is_free.then(|| (request.name, request.part(self.filled)))
    }

    fn is_withdrawn(&self, record: &Record, generation: u32) -> bool {
        let [now, ..] = &record.request.0;
        now.load(Ordering::Relaxed) != u64::from(generation)
    }

    /// The part that [`Sending::next_part`] named is in its slot.
    pub fn publish(&mut self, record: &Record) {
        if let Some((generation, _)) = self.current {
            self.filled = self.filled.saturating_add(1);
            let word = pack(generation, self.filled);
            record.filled.0.store(word, Ordering::Release);
        }
    }

    /// No more parts of the current request can be had.
    pub fn give_up(&mut self, record: &Record) {
        if let Some((generation, request)) = self.current {
            self.refuse(record, generation, request);
        }
    }
}
