//! How the helper's parts of copies are to go, as what copies took says.
//!
//! What a copy takes one way depends on how those before went: slots that are used
//! again and again are in caches, and few are there at first. So the other way is tried
//! with some copies in a row, of which the first ones do not count.

use std::time::Duration;

use super::share::Share;
use super::{Destination, LEAST, SURE};
use crate::joint::Way;

/// Bytes from which on help is of use where the system copies.
const SHARED: u64 = 256 << 10;

/// Lengths that are told from each other: from [`LEAST`] on, twice as many bytes each.
const LENGTHS: usize = 7;
/// Messages, and remote memory access; and of both, what can be shared where the system
/// copies, and what cannot.
const KINDS: usize = 4;

/// Copies that count when the other way is tried, and those before them that do not.
const COUNTED: u32 = 4;
const DIRECTLY: u32 = 2;
/// Through slots, caches have to have these again.
const BOUNCED: u32 = 12;
/// And all of them have to be in use for long copies, but not for ever.
const MOST: u32 = 60;
/// Copies before the first and the second time, and each time from then on.
const USUAL: [u32; 3] = [32, 128, 512];
/// And where the other way took twice as long.
const SELDOM: u32 = 2048;
/// It is no use to change for less of the time than so many sixteenths.
const LITTLE: u32 = 1;
/// Nor from slots in remote memory access: that mostly comes from both sides at a time,
/// of which each is slower while the other one tries something.
const LITTLE_OF_ACCESSES: u32 = 3;

/// See the [module](self) description.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// What the owner takes first, where the helper's parts go directly.
    share: Share,
    /// For each length.
    habits: [[Habit; LENGTHS]; KINDS],
}

/// Which way copies of one kind go.
#[derive(Debug)]
struct Habit {
    /// Directly, at first: short of all slots, these are slow.
    usual: Way,
    /// What copies take that way, in sixteenths of a ns for each KiB.
    took: u32,
    /// So many have gone that way since the other one was tried.
    copies: u32,
    /// Of how many before that is done again.
    before: u32,
    /// How often it was.
    trials: usize,
    /// Copies that go the other way, and those of them that count.
    tried: u32,
    counted: u32,
    /// What these took together, in ns for each KiB, and the one that took longest.
    other: u32,
    longest: u32,
}

impl Default for Habit {
    fn default() -> Self {
        Habit {
            usual: Way::Direct,
            took: u32::MAX,
            copies: 0,
            before: USUAL[0],
            trials: 0,
            tried: 0,
            counted: 0,
            other: 0,
            longest: 0,
        }
    }
}

impl Habit {
    /// The way of the next copy.
    fn next(&self) -> Way {
        match (self.copies >= self.before, self.usual) {
            (false, usual) => usual,
            (true, Way::Bounced) => Way::Direct,
            (true, Way::Direct) => Way::Bounced,
        }
    }

    /// A copy went one way, as [`Habit::next`] had it. `has_slots`: all slots are in use.
    fn learn(&mut self, way: Way, to: &Destination, took: Took, has_slots: bool) {
        let per_kib = took.time.as_nanos().saturating_mul(1024) / u128::from(took.len.max(1));
        let per_kib = u32::try_from(per_kib).unwrap_or(u32::MAX).clamp(1, 1 << 20);
        if way == self.usual {
            let took = self.took.min(1 << 24);
            self.took = match self.took {
                u32::MAX => per_kib * 16,
                // Who was interrupted says little.
                _ => took - took / 8 + (per_kib * 16).min(took * 2) / 8,
            };
            self.copies += 1;
            return;
        }
        self.tried += 1;
        let counts = match way {
            Way::Direct => self.tried > DIRECTLY,
            Way::Bounced => {
                self.tried > BOUNCED && (has_slots || to.len < SURE) || self.tried > MOST
            }
        };
        if counts {
            self.counted += 1;
            self.other += per_kib;
            self.longest = self.longest.max(per_kib);
        }
        if self.counted == COUNTED {
            self.decide(to.is_access);
        }
    }

