//! Slots for the helper's parts on their way to the owner.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prov_base::buffer::Piece;

use super::pace::Pace;
use super::{PART, SLOTS, Seen};
use crate::extension::{Count, Extension};
use crate::segment::Segment;

/// Bytes of all slots of a direction.
pub const BOUNCE: usize = SLOTS as usize * PART as usize;

/// Channels of this process whose slots are there.
static BOUNCING: Count = Count::new();

/// Slots that the system is asked for at once.
const AHEAD: u16 = 8;
/// Slots that are used at first.
const FEW: u64 = 4;
/// And how often each, before twice as many are.
const TURNS: u64 = 4;

/// How the helper's parts of a copy come to the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Direct,
    Bounced,
}

/// See the [module](self) description.
pub struct Bounce {
    slots: NonNull<u8>,
    offset: usize,
    segment: Arc<Segment>,
    helper: Mutex<Helper>,
    /// How many slots are there, from the first one on.
    there: AtomicU16,
    pub pace: Arc<Pace>,
}

// SAFETY: the memory is used through copies alone, from any thread.
unsafe impl Send for Bounce {}
// SAFETY: as above.
unsafe impl Sync for Bounce {}

/// Which slots the owner has the helper fill: few at first, since they are not
/// there yet, and in the end so many that what is filled again is in neither side's
/// own caches any more.
#[derive(Debug)]
pub struct Turn {
    next: u64,
    /// So many are used.
    slots: u64,
    /// Parts that went through them since these are so many.
    parts: u64,
}

impl Default for Turn {
    fn default() -> Self {
        Turn {
            next: 0,
            slots: FEW,
            parts: 0,
        }
    }
}

impl Turn {
    /// The slot for the first part of a copy, and how many are used in turn. Those of
    /// the last copy are free.
    pub fn begin(&mut self) -> (u64, u64) {
        if self.parts >= self.slots * TURNS && self.slots < SLOTS.into() {
            (self.slots, self.parts) = (self.slots * 2, 0);
        }
        (self.next % self.slots, self.slots)
    }

    /// Whether all slots are used.
    pub fn are_all_in_use(&self) -> bool {
        self.slots == SLOTS.into()
    }

    /// So many parts of it went through them.
    pub fn took(&mut self, parts: u16) {
        self.next = (self.next + u64::from(parts)) % self.slots;
        self.parts += u64::from(parts);
    }
}

/// What the side that helps knows.
#[derive(Default)]
struct Helper {
    /// Slots may be there.
    extension: Option<Extension>,
    /// There is no memory for more.
    cannot: bool,
    /// The last copy, and what was chosen for it.
    last: Option<(Seen, Way)>,
    /// The last copy that could not be helped with: the peer goes on alone.
    given_up: Option<Seen>,
}

impl Bounce {
    /// The slots at this offset.
    pub(super) fn new(segment: &Arc<Segment>, offset: usize, pace: &Arc<Pace>) -> Bounce {
        assert!(offset + BOUNCE <= segment.len());
        Bounce {
            // SAFETY: inside the segment.
            slots: unsafe { segment.base().add(offset) },
            offset,
            segment: segment.clone(),
            helper: Mutex::default(),
            there: AtomicU16::new(0),
            pace: pace.clone(),
        }
    }

