//! Whether the application's calls keep a lane moving.
//!
//! A lane is left to an application that drives it. One that calls only now and then, from a loop
//! that computes or sleeps, counts as one that does not: each step of its transfers would wait for
//! the next call.

use std::time::{Duration, Instant};

use super::alarm::AWAY;

/// The longest average time between calls of an application that keeps a lane moving. A process
/// that shares its processor with others may be away for some milliseconds at a time, and calls
/// thousands of times between.
const APART: Duration = Duration::from_millis(1);

/// Number of calls within less than [`AWAY`] that are not rare.
const MANY: u64 = (AWAY.as_millis() / APART.as_millis()) as u64;

/// How often the application calls, as seen by the progress thread.
#[derive(Default)]
pub(super) struct CallRate {
    /// The count of calls at the last check.
    last: Option<u64>,
    /// The count of calls when the present interval began, and when that was.
    begun: Option<(u64, Instant)>,
    /// Whether calls were rare in the interval before this one, and have not become frequent.
    is_rare: bool,
}

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// This is the first check.
    Unknown,
    /// None since the last check.
    None,
    /// Too few to keep the lane moving.
    Rare,
    /// The application drives the lane.
    Frequent,
}

impl CallRate {
    /// Checks the lane, which has counted this many calls.
    pub(super) fn check(&mut self, calls: u64, now: Instant) -> Calls {
        let (first, begin) = *self.begun.get_or_insert((calls, now));
        let made = calls.wrapping_sub(first);
        let time = now.saturating_duration_since(begin);
        if time >= AWAY {
            let limit = time.as_nanos() / APART.as_nanos();
            self.is_rare = u128::from(made) < limit;
            self.begun = Some((calls, now));
        } else if made >= MANY {
            self.is_rare = false;
        }
        match self.last.replace(calls) {
            None => Calls::Unknown,
            Some(last) if last == calls => Calls::None,
            Some(_) if self.is_rare => Calls::Rare,
            Some(_) => Calls::Frequent,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn an_application_that_makes_no_calls_is_found_at_the_second_check() {
        let (mut rate, now) = (CallRate::default(), Instant::now());
        assert_eq!(rate.check(7, now), Calls::Unknown);
        assert_eq!(rate.check(7, now), Calls::None);
        assert_eq!(rate.check(8, now), Calls::Frequent);
    }

    #[test]
    fn calls_that_are_far_apart_are_rare_until_they_are_not() {
        let (mut rate, now) = (CallRate::default(), Instant::now());
        let at = |steps: u32| now + AWAY * steps;
        rate.check(0, now);
        assert_eq!(rate.check(MANY - 1, at(1)), Calls::Rare);
        // One more call does not change that, however soon after the last check.
        assert_eq!(rate.check(MANY, at(1)), Calls::Rare);
        assert_eq!(rate.check(2 * MANY, at(1)), Calls::Frequent);
        assert_eq!(rate.check(3 * MANY, at(2)), Calls::Frequent);
        assert_eq!(rate.check(3 * MANY + 1, at(3)), Calls::Rare);
    }

    #[test]
    fn a_long_time_without_checks_is_judged_by_its_average() {
        let (mut rate, now) = (CallRate::default(), Instant::now());
        rate.check(0, now);
        assert_eq!(rate.check(99 * MANY, now + AWAY * 100), Calls::Rare);
        assert_eq!(rate.check(299 * MANY, now + AWAY * 200), Calls::Frequent);
    }
}
