//! Messages between two processes through a shared segment: an SPSC ring of slots in each
//! direction.
//!
//! A short message is contained in its slot, and the shortest messages in one cache line. The
//! payload of a longer message is in an area beside the ring, whose space becomes free together
//! with the slot. Each side writes to cache lines of its own: besides the slots, its read position
//! and whether it waits for space. The doorbell of its lane ([`doorbell`](crate::doorbell)) says whether it sleeps. A long message also carries the sender's read position of the other
//! direction: where long messages go back and forth, each side learns that all of the area is free
//! without reading another cache line.
//!
//! Every value that the other process can change is read once, checked, and then used. The contents
//! of a message may change while they are read; its location and length, once read, do not.

mod area;
mod flight_words;
mod receiver;
mod sender;
mod slot;

use std::ops::Range;
use std::sync::Arc;

use prov_base::arch::Line;
use prov_base::buffer::Piece;
use prov_base::errno::{Errno, Result};
use prov_base::shared_words::{AtomicU64, Ordering};

pub use self::flight_words::FlightWords;
pub use self::receiver::{Receiver, Record};
use self::sender::Taken;
pub use self::sender::{Sender, Space};
use self::slot::{Direction, control};
pub use self::slot::{Head, Next};
use crate::doorbell::DoorbellOfPeer;
use crate::parts::{Inflow, Outflow, RECORD, SPACE};
use crate::relocation::{Relocated, Relocating, Table};
use crate::ring::Broken;
use crate::segment::{Segment, can_back};

/// Value of the first word of a segment: its identification and version.
const MAGIC: u64 = u64::from_le_bytes(*b"fi_lcl\x09\x00");
/// Number of slots of a ring, a power of two ([`ring`](crate::ring)).
const SLOTS: usize = 256;
/// Size of a slot in bytes: two cache lines of 64 bytes, or one of 128.
const SLOT: usize = 128;
/// Number of bytes of a slot before the message: the word that publishes the slot and three words
/// of the message's head.
const HEAD: usize = 32;
/// Length in bytes of the longest message that is contained in its slot.
pub const INLINE: usize = SLOT - HEAD;
/// Size in bytes of the area for longer messages in one direction: the capacity of a second-level
/// cache, so that a line has left the receiver's cache by the time the sender fills it again.
const AREA: usize = 1 << 20;
/// Number of bytes of an area that get memory with the first message in it.
const NEAR: usize = 64 << 10;
/// Length in bytes of the longest message that every area takes: 16 KiB of data and a provider's
/// header. [`NEAR`] has space for three such messages: one that the sender fills, one that the
/// receiver reads, and one between them.
pub const MODERATE: usize = (16 << 10) + 256;
/// Length in bytes of the longest message that an area with all of its memory takes: 64 KiB of data
/// and a provider's header.
pub const LONGEST: usize = (64 << 10) + 256;
/// Length in bytes from which the receiver prefetches the first part of a message before it is
/// published.
const LONG: usize = 3 << 10;
/// Number of bytes that are prefetched in this way: about as many cache lines as a processor has
/// outstanding requests for.
const AHEAD: usize = 2 << 10;

/// Number of slots by which prefetching for writing runs ahead of the next slot: the lines are in
/// the receiver's cache, and the transfer takes longer than filling a few slots.
const SOON: u64 = 4;

