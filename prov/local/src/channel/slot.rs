//! One way through a segment: its slots, what is in them, and the area behind.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prov_base::buffer::{Piece, prefetch_to_write};

use super::{
    AREA, CONTROL, CONTROL_SIZE, HEAD, INLINE, LONGEST, RING, RINGS, SEGMENT, SLOT, SLOTS, TABLES,
};
use crate::ring::Words;
use crate::segment::Segment;

/// What a slot says for the length of a message whose bytes are in the area.
pub(super) const FAR: usize = u16::MAX as usize;
/// The word of a slot that says where those are, and how many.
const OFFSET: usize = HEAD / 8;
/// The word behind that, which says how many messages of the other direction the
/// sender has taken, of all times.
const TAKEN: usize = OFFSET + 1;
/// The word behind that, which says in which lap of the ring, and for which place
/// in the area, the first bytes are there before the message is.
const BEGUN: usize = OFFSET + 2;

/// Bytes of a cache line.
const LINE: usize = 64;

/// What stands before a message's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: u8,
    pub flags: u8,
    pub words: [u64; 3],
}

/// A message that has come, as it stands in its slot. What is read here is read
/// once for each call.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    slot: Slot<'a>,
    half: u32,
}

impl<'a> Next<'a> {
    /// In this slot, which says this half of a word.
    #[inline(always)]
    pub(super) fn new(slot: Slot<'a>, half: u32) -> Self {
        Next { slot, half }
    }

    /// Whether it is of this kind, and has none but these flags.
    #[inline(always)]
    pub fn is(&self, kind: u8, flags: u8) -> bool {
        self.half as u16 & !(u16::from(flags) << 8) == u16::from(kind)
    }

    /// Whether it has this flag.
    #[inline(always)]
    pub fn has(&self, flag: u8) -> bool {
        (self.half >> 8) as u8 & flag != 0
    }

    /// One of [`Head::words`].
    #[inline(always)]
    pub fn word(&self, number: usize) -> u64 {
        debug_assert!(number < 3);
        self.slot.word(1 + number).load(Ordering::Relaxed)
    }

    /// What the slot says of its length.
    #[inline(always)]
    fn near_len(&self) -> usize {
        (self.half >> 16) as usize
    }

    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        match self.near_len() {
            len if len <= INLINE => len,
            _ => self.place().1,
        }
    }

    /// Its bytes, as of [`Receiver::bytes`]; `None` where they are not in the
    /// slot, for [`Receiver::far_bytes`].
    #[inline(always)]
    pub fn bytes(&self) -> Option<Piece<'a>> {
        let len = self.near_len();
        (len <= INLINE).then(|| self.slot.inline(len))
    }

    /// Eight of the bytes that are in its slot, by their number; `None` where there
    /// are not so many.
    #[inline(always)]
    pub fn eight(&self, number: usize) -> Option<u64> {
        let len = self.near_len();
        let has_them = len <= INLINE && number < len / 8;
        has_them.then(|| self.slot.word(HEAD / 8 + number).load(Ordering::Relaxed))
    }

    /// Where in the area its bytes are that are not in its slot, and how many.
    #[inline(always)]
    pub(super) fn place(&self) -> (u64, usize) {
        let word = self.slot.word(OFFSET).load(Ordering::Relaxed);
        (word & u64::from(u32::MAX), (word >> 32) as usize)
    }

    /// What stands before its bytes.
    pub(super) fn head(&self) -> Head {
        Head {
            kind: self.half as u8,
            flags: (self.half >> 8) as u8,
            words: [self.word(0), self.word(1), self.word(2)],
        }
    }
}

/// One way through a segment.
pub(super) struct Direction {
    /// Keeps what the pointers point to.
    pub(super) segment: Arc<Segment>,
    /// The first slot.
    slots: NonNull<u8>,
    /// The area for long messages.
    area: NonNull<u8>,
    /// What the side that fills the slots writes elsewhere.
    pub(super) filling: NonNull<u8>,
    /// What the side that takes them writes.
    pub(super) taking: NonNull<u8>,
}

// SAFETY: the memory is used through atomic words and copies, from any thread.
unsafe impl Send for Direction {}
// SAFETY: as above.
unsafe impl Sync for Direction {}

