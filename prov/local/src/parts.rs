//! A long payload in parts, through slots of memory that sender and receiver share: both copy at
//! the same time, the sender into one slot, the receiver out of another.
//!
//! The receiver requests the bytes of one payload at a time ([`Request`]), and may withdraw the
//! request at any time. The sender fills the slots
//! in order. Each side writes words of its own in the [`Record`]:
//!
//! - the receiver writes the request, under a *generation* that is odd while the request is open
//!   and is raised with each change, and the number of parts of this generation that it has read;
//! - the sender writes the number of parts of a generation that it has put into slots.
//!
//! Values of another generation are ignored, so that a late part of a withdrawn request does no
//! harm. The next generation reuses the slots without a handshake: one thread at a time acts as the
//! sender, and it publishes under a new generation only when it has finished with the previous one;
//! the receiver reads published slots only.
//!
//! Neither side trusts the other one's words: the receiver accepts no more parts than were
//! requested and than there are slots; the sender accepts no request beyond the payload that its
//! own record describes.

#[cfg(not(loom))]
mod flow;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use prov_base::shared_words::{AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub use self::flow::{Inflow, Outflow};
#[cfg(not(loom))]
pub(crate) use self::flow::{RECORD, SPACE};
use crate::ring::Broken;

/// Size of a part in bytes. The handshake costs a few cache lines, less than a tenth of the time to
/// copy this many bytes, and one part does not delay other messages for long.
pub const PART: usize = 64 << 10;
/// Number of slots of a direction, 1 MiB together: by the time a slot is filled again, its lines
/// have left the receiver's second-level cache, from which each would have to be fetched. With 4
/// slots, a stream of long messages took more than twice the time. Two slots keep the number of
/// states of the loom models small.
pub const SLOTS: u64 = if cfg!(loom) { 2 } else { 16 };

/// Number of parts in the sender's word that means: the payload cannot be sent in parts.
const REFUSED: u32 = u32::MAX;

/// A request of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The sender's name for the payload.
    pub name: u64,
    /// The offset of the first byte that is requested.
    pub at: u64,
    /// The number of bytes from there on.
    pub len: u64,
}

impl Request {
    /// Returns the number of parts of the request; `None` if it does not fit into a word's half.
    fn parts(&self) -> Option<u32> {
        let parts = u32::try_from(self.len.div_ceil(PART as u64)).ok()?;
        (parts < REFUSED).then_some(parts)
    }

    /// Returns the part with this number.
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
    /// Its length in bytes.
    pub len: usize,
}

/// A value in a pair of cache lines of its own: processors prefetch lines in pairs.
#[repr(C, align(128))]
struct Line<T>(T);

/// The words of one direction. All bytes zero are a valid record without a request.
#[repr(C)]
pub struct Record {
    /// Written by the receiver: the generation, and name, offset and length of the request.
    request: Line<[AtomicU64; 4]>,
    /// Written by the receiver: the generation, and the number of its parts that were read.
    taken: Line<AtomicU64>,
    /// Written by the sender: the generation, and the number of its parts that were filled.
    filled: Line<AtomicU64>,
}

/// Returns a word that contains a generation and a number of parts.
fn pack(generation: u32, parts: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(parts)
}

/// Returns the number of parts in a word; `None` if it has another generation.
fn parts_of(word: u64, generation: u32) -> Option<u32> {
    ((word >> 32) as u32 == generation).then_some(word as u32)
}

/// The state of a request, as the receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The next part is in its slot.
    Part(Part),
    /// The sender has begun, and the next part has not arrived.
    NotYet,
    /// The sender has not begun.
    NotBegun,
    /// The sender cannot send the payload in parts.
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
    /// Whether a request is open.
    pub fn is_open(&self) -> bool {
        self.request.is_some()
    }

    /// Requests bytes. Returns `false` if they are too many, or a request is open.
    pub fn open(&mut self, record: &Record, request: Request) -> bool {
        let Some(parts) = request.parts() else {
            return false;
        };
        if self.is_open() {
            return false;
        }
        self.generation = self.generation.wrapping_add(1) | 1;
        (self.request, self.taken) = (Some((request, parts)), 0);
        // A sender that reads one of the following words does not find the previous generation
        // afterwards.
        fence(Ordering::Release);
        let [generation, words @ ..] = &record.request.0;
        for (place, word) in words.iter().zip([request.name, request.at, request.len]) {
            place.store(word, Ordering::Relaxed);
        }
        generation.store(self.generation.into(), Ordering::Release);
        true
    }

    /// Returns the state of the request.
    ///
    /// # Errors
    /// The sender has written an invalid value to the record.
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

    /// Frees the slot of the part that [`Receiving::look`] has found, once it is copied.
    pub fn took(&mut self, record: &Record) {
        self.taken = self.taken.saturating_add(1);
        let word = pack(self.generation, self.taken);
        record.taken.0.store(word, Ordering::Release);
    }

    /// Withdraws the request.
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
    /// The generation and request for which slots were last filled.
    current: Option<(u32, Request)>,
    filled: u32,
}

impl Sending {
    /// Returns the generation for which slots were last filled; 0 before the first one.
    pub fn generation(&self) -> u32 {
        self.current.map_or(0, |(generation, _)| generation)
    }

    /// Returns the open request, unless it is the current one. The caller answers with
    /// [`Sending::begin`] or [`Sending::refuse`].
    #[inline]
    pub fn find(&self, record: &Record) -> Option<(u32, Request)> {
        let [generation, name, at, len] = &record.request.0;
        let seen = generation.load(Ordering::Acquire);
        let number = u32::try_from(seen).ok()?;
        if number.is_multiple_of(2) || self.is_at(number) {
            return None;
        }
        let [name, at, len] = [name, at, len].map(|word| word.load(Ordering::Relaxed));
        // Another request may have been written since the words were read.
        fence(Ordering::Acquire);
        let is_same = generation.load(Ordering::Relaxed) == seen;
        is_same.then_some((number, Request { name, at, len }))
    }

    fn is_at(&self, generation: u32) -> bool {
        matches!(self.current, Some((current, _)) if current == generation)
    }

    /// Tells the receiver that parts follow.
    pub fn begin(&mut self, record: &Record, (generation, request): (u32, Request)) {
        (self.current, self.filled) = (Some((generation, request)), 0);
        record
            .filled
            .0
            .store(pack(generation, 0), Ordering::Release);
    }

    /// Tells the receiver that no further parts follow.
    pub fn refuse(&mut self, record: &Record, generation: u32, request: Request) {
        self.current = Some((generation, Request { len: 0, ..request }));
        let word = pack(generation, REFUSED);
        record.filled.0.store(word, Ordering::Release);
    }

    /// Returns the next part to fill and the name of its payload; `None` while no slot is free, and
    /// when the request is withdrawn or complete.
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

    /// Publishes the part that [`Sending::next_part`] has named, whose bytes are in its slot.
    pub fn publish(&mut self, record: &Record) {
        if let Some((generation, _)) = self.current {
            self.filled = self.filled.saturating_add(1);
            let word = pack(generation, self.filled);
            record.filled.0.store(word, Ordering::Release);
        }
    }

    /// Ends the current request, whose payload has no further parts.
    pub fn give_up(&mut self, record: &Record) {
        if let Some((generation, request)) = self.current {
            self.refuse(record, generation, request);
        }
    }
}
