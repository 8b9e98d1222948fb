//! Where in a segment the records of joint copies are.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prov_base::process_memory::Token;

use super::{BOUNCE, Bounce, Pace, Record, Seen};
use crate::process::own_seal;
use crate::segment::Segment;

/// Bytes of a record.
pub const BOARD: usize = size_of::<Record>();

/// A record in a segment.
#[derive(Clone)]
pub struct Board {
    record: NonNull<Record>,
    /// The slots that belong to it.
    pub bounce: Arc<Bounce>,
    /// Keeps it.
    _segment: Arc<Segment>,
}

// SAFETY: a record has atomic words alone, which any thread may use.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// The record at this offset, a multiple of 128, and its slots at the other one.
    fn new(segment: &Arc<Segment>, offset: usize, slots: usize, pace: &Arc<Pace>) -> Board {
        assert!(offset.is_multiple_of(align_of::<Record>()) && offset + BOARD <= segment.len());
        // SAFETY: inside the segment.
        let record = unsafe { segment.base().add(offset) }.cast();
        Board {
            record,
            bounce: Arc::new(Bounce::new(segment, slots, pace)),
            _segment: segment.clone(),
        }
    }

    /// Whether the helper has filled all slots with parts of this copy.
    pub fn is_full(&self, seen: &Seen) -> bool {
        self.bounce.fills(seen) && self.free_slot(seen).is_none()
    }

    /// The helper's seal, as that says; none where it does not help.
    #[allow(
        clippy::indexing_slicing,
        reason = "the offsets are constants within the array"
    )]
    pub fn witness(&self) -> Option<Token> {
        let [addr, value] = [0, 1].map(|at| self.witness.0[at].load(Ordering::Relaxed));
        (addr != 0 && value != 0).then_some(Token { addr, value })
    }

    /// Says where the helper's seal is.
    pub(crate) fn set_witness(&self, token: Token) {
        for (place, word) in self.witness.0.iter().zip([token.addr, token.value]) {
            place.store(word, Ordering::Relaxed);
        }
    }
}

impl Deref for Board {
    type Target = Record;

    fn deref(&self) -> &Record {
        // SAFETY: inside the segment, which lives as long, aligned (`new`), and
        // made of atomic words, for which any bytes will do.
        unsafe { self.record.as_ref() }
    }
}

/// Joint copies of a pair of processes, as one of them has them.
#[derive(Clone)]
pub struct Joint {
    /// Those whose owner it is.
    pub own: Board,
    /// Those that it helps with.
    pub far: Board,
}

impl Joint {
    /// Of this side, 0 or 1, with the two records from this offset on, and all slots
    /// from the other one.
    pub fn new(segment: &Arc<Segment>, offset: usize, slots: usize, side: usize) -> Joint {
        let pace = Arc::default();
        let at = |side: usize| {
            let (record, slots) = (offset + side * BOARD, slots + side * BOUNCE);
            Board::new(segment, record, slots, &pace)
        };
        let (own, far) = (at(side), at(1 - side));
        if let Some(token) = own_seal() {
            far.set_witness(token);
        }
        Joint { own, far }
    }
}
