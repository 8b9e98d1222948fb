//! How the helper's parts of copies are to go, as what copies took says.
//!
//! What a copy takes one way depends on how those before went: slots that are used
//! again and again are in caches, and few are there at first. So the other way is tried
//! with some copies in a row, of which the first ones do not count.

use std::time::Duration;

use super::share::Share;
use super::{Destination, SURE};
use crate::joint::Way;

/// Bytes from which on help is of use where the system copies.
const DIRECT: u64 = 256 << 10;
/// Shorter copies than [`SURE`] of which one is a trial whether the peer helps.
const TRIAL: u32 = 16;

/// Lengths that are told from each other: from [`SURE`] on, twice as many bytes each.
const LENGTHS: usize = 4;

/// Copies in a row that go the other way.
const TRIED: u32 = 16;
/// Those of them that count.
const COUNTED: u32 = 4;
/// Copies before the first, the second and the third time, and each time from then on.
const USUAL: [u32; 4] = [4, 32, 128, 512];
/// A way that takes no more ns for each KiB is taken at once.
const QUICK: u32 = 36;
/// How many times as long slots have to take while not all of them are in use, or else
/// they stay the usual way, and become quicker. The first time they take any time: the
/// system has just begun to provide them.
const AT_FIRST: [u32; 3] = [u32::MAX, 3, 2];
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
    messages: [Habit; LENGTHS],
    /// And those of remote memory access.
    accesses: [Habit; LENGTHS],
    /// Shorter copies that were made without help since the last trial.
    unhelped: u32,
}

/// Which way copies of one kind go.
#[derive(Debug)]
struct Habit {
    usual: Way,
    /// What they take that way, in sixteenths of a ns for each KiB.
    took: Option<u32>,
    /// Copies since the other one was tried.
    copies: u32,
    /// How often that was.
    trials: usize,
    /// What those took that counted, together, in ns for each KiB.
    other: u32,
}

impl Default for Habit {
    fn default() -> Self {
        Habit {
            usual: Way::Bounced,
            took: None,
            copies: 0,
            trials: 0,
            other: 0,
        }
    }
}

impl Habit {
    /// The way of the next copy.
    fn next(&mut self) -> Way {
        match (self.copies >= self.before(), self.usual) {
            (false, usual) => usual,
            (true, Way::Bounced) => Way::Direct,
            (true, Way::Direct) => Way::Bounced,
        }
    }

    /// How many copies go the usual way before the other one is tried.
    fn before(&self) -> u32 {
        USUAL[self.trials.min(USUAL.len() - 1)]
    }

    /// A copy went one way, as [`Habit::next`] had it. `has_slots`: all slots are in use.
    fn learn(&mut self, way: Way, to: &Destination, time: Duration, has_slots: bool) {
        let (len, little) = match to.is_access {
            true => (to.len, LITTLE_OF_ACCESSES),
            false => (to.len, LITTLE),
        };
        let per_kib = time.as_nanos().saturating_mul(1024) / u128::from(len.max(1));
        let per_kib = u32::try_from(per_kib).unwrap_or(u32::MAX).min(1 << 20);
        if way == self.usual {
            let new = per_kib * 16;
            let took = self.took.unwrap_or(new);
            // Who was interrupted says little.
            self.took = Some(took - took / 8 + new.min(took * 2) / 8);
        }
        self.copies += 1;
        let Some(tried) = self.copies.checked_sub(self.before()) else {
            return;
        };
        if way != self.usual && tried > TRIED - COUNTED {
            self.other += per_kib;
        }
        if tried >= TRIED {
            self.decide(way, little, has_slots);
        }
    }

    /// The other way has been tried.
    fn decide(&mut self, other: Way, little: u32, has_slots: bool) {
        let tried = self.other / COUNTED;
        let times = match self.usual == Way::Direct || has_slots {
            true => 1,
            false => AT_FIRST[self.trials.min(AT_FIRST.len() - 1)],
        };
        let took = self.took.map_or(u32::MAX, |took| took / 16);
        let little = match self.usual {
            Way::Bounced => little,
            Way::Direct => LITTLE,
        };
        let is_quicker = tried.saturating_mul(times) < took.min(1 << 20) * (16 - little) / 16;
        if other != self.usual && (is_quicker || tried <= QUICK.min(took)) {
            self.usual = other;
            self.took = Some(tried * 16);
        }
        (self.copies, self.other) = (0, 0);
        self.trials += 1;
    }
}

impl Ways {
    /// How the helper's parts of a copy are to go; none where it is not to be asked.
    /// `is_lively`: it has helped with the last one through slots.
    pub(super) fn choose(&mut self, with: &Destination, is_lively: bool) -> Option<Way> {
        if with.len >= SURE {
            return Some(self.habit(with).next());
        }
        if is_lively {
            return Some(Way::Bounced);
        }
        self.unhelped = self.unhelped.wrapping_add(1);
        let is_trial = self.unhelped.is_multiple_of(TRIAL);
        is_trial.then_some(Way::Bounced)
    }

    fn habit(&mut self, with: &Destination) -> &mut Habit {
        let length = (with.len / SURE).checked_ilog2().unwrap_or(0) as usize;
        let habits = match with.is_access {
            true => &mut self.accesses,
            false => &mut self.messages,
        };
        &mut habits[length.min(LENGTHS - 1)]
    }

