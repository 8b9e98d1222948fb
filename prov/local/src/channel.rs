//! Messages between two processes through a segment that they share: a ring of
//! slots each way.
//!
//! A short message is all in its slot, and the shortest in one cache line. The
//! bytes of a longer one are in an area beside the ring, where their room is
//! free again when their slot is. What one side writes is in cache lines of its
//! own: besides the slots, how far it has read, and whether it sleeps.
//!
//! Everything that the other process could change is read once, checked, and
//! then used. The bytes of a message may change while they are read; where they
//! are and how many never do.

mod slot;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prov_util::buffer::{AppIov, Piece};
use prov_util::errno::{Errno, Result};

use self::slot::{Direction, Slot, control, half_of, put_words};
pub use self::slot::{Head, Next};
use crate::barrier;
use crate::joint::{BOARD, Joint};
use crate::ring::{Broken, Consumer, Free, Producer};
use crate::segment::Segment;

/// What the first word of a segment says: that it is one, and which version.
const MAGIC: u64 = u64::from_le_bytes(*b"fi_lcl\x02\x00");
/// Slots each way.
const SLOTS: usize = 256;
/// Bytes of a slot.
const SLOT: usize = 128;
/// Bytes of a slot before a message.
const HEAD: usize = 32;
/// Longest message that is in its slot.
pub const INLINE: usize = SLOT - HEAD;
/// Bytes of the area for longer ones.
const AREA: usize = 64 << 10;
/// Messages under way at most for which the receiver may have had time.
const FEW: u64 = 2;
/// Longest message.
pub const LONGEST: usize = 16 << 10;

/// What a side writes, beside slots, is from here on.
const CONTROL: usize = 1024;
/// Bytes for each side.
const CONTROL_SIZE: usize = 512;
/// Where in them it says whether it sleeps.
const SLEEP: usize = 256;
/// What they share of joint copies is from here on.
const JOINT: usize = 2048;
/// Where the slots begin.
const RINGS: usize = 4096;
/// Bytes of each direction.
const DIRECTION: usize = SLOTS * SLOT + AREA;
/// Bytes of a segment.
pub const SEGMENT: usize = RINGS + 2 * DIRECTION;

/// The other side sleeps.
const ASLEEP: u64 = 1;
/// It sleeps until there is room for what it has to send.
const STARVED: u64 = 2;
/// Added each time that a side goes to sleep.
const NAP: u64 = 4;

/// A message that has come.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub head: Head,
    /// Its bytes, which are there until the message is taken, and can be copied
    /// but not trusted to stay as they are.
    pub bytes: AppIov,
}

/// The end of a channel that sends.
pub struct Sender {
    way: Direction,
    ring: Producer,
    /// Bytes of the area that were given out, of all times, and free again.
    given: u64,
    free: u64,
    /// How many had been given out when each slot was filled, of those that are
    /// `noted`. Since then, none have been given out.
    given_by: Box<[u64; SLOTS]>,
    /// Slots of all times.
    noted: u64,
    /// What the other side's word said when it was last woken.
    woken: u64,
    asymmetric: bool,
    /// Whether there was no room for the last message.
    pub is_starved: bool,
}

/// Room for a message, until it is published.
pub struct Space<'a> {
    sender: &'a mut Sender,
    slot: Free,
    len: usize,
    /// Where in the area, unless it is in the slot.
    offset: u64,
    given: u64,
    /// Where its bytes go.
    pub bytes: AppIov,
}

impl Sender {
    fn new(way: Direction) -> Self {
        Sender {
            way,
            ring: Producer::default(),
            given: 0,
            free: 0,
            given_by: Box::new([0; SLOTS]),
            noted: 0,
            woken: 0,
            asymmetric: false,
            is_starved: false,
        }
    }

