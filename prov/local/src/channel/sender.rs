//! The sending end of a channel.

use prov_base::buffer::{Iov, Piece};
use prov_base::shared_words::Ordering;

use super::area::{Area, Place};
use super::slot::{Direction, FAR, Head, Slot, control, half_of, put_words};
use super::{AHEAD, INLINE, LONG, SETTLED, SLOTS, SOON};
use crate::barrier;
use crate::doorbell::DoorbellOfPeer;
use crate::ring::{Broken, Free, Producer, lap};
use crate::segment::can_back;

/// The sending end of a channel.
pub struct Sender {
    pub(super) way: Direction,
    pub(super) ring: Producer,
    pub(super) area: Area,
    /// For each slot, the number of bytes of the area that had been allocated when it was filled.
    /// The entries of slots before `noted` are valid; no bytes have been allocated since.
    given_by: Box<[u64; SLOTS]>,
    /// Total number of slots that are accounted for in `given_by`.
    noted: u64,
    /// The doorbell of the other side's lane.
    pub(super) bell: DoorbellOfPeer,
    pub(super) asymmetric: bool,
    /// Length of the last message, if there was no space for it.
    pub(super) lacking: Option<usize>,
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
pub(super) struct Taken {
    /// By this side.
    pub(super) here: u64,
    /// By the other side, as far as its messages have reported it.
    pub(super) there: u64,
}

impl Sender {
    pub(super) fn new(way: Direction) -> Self {
        Sender {
            way,
            ring: Producer::default(),
            area: Area::new(!can_back()),
            given_by: Box::new([0; SLOTS]),
            noted: 0,
            bell: DoorbellOfPeer::silent(),
            asymmetric: false,
            lacking: None,
            clear: 0,
        }
    }

    /// Whether all messages that were sent are known to have been received, or are notices.
    pub(super) fn is_clear(&self) -> bool {
        self.ring.filled() == self.ring.done().max(self.clear)
    }

    /// Sends a message of `len` bytes that fits into a slot. `fill` writes its bytes, and `wake`
    /// wakes the other side if it sleeps. Returns `false`, without any effect, if the message has
    /// to be sent through [`Channel::space`](super::Channel::space).
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

    /// Whether the other side's lane sleeps, and is not being woken.
    #[inline(always)]
    pub(super) fn finds_sleeper(&self) -> bool {
        barrier::light(self.asymmetric);
        self.bell.must_ring()
    }

    /// Whether the receiver has processed all messages that were sent; `false` if none was sent.
    pub(super) fn is_settled(&self) -> bool {
        let settled = control(&self.way.taking, SETTLED).load(Ordering::Acquire);
        settled == self.ring.filled() && settled != 0
    }

    /// See [`Channel::send_long`](super::Channel::send_long).
    #[inline(always)]
    pub(super) fn send_far(
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

    /// See [`Channel::space`](super::Channel::space).
    #[inline(always)]
    pub(super) fn space(
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
    pub(super) fn find(
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
                self.area.begin(&self.way);
            }
        }
        self.lacking = Some(len);
        Ok(None)
    }

    /// See [`Channel::takes`](super::Channel::takes).
    #[cold]
    pub(super) fn extend_area(&mut self, len: usize) -> bool {
        // An error of the channel is reported by the next send.
        let _ = self.look();
        self.area.extend(&self.way);
        self.area.takes(len)
    }

    /// Reads the receiver's position.
    pub(super) fn look(&mut self) -> std::result::Result<(), Broken> {
        let done = self.ring.look(&self.way)?;
        self.are_done(done);
        Ok(())
    }

    /// Handles the receiver's report of its position.
    #[inline(always)]
    pub(super) fn hear(&mut self, done: u64) -> std::result::Result<(), Broken> {
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
