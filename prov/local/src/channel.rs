//! Messages between two processes through a segment that they share: a ring of
//! slots each way.
//!
//! A short message is all in its slot, and the shortest in one cache line. The
//! bytes of a longer one are in an area beside the ring, where their room is
//! free again when their slot is. What one side
//! writes is in cache lines of its own: besides the slots, how far it has read, and whether it sleeps. How far it
//! has read stands in its longer messages, too: where these go to and fro, each
//! side has all of the area again without a look at another cache line.
//!
//! Everything that the other process could change is read once, checked, and
//! then used. The bytes of a message may change while they are read; where they
//! are and how many never do.

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

/// What the first word of a segment says: that it is one, and which version.
const MAGIC: u64 = u64::from_le_bytes(*b"fi_lcl\x06\x00");
/// Slots each way.
const SLOTS: usize = 256;
/// Bytes of a slot.
const SLOT: usize = 128;
/// Bytes of a slot before a message.
const HEAD: usize = 32;
/// Longest message that is in its slot.
pub const INLINE: usize = SLOT - HEAD;
/// Bytes of the area for longer ones, of each direction: as many as a second-level cache has, so
/// that the lines that are filled again are not in the receiver's any more.
const AREA: usize = 1 << 20;
/// How many of them have memory from the start.
const NEAR: usize = 64 << 10;
/// Longest message that goes through any area: 16 KiB of data, and what a provider says of
/// them. Three of them have space in [`NEAR`] at a time: one that is filled, one that is taken,
/// and one between them.
pub const MODERATE: usize = (16 << 10) + 256;
/// Longest message that goes through one that has all of its memory.
pub const LONGEST: usize = (64 << 10) + 256;
/// Messages that are so long are fetched in part before they have come.
const LONG: usize = 3 << 10;
/// How many of their bytes: about as many lines as a processor asks for at a time.
const AHEAD: usize = 2 << 10;

/// How many slots ahead of the next one the lines of a slot are fetched, to be filled: each
/// is in the receiver's cache, and to have it from there takes longer than to fill a few.
const SOON: u64 = 4;

/// What a side writes, beside slots, is from here on.
const CONTROL: usize = 1024;
/// Bytes for each side.
const CONTROL_SIZE: usize = 512;
/// And whether it sleeps.
const SLEEP: usize = 256;
/// Its flight word ([`onesided`](crate::onesided)), in a cache line of its own.
const FLIGHT: usize = 320;
/// And its revoked word, for the other side's flights.
const REVOKED: usize = 384;
/// How much it has acted upon of what the other side sends ([`Receiver::settle`]), in a cache
/// line that nobody else looks at but who has to know.
const SETTLED: usize = 448;
/// The records of payloads in parts, of both directions, are from here on.
const PARTS: usize = 2048;
/// Where the slots begin.
const RINGS: usize = 4096;
/// Bytes of the slots of each direction.
const RING: usize = SLOTS * SLOT;
/// Bytes before the areas, in which all stands but bytes of longer messages.
pub const TABLES: usize = RINGS + 2 * RING;
/// Where the slots for parts begin, which have no memory from the start.
const PART_SLOTS: usize = TABLES + 2 * AREA;
/// Bytes of a segment.
pub const SEGMENT: usize = PART_SLOTS + 2 * SPACE;
/// What of a segment has memory from the start.
const BACKED: [Range<usize>; 3] = [0..TABLES, near(0), near(1)];

/// The beginning of the area for what a side sends.
const fn near(side: usize) -> Range<usize> {
    let area = TABLES + side * AREA;
    area..area + NEAR
}

/// The other side sleeps.
const ASLEEP: u64 = 1;
/// It sleeps until there is room for what it has to send.
const STARVED: u64 = 2;
/// Added each time that a side goes to sleep.
const NAP: u64 = 4;

/// The end of a channel that sends.
pub struct Sender {
    way: Direction,
    ring: Producer,
    area: Area,
    /// How many bytes of the area had been given out when each slot was filled, of those that are
    /// `noted`. Since then, none have been given out.
    given_by: Box<[u64; SLOTS]>,
    /// Slots of all times.
    noted: u64,
    /// What the other side's word said when it was last woken.
    woken: u64,
    asymmetric: bool,
    /// The length of the last message, if there was no room for it.
    lacking: Option<usize>,
    /// Slots of all times up to which all were taken or are notices.
    clear: u64,
}

/// Room for a message, until it is published.
pub struct Space<'a> {
    sender: &'a mut Sender,
    slot: Free,
    len: usize,
    /// Where in the area, unless it is in the slot.
    place: Place,
    /// What is told of the other direction.
    taken: u64,
}

/// How far each side is with what the other one sends, of all times.
#[derive(Clone, Copy)]
struct Taken {
    /// This one.
    here: u64,
    /// The other one, as far as it has said so in a message.
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