/// Size in bytes of the largest cache line of a supported processor. It is the distance of words in
/// the segment that different sides write or that are read at different times; on every architecture the
/// same, so that the layout is.
const APART: usize = 128;
/// Offset in bytes of the words that the sides write besides slots. The first word of each side is its
/// read position.
const CONTROL: usize = 5 * APART;
/// Number of bytes of these words for each side.
const CONTROL_SIZE: usize = 5 * APART;
/// Offset in a side's words of its starved word: 1 while it also sleeps until there is space for its
/// next message.
const STARVED: usize = APART;
/// Offset of a side's flight word ([`onesided`](crate::onesided)), in a cache line of its own.
const FLIGHT: usize = 2 * APART;
/// Offset of a side's revoked word, which ends the flights of the other side.
const REVOKED: usize = 3 * APART;
/// Offset of a side's end word ([`LEFT`], [`ENDED`]), in the line of the revoked word: both are
/// written once at most.
const END: usize = REVOKED + 8;
/// Offset of the number of messages of the other side that a side has processed
/// ([`Receiver::settle`]). The cache line is read only by callers that need the number.
const SETTLED: usize = 4 * APART;
/// Offset in bytes of the words of short writes in the rings of both directions
/// ([`turns`](crate::onesided::turns)), and their distance: half of [`APART`], which is what there is.
const APPLIED: usize = CONTROL + 2 * CONTROL_SIZE;
const APART_APPLIED: usize = 64;
/// Offset in bytes of the records of payloads in parts, for both directions.
const PARTS: usize = 2048;
/// Offset in bytes of the tables of relocated payloads, for both directions.
const RELOCATIONS: usize = PARTS + 2 * RECORD;
/// Offset in bytes of the first slot.
const RINGS: usize = 4096;
/// Number of bytes of the slots of one direction.
const RING: usize = SLOTS * SLOT;
/// Number of bytes before the areas: everything but the payloads of longer messages.
pub const TABLES: usize = RINGS + 2 * RING;
/// Offset in bytes of the slots for parts, which have no memory from the start.
const PART_SLOTS: usize = TABLES + 2 * AREA;
/// Size of a segment in bytes.
pub const SEGMENT: usize = PART_SLOTS + 2 * SPACE;
/// Byte ranges of a segment that have memory from the start; the last two only where the system cannot
/// provide it later ([`can_back`]).
const BACKED: [Range<usize>; 3] = [0..TABLES, near(0), near(1)];

/// Returns the range of the beginning of the area in which a side sends.
const fn near(side: usize) -> Range<usize> {
    let area = TABLES + side * AREA;
    area..area + NEAR
}

/// Flag of an end word: the side writes no more to the channel.
const ENDED: u64 = 1;
/// Flag of an end word: the side's endpoint is closed in good order.
const LEFT: u64 = 2;

/// How the other side has ended a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Whether its endpoint was closed in good order.
    pub has_left: bool,
}

/// One side of a channel.
pub struct Channel {
    pub sender: Sender,
    pub receiver: Receiver,
    /// Whether this side's starved word is 1.
    says_starved: bool,
    /// 0 for the side that created the segment, 1 for the other one.
    side: usize,
}

const _: () = assert!(APPLIED + 2 * APART_APPLIED <= PARTS && SETTLED < CONTROL_SIZE);
const _: () = assert!(APART >= align_of::<Line>() && APART.is_multiple_of(align_of::<Line>()));
const _: () = assert!(RELOCATIONS + 2 * size_of::<Table>() <= RINGS);

impl Channel {
    /// Creates a channel. Returns this side and the segment's descriptor for the other side.
    ///
    /// # Errors
    /// Those of [`Segment::create`].
    pub fn create() -> Result<(Channel, std::os::fd::OwnedFd)> {
        let [tables, ..] = &BACKED;
        let backed = match can_back() {
            true => std::slice::from_ref(tables),
            false => &BACKED[..],
        };
        let (segment, fd) = Segment::create(SEGMENT, backed)?;
        let segment = Arc::new(segment);
        magic(&segment).store(MAGIC, Ordering::Relaxed);
        Ok((Channel::new(&segment, 0), fd))
    }

    /// Attaches to a channel that another process has created.
    ///
    /// # Errors
    /// `-FI_EPROTO` if the segment is not a channel of this version.
    pub fn attach(fd: std::os::fd::BorrowedFd<'_>) -> Result<Channel> {
        let segment = Arc::new(Segment::attach(fd, SEGMENT)?);
        match magic(&segment).load(Ordering::Relaxed) {
            MAGIC => Ok(Channel::new(&segment, 1)),
            _ => Err(Errno::EPROTO),
        }
    }

