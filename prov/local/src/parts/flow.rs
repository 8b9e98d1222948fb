//! The two ends of one direction of parts, in a channel's segment.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prov_base::buffer::Piece;
use prov_base::errno::Errno;

use super::{Arrived, PART, Part, Receiving, Record, Request, SLOTS, Sending};
use crate::ring::Broken;
use crate::segment::Segment;
use crate::supply::{Count, Supply};

/// Bytes of a record.
pub(crate) const RECORD: usize = size_of::<Record>();
/// Bytes of the slots of one direction.
pub(crate) const SPACE: usize = SLOTS as usize * PART;

/// How long, after the last part, the receiver waits for another one of a sender that has
/// begun. A sender that goes on making progress takes 5 to 30 microseconds for a part, with
/// whatever else it has to do; with 20 microseconds, most transfers on a busy machine were
/// given up in the middle. One that is at other work is not worth more than the receiver's
/// own copy of a few parts takes.
pub const PATIENCE: Duration = Duration::from_micros(100);
/// Looks in vain of which one reads the clock.
const LOOKS: u32 = 8;

/// Channels with memory for slots, which is [`SPACE`] bytes.
static SUPPLIED: Count = Count::new();

/// Record and slots of one direction.
struct Place {
    record: NonNull<Record>,
    slots: NonNull<u8>,
    /// Offset of the slots in the segment.
    offset: usize,
    segment: Arc<Segment>,
}

// SAFETY: a record consists of atomic words, and slots are used through copies, from any
// thread.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// The record at an offset that is a multiple of its alignment, and the slots at another.
    fn new(segment: &Arc<Segment>, record: usize, slots: usize) -> Place {
        assert!(record.is_multiple_of(align_of::<Record>()));
        assert!(record + RECORD <= segment.len() && slots + SPACE <= segment.len());
        // SAFETY: both are inside the segment.
        let (place, space) = unsafe { (segment.base().add(record), segment.base().add(slots)) };
        Place {
            record: place.cast(),
            slots: space,
            offset: slots,
            segment: segment.clone(),
        }
    }

    fn record(&self) -> &Record {
        // SAFETY: inside the segment, which lives as long as this, aligned (`new`), and made
        // of atomic words, for which any bytes are a value.
        unsafe { self.record.as_ref() }
    }

    fn slot(&self, part: Part) -> Piece<'_> {
        let at = (part.slot % SLOTS) as usize * PART;
        // SAFETY: inside the slots, which are in the segment that this keeps. The record says
        // whose a slot is; that the other process breaks that can spoil the bytes only.
        unsafe { Piece::from_raw(self.slots.as_ptr().add(at), part.len.min(PART)) }
    }
}

/// The end that receives parts.
pub struct Inflow {
    place: Place,
    state: Receiving,
    /// Looks since the last part.
    looks: u32,
    /// When the first of them that has read the clock was.
    quiet_since: Option<Instant>,
}

impl Inflow {
    pub(crate) fn new(segment: &Arc<Segment>, record: usize, slots: usize) -> Inflow {
        Inflow {
            place: Place::new(segment, record, slots),
            state: Receiving::default(),
            looks: 0,
            quiet_since: None,
        }
    }

    /// [`Receiving::open`].
    pub fn open(&mut self, request: Request) -> bool {
        (self.looks, self.quiet_since) = (0, None);
        self.state.open(self.place.record(), request)
    }

    /// [`Receiving::is_open`].
    pub fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// [`Receiving::look`].
    ///
    /// # Errors
    /// The same.
    pub fn look(&self) -> Result<Arrived, Broken> {
        self.state.look(self.place.record())
    }

    /// The bytes of a part that has come.
    pub fn bytes(&self, part: Part) -> Piece<'_> {
        self.place.slot(part)
    }

    /// [`Receiving::took`].
    pub fn took(&mut self) {
        (self.looks, self.quiet_since) = (0, None);
        self.state.took(self.place.record());
    }

    /// After a look in vain: whether no part has come for [`PATIENCE`].
    pub fn is_late(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(LOOKS) {
            return false;
        }
        let now = Instant::now();
        let since = *self.quiet_since.get_or_insert(now);
        now.duration_since(since) >= PATIENCE
    }

    /// [`Receiving::close`].
    pub fn close(&mut self) {
        self.state.close(self.place.record());
    }
}

/// The end that sends parts.
pub struct Outflow {
    place: Place,
    state: Sending,
    supply: Option<Supply>,
    /// The slots have memory.
    is_backed: bool,
}

impl Outflow {
    pub(crate) fn new(segment: &Arc<Segment>, record: usize, slots: usize) -> Outflow {
        Outflow {
            place: Place::new(segment, record, slots),
            state: Sending::default(),
            supply: None,
            is_backed: false,
        }
    }

    /// The next part to be filled, of the payload of this name, if there is one: answers a new
    /// request.
    pub fn next_part(&mut self) -> Option<(u64, Part)> {
        let record = self.place.record();
        if let Some((generation, request)) = self.state.find(record) {
            // A receiver that can copy by itself has taken the first part.
            let is_needed = request.at == 0;
            match self.is_backed || self.back(is_needed) {
                true => self.state.begin(self.place.record(), (generation, request)),
                false => self.state.refuse(self.place.record(), generation, request),
            }
        }
        self.state.next_part(self.place.record())
    }

    /// Whether there is something to do ([`Outflow::next_part`]).
    pub fn is_asked(&self) -> bool {
        let record = self.place.record();
        self.state.find(record).is_some() || self.state.next_part(record).is_some()
    }

    /// Where the bytes of a part go.
    pub fn slot(&self, part: Part) -> Piece<'_> {
        self.place.slot(part)
    }

    /// [`Sending::publish`].
    pub fn publish(&mut self) {
        self.state.publish(self.place.record());
    }

    /// [`Sending::give_up`].
    pub fn give_up(&mut self) {
        self.state.give_up(self.place.record());
    }

    /// Has the system provide memory for the slots; whether there is some. Where it is needed,
    /// the channel gets it however many others have some, and from a system before Linux 5.14
    /// when the slots are used first.
    #[cold]
    fn back(&mut self, is_needed: bool) -> bool {
        let supply = Supply::new(&SUPPLIED);
        if supply.is_none() && !is_needed {
            return false;
        }
        let space = self.place.offset..self.place.offset + SPACE;
        self.is_backed = match self.place.segment.back(space) {
            Ok(()) => true,
            Err(error) => is_needed && error == Errno::EINVAL,
        };
        self.supply = supply.filter(|_| self.is_backed);
        self.is_backed
    }
}