    /// Sends a message that fits into a slot, whose `len` bytes `fill` puts in
    /// place, and has `wake` wake the other side if it sleeps. `false`, and nothing
    /// has happened, if it is for [`Sender::space`].
    #[inline(always)]
    pub fn send_short(
        &mut self,
        head: Head,
        len: usize,
        fill: impl FnOnce(Piece),
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
        fill: impl FnOnce(Piece),
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

    /// Room for a message of `len` bytes, at most [`LONGEST`]; `None` if there
    /// is none now.
    ///
    /// # Errors
    /// The other side has broken the channel.
    #[inline(always)]
    pub fn space(&mut self, len: usize) -> std::result::Result<Option<Space<'_>>, Broken> {
        match self.ring.free_slot::<Direction>() {
            Some(slot) if len <= INLINE => Ok(Some(Space {
                bytes: self.way.slot(slot.slot()).inline(len).into(),
                offset: 0,
                given: self.given,
                sender: self,
                slot,
                len,
            })),
            _ => self.find_space(len),
        }
    }

    #[inline(never)]
    fn find_space(&mut self, len: usize) -> std::result::Result<Option<Space<'_>>, Broken> {
        if self.given != self.free && self.ring.filled_since_look() <= FEW {
            self.look()?;
        }
        for looks_again in [true, false] {
            if let Some(slot) = self.ring.free_slot::<Direction>()
                && let Some((offset, given)) = self.find_bytes(len)
            {
                let bytes = match len <= INLINE {
                    true => Some(self.way.slot(slot.slot()).inline(len).into()),
                    false => self.way.area(offset, len),
                };
                self.is_starved = false;
                return Ok(bytes.map(|bytes| Space {
                    sender: self,
                    slot,
                    len,
                    offset,
                    given,
                    bytes,
                }));
            }
            if looks_again {
                self.look()?;
            }
        }
        self.is_starved = true;
        Ok(None)
    }

    /// Looks how far the receiver is.
    fn look(&mut self) -> std::result::Result<(), Broken> {
        let done = self.ring.look(&self.way)?;
        self.note();
        // The slot that was done last may be filled again, where all are filled:
        // then what is noted of it is of the new message.
        if self.ring.filled_since_look() < SLOTS as u64
            && let Some(last) = done.checked_sub(1)
        {
            self.free = self.free.max(self.given_by[last as usize % SLOTS]);
        }
        Ok(())
    }

    /// Notes for the slots that were filled since the last time how many bytes of
    /// the area had been given out.
    fn note(&mut self) {
        let filled = self.ring.filled();
        let first = self.noted.max(filled.saturating_sub(SLOTS as u64));
        for position in first..filled {
            self.given_by[position as usize % SLOTS] = self.given;
        }
        self.noted = filled;
    }

    /// Where in the area `len` bytes go, all together, and what is given out
    /// then.
    fn find_bytes(&mut self, len: usize) -> Option<(u64, u64)> {
        if len <= INLINE {
            return Some((0, self.given));
        }
        let (area, len) = (AREA as u64, len.next_multiple_of(64) as u64);
        if self.given == self.free {
            // Where the last ones were, caches of both sides have it.
            self.given = self.given.next_multiple_of(area);
            self.free = self.given;
        }
        let mut start = self.given;
        if start % area + len > area {
            start = start.next_multiple_of(area);
        }
        let given = start + len;
        (given - self.free <= area).then_some((start % area, given))
    }
}

impl Space<'_> {
    /// Publishes the message, whose bytes are in place. Whether the other side
    /// sleeps and is to be woken.
    #[inline(always)]
    #[must_use]
    pub fn publish(self, head: Head) -> bool {
        let Space {
            sender,
            slot,
            len,
            offset,
            given,
            ..
        } = self;
        let place = sender.way.slot(slot.slot());
        if len > INLINE {
            place.put_offset(offset);
        }
        put_words(place, &head);
        if sender.given != given {
            sender.note();
            sender.given = given;
        }
        sender.publish(slot, half_of(&head), len)
    }
}

/// The end of a channel that receives.
pub struct Receiver {
    way: Direction,
    ring: Consumer,
    /// What was taken since the other side was told: slots, and a slot's share of
    /// the area for each as many bytes of that.
    untold: usize,
    woken: u64,
    asymmetric: bool,
}

