//! The receiving end of a channel.

use prov_base::shared_words::Ordering;

use prov_base::buffer::{Iov, Piece};

use super::slot::{Direction, Head, Next, control};
use super::{AHEAD, INLINE, LONGEST, NEAR, SETTLED, SLOTS, STARVED};
use crate::barrier;
use crate::doorbell::DoorbellOfPeer;
use crate::ring::{Broken, Consumer, lap};

/// Number of slots after which the other side is told that they were received: a quarter of the
/// ring.
const TELL_EVERY: u64 = SLOTS as u64 / 4;
/// A message that has arrived, without its bytes, which [`Receiver::bytes`] returns.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub head: Head,
    bytes: Whereabouts,
}

/// The location of a message's bytes.
#[derive(Clone, Copy, Debug)]
enum Whereabouts {
    /// In its slot; at most [`INLINE`] bytes.
    Near { slot: usize, len: usize },
    /// In the area.
    Far { offset: u64, len: usize },
}

impl Record {
    /// Returns the length of the message in bytes.
    #[inline]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a message of no bytes is one, too"
    )]
    pub fn len(&self) -> usize {
        match self.bytes {
            Whereabouts::Near { len, .. } | Whereabouts::Far { len, .. } => len,
        }
    }
}

/// The receiving end of a channel.
pub struct Receiver {
    pub(super) way: Direction,
    pub(super) ring: Consumer,
    /// Number of messages received when the other side was last told.
    told: u64,
    /// Number of messages received at which it is told again: a quarter of the ring more, less one
    /// slot for each slot's share of the commonly used part of the area that the messages took.
    due: u64,
    /// Number of messages of this side that the other one has received, as its last long message
    /// reported.
    pub(super) heard: u64,
    /// Position of the last message of which a part was prefetched before it was published.
    pub(super) fetched: Option<u64>,
    /// The doorbell of the other side's lane.
    pub(super) bell: DoorbellOfPeer,
    pub(super) asymmetric: bool,
}

impl Receiver {
    pub(super) fn new(way: Direction) -> Self {
        Receiver {
            way,
            ring: Consumer::default(),
            told: 0,
            due: TELL_EVERY,
            heard: 0,
            fetched: None,
            bell: DoorbellOfPeer::silent(),
            asymmetric: false,
        }
    }

