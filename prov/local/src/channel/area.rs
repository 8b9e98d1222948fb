//! The area for the bytes of longer messages, as the side that fills it has it.
//!
//! Its room is used in turn. Where lines that the receiver has just read are
//! written again, its caches have to give them up one by one; in an area that is
//! larger than those they are in the cache that processors share, from where the
//! lines of short ones take longer. So a channel
//! whose area is used a lot gets a large one: from the start, only the beginning is
//! there, and what is used doubles each time that it was used up a few times lately.
//! For the system takes long to provide a page, as long as a message of one or more.

use std::time::{Duration, Instant};

use super::slot::Direction;
use super::{AREA, INLINE, NEAR};
use crate::extension::{Count, Extension};

/// An area of which as much as its beginning is used up within that time is used a
/// lot.
const LIVELY: Duration = Duration::from_millis(1);
/// So often in a row, before it grows.
const TURNS: u32 = 8;
/// Messages in vain for which it grows.
const WISHES: u32 = 64;
/// Of long messages, so many have room at a time.
const AT_A_TIME: usize = 3;
/// How long its receiver may take nothing: it may wait for a processor, and has
/// more to do when it has one if all of the area is full.
const PATIENCE: Duration = Duration::from_micros(100);
/// Longest message that goes where the last one was, if that is taken: to fetch so
/// few lines from a cache further away takes longer than to have them given up.
const SHORT: u64 = 1 << 10;
/// Channels of this process with more than the beginning of their area.
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
    /// What was given out when its first byte was last found to be free.
    origin: u64,
    /// How much of it is used.
    reach: u64,
    /// That is more than the beginning.
    extension: Option<Extension>,
    /// Of all channels.
    extended: &'static Count,
    /// There is no memory for that.
    cannot: bool,
    /// When what is used of it was last used up, and what was given out by then.
    turned: Option<(u64, Instant)>,
    /// How often in a row that was soon after the last time.
    turns: u32,
    /// Messages for which it would have to be larger.
    wishes: u32,
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
            origin: 0,
            reach: NEAR as u64,
            extension: None,
            extended,
            cannot: false,
            turned: None,
            turns: 0,
            wishes: 0,
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
        if len <= SHORT && self.given == self.free {
            self.origin = self.given;
        }
        let mut start = self.given;
        let offset = (start - self.origin) % area;
        if offset + len > self.reach && !self.goes_on(way) {
            start += area - offset;
        }
        let given = start + len;
        let offset = (start - self.origin) % area;
        (given - self.free <= area).then_some(Place { offset, given })
    }

    /// Whether messages of this length can be sent: a few at a time. For those that
    /// are often asked for, or many at once, it grows.
    pub(super) fn takes(&mut self, len: usize, messages: u32, way: &Direction) -> bool {
        if !self.is_large(len) {
            self.wishes = self.wishes.saturating_add(messages);
            if self.wishes >= WISHES {
                self.wishes = 0;
                self.grow(way);
            }
        }
        self.is_large(len)
    }

    /// Whether they could be sent as it is.
    #[inline]
    pub(super) fn is_large(&self, len: usize) -> bool {
        (len * AT_A_TIME) as u64 <= self.reach
    }

    /// What is used has no room up to its end. Whether there is room behind it now,
    /// for any message.
    #[cold]
    fn goes_on(&mut self, way: &Direction) -> bool {
        if self.reach == AREA as u64 || self.cannot {
            return false;
        }
        let now = Instant::now();
        let is_used_a_lot = match self.turned {
            Some((given, since)) if given == self.given => now.duration_since(since) > PATIENCE,
            last => {
                self.turned = Some((self.given, now));
                let soon = LIVELY * (self.reach / NEAR as u64) as u32;
                self.turns = match last {
                    Some((_, last)) if now.duration_since(last) < soon => self.turns + 1,
                    _ => 0,
                };
                self.turns >= TURNS
            }
        };
        is_used_a_lot && self.grow(way)
    }

    /// Twice as much of it is used from now on, if that is possible.
    #[cold]
    pub(super) fn grow(&mut self, way: &Direction) -> bool {
        if self.reach == AREA as u64 || self.cannot {
            return false;
        }
        let extension = self.extension.take();
        let Some(extension) = extension.or_else(|| Extension::new(self.extended)) else {
            return false;
        };
        let more = (self.reach * 2).min(AREA as u64);
        self.cannot = !way.back_area(self.reach as usize..more as usize);
        if !self.cannot {
            (self.reach, self.turns) = (more, 0);
        }
        self.extension = (self.reach != NEAR as u64).then_some(extension);
        !self.cannot
    }

    /// There is no memory for more.
    pub(super) fn stays_as_it_is(&mut self) {
        self.cannot = true;
    }

    /// Whether more than the beginning is used.
    #[cfg(test)]
    pub(super) fn has_grown(&self) -> bool {
        self.reach != NEAR as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Channel;
    use crate::extension::MOST;

    /// Uses what is used of an area up once.
    fn turn(area: &mut Area, way: &Direction) {
        for _ in 0..area.reach / 4096 {
            let place = area.find(4096, way).unwrap();
            area.given = place.given;
            area.free = place.given;
        }
    }

    /// Has the last turn be so long ago.
    fn ago(area: &mut Area, time: Duration) {
        area.turned = area.turned.map(|(given, at)| (given, at - time));
    }

    /// Has the next turn come soon, whatever the test is put off by.
    fn soon(area: &mut Area) {
        area.turned = area
            .turned
            .map(|(given, _)| (given, Instant::now() + LIVELY));
    }

    #[test]
    fn what_is_used_a_lot_grows_and_what_is_not_stays_small() {
        static COUNT: Count = Count::new();
        let (channel, _fd) = Channel::create().unwrap();
        let way = &channel.sender.way;
        let mut area = Area::new(&COUNT);
        // A clock that has not been looked at is none that says "lately".
        turn(&mut area, way);
        assert!(area.turned.is_none() && area.extension.is_none());
        for _ in 0..2 * TURNS {
            turn(&mut area, way);
            ago(&mut area, 2 * LIVELY);
        }
        turn(&mut area, way);
        assert!(area.extension.is_none(), "not so lately");
        let mut reach = NEAR as u64;
        while area.reach < AREA as u64 {
            let mut turns = 0;
            while area.reach == reach {
                soon(&mut area);
                turn(&mut area, way);
                turns += 1;
            }
            assert!(turns >= TURNS && area.reach == 2 * reach && area.extension.is_some());
            reach = area.reach;
        }
        let place = area.find(4096, way).unwrap();
        assert_eq!(place.given - area.given, 4096, "room behind what was used");
    }

    #[test]
    fn who_finds_no_room_and_asks_again_at_once_has_not_used_it_a_lot() {
        static COUNT: Count = Count::new();
        let (channel, _fd) = Channel::create().unwrap();
        let way = &channel.sender.way;
        let mut area = Area::new(&COUNT);
        let place = area.find(NEAR, way).unwrap();
        area.given = place.given;
        for _ in 0..2 * TURNS {
            assert!(area.find(4096, way).is_none());
            // Whatever the test is put off by.
            area.turned = Some((area.given, Instant::now() + PATIENCE));
        }
        assert!(!area.has_grown());
        ago(&mut area, 3 * PATIENCE);
        let place = area.find(4096, way).unwrap();
        assert!(area.has_grown());
        assert_eq!(place.offset, NEAR as u64, "room behind what was used");
    }

    #[test]
    fn short_ones_go_where_the_last_one_was_if_that_is_taken() {
        static COUNT: Count = Count::new();
        let (channel, _fd) = Channel::create().unwrap();
        let way = &channel.sender.way;
        let mut area = Area::new(&COUNT);
        let mut find = |len, is_taken| {
            let place = area.find(len, way).unwrap();
            area.given = place.given;
            if is_taken {
                area.free = place.given;
            }
            place.offset
        };
        let short = SHORT as usize;
        assert_eq!([find(short, true), find(short, false)], [0, 0]);
        assert_eq!(find(short, true), SHORT, "the last one is there still");
        assert_eq!(find(short, true), 0);
        assert_eq!(
            [find(short + 1, true), find(4096, true)],
            [SHORT, 2 * SHORT + 64]
        );
    }

    #[test]
    fn room_is_given_out_once_until_it_is_free() {
        static COUNT: Count = Count::new();
        let (channel, _fd) = Channel::create().unwrap();
        let way = &channel.sender.way;
        let mut area = Area::new(&COUNT);
        while area.grow(way) {}
        assert_eq!(area.reach, AREA as u64);
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
        area.stays_as_it_is();
        assert!(!area.grow(&channel.sender.way) && !area.has_grown());
    }

    #[test]
    fn a_process_has_large_areas_for_some_of_its_channels() {
        static COUNT: Count = Count::new();
        let (channel, _fd) = Channel::create().unwrap();
        let way = &channel.sender.way;
        let mut areas: Vec<_> = (0..MOST).map(|_| Area::new(&COUNT)).collect();
        assert!(
            areas
                .iter_mut()
                .all(|area| area.grow(way) && area.grow(way))
        );
        let mut one_more = Area::new(&COUNT);
        assert!(!one_more.grow(way));
        // That of a channel that has ended is had again.
        areas.pop();
        assert!(one_more.grow(way));
    }
}
