//! One direction of a segment: its slots, their contents, and the area.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use prov_base::buffer::{Piece, prefetch_to_write};
use prov_base::shared_words::{AtomicU64, Ordering, step};

use super::{
    AREA, CONTROL, CONTROL_SIZE, HEAD, INLINE, LONGEST, RING, RINGS, SEGMENT, SLOT, SLOTS, TABLES,
};
use crate::ring::Words;
use crate::segment::Segment;

/// Length in the word of a slot of a message whose bytes are in the area.
pub(super) const FAR: usize = u16::MAX as usize;
/// Index of the word of a slot that contains their offset in the area and their number.
const OFFSET: usize = HEAD / 8;
/// Index of the next word: the total number of messages of the other direction that the sender has
/// received.
const TAKEN: usize = OFFSET + 1;
/// Index of the word of a slot with the lap of the ring and the offset in the area of a message
/// whose first bytes are written and which is not published yet. The receiver reads it while the
/// sender fills the slot, so it is none of the words into which bytes are copied: it is the last
/// word of the head, which is written after it.
const BEGUN: usize = HEAD / 8 - 1;

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: u8,
    pub flags: u8,
    pub words: [u64; 3],
}

/// A message that has arrived, in its slot. Each call reads the words in question once.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    slot: Slot<'a>,
    half: u32,
}

impl<'a> Next<'a> {
    /// Wraps a slot whose publishing word has this half.
    #[inline(always)]
    pub(super) fn new(slot: Slot<'a>, half: u32) -> Self {
        Next { slot, half }
    }

    /// Whether the message is of this kind, and has none but these flags.
    #[inline(always)]
    pub fn is(&self, kind: u8, flags: u8) -> bool {
        self.half as u16 & !(u16::from(flags) << 8) == u16::from(kind)
    }

    /// Whether the message has this flag.
    #[inline(always)]
    pub fn has(&self, flag: u8) -> bool {
        (self.half >> 8) as u8 & flag != 0
    }

    /// Returns one of [`Head::words`].
    #[inline(always)]
    pub fn word(&self, number: usize) -> u64 {
        debug_assert!(number < 3);
        self.slot.word(1 + number).load(Ordering::Relaxed)
    }

    /// Returns the length that the slot contains; [`FAR`] for bytes in the area.
    #[inline(always)]
    fn near_len(&self) -> usize {
        (self.half >> 16) as usize
    }

    /// Returns the length of the message in bytes.
    pub(super) fn len(&self) -> usize {
        match self.near_len() {
            len if len <= INLINE => len,
            _ => self.place().1,
        }
    }

    /// Returns its bytes, as [`bytes`](super::Receiver::bytes) does; `None` if they are not in the
    /// slot, see [`far_bytes`](super::Receiver::far_bytes).
    #[inline(always)]
    pub fn bytes(&self) -> Option<Piece<'a>> {
        let len = self.near_len();
        (len <= INLINE).then(|| self.slot.inline(len))
    }

    /// Returns eight of the bytes in the slot as a number, by their index; `None` beyond the end.
    #[inline(always)]
    pub fn eight(&self, number: usize) -> Option<u64> {
        let len = self.near_len();
        let has_them = len <= INLINE && number < len / 8;
        has_them.then(|| self.slot.word(HEAD / 8 + number).load(Ordering::Relaxed))
    }

    /// Returns the offset in the area and the number of bytes that are not in the slot.
    #[inline(always)]
    pub(super) fn place(&self) -> (u64, usize) {
        let word = self.slot.word(OFFSET).load(Ordering::Relaxed);
        (word & u64::from(u32::MAX), (word >> 32) as usize)
    }

    /// Returns the head.
    pub(super) fn head(&self) -> Head {
        Head {
            kind: self.half as u8,
            flags: (self.half >> 8) as u8,
            words: [self.word(0), self.word(1), self.word(2)],
        }
    }
}

/// One direction of a segment.
pub(super) struct Direction {
    /// Keeps the memory mapped.
    pub(super) segment: Arc<Segment>,
    /// The first slot.
    slots: NonNull<u8>,
    /// The area for long messages.
    area: NonNull<u8>,
    /// The other words of the side that fills the slots.
    pub(super) filling: NonNull<u8>,
    /// The other words of the side that reads the slots.
    pub(super) taking: NonNull<u8>,
}

// SAFETY: the pointers refer to the segment, which the value keeps mapped and which is bound to no
// thread; the memory is accessed by atomic words and by copies that tolerate concurrent changes.
unsafe impl Send for Direction {}
// SAFETY: the same accesses are possible through a shared reference, and sound from any thread, as
// above.
unsafe impl Sync for Direction {}

impl Direction {
    pub(super) fn new(segment: &Arc<Segment>, filler: usize) -> Self {
        let at = |offset: usize| {
            debug_assert!(offset < SEGMENT);
            // SAFETY: all offsets are below `SEGMENT`, and every segment of a channel is mapped
            // with this length.
            unsafe { segment.base().add(offset) }
        };
        Direction {
            segment: segment.clone(),
            slots: at(RINGS + filler * RING),
            area: at(TABLES + filler * AREA),
            filling: at(CONTROL + filler * CONTROL_SIZE),
            taking: at(CONTROL + (1 - filler) * CONTROL_SIZE),
        }
    }

