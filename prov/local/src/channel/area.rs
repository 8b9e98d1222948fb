//! The area for the bytes of longer messages, as the side that fills it has it.
//!
//! Its room is used in turn. Where lines that the receiver has just read are
//! written again, its caches have to give them up one by one; in an area that is
//! larger than those they are in the cache that processors share. So a channel
//! whose area is used a lot gets a large one: from the start, only the beginning is
//! there.

use std::time::{Duration, Instant};

use super::slot::Direction;
use super::{AREA, INLINE, NEAR};
use crate::extension::{Count, Extension};

/// An area whose beginning is used up within that time is used a lot.
const LIVELY: Duration = Duration::from_millis(1);
/// How long its receiver may take nothing: it may wait for a processor, and has
/// more to do when it has one if all of the area is full.
const PATIENCE: Duration = Duration::from_micros(100);
/// Channels of this process with all of their area.
static EXTENDED: Count = Count::new();

/// Room in the area.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) offset: u64,
    /// What is given out with it, of all times.
    pub(super) given: u64,
}

/// See the [module](self) description.
pub(super) struct Area {
    /// Bytes that were given out, of all times, and free again.
    pub(super) given: u64,
    pub(super) free: u64,
    /// All of it is used.
    extension: Option<Extension>,
    /// Of all channels.
    extended: &'static Count,
    /// There is no memory for that.
    cannot: bool,
    /// When the beginning was last used up, and what was given out by then.
    turned: Option<(u64, Instant)>,
}

impl Default for Area {
    fn default() -> Self {
        Area::new(&EXTENDED)
    }
}

impl Area {
    fn new(extended: &'static Count) -> Area {
        Area {
            given: 0,
            free: 0,
            extension: None,
            extended,
            cannot: false,
            turned: None,
        }
    }

    /// Whether nothing is given out.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.given == self.free
    }

    /// Where `len` bytes go, all together.
    #[inline(always)]
    pub(super) fn find(&mut self, len: usize, way: &Direction) -> Option<Place> {
        if len <= INLINE {
            return Some(Place {
                offset: 0,
                given: self.given,
            });
        }
        let (area, len) = (AREA as u64, len.next_multiple_of(64) as u64);
        let mut start = self.given;
        if start % area + len > self.reach() && !self.goes_on(way) {
            start = start.next_multiple_of(area);
        }
        let given = start + len;
        let offset = start % area;
        (given - self.free <= area).then_some(Place { offset, given })
    }

    #[inline(always)]
    fn reach(&self) -> u64 {
        match self.extension {
            Some(_) => AREA as u64,
            None => NEAR as u64,
        }
    }

    /// What is used has no room up to its end. Whether there is room behind it.
    #[cold]
    fn goes_on(&mut self, way: &Direction) -> bool {
        if self.extension.is_some() || self.cannot {
            return false;
        }
        let now = Instant::now();
        let is_used_a_lot = match self.turned {
            Some((given, since)) if given == self.given => now.duration_since(since) > PATIENCE,
            last => {
                self.turned = Some((self.given, now));
                last.is_some_and(|(_, last)| now.duration_since(last) < LIVELY)
            }
        };
        is_used_a_lot && self.extend(way)
    }

    /// All of it is used from now on, if that is possible.
    #[cold]
    pub(super) fn extend(&mut self, way: &Direction) -> bool {
        if self.extension.is_none()
            && !self.cannot
            && let Some(extension) = Extension::new(self.extended)
        {
            self.cannot = !way.back_area();
            self.extension = (!self.cannot).then_some(extension);
        }
        self.is_extended()
    }

    /// Whether all of it is used.
    pub(super) fn is_extended(&self) -> bool {
        self.extension.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Channel;
    use crate::extension::MOST;

    /// Uses the beginning of an area up once.
    fn turn(area: &mut Area, way: &Direction) {
        for _ in 0..NEAR / 4096 {
            let place = area.find(4096, way).unwrap();
            area.given = place.given;
            area.free = place.given;
        }
    }

    #[test]
    fn what_is_used_a_lot_is_large_and_what_is_not_stays_small() {
        static COUNT: Count = Count::new();
        let (channel, _fd) = Channel::create().unwrap();
        let way = &channel.sender.way;
        let mut area = Area::new(&COUNT);
        // A clock that has not been looked at is none that says "lately".
        turn(&mut area, way);
        assert!(area.turned.is_none() && area.extension.is_none());
        turn(&mut area, way);
        area.turned = area.turned.map(|(given, at)| (given, at - 2 * LIVELY));
        turn(&mut area, way);
        assert!(area.extension.is_none(), "not so lately");
        // The clock stands for any that the test may run late by.
        area.turned = area.turned.map(|(given, at)| (given, at + LIVELY));
        let place = area.find(4096, way).unwrap();
        assert!(area.is_extended());
        assert_eq!(place.offset, NEAR as u64, "room behind what was used");
    }

    #[test]
    fn who_finds_no_room_and_asks_again_at_once_has_not_used_it_a_lot() {
        static COUNT: Count = Count::new();
        let (channel, _fd) = Channel::create().unwrap();
        let way = &channel.sender.way;
        let mut area = Area::new(&COUNT);
        let place = area.find(NEAR, way).unwrap();
        area.given = place.given;
        for _ in 0..2 {
            assert!(area.find(4096, way).is_none());
            // Whatever the test is put off by.
            area.turned = Some((area.given, Instant::now() + PATIENCE));
        }
        assert!(!area.is_extended());
        area.turned = Some((
            area.given,
            Instant::now().checked_sub(2 * PATIENCE).unwrap(),
        ));
        assert!(area.find(4096, way).is_some() && area.is_extended());
    }

    #[test]
    fn room_is_given_out_once_until_it_is_free() {
        static COUNT: Count = Count::new();
        let (channel, _fd) = Channel::create().unwrap();
        let way = &channel.sender.way;
        let mut area = Area::new(&COUNT);
        assert!(area.extend(way));
        let mut places = Vec::new();
        while let Some(place) = area.find(5000, way) {
            places.push(place.offset..place.offset + 5000);
            area.given = place.given;
            assert!(places.len() < AREA);
        }
        for (at, one) in places.iter().enumerate() {
            assert!(one.end <= AREA as u64);
            let other = places[..at]
                .iter()
                .find(|other| other.end > one.start && one.end > other.start);
            assert_eq!(other, None);
        }
    }

    #[test]
    fn where_there_is_no_memory_for_it_the_area_stays_small() {
        static COUNT: Count = Count::new();
        let (channel, _fd) = Channel::create().unwrap();
        let mut area = Area::new(&COUNT);
        area.cannot = true;
        assert!(!area.extend(&channel.sender.way) && !area.is_extended());
    }

    #[test]
    fn a_process_has_large_areas_for_some_of_its_channels() {
        static COUNT: Count = Count::new();
        let (channel, _fd) = Channel::create().unwrap();
        let way = &channel.sender.way;
        let mut areas: Vec<_> = (0..MOST).map(|_| Area::new(&COUNT)).collect();
        assert!(areas.iter_mut().all(|area| area.extend(way)));
        let mut one_more = Area::new(&COUNT);
        assert!(!one_more.extend(way));
        // That of a channel that has ended is had again.
        areas.pop();
        assert!(one_more.extend(way));
    }
}