    /// The first bytes of a slot, `len` of them at most.
    pub fn slot(&self, number: u64, len: usize) -> Piece<'_> {
        let at = usize::from(self.index(number)) * PART as usize;
        let len = len.min(PART as usize);
        // SAFETY: inside the slots, which are in the segment that this keeps. The
        // record says whose it is; that the other process breaks that can spoil the
        // bytes only.
        unsafe { Piece::from_raw(self.slots.as_ptr().add(at), len) }
    }

    /// How the helper's parts of a copy that fits go, all of them: as the owner wants it,
    /// if that can be.
    pub fn way(&self, seen: &Seen) -> Way {
        let mut helper = self.helper();
        if let Some((last, way)) = &helper.last
            && last.is_same(seen)
        {
            return *way;
        }
        let way = match seen.what.wants_slots() && helper.may_have_slots() {
            true => Way::Bounced,
            false => Way::Direct,
        };
        helper.last = Some((*seen, way));
        way
    }

    /// Whether that was chosen for this copy.
    pub(super) fn fills(&self, seen: &Seen) -> bool {
        let helper = self.helper();
        let last = helper.last.as_ref();
        last.is_some_and(|(last, way)| last.is_same(seen) && *way == Way::Bounced)
    }

    /// No more of this copy can be helped with.
    pub fn give_up(&self, seen: Seen) {
        self.helper().given_up = Some(seen);
    }

    /// Whether that is so.
    pub fn has_given_up(&self, seen: &Seen) -> bool {
        let helper = self.helper();
        let given_up = helper.given_up.as_ref();
        given_up.is_some_and(|given_up| given_up.is_same(seen))
    }

    fn helper(&self) -> MutexGuard<'_, Helper> {
        self.helper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a copy that wants slots could have some, as far as is known.
    pub fn may_have_slots(&self) -> bool {
        !self.helper().cannot
    }

    /// Whether that slot is there.
    pub fn is_there(&self, number: u64) -> bool {
        self.index(number) < self.there.load(Ordering::Relaxed)
    }

    /// Has it from the system, and those before it, and as many more as there were
    /// but a few: the system takes much longer to provide one than this side to fill
    /// it. Whether there is memory for that.
    pub fn provide(&self, number: u64) -> bool {
        let (there, needed) = (self.there.load(Ordering::Relaxed), self.index(number) + 1);
        let more = needed.max(there + there.min(AHEAD)).min(SLOTS);
        let at = |slot: u16| self.offset + usize::from(slot) * PART as usize;
        if more > there && self.segment.back(at(there)..at(more)).is_err() {
            self.have_no_memory();
            return false;
        }
        self.there.fetch_max(more, Ordering::Relaxed);
        true
    }

    /// There is none for more slots, and none are used any more.
    pub fn have_no_memory(&self) {
        let mut helper = self.helper();
        helper.cannot = true;
        if self.there.load(Ordering::Relaxed) == 0 {
            helper.extension = None;
        }
    }

    fn index(&self, number: u64) -> u16 {
        (number % u64::from(SLOTS)) as u16
    }
}

impl Helper {
    fn may_have_slots(&mut self) -> bool {
        if self.extension.is_none() && !self.cannot {
            self.extension = Extension::new(&BOUNCING);
        }
        self.extension.is_some() && !self.cannot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_few_until_they_were_used_often() {
        let mut turn = Turn::default();
        let (mut next, mut used) = (0, 0);
        let mut slots = FEW;
        for copy in 0..10_000 {
            if used >= slots * TURNS && slots < SLOTS.into() {
                (slots, used) = (slots * 2, 0);
            }
            assert_eq!(turn.begin(), (next, slots));
            // Of one or the other, more than there are slots.
            let parts = [3, 200][usize::from(copy % 100 == 0)];
            turn.took(parts);
            next = (next + u64::from(parts)) % slots;
            used += u64::from(parts);
        }
        assert_eq!(slots, u64::from(SLOTS));
    }

    #[test]
    fn slots_are_there_when_they_are_provided_with_some_more() {
        let segment = Segment::create(BOUNCE + 4096, &[]).unwrap();
        let bounce = Bounce::new(&Arc::new(segment.0), 4096, &Arc::default());
        assert!(!bounce.is_there(0) && bounce.provide(0));
        assert!(bounce.is_there(0) && bounce.is_there(SLOTS.into()) && !bounce.is_there(1));
        assert!(bounce.provide(1) && bounce.provide(2) && bounce.is_there(3));
        assert!(!bounce.is_there(4) && bounce.provide(u64::MAX));
        let blocks = rustix::fs::fstat(&segment.1).unwrap().st_blocks * 512;
        assert_eq!(blocks, BOUNCE as i64);
    }
}