    /// How many of so many parts the owner takes first, where the helper's go directly.
    pub(super) fn first(&mut self, with: &Destination, parts: u16) -> u16 {
        match is_shared(with) {
            true => self.share.take(parts),
            false => parts,
        }
    }

    /// A copy went that way. `has_slots`: all slots are in use.
    pub(super) fn took(&mut self, to: &Destination, way: Way, time: Duration, has_slots: bool) {
        if to.len >= SURE {
            self.habit(to).learn(way, to, time, has_slots);
        }
    }

    /// It went directly, and the owner has waited so long for the helper in the end;
    /// none if it was not helped.
    pub(super) fn was_shared(
        &mut self,
        to: &Destination,
        time: Duration,
        waited: Option<Duration>,
    ) {
        if is_shared(to) {
            self.share.took(waited, time);
        }
    }
}

/// Whether the helper may put parts of such a copy where they go: nobody but the owner
/// writes to memory that is registered.
fn is_shared(to: &Destination) -> bool {
    to.addr != 0 && to.len >= DIRECT
}

#[cfg(test)]
mod tests {
    use super::super::LEAST;
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
            let way = ways.choose(to, true).unwrap();
            let cost = costs[usize::from(way == Way::Direct)];
            let time = Duration::from_nanos(cost * (to.len >> 10));
            ways.took(to, way, time, has_slots);
            made.extend((way == Way::Direct).then_some(copy));
        }
        made
    }

    #[test]
    fn short_copies_are_helped_with_where_large_ones_were_and_on_trial() {
        let mut ways = Ways::default();
        let tries = (0..2 * TRIAL).filter_map(|_| ways.choose(&to(8, LEAST), false));
        assert_eq!(tries.collect::<Vec<_>>(), [Way::Bounced; 2]);
        assert_eq!(ways.choose(&to(8, LEAST), true), Some(Way::Bounced));
        assert_eq!(ways.choose(&to(8, SURE), false), Some(Way::Bounced));
    }

    #[test]
    fn the_other_way_is_tried_now_and_then() {
        let mut ways = Ways::default();
        let direct = make(&mut ways, &to(8, LONG), 1_268, [50, 60]);
        let expected = [4, 52, 196, 724, 1_252]
            .into_iter()
            .flat_map(|at| at..at + 16);
        assert_eq!(direct, expected.collect::<Vec<_>>());
    }

    #[test]
    fn the_way_that_is_quicker_is_taken() {
        for addr in [8, 0] {
            let mut ways = Ways::default();
            let long = to(addr, LONG);
            make(&mut ways, &long, 20, [50, 38]);
            assert_eq!(make(&mut ways, &long, 100, [50, 38]).len(), 84);
            // Others have their own.
            assert!(make(&mut ways, &to(addr, LONG / 2), 4, [50, 45]).is_empty());
            // And back.
            make(&mut ways, &long, 1_000, [50, 60]);
            assert!(make(&mut ways, &long, 500, [50, 60]).len() <= 16);
        }
    }

    #[test]
    fn nothing_changes_for_little() {
        for (addr, little, more) in [(8, 47, 45), (0, 41, 39)] {
            let mut ways = Ways::default();
            make(&mut ways, &to(addr, LONG), 20, [50, little]);
            assert_eq!(make(&mut ways, &to(addr, LONG), 48, [50, more]).len(), 16);
            assert_eq!(make(&mut ways, &to(addr, LONG), 100, [50, more]).len(), 100);
        }
    }

    #[test]
    fn slots_are_given_the_time_they_need_at_first() {
        let mut ways = Ways::default();
        let long = to(8, LONG);
        let mut make = |copies, costs| make_where(&mut ways, &long, copies, costs, false);
        assert_eq!(make(4, [400, 50]).len(), 0);
        assert_eq!(make(400, [90, 50]).len(), 48);
        // But not where they are that slow, or the system that quick.
        let mut far = Ways::default();
        make_where(&mut far, &long, 68, [350, 80], false);
        assert_eq!(
            make_where(&mut far, &long, 100, [350, 80], false).len(),
            100
        );
        let mut large_pages = Ways::default();
        make_where(&mut large_pages, &long, 20, [45, 25], false);
        // Slots are tried again after a while.
        assert_eq!(
            make_where(&mut large_pages, &long, 100, [45, 25], false).len(),
            84
        );
    }

    #[test]
    fn who_was_interrupted_says_little() {
        let mut ways = Ways::default();
        let long = to(8, LONG);
        make(&mut ways, &long, 212, [50, 60]);
        make(&mut ways, &long, 1, [1 << 40, 60]);
        assert_eq!(make(&mut ways, &long, 1_000, [50, 60]).len(), 16);
        ways.took(&to(8, u64::MAX), Way::Bounced, Duration::MAX, true);
    }

    #[test]
    fn nobody_else_writes_to_registered_memory() {
        let mut ways = Ways::default();
        assert_eq!(ways.first(&to(0, LONG), 32), 32);
        assert_eq!(ways.first(&to(8, SURE), 4), 4);
        assert!(ways.first(&to(8, LONG), 32) < 32);
    }
}
