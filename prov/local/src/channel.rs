//! Messages between two processes through a shared segment: an SPSC ring of slots in each
//! direction.
//!
//! A short message is contained in its slot, and the shortest messages in one cache line. The
//! payload of a longer message is in an area beside the ring, whose space becomes free together
//! with the slot. Each side writes to cache lines of its own: besides the slots, its read position
//! and whether it sleeps. A long message also carries the sender's read position of the other
//! direction: where long messages go back and forth, each side learns that all of the area is free
//! without reading another cache line.
//!
//! Every value that the other process can change is read once, checked, and then used. The contents
//! of a message may change while they are read; its location and length, once read, do not.

mod area;
mod flight_words;
mod receiver;
mod slot;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prov_base::buffer::{Iov, Piece};
use prov_base::errno::{Errno, Result};

use self::area::{Area, Place};
pub use self::flight_words::FlightWords;
pub use self::receiver::{Receiver, Record};
use self::slot::{Direction, FAR, Slot, control, half_of, put_words};
pub use self::slot::{Head, Next};
use crate::barrier;
use crate::parts::{Inflow, Outflow, RECORD, SPACE};
use crate::ring::{Broken, Free, Producer, lap};
use crate::segment::Segment;

/// Value of the first word of a segment: its identification and version.
const MAGIC: u64 = u64::from_le_bytes(*b"fi_lcl\x06\x00");
/// Number of slots of a ring, a power of two ([`ring`](crate::ring)).
const SLOTS: usize = 256;
/// Size of a slot in bytes: two cache lines.
const SLOT: usize = 128;
/// Number of bytes of a slot before the message: the word that publishes the slot and three words
/// of the message's head.
const HEAD: usize = 32;
/// Length in bytes of the longest message that is contained in its slot.
pub const INLINE: usize = SLOT - HEAD;
/// Size in bytes of the area for longer messages in one direction: the capacity of a second-level
/// cache, so that a line has left the receiver's cache by the time the sender fills it again.
const AREA: usize = 1 << 20;
/// Number of bytes of an area that have memory from the start.
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

/// Offset in bytes of the words that the sides write besides slots.
const CONTROL: usize = 1024;
/// Number of bytes of these words for each side.
const CONTROL_SIZE: usize = 512;
/// Offset in a side's words of its sleep word ([`ASLEEP`], [`STARVED`], [`NAP`]).
const SLEEP: usize = 256;
/// Offset of a side's flight word ([`onesided`](crate::onesided)), in a cache line of its own.
const FLIGHT: usize = 320;
/// Offset of a side's revoked word, which ends the flights of the other side.
const REVOKED: usize = 384;
/// Offset of the number of messages of the other side that a side has processed
/// ([`Receiver::settle`]). The cache line is read only by callers that need the number.
const SETTLED: usize = 448;
/// Offset in bytes of the records of payloads in parts, for both directions.
const PARTS: usize = 2048;
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
/// Byte ranges of a segment that have memory from the start.
const BACKED: [Range<usize>; 3] = [0..TABLES, near(0), near(1)];

/// Returns the range of the beginning of the area in which a side sends.
const fn near(side: usize) -> Range<usize> {
    let area = TABLES + side * AREA;
    area..area + NEAR
}

/// Flag of a sleep word: the side sleeps.
const ASLEEP: u64 = 1;
/// Flag of a sleep word: the side also sleeps until there is space for its next message.
const STARVED: u64 = 2;
/// Increment of a sleep word each time that the side goes to sleep.
const NAP: u64 = 4;

/// The sending end of a channel.
pub struct Sender {
    way: Direction,
    ring: Producer,
    area: Area,
    /// For each slot, the number of bytes of the area that had been allocated when it was filled.
    /// The entries of slots before `noted` are valid; no bytes have been allocated since.
    given_by: Box<[u64; SLOTS]>,
    /// Total number of slots that are accounted for in `given_by`.
    noted: u64,
    /// Value of the other side's sleep word when it was last woken.
    woken: u64,
    asymmetric: bool,
    /// Length of the last message, if there was no space for it.
    lacking: Option<usize>,
    /// Position in the ring up to which all messages have been received or are notices.
    clear: u64,
}

