//! The end of a channel that receives.

use std::sync::atomic::Ordering;

use prov_base::buffer::{Iov, Piece};

use super::slot::{Direction, Head, Next, control};
use super::{AHEAD, INLINE, LONGEST, NEAR, SETTLED, SLEEP, SLOTS, STARVED};
use crate::barrier;
use crate::ring::{Broken, Consumer, lap};

/// Slots after which the other side is told that they were taken.
const TELL_EVERY: u64 = SLOTS as u64 / 4;
/// A message that has come, without its bytes: [`Receiver::bytes`] gives these.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub head: Head,
    bytes: Whereabouts,
}

/// Where the bytes of a message are.
#[derive(Clone, Copy, Debug)]
enum Whereabouts {
    /// In its slot; no more than [`INLINE`].
    Near { slot: usize, len: usize },
    /// In the area.
    Far { offset: u64, len: usize },
}

impl Record {
    /// How many bytes it has.
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

/// The end of a channel that receives.
pub struct Receiver {
    pub(super) way: Direction,
    pub(super) ring: Consumer,
    /// How many slots had been taken when the other side was last told.
    told: u64,
    /// How many there are when it is told again: a quarter more, or fewer by a slot for each
    /// slot's share of what is mostly used of the area, if that was taken, too.
    due: u64,
    /// How many messages of this side the other one has taken, as the last long one
    /// of it has said.
    pub(super) heard: u64,
    /// The last message of which a part was fetched before it had come.
    pub(super) fetched: Option<u64>,
    woken: u64,
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
            Some(bytes) => Whereabouts::Near {
                slot: self.ring.taken() as usize % SLOTS,
                len: bytes.len(),
            },
            None => {
                // What the other side has written there is read once.
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

    /// The bytes of a message, which are there until it is taken, and can be copied but
    /// not trusted to stay as they are. Of one that was taken, what has come since.
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
    /// They are in the channel's segment, and cannot be used when that is gone:
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
    /// nor when the message was taken, and its place may be another one's:
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

    /// The bytes of the next message where they are not in its slot; `None` if they
    /// are nowhere, for [`Receiver::next`].
    #[inline(always)]
    pub fn far_bytes(&self, next: &Next<'_>) -> Option<Piece<'_>> {
        let (offset, len) = next.place();
        self.far(offset, len)
    }

    #[inline(always)]
    fn far(&self, offset: u64, len: usize) -> Option<Piece<'_>> {
        self.way.area(offset, len)
    }

    /// Bytes of all messages that have come.
    pub fn waiting(&self) -> usize {
        let next = |ahead| {
            let half = self.ring.ahead(&self.way, ahead)?;
            let slot = (self.ring.taken().wrapping_add(ahead)) as usize % SLOTS;
            Some(Next::new(self.way.slot(slot), half).len().min(LONGEST))
        };
        (0..SLOTS as u64).map_while(next).sum()
    }

    /// Whether a message has come.
    #[inline(always)]
    pub fn has_next(&self) -> bool {
        self.ring.next(&self.way).is_some()
    }

    /// Has the processor fetch what is in place of a long message while its sender
    /// is at the rest, once.
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

    /// The next message, of `len` bytes, is taken. Whether the other side waits
    /// for room and is to be woken.
    #[inline(always)]
    #[must_use]
    pub fn take(&mut self, len: usize) -> bool {
        if len > INLINE {
            self.hear(len);
        }
        self.take_short()
    }

    /// [`Receiver::take`] for a message that is in its slot.
    #[inline(always)]
    #[must_use]
    pub fn take_short(&mut self) -> bool {
        self.ring.take();
        self.ring.taken() >= self.due && self.tell()
    }

    /// The next message, which is in the area, is about to be taken.
    fn hear(&mut self, len: usize) {
        self.due = self.due.saturating_sub((len / (NEAR / SLOTS)) as u64);
        let slot = self.ring.taken() as usize % SLOTS;
        self.heard = self.way.slot(slot).taken();
    }

    /// Says that this side has acted upon all messages that it has taken, for which the
    /// other side may look ([`Channel::is_settled`](super::Channel::is_settled)).
    #[inline(always)]
    pub fn settle(&self) {
        control(&self.way.taking, SETTLED).store(self.ring.taken(), Ordering::Release);
    }

    /// Whether the other side was not told of all that was taken.
    #[inline(always)]
    pub fn has_untold(&self) -> bool {
        self.told != self.ring.taken()
    }

    /// Tells the other side what was taken. Whether it waits for room and is to
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
        let sleep = control(&self.way.filling, SLEEP).load(Ordering::Relaxed);
        sleep & STARVED != 0 && std::mem::replace(&mut self.woken, sleep) != sleep
    }
}