    /// Returns a slot, by its index in the ring.
    #[inline(always)]
    pub(super) fn slot(&self, slot: usize) -> Slot<'_> {
        // SAFETY: the index is below `SLOTS`, the number of slots of the direction, so the offset
        // is inside the segment.
        let base = unsafe { self.slots.add(slot % SLOTS * SLOT) };
        Slot {
            base,
            way: PhantomData,
        }
    }

    /// Returns bytes of the area; `None` if they reach beyond its end.
    #[inline(always)]
    pub(super) fn area(&self, offset: u64, len: usize) -> Option<Piece<'_>> {
        let end = usize::try_from(offset).ok()?.checked_add(len)?;
        if end > AREA || len > LONGEST {
            return None;
        }
        step();
        // SAFETY: the range ends inside the area, which was checked above, and the segment is
        // mapped as long as `self` is borrowed; the other process can only spoil the bytes, as in
        // `Slot::inline`.
        Some(unsafe { Piece::from_raw(self.area.as_ptr().add(end - len), len) })
    }

    /// Has the system provide memory for a part of the area. Returns whether it did.
    pub(super) fn back_area(&self, part: Range<usize>) -> bool {
        let start = self.area.addr().get() - self.segment.base().addr().get();
        part.end <= AREA && {
            let part = start + part.start..start + part.end;
            self.segment.back(part).is_ok()
        }
    }
}

/// One slot of a direction.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    base: NonNull<u8>,
    /// Keeps the memory mapped.
    way: PhantomData<&'a Direction>,
}

impl<'a> Slot<'a> {
    /// Returns one of its words.
    #[inline(always)]
    fn word(self, number: usize) -> &'a AtomicU64 {
        let at = number % (SLOT / 8) * 8;
        // SAFETY: the offset is inside the slot and a multiple of 8, and the segment is mapped as
        // long as the direction is borrowed. The words of the head are accessed atomically only;
        // the words behind it may also be copied as bytes, where a race with the other process can
        // only spoil the value.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast().as_ptr()) }
    }

    /// Writes the offset in the area and the number of the bytes that do not fit into the slot, and
    /// the number of messages of the other direction that were received.
    #[inline(always)]
    pub(super) fn put_place(self, offset: u64, len: usize, taken: u64) {
        let word = offset | (len as u64) << 32;
        self.word(OFFSET).store(word, Ordering::Relaxed);
        self.word(TAKEN).store(taken, Ordering::Relaxed);
    }

    /// Returns the number of received messages that [`Slot::put_place`] has written.
    #[inline(always)]
    pub(super) fn taken(self) -> u64 {
        self.word(TAKEN).load(Ordering::Relaxed)
    }

    /// Writes that the first bytes of this lap's message are in place. This is advice only: nothing
    /// of the message is used before it is published.
    #[inline(always)]
    pub(super) fn put_begun(self, lap: u32, offset: u64) {
        let word = u64::from(lap) << 32 | offset;
        self.word(BEGUN).store(word, Ordering::Relaxed);
    }

    /// Returns the offset of this lap's message in the area, if [`Slot::put_begun`] has written it.
    #[inline(always)]
    pub(super) fn begun(self, lap: u32) -> Option<u64> {
        let word = self.word(BEGUN).load(Ordering::Relaxed);
        ((word >> 32) as u32 == lap).then_some(word & u64::from(u32::MAX))
    }

    /// Prefetches for writing the cache lines that a message of this length needs.
    #[inline(always)]
    pub(super) fn fetch_to_fill(self, len: usize) {
        prefetch_to_write(self.base.as_ptr());
        if len > LINE - HEAD {
            prefetch_to_write(self.base.as_ptr().wrapping_add(LINE));
        }
    }

    /// Returns the bytes behind its head, at most [`INLINE`].
    #[inline(always)]
    pub(super) fn inline(self, len: usize) -> Piece<'a> {
        let len = len.min(INLINE);
        step();
        // SAFETY: `len` is at most `INLINE`, so the bytes are inside the slot. The ring decides
        // which side uses the slot; if the other process violates that, it can only spoil the
        // bytes.
        unsafe { Piece::from_raw(self.base.add(HEAD).as_ptr(), len) }
    }
}

/// Returns one of the words that a side writes.
#[inline(always)]
pub(super) fn control(side: &NonNull<u8>, at: usize) -> &AtomicU64 {
    // SAFETY: `at` is one of the constant offsets below `CONTROL_SIZE`, all multiples of 8, so the
    // word is aligned and inside the side's words, which are mapped as long as the pointer's owner
    // is borrowed.
    unsafe { AtomicU64::from_ptr(side.add(at).cast().as_ptr()) }
}

impl Words for Direction {
    const SLOTS: u64 = SLOTS as u64;

    #[inline(always)]
    fn published(&self, slot: usize) -> &AtomicU64 {
        self.slot(slot).word(0)
    }

    #[inline(always)]
    fn done(&self) -> &AtomicU64 {
        control(&self.taking, 0)
    }
}

/// Returns the half of the publishing word that contains the kind and flags of a head.
#[inline(always)]
pub(super) fn half_of(head: &Head) -> u32 {
    u32::from(head.kind) | u32::from(head.flags) << 8
}

#[inline(always)]
pub(super) fn put_words(slot: Slot<'_>, head: &Head) {
    for (number, word) in head.words.into_iter().enumerate() {
        slot.word(1 + number).store(word, Ordering::Relaxed);
    }
}