/// Space for one message, until it is published.
pub struct Space<'a> {
    sender: &'a mut Sender,
    slot: Free,
    len: usize,
    /// Location in the area, unless the message is contained in its slot.
    place: Place,
    /// Number of messages of the other direction that this message reports as received.
    taken: u64,
}

/// Total number of messages that each side has received from the other.
#[derive(Clone, Copy)]
struct Taken {
    /// By this side.
    here: u64,
    /// By the other side, as far as its messages have reported it.
    there: u64,
}

impl Sender {
    fn new(way: Direction) -> Self {
        Sender {
            way,
            ring: Producer::default(),
            area: Area::default(),
            given_by: Box::new([0; SLOTS]),
            noted: 0,
            woken: 0,
            asymmetric: false,
            lacking: None,
            clear: 0,
        }
    }

    /// Whether all messages that were sent are known to have been received, or are notices.
    fn is_clear(&self) -> bool {
        self.ring.filled() == self.ring.done().max(self.clear)
    }

    /// Sends a message of `len` bytes that fits into a slot. `fill` writes its bytes, and `wake`
    /// wakes the other side if it sleeps. Returns `false`, without any effect, if the message has
    /// to be sent through [`Channel::space`].
    #[inline(always)]
    pub fn send_short(
        &mut self,
        head: Head,
        len: usize,
        fill: impl FnOnce(Piece<'_>),
        wake: impl FnOnce(),
    ) -> bool {
        self.send_slot(
            len,
            half_of(&head),
            wake,
            #[inline(always)]
            |slot| {
                put_words(slot, &head);
                fill(slot.inline(len));
            },
        )
    }

    /// As [`Sender::send_short`], for bytes with a head of kind and flags only, whose words may
    /// have any value.
    #[inline(always)]
    pub fn send_bytes(
        &mut self,
        len: usize,
        fill: impl FnOnce(Piece<'_>),
        wake: impl FnOnce(),
    ) -> bool {
        self.send_slot(
            len,
            0,
            wake,
            #[inline(always)]
            |slot| fill(slot.inline(len)),
        )
    }

    #[inline(always)]
    fn send_slot(
        &mut self,
        len: usize,
        half: u32,
        wake: impl FnOnce(),
        fill: impl FnOnce(Slot<'_>),
    ) -> bool {
        if len > INLINE {
            return false;
        }
        let Some(free) = self.ring.free_slot::<Direction>() else {
            return false;
        };
        fill(self.way.slot(free.slot()));
        if self.publish(free, half, len) {
            wake();
        }
        true
    }

    /// Publishes the contents of a slot. Returns whether the other side sleeps and must be woken.
    #[inline(always)]
    fn publish(&mut self, free: Free, half: u32, len: usize) -> bool {
        self.ring
            .publish(&self.way, free, half | (len as u32) << 16);
        if len <= INLINE {
            let soon = self.ring.filled().wrapping_add(SOON) as usize;
            self.way.slot(soon % SLOTS).fetch_to_fill(len);
        }
        self.finds_sleeper()
    }

    /// Whether the other side sleeps and has not been woken since it announced that.
    #[inline(always)]
    fn finds_sleeper(&mut self) -> bool {
        barrier::light(self.asymmetric);
        let sleep = control(&self.way.taking, SLEEP).load(Ordering::Relaxed);
        sleep & ASLEEP != 0 && self.is_news(sleep)
    }

    /// Whether the other side has not been woken since it wrote this sleep word.
    #[cold]
    #[inline(never)]
    fn is_news(&mut self, sleep: u64) -> bool {
        std::mem::replace(&mut self.woken, sleep) != sleep
    }

    /// Whether the receiver has processed all messages that were sent; `false` if none was sent.
    fn is_settled(&self) -> bool {
        let settled = control(&self.way.taking, SETTLED).load(Ordering::Acquire);
        settled == self.ring.filled() && settled != 0
    }

    /// See [`Channel::send_long`].
    #[inline(always)]
    fn send_far(
        &mut self,
        head: Head,
        len: usize,
        taken: Taken,
        fill: impl Fn(usize, Piece<'_>),
        wake: impl FnOnce(),
    ) -> bool {
        if self.hear(taken.there).is_err() {
            return false;
        }
        let Some(slot) = self.ring.free_slot::<Direction>() else {
            return false;
        };
        let Some(place) = self.area.find(len) else {
            return false;
        };
        let Some(bytes) = self.way.area(place.offset, len) else {
            return false;
        };
        let (first, rest) = bytes.split(if len >= LONG { AHEAD } else { len });
        fill(0, first);
        if !rest.is_empty() {
            let lap = lap::<Direction>(self.ring.filled());
            self.way.slot(slot.slot()).put_begun(lap, place.offset);
            fill(first.len(), rest);
        }
        if self.publish_far(slot, head, len, place, taken.here) {
            wake();
        }
        true
    }

    /// Publishes a message whose bytes are in the area.
    #[inline(always)]
    fn publish_far(
        &mut self,
        slot: Free,
        head: Head,
        len: usize,
        place: Place,
        taken: u64,
    ) -> bool {
        let filled = self.way.slot(slot.slot());
        filled.put_place(place.offset, len, taken);
        put_words(filled, &head);
        self.note();
        self.area.given = place.given;
        self.publish(slot, half_of(&head), FAR)
    }

    /// See [`Channel::space`].
    #[inline(always)]
    fn space(
        &mut self,
        len: usize,
        taken: Taken,
    ) -> std::result::Result<Option<Space<'_>>, Broken> {
        match self.ring.free_slot::<Direction>() {
            Some(slot) if len <= INLINE => Ok(Some(Space {
                place: Place {
                    offset: 0,
                    given: self.area.given,
                },
                taken: taken.here,
                sender: self,
                slot,
                len,
            })),
            _ => self.find_space(len, taken),
        }
    }

    #[inline(never)]
    fn find_space(
        &mut self,
        len: usize,
        taken: Taken,
    ) -> std::result::Result<Option<Space<'_>>, Broken> {
        let Some((slot, place)) = self.find(len, taken)? else {
            return Ok(None);
        };
        if len > INLINE && self.way.area(place.offset, len).is_none() {
            return Ok(None);
        }
        Ok(Some(Space {
            sender: self,
            slot,
            len,
            place,
            taken: taken.here,
        }))
    }

    /// Returns a slot and space for a message, if both are free.
    fn find(
        &mut self,
        len: usize,
        taken: Taken,
    ) -> std::result::Result<Option<(Free, Place)>, Broken> {
        self.hear(taken.there)?;
        for looks_again in [true, false] {
            if let Some(slot) = self.ring.free_slot::<Direction>()
                && let Some(place) = self.area.find(len)
            {
                self.lacking = None;
                return Ok(Some((slot, place)));
            }
            if looks_again {
                self.look()?;
            }
        }
        self.lacking = Some(len);
        Ok(None)
    }

    /// See [`Channel::takes`].
    #[cold]
    fn extend_area(&mut self, len: usize) -> bool {
        // An error of the channel is reported by the next send.
        let _ = self.look();
        self.area.extend(&self.way);
        self.area.takes(len)
    }

    /// Reads the receiver's position.
    fn look(&mut self) -> std::result::Result<(), Broken> {
        let done = self.ring.look(&self.way)?;
        self.are_done(done);
        Ok(())
    }

    /// Handles the receiver's report of its position.
    #[inline(always)]
    fn hear(&mut self, done: u64) -> std::result::Result<(), Broken> {
        if done > self.ring.done() {
            let done = self.ring.hear(done)?;
            if done == self.ring.filled() {
                self.area.free = self.area.given;
            } else {
                self.are_done(done);
            }
        }
        Ok(())
    }

    /// Notes that the receiver has freed all slots before this position, and frees their space in
    /// the area.
    #[inline(never)]
    #[allow(clippy::indexing_slicing, reason = "an array of SLOTS")]
    fn are_done(&mut self, done: u64) {
        self.note();
        // If all slots are filled, the slot that was freed last has been filled again, and its
        // entry belongs to the new message.
        if self.ring.filled_since_look() < SLOTS as u64
            && let Some(last) = done.checked_sub(1)
        {
            self.area.free = self.area.free.max(self.given_by[last as usize % SLOTS]);
        }
    }

    /// Records the number of allocated bytes of the area for the slots that were filled since the
    /// last call.
    #[inline(always)]
    #[allow(clippy::indexing_slicing, reason = "an array of SLOTS")]
    fn note(&mut self) {
        let filled = self.ring.filled();
        let first = self.noted.max(filled.saturating_sub(SLOTS as u64));
        for position in first..filled {
            self.given_by[position as usize % SLOTS] = self.area.given;
        }
        self.noted = filled;
    }
}

impl Space<'_> {
    /// Returns the memory for the message's bytes. Once the message is published, the memory
    /// belongs to the other side.
    ///
    /// ```compile_fail,E0505
    /// # use prov_local::channel::{Channel, Head};
    /// # let (mut channel, _segment) = Channel::create().unwrap();
    /// # let head = Head { kind: 1, flags: 0, words: [0; 3] };
    /// let space = channel.space(3).unwrap().unwrap();
    /// let bytes = space.bytes();
    /// let _ = space.publish(head);
    /// bytes.write_at(0, b"abc");
    /// ```
    #[inline(always)]
    pub fn bytes(&self) -> Iov<'_> {
        let way = &self.sender.way;
        let bytes = match self.len <= INLINE {
            true => Some(way.slot(self.slot.slot()).inline(self.len)),
            false => way.area(self.place.offset, self.len),
        };
        bytes.map_or(Iov::EMPTY, Iov::from)
    }