    /// The other way has been tried.
    #[allow(
        clippy::indexing_slicing,
        reason = "the index is limited to the last one"
    )]
    fn decide(&mut self, is_access: bool) {
        // Who was interrupted says little, here as well.
        let tried = (self.other - self.longest) / (COUNTED - 1);
        let took = self.took / 16;
        let (other, little) = match self.usual {
            Way::Bounced if is_access => (Way::Direct, LITTLE_OF_ACCESSES),
            Way::Bounced => (Way::Direct, LITTLE),
            Way::Direct => (Way::Bounced, LITTLE),
        };
        (self.copies, self.tried, self.counted) = (0, 0, 0);
        (self.other, self.longest) = (0, 0);
        self.trials += 1;
        self.before = USUAL[self.trials.min(USUAL.len() - 1)];
        if tried < took - took * little / 16 {
            (self.usual, self.took) = (other, tried * 16);
        } else if tried > took.saturating_mul(2) && self.trials >= USUAL.len() {
            self.before = SELDOM;
        }
    }
}

impl Ways {
    /// How the helper's parts of a copy are to go.
    pub(super) fn choose(&mut self, with: &Destination) -> Way {
        self.habit(with).next()
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "the index is limited to the last one"
    )]
    fn habit(&mut self, with: &Destination) -> &mut Habit {
        let kind = usize::from(with.is_access) * 2 + usize::from(with.addr != 0);
        let length = (with.len / LEAST).checked_ilog2().unwrap_or(0) as usize;
        &mut self.habits[kind][length.min(LENGTHS - 1)]
    }

    /// How many of so many parts the owner takes first of a copy that is shared.
    pub(super) fn take_first(&mut self, parts: u16) -> u16 {
        self.share.take(parts)
    }

    /// A copy went that way, or the beginning of one. `has_slots`: all slots are in use.
    pub(super) fn took(&mut self, to: &Destination, way: Way, took: Took, has_slots: bool) {
        self.habit(to).learn(way, to, took, has_slots);
    }

    /// One was shared, and the owner has waited so long for the helper in the end; none if
    /// it was not helped. `at_once`: what the owner took first, it has copied in one turn.
    pub(super) fn was_shared(&mut self, at_once: bool, time: Duration, waited: Option<Duration>) {
        self.share.took(at_once, waited, time);
    }
}

/// What was copied, and how long that took.
#[derive(Clone, Copy)]
pub(super) struct Took {
    /// Bytes.
    pub(super) len: u64,
    pub(super) time: Duration,
}

