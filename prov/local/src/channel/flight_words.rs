//! The words of a channel that belong to one-sided accesses of one side to the memory of the other
//! ([`onesided`](crate::onesided)).

use std::ptr::NonNull;
use std::sync::Arc;

use prov_base::shared_words::AtomicU64;

use super::{APART_APPLIED, APPLIED, CONTROL, CONTROL_SIZE, FLIGHT, REVOKED, control};
use crate::segment::Segment;

/// The words that the two sides of a channel share for one-sided accesses: one side is the
/// initiator of the accesses, the other one the owner of the memory.
pub struct FlightWords {
    /// Keeps the memory mapped.
    _segment: Arc<Segment>,
    /// The initiator's control words.
    initiator: NonNull<u8>,
    /// The owner's control words.
    owner: NonNull<u8>,
    /// The word of the writes in the ring.
    applied: NonNull<u8>,
}

// SAFETY: the pointers refer to the segment, which the value keeps mapped and which is bound to no
// thread; its words are accessed atomically only.
unsafe impl Send for FlightWords {}
// SAFETY: a shared reference gives access to atomic words only, as above.
unsafe impl Sync for FlightWords {}

impl FlightWords {
    pub(super) fn new(segment: &Arc<Segment>, initiator: usize) -> Self {
        let at = |side: usize| {
            // SAFETY: the offset is below `CONTROL + 2 * CONTROL_SIZE`, which is inside the
            // segment's first page.
            unsafe { segment.base().add(CONTROL + side % 2 * CONTROL_SIZE) }
        };
        // SAFETY: the offset is below `PARTS`, which is inside the segment's first page.
        let applied = unsafe { segment.base().add(APPLIED + initiator % 2 * APART_APPLIED) };
        FlightWords {
            applied,
            initiator: at(initiator),
            owner: at(1 + initiator),
            _segment: segment.clone(),
        }
    }

    /// Returns the flight word, which the initiator writes.
    #[inline]
    pub fn flight(&self) -> &AtomicU64 {
        control(&self.initiator, FLIGHT)
    }

    /// Returns the word of the writes in the initiator's ring ([`turns`](crate::onesided::turns)), which
    /// both sides write.
    #[inline]
    pub fn applied(&self) -> &AtomicU64 {
        control(&self.applied, 0)
    }

    /// Returns the word of those writes that the owner has refused, which it writes.
    #[inline]
    pub fn refused(&self) -> &AtomicU64 {
        control(&self.applied, 8)
    }

    /// Returns the revoked word, which the owner writes.
    #[inline]
    pub fn revoked(&self) -> &AtomicU64 {
        control(&self.owner, REVOKED)
    }
}
