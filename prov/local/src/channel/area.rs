//! Allocation in the area beside the ring, for messages that do not fit into a slot.
//!
//! The area is a circular buffer: space is allocated in order, and becomes free in the same order
//! when the receiver has read the messages. Its beginning gets memory with the first message that does
//! not fit into a slot: many channels never have one. The rest is provided with the first message that
//! is longer than [`MODERATE`], unless too many other channels of the process have all of theirs.

use super::slot::Direction;
use super::{AREA, INLINE, LONGEST, MODERATE, NEAR};
use crate::supply::{Count, Supply};

/// An allocation in the area.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) offset: u64,
    /// Value of [`Area::given`] after the allocation.
    pub(super) given: u64,
}

/// Number of channels of the process with all of their area.
static SUPPLIED: Count = Count::new();

/// The sender's view of the area. Counters are in bytes and never wrap around.
pub(super) struct Area {
    /// Total number of bytes allocated, and total number of these that are free again.
    pub(super) given: u64,
    pub(super) free: u64,
    /// Value of `given` at which the area's first byte was last allocated.
    origin: u64,
    /// Number of bytes of the area that are in use; 0 until its beginning has memory.
    len: u64,
    supply: Option<Supply>,
    /// Whether an extension was tried already, so that `len` stays as it is.
    is_settled: bool,
}

impl Area {
    /// Returns that of a new channel. If it `is_backed`, its beginning has memory.
    pub(super) fn new(is_backed: bool) -> Self {
        Area {
            given: 0,
            free: 0,
            origin: 0,
            len: if is_backed { NEAR as u64 } else { 0 },
            supply: None,
            is_settled: false,
        }
    }

    /// Provides the beginning of the area with memory, unless it has it. There is no space for messages
    /// as long as the system has no memory.
    pub(super) fn begin(&mut self, way: &Direction) {
        if self.len == 0 && way.back_area(0..NEAR) {
            self.len = NEAR as u64;
        }
    }

    /// Whether messages of this length can be sent once there is space.
    #[inline]
    pub(super) fn takes(&self, len: usize) -> bool {
        len <= MODERATE || len <= LONGEST && self.len == AREA as u64
    }

    /// Extends the area to its full size, unless that has been tried before.
    pub(super) fn extend(&mut self, way: &Direction) {
        // Allocations do not move, so there must not be any.
        if self.is_settled || self.given != self.free {
            return;
        }
        self.is_settled = true;
        let supply = Supply::new(&SUPPLIED);
        if supply.is_some() && way.back_area(0..AREA) {
            (self.len, self.supply, self.origin) = (AREA as u64, supply, self.given);
        }
    }

    /// Returns contiguous space for `len` bytes; `None` if there is none at present. A message that
    /// fits into its slot needs no space.
    #[inline(always)]
    pub(super) fn find(&mut self, len: usize) -> Option<Place> {
        if len <= INLINE {
            return Some(Place {
                offset: 0,
                given: self.given,
            });
        }
        let (area, len) = (self.len, len.next_multiple_of(64) as u64);
        if area == 0 {
            return None;
        }
        // The cache lines of a message that is not long arrive sooner from the receiver's cache than
        // from the last-level cache, where the rest of the area is.
        if len <= MODERATE as u64 && self.given == self.free {
            self.origin = self.given;
        }
        let mut start = self.given;
        let offset = (start - self.origin) % area;
        if offset + len > area {
            start += area - offset;
        }
        let given = start + len;
        let offset = (start - self.origin) % area;
        (given - self.free <= area).then_some(Place { offset, given })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::can_back;

    #[test]
    fn messages_that_are_not_long_reuse_the_place_of_one_that_is_taken() {
        let mut area = Area::new(true);
        let mut find = |len, is_taken| {
            let place = area.find(len).unwrap();
            area.given = place.given;
            if is_taken {
                area.free = place.given;
            }
            place.offset
        };
        let short = 1 << 10;
        assert_eq!([find(short, true), find(short, false)], [0, 0]);
        assert_eq!(find(short, true), 1 << 10, "the last one is not taken");
        assert_eq!([find(short, true), find(4096, true)], [0, 0]);
        let long = MODERATE + 1;
        assert_eq!(find(long, true), 4096);
        assert_ne!(find(long, true), 0, "a long one");
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memfd_create(2)")]
    fn the_beginning_of_the_area_gets_memory_with_the_first_message_that_is_in_it() {
        let (mut channel, fd) = super::super::Channel::create().unwrap();
        let blocks = || rustix::fs::fstat(&fd).unwrap().st_blocks * 512;
        let at_first = blocks();
        assert!(channel.space(INLINE).unwrap().is_some());
        assert_eq!(blocks(), at_first);
        assert!(channel.space(MODERATE).unwrap().is_some());
        assert_eq!(channel.sender.area.len, NEAR as u64);
        match can_back() {
            true => assert_eq!(blocks(), at_first + NEAR as i64),
            false => assert_eq!(blocks(), at_first),
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no memfd_create(2)")]
    fn the_area_is_extended_with_the_first_long_message_when_nothing_is_in_it() {
        let (channel, _fd) = super::super::Channel::create().unwrap();
        let way = &channel.sender.way;
        let mut area = Area::new(true);
        let place = area.find(5000).unwrap();
        area.given = place.given;
        area.extend(way);
        assert!(area.takes(MODERATE) && !area.takes(MODERATE + 1));
        area.free = area.given;
        area.extend(way);
        // The extension is refused if other tests have many extended channels.
        let is_extended = area.takes(LONGEST);
        assert_eq!(is_extended, area.len == AREA as u64);
        assert!(!area.takes(LONGEST + 1));
        let place = area.find(5000).unwrap();
        assert!(place.offset + 5000 <= area.len);
    }

    #[test]
    fn space_is_handed_out_once_until_it_is_free() {
        let mut area = Area::new(true);
        for round in 0..3 {
            let mut places: Vec<std::ops::Range<u64>> = Vec::new();
            while let Some(place) = area.find(5000) {
                let space = place.offset..place.offset + 5000;
                assert!(space.end <= NEAR as u64);
                let is_apart = |other: &std::ops::Range<u64>| {
                    other.end <= space.start || space.end <= other.start
                };
                assert!(places.iter().all(is_apart), "in round {round}");
                places.push(space);
                area.given = place.given;
            }
            assert!(places.len() >= NEAR / 5056 - 1);
            area.free = area.given;
        }
    }
}
