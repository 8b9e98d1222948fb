//! The two ends of a table in a channel's segment.

use std::ptr::NonNull;
use std::sync::Arc;

use super::{Entries, Table};
use crate::segment::Segment;

/// The place of a table.
#[derive(Clone)]
struct Place {
    table: NonNull<Table>,
    /// Keeps the memory mapped.
    segment: Arc<Segment>,
}

// SAFETY: the pointer refers to the segment, which the value keeps mapped and which is bound to no
// thread; the table consists of atomic words.
unsafe impl Send for Place {}
// SAFETY: a shared reference gives access to atomic words only, as above.
unsafe impl Sync for Place {}

impl Place {
    /// Locates the table at this offset, a multiple of its alignment.
    fn new(segment: &Arc<Segment>, offset: usize) -> Place {
        assert!(offset.is_multiple_of(align_of::<Table>()));
        assert!(offset + size_of::<Table>() <= segment.len());
        // SAFETY: the offset is inside the segment, which was asserted.
        let table = unsafe { segment.base().add(offset) };
        Place {
            table: table.cast(),
            segment: segment.clone(),
        }
    }

    fn table(&self) -> &Table {
        debug_assert!(self.segment.len() >= size_of::<Table>());
        // SAFETY: `new` has asserted that the table is inside the segment, which `self` keeps mapped,
        // and aligned, as segments are to pages; it consists of atomic words, for which every bit
        // pattern is valid.
        unsafe { self.table.as_ref() }
    }
}

/// The receiver's end: the payloads that the sender has copied elsewhere.
#[derive(Clone)]
pub struct Relocated(Place);

impl Relocated {
    pub(crate) fn new(segment: &Arc<Segment>, offset: usize) -> Self {
        Relocated(Place::new(segment, offset))
    }

    /// See [`Table::find`].
    pub fn find(&self, name: u64) -> Option<u64> {
        self.0.table().find(name)
    }
}

/// The sender's end.
pub struct Relocating {
    place: Place,
    entries: Entries,
}

impl Relocating {
    pub(crate) fn new(segment: &Arc<Segment>, offset: usize) -> Self {
        Relocating {
            place: Place::new(segment, offset),
            entries: Entries::default(),
        }
    }

    /// See [`Entries::publish`].
    #[must_use]
    pub fn publish(&mut self, name: u64, addr: u64) -> bool {
        self.entries.publish(self.place.table(), name, addr)
    }

    /// See [`Entries::withdraw`].
    pub fn withdraw(&mut self, name: u64) {
        self.entries.withdraw(self.place.table(), name);
    }
}
