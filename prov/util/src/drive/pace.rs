//! How often the progress thread checks the bursts of a lane.
//!
//! The application marks where bursts begin and end, without a time stamp. A burst that is found by
//! two checks in a row was left unsent by the application, and the thread sends it. Each check
//! costs a timer interrupt and processor time, above all on a virtual machine; so an application
//! that ends its bursts itself is checked less often. The price is that its first unsent burst
//! waits longer. After that, the lane is checked at the short interval again.

use std::time::Duration;

/// Longest time that a burst stays unsent in a lane that is checked at the short interval.
pub const HOLD: Duration = Duration::from_micros(50);
/// Longest time that a burst stays unsent in a lane whose application has always ended its bursts.
pub const RELAXED_HOLD: Duration = Duration::from_micros(400);
/// The short interval: a burst is sent after one to two of these.
const LOOK: Duration = Duration::from_micros(25);
/// Number of checks after which the interval is doubled, if each of them found bursts that the
/// application had ended.
const TRUST_AFTER: u32 = 16;
/// Number of checks in a row without a burst after which the thread stops checking: the next burst
/// wakes it.
const QUIET: u32 = 2;

/// The thread's record of the bursts of a lane.
#[derive(Default)]
pub struct Pace {
    /// The mark at the last check.
    mark: u64,
    /// Number of bursts that were over at the last check.
    over: u64,
    /// Number of checks that found bursts which the application had ended. It is kept while the
    /// thread rests.
    trust: u32,
    /// Number of checks since the last burst.
    quiet: u32,
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Check again after this time.
    Look(Duration),
    /// The application has left a burst: send it, and check again.
    End(Duration),
    /// Stop checking until there is a burst.
    Rest,
}

impl Pace {
    /// Begins to check the lane, in which a burst began. Returns when to check. `mark` is odd while
    /// messages are held back.
    pub fn begin(&mut self, mark: u64) -> Duration {
        self.mark = mark;
        self.quiet = 0;
        // This call counts as the first of two checks.
        match self.pause() {
            LOOK => HOLD,
            pause => pause + LOOK,
        }
    }

    /// Performs a check at which the mark has this value.
    pub fn look(&mut self, mark: u64) -> Next {
        let is_held = mark % 2 == 1;
        let over = mark / 2;
        if is_held && mark == self.mark {
            self.trust = 0;
            self.quiet = 0;
            // The burst that the thread sends counts as over, and not as ended by the application.
            self.over = over + 1;
            return Next::End(LOOK);
        }
        self.mark = mark;
        if over > self.over {
            self.over = over;
            self.trust = self.trust.saturating_add(1);
            self.quiet = 0;
        } else if !is_held {
            self.quiet += 1;
        }
        if is_held {
            Next::Look(LOOK)
        } else if self.quiet >= QUIET {
            Next::Rest
        } else {
            Next::Look(self.pause())
        }
    }

    fn pause(&self) -> Duration {
        let doublings = (self.trust / TRUST_AFTER).min(8);
        (LOOK * (1 << doublings)).min(RELAXED_HOLD - LOOK)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const RELAXED_LOOK: Duration = Duration::from_micros(375);

    /// A pace after this many checks that found bursts which the application had ended.
    fn after_good_looks(looks: u64) -> (Pace, u64) {
        let mut pace = Pace::default();
        for look in 1..=looks {
            assert!(matches!(pace.look(2 * look), Next::Look(_)));
        }
        (pace, 2 * looks)
    }

    #[test]
    fn a_burst_that_is_left_is_ended_at_the_second_check() {
        let mut pace = Pace::default();
        assert_eq!(pace.look(1), Next::Look(LOOK));
        assert_eq!(pace.look(1), Next::End(LOOK));
        assert_eq!(pace.look(2), Next::Look(LOOK));
    }

    #[test]
    fn a_burst_that_is_not_ended_then_is_found_again() {
        let mut pace = Pace::default();
        pace.begin(1);
        assert_eq!(pace.look(1), Next::End(LOOK));
        assert_eq!(pace.look(1), Next::End(LOOK));
    }

    #[test]
    fn bursts_that_follow_each_other_are_left_alone() {
        let mut pace = Pace::default();
        pace.begin(1);
        for burst in 1..100 {
            assert_eq!(pace.look(2 * burst + 1), Next::Look(LOOK));
        }
    }

    #[test]
    fn an_application_that_ends_its_bursts_is_checked_less_often_until_one_is_left() {
        let mut pace = Pace::default();
        let pauses: Vec<_> = (1..200)
            .map(|burst| match pace.look(2 * burst) {
                Next::Look(pause) => pause,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(pauses.is_sorted());
        assert_eq!((pauses[0], pauses[198]), (LOOK, RELAXED_LOOK));
        assert_eq!(pace.look(401), Next::Look(LOOK));
        assert_eq!(pace.look(401), Next::End(LOOK));
        assert_eq!(pace.look(402), Next::Look(LOOK));
    }

    #[test]
    fn without_bursts_the_thread_rests() {
        for good_looks in [0, 200] {
            let (mut pace, mark) = after_good_looks(good_looks);
            let looks: Vec<_> = (0..3).map(|_| pace.look(mark)).collect();
            assert!(matches!(looks[..], [Next::Look(_), Next::Rest, _]));
        }
    }

    #[test]
    fn no_burst_is_held_longer_than_promised() {
        for (good_looks, limit) in [(0, HOLD), (200, RELAXED_HOLD)] {
            // The burst begins right after a check.
            let (mut pace, mark) = after_good_looks(good_looks);
            let Next::Look(mut held) = pace.look(mark) else {
                panic!("it rests");
            };
            while let Next::Look(pause) = pace.look(mark + 1) {
                held += pause;
            }
            assert_eq!(held, limit);
            // The burst wakes the thread.
            let (mut pace, mark) = after_good_looks(good_looks);
            let held = pace.begin(mark + 1);
            assert_eq!(pace.look(mark + 1), Next::End(LOOK));
            assert_eq!(held, limit);
        }
    }

    #[test]
    fn a_rest_changes_nothing_about_trust() {
        let (mut pace, mark) = after_good_looks(200);
        while pace.look(mark) != Next::Rest {}
        assert_eq!(pace.begin(mark + 1), RELAXED_HOLD);
    }
}