    /// Whether all that was sent is known to be taken, or is notices.
    fn is_clear(&self) -> bool {
        self.ring.filled() == self.ring.done().max(self.clear)
    }

    /// Sends a message that fits into a slot, whose `len` bytes `fill` puts in
    /// place, and has `wake` wake the other side if it sleeps. `false`, and nothing
    /// has happened, if it is for [`Channel::space`].
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

    /// [`Sender::send_short`] of bytes with a head that says nothing, and has any
    /// words.
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

    /// Publishes what is in a slot. Whether the other side sleeps and is to be
    /// woken.
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

    /// Whether the other side sleeps, and was not woken since it said so.
    #[inline(always)]
    fn finds_sleeper(&mut self) -> bool {
        barrier::light(self.asymmetric);
        let sleep = control(&self.way.taking, SLEEP).load(Ordering::Relaxed);
        sleep & ASLEEP != 0 && self.is_news(sleep)
    }

    /// Whether the other side was not woken since it said so.
    #[cold]
    #[inline(never)]
    fn is_news(&mut self, sleep: u64) -> bool {
        std::mem::replace(&mut self.woken, sleep) != sleep
    }

    /// Whether the receiver has acted upon all that was sent, which is something.
    fn is_settled(&self) -> bool {
        let settled = control(&self.way.taking, SETTLED).load(Ordering::Acquire);
        settled == self.ring.filled() && settled != 0
    }

    /// [`Channel::send_long`].
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

    /// [`Channel::space`].
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

    /// A slot and room for a message, if there are such now.
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
        // What is wrong with the channel shows when something is sent.
        let _ = self.look();
        self.area.extend(&self.way);
        self.area.takes(len)
    }

    /// Looks how far the receiver is.
    fn look(&mut self) -> std::result::Result<(), Broken> {
        let done = self.ring.look(&self.way)?;
        self.are_done(done);
        Ok(())
    }

    /// The receiver has said how far it is.
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

    /// So many slots of all times are done, and what they had of the area is free.
    #[inline(never)]
    #[allow(clippy::indexing_slicing, reason = "an array of SLOTS")]
    fn are_done(&mut self, done: u64) {
        self.note();
        // The slot that was done last may be filled again, where all are filled:
        // then what is noted of it is of the new message.
        if self.ring.filled_since_look() < SLOTS as u64
            && let Some(last) = done.checked_sub(1)
        {
            self.area.free = self.area.free.max(self.given_by[last as usize % SLOTS]);
        }
    }

    /// Notes for the slots that were filled since the last time how many bytes of
    /// the area had been given out.
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
    /// Where its bytes go, until it is published: from then on they are the other
    /// side's.
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

    /// [`Space::publish`] of a notice: what does not have to wait for the messages before
    /// it does not wait for this, either.
    #[must_use]
    pub fn publish_notice(self, head: Head) -> bool {
        if self.sender.is_clear() {
            self.sender.clear = self.sender.ring.filled() + 1;
        }
        self.publish(head)
    }

    /// Publishes the message, whose bytes are in place. Whether the other side
    /// sleeps and is to be woken.
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
    /// What this side has written about its sleep.
    sleep: u64,
    /// 0 of who has made the segment, or 1.
    side: usize,
}

const _: () = assert!(CONTROL + 2 * CONTROL_SIZE <= PARTS && PARTS + 2 * RECORD <= RINGS);

impl Channel {
    /// A new one, and the descriptor for the other side.
    ///
    /// # Errors
    /// Those of [`Segment::create`].
    pub fn create() -> Result<(Channel, std::os::fd::OwnedFd)> {
        let (segment, fd) = Segment::create(SEGMENT, &BACKED)?;
        let segment = Arc::new(segment);
        magic(&segment).store(MAGIC, Ordering::Relaxed);
        Ok((Channel::new(&segment, 0), fd))
    }

    /// The other side of one that another process has made.
    ///
    /// # Errors
    /// `-FI_EPROTO` if it is none of this version.
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

    /// Whether messages of so many bytes, no more than [`LONGEST`], can be sent when there is
    /// room: those of [`MODERATE`] bytes on every channel.
    #[inline]
    pub fn takes(&mut self, len: usize) -> bool {
        self.sender.area.takes(len) || self.sender.extend_area(len)
    }