    /// As [`Space::publish`], for a notice: a message that operations which wait for earlier
    /// messages do not wait for.
    #[must_use]
    pub fn publish_notice(self, head: Head) -> bool {
        if self.sender.is_clear() {
            self.sender.clear = self.sender.ring.filled() + 1;
        }
        self.publish(head)
    }

    /// Publishes the message, whose bytes have been written. Returns whether the other side sleeps
    /// and must be woken.
    #[inline(always)]
    #[must_use]
    pub fn publish(self, head: Head) -> bool {
        let Space {
            sender,
            slot,
            len,
            place,
            taken,
        } = self;
        if len > INLINE {
            return sender.publish_far(slot, head, len, place, taken);
        }
        put_words(sender.way.slot(slot.slot()), &head);
        sender.publish(slot, half_of(&head), len)
    }
}

/// One side of a channel.
pub struct Channel {
    pub sender: Sender,
    pub receiver: Receiver,
    /// The value of this side's sleep word.
    sleep: u64,
    /// 0 for the side that created the segment, 1 for the other one.
    side: usize,
}

const _: () = assert!(CONTROL + 2 * CONTROL_SIZE <= PARTS && PARTS + 2 * RECORD <= RINGS);

impl Channel {
    /// Creates a channel. Returns this side and the segment's descriptor for the other side.
    ///
    /// # Errors
    /// Those of [`Segment::create`].
    pub fn create() -> Result<(Channel, std::os::fd::OwnedFd)> {
        let (segment, fd) = Segment::create(SEGMENT, &BACKED)?;
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
            sleep: 0,
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

    /// Called after a write to the segment besides messages. Returns whether the other side sleeps
    /// and must be woken.
    #[must_use]
    pub fn must_wake(&mut self) -> bool {
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

    /// Sets whether both processes participate in the barriers of [`barrier`].
    pub fn is_asymmetric(&mut self, asymmetric: bool) {
        self.sender.asymmetric = asymmetric;
        self.receiver.asymmetric = asymmetric;
    }

    /// Announces that this side may sleep. The caller then executes [`barrier::heavy`] and looks
    /// for messages: it sees those that were sent before, and the first one that is sent later
    /// wakes it.
    pub fn sleep(&mut self) {
        let starved = match self.sender.lacking.is_some() {
            true => STARVED,
            false => 0,
        };
        let nap = (self.sleep & !(NAP - 1)) + NAP;
        self.sleep = nap | ASLEEP | starved;
        control(&self.sender.way.filling, SLEEP).store(self.sleep, Ordering::Relaxed);
    }

    /// Whether the other side would not wake this one: it has not announced that it sleeps, or not
    /// that it waits for space.
    pub fn is_awake(&self) -> bool {
        let is_starved = self.sender.lacking.is_some();
        self.sleep & ASLEEP == 0 || is_starved && self.sleep & STARVED == 0
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