impl Direction {
    pub(super) fn new(segment: &Arc<Segment>, filler: usize) -> Self {
        let at = |offset: usize| {
            debug_assert!(offset < SEGMENT);
            // SAFETY: all offsets are below `SEGMENT`, as many bytes as every
            // segment here has.
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

    /// A slot, by its place in the ring.
    #[inline(always)]
    pub(super) fn slot(&self, slot: usize) -> Slot<'_> {
        // SAFETY: the slots of this direction are so many.
        let base = unsafe { self.slots.add(slot % SLOTS * SLOT) };
        Slot {
            base,
            way: PhantomData,
        }
    }

    /// Bytes of the area for a long message; `None` beyond its end, and for more than
    /// any has.
    #[inline(always)]
    pub(super) fn area(&self, offset: u64, len: usize) -> Option<Piece<'_>> {
        let end = usize::try_from(offset).ok()?.checked_add(len)?;
        if end > AREA || len > LONGEST {
            return None;
        }
        // SAFETY: inside the area, and otherwise as in `Slot::inline`.
        Some(unsafe { Piece::from_raw(self.area.as_ptr().add(end - len), len) })
    }

    /// Has the system provide memory for a part of the area; whether there is some.
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
    /// Keeps the memory.
    way: PhantomData<&'a Direction>,
}

impl<'a> Slot<'a> {
    /// One of its words.
    #[inline(always)]
    fn word(self, number: usize) -> &'a AtomicU64 {
        let at = number % (SLOT / 8) * 8;
        // SAFETY: inside the slot, and aligned; mapped as long as the direction,
        // and used as atomic words only, but for what comes behind the head,
        // which is copied, too.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast().as_ptr()) }
    }

    /// Says where in the area the bytes are that do not fit into it, how many they
    /// are, and how many messages of the other direction were taken.
    #[inline(always)]
    pub(super) fn put_place(self, offset: u64, len: usize, taken: u64) {
        let word = offset | (len as u64) << 32;
        self.word(OFFSET).store(word, Ordering::Relaxed);
        self.word(TAKEN).store(taken, Ordering::Relaxed);
    }

    /// What [`Slot::put_place`] says of the other direction.
    #[inline(always)]
    pub(super) fn taken(self) -> u64 {
        self.word(TAKEN).load(Ordering::Relaxed)
    }

    /// Says that the first bytes of this lap's message are in place. That is no more
    /// than advice: nothing of it is used before the message is published.
    #[inline(always)]
    pub(super) fn put_begun(self, lap: u32, offset: u64) {
        let word = u64::from(lap) << 32 | offset;
        self.word(BEGUN).store(word, Ordering::Relaxed);
    }

    /// Where this lap's message begins, if [`Slot::put_begun`] has said so.
    #[inline(always)]
    pub(super) fn begun(self, lap: u32) -> Option<u64> {
        let word = self.word(BEGUN).load(Ordering::Relaxed);
        ((word >> 32) as u32 == lap).then_some(word & u64::from(u32::MAX))
    }

    /// Has the processor fetch its lines, to be changed, as for a message of so many bytes.
    #[inline(always)]
    pub(super) fn fetch_to_fill(self, len: usize) {
        prefetch_to_write(self.base.as_ptr());
        if len > LINE - HEAD {
            prefetch_to_write(self.base.as_ptr().wrapping_add(LINE));
        }
    }

    /// The bytes behind its head.
    #[inline(always)]
    pub(super) fn inline(self, len: usize) -> Piece<'a> {
        debug_assert!(len <= INLINE);
        // SAFETY: inside the slot. The ring says whose it is; that the other
        // process breaks that can spoil the bytes only.
        unsafe { Piece::from_raw(self.base.add(HEAD).as_ptr(), len) }
    }
}

/// A word of what a side writes.
#[inline(always)]
pub(super) fn control(side: &NonNull<u8>, at: usize) -> &AtomicU64 {
    // SAFETY: one of the words of a side, aligned, and mapped as long as
    // the direction from which the pointer is.
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

/// What the word that publishes a message says of its head.
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