    /// Room for a message of a length that [`Channel::takes`]; `None` if there is none now.
    ///
    /// # Errors
    /// The other side has broken the channel.
    #[inline(always)]
    pub fn space(&mut self, len: usize) -> std::result::Result<Option<Space<'_>>, Broken> {
        let taken = self.taken();
        self.sender.space(len, taken)
    }

    /// Whether [`Channel::space`] has room. Where not, this side waits for it.
    ///
    /// # Errors
    /// As above.
    pub fn has_room(&mut self, len: usize) -> std::result::Result<bool, Broken> {
        let taken = self.taken();
        Ok(self.sender.find(len, taken)?.is_some())
    }

    /// Whether there is room for the last message, and was none.
    ///
    /// # Errors
    /// As above.
    pub fn has_room_again(&mut self) -> std::result::Result<bool, Broken> {
        match self.sender.lacking {
            Some(len) => self.has_room(len),
            None => Ok(false),
        }
    }

    /// Whether the other side is known to have taken all that was sent, but for notices
    /// ([`Space::publish_notice`]).
    ///
    /// # Errors
    /// As above.
    pub fn is_clear(&mut self) -> std::result::Result<bool, Broken> {
        if !self.sender.is_clear() {
            let taken = self.taken();
            self.sender.hear(taken.there)?;
            self.sender.look()?;
        }
        Ok(self.sender.is_clear())
    }

    /// Sends a message that does not fit into a slot, of a length that [`Channel::takes`], which
    /// `fill` puts in place from one of them on, and has `wake` wake the other
    /// side if it sleeps. The other side may fetch the first ones while the rest is
    /// put in place. `false`, and nothing has happened, if it is for [`Channel::space`].
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

    /// Whether the other side has said so of all that this one has sent
    /// ([`Receiver::settle`]): not where nothing was.
    pub fn is_settled(&self) -> bool {
        self.sender.is_settled()
    }

    /// How many messages the other side had taken at the last look, of all times.
    pub fn taken_there(&self) -> u64 {
        self.sender.ring.done()
    }

    /// Slots that this side has filled, of all times.
    pub fn filled(&self) -> u64 {
        self.sender.ring.filled()
    }

    /// Payloads in parts that this side receives. For one user.
    pub fn inflow(&self) -> Inflow {
        let segment = &self.sender.way.segment;
        Inflow::new(
            segment,
            PARTS + self.side * RECORD,
            PART_SLOTS + self.side * SPACE,
        )
    }

    /// Payloads in parts that this side sends. For one user.
    pub fn outflow(&self) -> Outflow {
        let (segment, other) = (&self.sender.way.segment, 1 - self.side);
        Outflow::new(segment, PARTS + other * RECORD, PART_SLOTS + other * SPACE)
    }

    /// What was written to the segment besides messages is to be seen: whether the other side
    /// sleeps and is to be woken.
    #[must_use]
    pub fn must_wake(&mut self) -> bool {
        self.sender.finds_sleeper()
    }

    /// The words of what this side copies to and from the other one's memory.
    pub fn flights(&self) -> FlightWords {
        FlightWords::new(&self.sender.way.segment, self.side)
    }

    /// The words of what the other side copies to and from this one's.
    pub fn flights_of_peer(&self) -> FlightWords {
        FlightWords::new(&self.sender.way.segment, 1 - self.side)
    }

    /// Puts a number into the segment for who attaches to it.
    pub fn set_secret(&self, secret: u64) {
        secret_of(&self.sender.way.segment).store(secret, Ordering::Relaxed);
    }

    /// The number that the segment has.
    pub fn secret(&self) -> u64 {
        secret_of(&self.sender.way.segment).load(Ordering::Relaxed)
    }

    /// Both processes take part in [`barrier`].
    pub fn is_asymmetric(&mut self, asymmetric: bool) {
        self.sender.asymmetric = asymmetric;
        self.receiver.asymmetric = asymmetric;
    }

    /// This side may sleep from now on: after [`barrier::heavy`], what has come
    /// before is seen, and what comes first then wakes it.
    pub fn sleep(&mut self) {
        let starved = match self.sender.lacking.is_some() {
            true => STARVED,
            false => 0,
        };
        let nap = (self.sleep & !(NAP - 1)) + NAP;
        self.sleep = nap | ASLEEP | starved;
        control(&self.sender.way.filling, SLEEP).store(self.sleep, Ordering::Relaxed);
    }

    /// Whether the other side would not wake this one, unless it did so already.
    pub fn is_awake(&self) -> bool {
        let is_starved = self.sender.lacking.is_some();
        self.sleep & ASLEEP == 0 || is_starved && self.sleep & STARVED == 0
    }
}

/// The first word of a segment.
fn magic(segment: &Segment) -> &AtomicU64 {
    // SAFETY: the first word, aligned, mapped as long as the segment.
    unsafe { AtomicU64::from_ptr(segment.base().cast().as_ptr()) }
}

/// The second word.
fn secret_of(segment: &Segment) -> &AtomicU64 {
    // SAFETY: inside the segment's first page, and otherwise as above.
    unsafe { AtomicU64::from_ptr(segment.base().add(8).cast().as_ptr()) }
}

#[cfg(test)]
mod tests;
