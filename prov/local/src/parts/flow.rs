//! The two ends of one direction of parts, in a channel's segment.

use std::ptr::NonNull;
use std::sync::Arc;

use prov_base::buffer::Piece;
use prov_base::errno::Errno;

use super::{Arrived, PART, Part, Receiving, Record, Request, SLOTS, Sending};
use crate::ring::Broken;
use crate::segment::Segment;

/// Size of a record in bytes.
pub(crate) const RECORD: usize = size_of::<Record>();
/// Size in bytes of the slots of one direction.
pub(crate) const SPACE: usize = SLOTS as usize * PART;

/// The record and the slots of one direction.
struct Place {
    record: NonNull<Record>,
    slots: NonNull<u8>,
    /// Offset of the slots in the segment, in bytes.
    offset: usize,
    segment: Arc<Segment>,
}

// SAFETY: the pointers refer to the segment, which the value keeps mapped and which is bound to no
// thread; the record consists of atomic words, and slots are accessed by copies that tolerate
// concurrent changes.
unsafe impl Send for Place {}
// SAFETY: the same accesses are possible through a shared reference, and sound from any thread, as
// above.
unsafe impl Sync for Place {}

impl Place {
    /// Locates the record and the slots at these offsets; that of the record is a multiple of its
    /// alignment.
    fn new(segment: &Arc<Segment>, record: usize, slots: usize) -> Place {
        assert!(record.is_multiple_of(align_of::<Record>()));
        assert!(record + RECORD <= segment.len() && slots + SPACE <= segment.len());
        // SAFETY: both offsets are inside the segment, which was asserted.
        let (place, space) = unsafe { (segment.base().add(record), segment.base().add(slots)) };
        Place {
            record: place.cast(),
            slots: space,
            offset: slots,
            segment: segment.clone(),
        }
    }

    fn record(&self) -> &Record {
        // SAFETY: `new` has asserted that the record is inside the segment, which `self` keeps
        // mapped, and aligned; it consists of atomic words, for which every bit pattern is valid.
        unsafe { self.record.as_ref() }
    }

    fn slot(&self, part: Part) -> Piece<'_> {
        let at = (part.slot % SLOTS) as usize * PART;
        // SAFETY: the slot's number is reduced to one of the slots, and its length to `PART`, so
        // the bytes are inside the segment, which `self` keeps mapped. The record decides which
        // side uses the slot; if the other process violates that, it can only spoil the bytes.
        unsafe { Piece::from_raw(self.slots.as_ptr().add(at), part.len.min(PART)) }
    }
}

/// The receiving end of parts.
pub struct Inflow {
    place: Place,
    state: Receiving,
}

impl Inflow {
    pub(crate) fn new(segment: &Arc<Segment>, record: usize, slots: usize) -> Inflow {
        Inflow {
            place: Place::new(segment, record, slots),
            state: Receiving::default(),
        }
    }

    /// See [`Receiving::open`].
    pub fn open(&mut self, request: Request) -> bool {
        self.state.open(self.place.record(), request)
    }

    /// See [`Receiving::look`].
    ///
    /// # Errors
    /// Those of [`Receiving::look`].
    pub fn look(&self) -> Result<Arrived, Broken> {
        self.state.look(self.place.record())
    }

    /// Returns the bytes of a part that has arrived.
    pub fn bytes(&self, part: Part) -> Piece<'_> {
        self.place.slot(part)
    }

    /// See [`Receiving::took`].
    pub fn took(&mut self) {
        self.state.took(self.place.record());
    }

    /// See [`Receiving::close`].
    pub fn close(&mut self) {
        self.state.close(self.place.record());
    }
}

/// The sending end of parts.
pub struct Outflow {
    place: Place,
    state: Sending,
    /// Whether the slots have memory.
    is_backed: bool,
}

impl Outflow {
    pub(crate) fn new(segment: &Arc<Segment>, record: usize, slots: usize) -> Outflow {
        Outflow {
            place: Place::new(segment, record, slots),
            state: Sending::default(),
            is_backed: false,
        }
    }

    /// Answers a new request, and returns the next part to fill and the name of its payload, if
    /// there is one.
    pub fn next_part(&mut self) -> Option<(u64, Part)> {
        let record = self.place.record();
        if let Some((generation, request)) = self.state.find(record) {
            match self.is_backed || self.back() {
                true => self.state.begin(self.place.record(), (generation, request)),
                false => self.state.refuse(self.place.record(), generation, request),
            }
        }
        self.state.next_part(self.place.record())
    }

    /// Returns the number of the request that is being answered.
    pub fn generation(&self) -> u32 {
        self.state.generation()
    }

    /// Whether [`Outflow::next_part`] has something to do.
    pub fn is_asked(&self) -> bool {
        let record = self.place.record();
        self.state.find(record).is_some() || self.state.next_part(record).is_some()
    }

    /// Returns the memory for the bytes of a part.
    pub fn slot(&self, part: Part) -> Piece<'_> {
        self.place.slot(part)
    }

    /// See [`Sending::publish`].
    pub fn publish(&mut self) {
        self.state.publish(self.place.record());
    }

    /// See [`Sending::give_up`].
    pub fn give_up(&mut self) {
        self.state.give_up(self.place.record());
    }

    /// Has the system provide memory for the slots. Returns whether there is some. A system before Linux
    /// 5.14, which does not support this, provides it when the slots are used first.
    #[cold]
    fn back(&mut self) -> bool {
        let space = self.place.offset..self.place.offset + SPACE;
        let backed = self.place.segment.back(space);
        self.is_backed = matches!(backed, Ok(()) | Err(Errno::EINVAL));
        self.is_backed
    }
}