/// Whether the helper may put parts of such a copy where they go, and that is of use:
/// nobody but the owner writes to memory that is registered.
pub(super) fn is_shared(to: &Destination) -> bool {
    to.addr != 0 && to.len >= SHARED
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u64 = 1 << 20;

    fn to(addr: u64, len: u64) -> Destination {
        Destination {
            addr,
            len,
            is_access: addr == 0,
        }
    }

    /// Makes so many copies, which take so many ns for a KiB through slots, all of which
    /// are in use, and directly; which of them go directly.
    fn make(ways: &mut Ways, to: &Destination, copies: u32, costs: [u64; 2]) -> Vec<u32> {
        make_where(ways, to, copies, costs, true)
    }

    fn make_where(
        ways: &mut Ways,
        to: &Destination,
        copies: u32,
        costs: [u64; 2],
        has_slots: bool,
    ) -> Vec<u32> {
        let mut made = Vec::new();
        for copy in 0..copies {
            let way = ways.choose(to);
            let cost = costs[usize::from(way == Way::Direct)];
            let time = Duration::from_nanos(cost * (to.len >> 10));
            ways.took(to, way, Took { len: to.len, time }, has_slots);
            made.extend((way == Way::Direct).then_some(copy));
        }
        made
    }

    #[test]
    fn short_copies_need_not_have_all_slots() {
        let mut ways = Ways::default();
        for len in [LEAST, SURE / 2] {
            make_where(&mut ways, &to(8, len), 48, [40, 50], false);
            assert_eq!(ways.choose(&to(8, len)), Way::Bounced);
        }
        make_where(&mut ways, &to(8, SURE), 48, [40, 50], false);
        assert_eq!(ways.habit(&to(8, SURE)).usual, Way::Direct);
    }

    #[test]
    fn each_kind_has_its_own_way() {
        let mut ways = Ways::default();
        let write = to(0, LONG);
        let read = Destination {
            is_access: true,
            ..to(8, LONG)
        };
        make(&mut ways, &write, 48, [40, 50]);
        make(&mut ways, &read, 48, [60, 50]);
        let mut way = |to: &Destination| ways.habit(to).usual;
        assert_eq!(
            [write, read].map(|to| way(&to)),
            [Way::Bounced, Way::Direct]
        );
    }
    #[test]
    fn the_other_way_is_tried_now_and_then() {
        let mut ways = Ways::default();
        let all = |made: Vec<u32>, copies| {
            let through_slots = (0..copies).filter(move |copy| !made.contains(copy));
            through_slots.collect::<Vec<_>>()
        };
        let made = make(&mut ways, &to(8, LONG), 1_300, [60, 50]);
        let tried = [32, 176, 704, 1_232].into_iter();
        let expected: Vec<_> = tried.flat_map(|at| at..at + 16).collect();
        assert_eq!(all(made, 1_300), expected);
        let made = make(&mut ways, &to(8, LONG / 2), 1_300, [40, 50]);
        let tried = [176, 694, 1_212].into_iter();
        let expected: Vec<_> = (0..32).chain(tried.flat_map(|at| at..at + 6)).collect();
        assert_eq!(made, expected);
    }

    #[test]
    fn the_way_that_is_quicker_is_taken() {
        for addr in [8, 0] {
            let mut ways = Ways::default();
            let long = to(addr, LONG);
            make(&mut ways, &long, 48, [40, 50]);
            assert!(make(&mut ways, &long, 100, [40, 50]).is_empty());
            // Others have their own.
            assert_eq!(make(&mut ways, &to(addr, LONG / 2), 4, [40, 50]).len(), 4);
            // And back.
            make(&mut ways, &long, 1_000, [60, 40]);
            assert!(make(&mut ways, &long, 500, [60, 40]).len() > 480);
        }
    }

    #[test]
    fn nothing_changes_for_little() {
        for (addr, little, more) in [(8, 47, 45), (0, 42, 39)] {
            let mut ways = Ways::default();
            let long = to(addr, LONG);
            // To slots, and back.
            make(&mut ways, &long, 48, [50, 60]);
            assert_eq!(make(&mut ways, &long, 1_000, [50, little]).len(), 12);
            make(&mut ways, &long, 1_000, [50, more]);
            assert!(make(&mut ways, &long, 100, [50, more]).len() >= 84);
        }
    }

    #[test]
    fn slots_count_when_all_are_in_use_but_for_what_cannot_have_them() {
        let mut ways = Ways::default();
        let long = to(8, LONG);
        let made = make_where(&mut ways, &long, 32 + 60, [120, 50], false);
        assert_eq!(made.len(), 32);
        make(&mut ways, &long, 4, [40, 50]);
        assert!(make(&mut ways, &long, 100, [40, 50]).is_empty());
        let mut ways = Ways::default();
        make_where(&mut ways, &long, 32 + 64, [120, 50], false);
        assert_eq!(make(&mut ways, &long, 100, [40, 50]).len(), 100);
    }

    #[test]
    fn what_takes_twice_as_long_is_seldom_tried() {
        let mut ways = Ways::default();
        let long = to(8, LONG);
        let made = make(&mut ways, &long, 720 + SELDOM, [350, 80]);
        assert_eq!(made.len(), 720 + SELDOM as usize - 3 * 16);
    }

    #[test]
    fn who_was_interrupted_says_little() {
        let mut ways = Ways::default();
        let long = to(8, LONG);
        make(&mut ways, &long, 48, [40, 50]);
        make(&mut ways, &long, 1, [1 << 40, 50]);
        assert_eq!(make(&mut ways, &long, 500, [40, 50]).len(), 6);
        let mut ways = Ways::default();
        make(&mut ways, &long, 46, [40, 50]);
        make(&mut ways, &long, 1, [1 << 40, 50]);
        make(&mut ways, &long, 1, [40, 50]);
        assert_eq!(ways.habit(&long).usual, Way::Bounced);
    }

    #[test]
    fn no_figure_is_too_much_or_too_little() {
        let mut ways = Ways::default();
        for (len, time) in [(u64::MAX, Duration::ZERO), (0, Duration::MAX)] {
            for way in [Way::Direct, Way::Bounced, Way::Direct] {
                for _ in 0..100 {
                    ways.took(&to(8, u64::MAX), way, Took { len, time }, true);
                    ways.took(&to(8, 0), way, Took { len, time }, true);
                }
            }
        }
        let mut ways = Ways::default();
        let long = to(8, LONG);
        let nothing = Took {
            len: LONG,
            time: Duration::ZERO,
        };
        ways.took(&long, Way::Direct, nothing, true);
        make(&mut ways, &long, 1_000, [40, 50]);
        assert_eq!(ways.habit(&long).usual, Way::Bounced, "it recovers");
    }

    #[test]
    fn nobody_else_writes_to_registered_memory() {
        let shared =
            [(0, LONG), (8, SURE), (8, SHARED)].map(|(addr, len)| is_shared(&to(addr, len)));
        assert_eq!(shared, [false, false, true]);
    }
}