impl Receiver {
    fn new(way: Direction) -> Self {
        Receiver {
            way,
            ring: Consumer::default(),
            untold: 0,
            woken: 0,
            asymmetric: false,
        }
    }

    /// The next message, without a look at what may be wrong with it.
    #[inline(always)]
    pub fn peek(&self) -> Option<Next<'_>> {
        let (slot, half) = self.ring.next(&self.way)?;
        Some(Next::new(self.way.slot(slot), half))
    }

    /// The next message, if it has come.
    ///
    /// # Errors
    /// The other side has broken the channel.
    pub fn next(&self) -> std::result::Result<Option<Record>, Broken> {
        let Some(next) = self.peek() else {
            return Ok(None);
        };
        let bytes = match next.bytes() {
            Some(bytes) => bytes.into(),
            None => {
                let offset = next.offset();
                let bytes = self.way.area(offset, next.len());
                let bytes = bytes.ok_or(Broken("place of a message"))?;
                bytes.prefetch();
                bytes
            }
        };
        Ok(Some(Record {
            head: next.head(),
            bytes,
        }))
    }

    /// Bytes of all messages that have come.
    pub fn waiting(&self) -> usize {
        let halves = (0..SLOTS as u64).map_while(|ahead| self.ring.ahead(&self.way, ahead));
        halves.map(|half| (half >> 16) as usize).sum()
    }

    /// Whether a message has come.
    #[inline(always)]
    pub fn has_next(&self) -> bool {
        self.ring.next(&self.way).is_some()
    }

    /// The next message, of `len` bytes, is taken. Whether the other side waits
    /// for room and is to be woken.
    #[inline(always)]
    #[must_use]
    pub fn take(&mut self, len: usize) -> bool {
        self.ring.take();
        self.untold += 1;
        if len > INLINE {
            self.untold += len / (AREA / SLOTS);
        }
        self.untold >= SLOTS / 4 && self.tell()
    }

    /// Whether the other side was not told of all that was taken.
    #[inline(always)]
    pub fn has_untold(&self) -> bool {
        self.untold != 0
    }

    /// Tells the other side what was taken. Whether it waits for room and is to
    /// be woken.
    #[inline(never)]
    #[must_use]
    pub fn tell(&mut self) -> bool {
        if self.untold == 0 {
            return false;
        }
        self.untold = 0;
        self.ring.tell(&self.way);
        barrier::light(self.asymmetric);
        let sleep = control(&self.way.filling, SLEEP).load(Ordering::Relaxed);
        sleep & STARVED != 0 && std::mem::replace(&mut self.woken, sleep) != sleep
    }
}

/// One side of a channel.
pub struct Channel {
    pub sender: Sender,
    pub receiver: Receiver,
    /// What this side has written about its sleep.
    sleep: u64,
    joint: Joint,
}

const _: () = assert!(CONTROL + 2 * CONTROL_SIZE <= JOINT && JOINT + 2 * BOARD <= RINGS);

impl Channel {
    /// A new one, and the descriptor for the other side.
    ///
    /// # Errors
    /// Those of [`Segment::create`].
    pub fn create() -> Result<(Channel, std::os::fd::OwnedFd)> {
        let (segment, fd) = Segment::create(SEGMENT)?;
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
            joint: Joint::new(segment, JOINT, side),
        }
    }

    /// Copies that both processes make.
    #[inline]
    pub fn joint(&self) -> &Joint {
        &self.joint
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
        let starved = if self.sender.is_starved { STARVED } else { 0 };
        let nap = (self.sleep & !(NAP - 1)) + NAP;
        self.sleep = nap | ASLEEP | starved;
        control(&self.sender.way.filling, SLEEP).store(self.sleep, Ordering::Relaxed);
    }

    /// Whether the other side would not wake this one, unless it did so already.
    pub fn is_awake(&self) -> bool {
        self.sleep & ASLEEP == 0 || self.sender.is_starved && self.sleep & STARVED == 0
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