    /// Returns the next message, without checking the location of its bytes.
    #[inline(always)]
    pub fn peek(&self) -> Option<Next<'_>> {
        let (slot, half) = self.ring.next(&self.way)?;
        Some(Next::new(self.way.slot(slot), half))
    }

    /// Returns the next message, if one has arrived.
    ///
    /// # Errors
    /// The other side has written an invalid value to the channel.
    pub fn next(&self) -> std::result::Result<Option<Record>, Broken> {
        let Some(next) = self.peek() else {
            return Ok(None);
        };
        let bytes = match next.bytes() {
            Some(bytes) => Whereabouts::Near {
                slot: self.ring.taken() as usize % SLOTS,
                len: bytes.len(),
            },
            None => {
                // The values that the other side has written are read once.
                let (offset, len) = next.place();
                let bytes = self.far(offset, len);
                Iov::from(bytes.ok_or(Broken("place of a message"))?).prefetch();
                Whereabouts::Far { offset, len }
            }
        };
        Ok(Some(Record {
            head: next.head(),
            bytes,
        }))
    }

    /// Returns the bytes of a message. They are valid until the message is taken; since the other
    /// process can change them, they are copied and then checked. For a message that was taken
    /// already, they are whatever has arrived since.
    ///
    /// ```
    /// # use std::os::fd::AsFd as _;
    /// # use prov_local::channel::{Channel, Head};
    /// # use prov_base::buffer::Iov;
    /// let (mut here, segment) = Channel::create().unwrap();
    /// let there = Channel::attach(segment.as_fd()).unwrap();
    /// let space = here.space(3).unwrap().unwrap();
    /// space.bytes().write_at(0, b"abc");
    /// let head = Head { kind: 1, flags: 0, words: [0; 3] };
    /// let _ = space.publish(head);
    /// let record = there.receiver.next().unwrap().unwrap();
    /// let bytes = Iov::from(there.receiver.bytes(&record));
    /// let mut copy = [0; 3];
    /// bytes.read_at(0, &mut copy);
    /// assert_eq!(&copy, b"abc");
    /// ```
    ///
    /// The bytes are in the channel's segment, and cannot be used once the channel is dropped:
    ///
    /// ```compile_fail,E0505
    /// # use std::os::fd::AsFd as _;
    /// # use prov_local::channel::{Channel, Head};
    /// # use prov_base::buffer::Iov;
    /// # let (mut here, segment) = Channel::create().unwrap();
    /// # let there = Channel::attach(segment.as_fd()).unwrap();
    /// let record = there.receiver.next().unwrap().unwrap();
    /// let bytes = Iov::from(there.receiver.bytes(&record));
    /// drop(there);
    /// let mut copy = [0; 3];
    /// bytes.read_at(0, &mut copy);
    /// ```
    ///
    /// Nor can they be used once the message is taken, when their space may belong to another
    /// message:
    ///
    /// ```compile_fail,E0502
    /// # use std::os::fd::AsFd as _;
    /// # use prov_local::channel::{Channel, Head};
    /// # use prov_base::buffer::Iov;
    /// # let (mut here, segment) = Channel::create().unwrap();
    /// # let mut there = Channel::attach(segment.as_fd()).unwrap();
    /// let record = there.receiver.next().unwrap().unwrap();
    /// let bytes = Iov::from(there.receiver.bytes(&record));
    /// let _ = there.receiver.take(record.len());
    /// let mut copy = [0; 3];
    /// bytes.read_at(0, &mut copy);
    /// ```
    #[inline]
    pub fn bytes(&self, record: &Record) -> Piece<'_> {
        let bytes = match record.bytes {
            Whereabouts::Near { slot, len } => Some(self.way.slot(slot).inline(len)),
            Whereabouts::Far { offset, len } => self.way.area(offset, len),
        };
        bytes.unwrap_or(Piece::EMPTY)
    }

    /// Returns the bytes of the next message if they are not in its slot; `None` if the slot refers
    /// to no place in the area, which [`Receiver::next`] reports.
    #[inline(always)]
    pub fn far_bytes(&self, next: &Next<'_>) -> Option<Piece<'_>> {
        let (offset, len) = next.place();
        self.far(offset, len)
    }

    #[inline(always)]
    fn far(&self, offset: u64, len: usize) -> Option<Piece<'_>> {
        self.way.area(offset, len)
    }

    /// Returns the total length of the messages that have arrived, in bytes.
    pub fn waiting(&self) -> usize {
        let next = |ahead| {
            let half = self.ring.ahead(&self.way, ahead)?;
            let slot = (self.ring.taken().wrapping_add(ahead)) as usize % SLOTS;
            Some(Next::new(self.way.slot(slot), half).len().min(LONGEST))
        };
        (0..SLOTS as u64).map_while(next).sum()
    }

    /// Whether a message has arrived.
    #[inline(always)]
    pub fn has_next(&self) -> bool {
        self.ring.next(&self.way).is_some()
    }

    /// Prefetches the first bytes of a long message, once, while its sender writes the rest.
    #[inline(always)]
    pub fn fetch_ahead(&mut self) {
        let next = self.ring.taken();
        let slot = self.way.slot(next as usize % SLOTS);
        if let Some(offset) = slot.begun(lap::<Direction>(next))
            && self.fetched != Some(next)
            && let Some(bytes) = self.way.area(offset, AHEAD)
        {
            self.fetched = Some(next);
            Iov::from(bytes).prefetch();
        }
    }

    /// Takes the next message, of `len` bytes. Returns whether the other side waits for space and
    /// must be woken.
    #[inline(always)]
    #[must_use]
    pub fn take(&mut self, len: usize) -> bool {
        if len > INLINE {
            self.hear(len);
        }
        self.take_short()
    }

    /// As [`Receiver::take`], for a message that is contained in its slot.
    #[inline(always)]
    #[must_use]
    pub fn take_short(&mut self) -> bool {
        self.ring.take();
        self.ring.taken() >= self.due && self.tell()
    }

    /// Reads what the next message, whose bytes are in the area and which is about to be taken,
    /// reports.
    fn hear(&mut self, len: usize) {
        self.due = self.due.saturating_sub((len / (NEAR / SLOTS)) as u64);
        let slot = self.ring.taken() as usize % SLOTS;
        self.heard = self.way.slot(slot).taken();
    }

    /// Reports that this side has processed all messages that it has taken, for
    /// [`Channel::is_settled`](super::Channel::is_settled) of the other side.
    #[inline(always)]
    pub fn settle(&self) {
        control(&self.way.taking, SETTLED).store(self.ring.taken(), Ordering::Release);
    }

    /// Whether messages were taken that the other side was not told of.
    #[inline(always)]
    pub fn has_untold(&self) -> bool {
        self.told != self.ring.taken()
    }

    /// Tells the other side which messages were taken. Returns whether it waits for space and must
    /// be woken.
    #[inline(never)]
    #[must_use]
    pub fn tell(&mut self) -> bool {
        if !self.has_untold() {
            return false;
        }
        self.told = self.ring.taken();
        self.due = self.told + TELL_EVERY;
        self.ring.tell(&self.way);
        barrier::light(self.asymmetric);
        let starved = control(&self.way.filling, STARVED).load(Ordering::Relaxed);
        starved != 0 && self.bell.must_ring()
    }
}