    fn new(segment: &Arc<Segment>, side: usize) -> Self {
        Channel {
            sender: Sender::new(Direction::new(segment, side)),
            receiver: Receiver::new(Direction::new(segment, 1 - side)),
            says_starved: false,
            side,
        }
    }

    #[inline(always)]
    fn taken(&self) -> Taken {
        Taken {
            here: self.receiver.ring.taken(),
            there: self.receiver.heard,
        }
    }

    /// Whether messages of this length, at most [`LONGEST`] bytes, can be sent once there is space.
    /// Messages of up to [`MODERATE`] bytes can be sent on every channel.
    #[inline]
    pub fn takes(&mut self, len: usize) -> bool {
        self.sender.area.takes(len) || self.sender.extend_area(len)
    }

    /// Returns space for a message of a length that [`Channel::takes`]; `None` if there is none at
    /// present.
    ///
    /// # Errors
    /// The other side has written an invalid value to the channel.
    #[inline(always)]
    pub fn space(&mut self, len: usize) -> std::result::Result<Option<Space<'_>>, Broken> {
        let taken = self.taken();
        self.sender.space(len, taken)
    }

    /// Whether [`Channel::space`] would return space. If not, this side waits for it when it
    /// sleeps.
    ///
    /// # Errors
    /// As [`Channel::space`].
    pub fn has_room(&mut self, len: usize) -> std::result::Result<bool, Broken> {
        let taken = self.taken();
        Ok(self.sender.find(len, taken)?.is_some())
    }

    /// Whether the last message found no space, and there is space for it by this time.
    ///
    /// # Errors
    /// As [`Channel::space`].
    pub fn has_room_again(&mut self) -> std::result::Result<bool, Broken> {
        match self.sender.lacking {
            Some(len) => self.has_room(len),
            None => Ok(false),
        }
    }

    /// Whether the other side is known to have received all messages that were sent, notices apart
    /// ([`Space::publish_notice`]).
    ///
    /// # Errors
    /// As [`Channel::space`].
    pub fn is_clear(&mut self) -> std::result::Result<bool, Broken> {
        if !self.sender.is_clear() {
            let taken = self.taken();
            self.sender.hear(taken.there)?;
            self.sender.look()?;
        }
        Ok(self.sender.is_clear())
    }

    /// Sends a message that does not fit into a slot and has a length that [`Channel::takes`].
    /// `fill` is called with the offset and the memory of each part of the payload, and `wake`
    /// wakes the other side if it sleeps. The other side may prefetch the first part while the rest
    /// is written. Returns `false`, without any effect, if the message has to be sent through
    /// [`Channel::space`].
    #[inline(always)]
    pub fn send_long(
        &mut self,
        head: Head,
        len: usize,
        fill: impl Fn(usize, Piece<'_>),
        wake: impl FnOnce(),
    ) -> bool {
        debug_assert!(len > INLINE && len <= LONGEST);
        let taken = self.taken();
        self.sender.send_far(head, len, taken, fill, wake)
    }

    /// Whether the other side has reported that it has processed all messages that this side sent
    /// ([`Receiver::settle`]); `false` if none was sent.
    pub fn is_settled(&self) -> bool {
        self.sender.is_settled()
    }

    /// Returns the total number of messages that the other side had received when that was last
    /// read.
    pub fn taken_there(&self) -> u64 {
        self.sender.ring.done()
    }

    /// Returns the total number of slots that this side has filled.
    pub fn filled(&self) -> u64 {
        self.sender.ring.filled()
    }

    /// Returns the receiving end of payloads in parts. A channel has one user of it at a time.
    pub fn inflow(&self) -> Inflow {
        let segment = &self.sender.way.segment;
        Inflow::new(
            segment,
            PARTS + self.side * RECORD,
            PART_SLOTS + self.side * SPACE,
        )
    }

    /// Returns the sending end of payloads in parts. A channel has one user of it at a time.
    pub fn outflow(&self) -> Outflow {
        let (segment, other) = (&self.sender.way.segment, 1 - self.side);
        Outflow::new(segment, PARTS + other * RECORD, PART_SLOTS + other * SPACE)
    }

    /// Returns the receiving end of the table of the other side's relocated payloads.
    pub fn relocated(&self) -> Relocated {
        let (segment, other) = (&self.sender.way.segment, 1 - self.side);
        Relocated::new(segment, RELOCATIONS + other * size_of::<Table>())
    }

    /// Returns the sending end of the table of this side's relocated payloads. A channel has one user
    /// of it.
    pub fn relocating(&self) -> Relocating {
        let segment = &self.sender.way.segment;
        Relocating::new(segment, RELOCATIONS + self.side * size_of::<Table>())
    }

    /// Whether the other side's lane sleeps, or is about to.
    #[inline]
    pub fn finds_asleep(&self) -> bool {
        self.sender.bell.is_armed()
    }

    /// Called after a write to the segment besides messages. Returns whether the other side sleeps
    /// and must be woken.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        self.sender.finds_sleeper()
    }

    /// Returns the words of this side's one-sided accesses to the other side's memory.
    pub fn flights(&self) -> FlightWords {
        FlightWords::new(&self.sender.way.segment, self.side)
    }

    /// Returns the words of the other side's one-sided accesses to this side's memory.
    pub fn flights_of_peer(&self) -> FlightWords {
        FlightWords::new(&self.sender.way.segment, 1 - self.side)
    }

    /// Writes a number into the segment, for the process that attaches to it.
    pub fn set_secret(&self, secret: u64) {
        secret_of(&self.sender.way.segment).store(secret, Ordering::Relaxed);
    }

    /// Returns the number that [`Channel::set_secret`] has written.
    pub fn secret(&self) -> u64 {
        secret_of(&self.sender.way.segment).load(Ordering::Relaxed)
    }

    /// Tells the other side that this one writes no more, after all that it has written.
    pub fn end(&self, has_left: bool) {
        let word = if has_left { ENDED | LEFT } else { ENDED };
        control(&self.sender.way.filling, END).fetch_or(word, Ordering::Release);
    }

    /// Returns whether the other side has called [`Channel::end`], and how.
    pub fn end_there(&self) -> Option<End> {
        let word = control(&self.receiver.way.filling, END).load(Ordering::Acquire);
        (word & ENDED != 0).then_some(End {
            has_left: word & LEFT != 0,
        })
    }

    /// Sets whether both processes participate in the barriers of [`barrier`](crate::barrier).
    pub fn is_asymmetric(&mut self, asymmetric: bool) {
        self.sender.asymmetric = asymmetric;
        self.receiver.asymmetric = asymmetric;
    }

    /// Sets the doorbell of the other side's lane, which is armed while the lane sleeps.
    pub fn rings(&mut self, bell: DoorbellOfPeer) {
        self.sender.bell = bell.clone();
        self.receiver.bell = bell;
    }

    /// Tells the other side whether this one also sleeps until there is space, before this side's lane
    /// arms its doorbell.
    pub fn sleep(&mut self) {
        let starved = self.sender.lacking.is_some();
        if starved != self.says_starved {
            self.says_starved = starved;
            control(&self.sender.way.filling, STARVED).store(starved.into(), Ordering::Relaxed);
        }
    }

    /// Whether the other side does not know that this one waits for space ([`Channel::sleep`]).
    pub fn is_starved_unknown(&self) -> bool {
        self.sender.lacking.is_some() && !self.says_starved
    }
}

/// Returns the first word of a segment.
fn magic(segment: &Segment) -> &AtomicU64 {
    // SAFETY: the word is the first one of the mapping, hence inside it and aligned as pages are;
    // the mapping lives as long as the returned reference, and both processes access the word
    // atomically.
    unsafe { AtomicU64::from_ptr(segment.base().cast().as_ptr()) }
}

/// Returns the second word of a segment.
fn secret_of(segment: &Segment) -> &AtomicU64 {
    // SAFETY: the word is inside the segment's first page, at an offset that is a multiple of 8;
    // the rest is as in `magic`.
    unsafe { AtomicU64::from_ptr(segment.base().add(8).cast().as_ptr()) }
}

#[cfg(test)]
mod tests;
