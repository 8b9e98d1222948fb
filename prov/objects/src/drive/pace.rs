//! How often the progress thread checks the bursts of a lane.
//!
//! The application marks where bursts begin and end, without a time stamp. A burst that is found by
//! two checks in a row was left unsent by the application, and the thread sends it. Each check
//! costs a timer interrupt and processor time, above all on a virtual machine; so an application
//! that ends its bursts itself is checked less often. The price is that its first unsent burst
//! waits longer. After that, the lane is checked at the short interval again.
//!
//! Where processes wait for a processor, each check takes it from one of them, and a process that does not
//! run leaves its bursts unsent without having left them. There the checks come at one long interval,
//! whatever they find, and the thread stops checking later: to wake it costs as much as several checks.

use std::time::Duration;

/// Longest time that a burst stays unsent in a lane that is checked at the short interval.
pub const HOLD: Duration = Duration::from_micros(50);
/// Longest time that a burst stays unsent in a lane whose application has always ended its bursts.
pub const RELAXED_HOLD: Duration = Duration::from_micros(400);
/// The short interval: a burst is sent after one to two of these.
const LOOK: Duration = Duration::from_micros(25);
/// The interval while other processes want the processor ([`super::signals::is_crowded`]). A burst is
/// sent after one to two of these: less than the time for which a process has the processor (some
/// 3 ms).
const CROWDED_LOOK: Duration = Duration::from_millis(1);
/// Number of checks after which the interval is doubled, if each of them found bursts that the
/// application had ended.
const TRUST_AFTER: u32 = 16;
/// Number of times that the interval is doubled up to [`RELAXED_HOLD`].
const RELAXED_DOUBLINGS: u32 = 4;
/// Number of checks in a row without a burst after which the thread stops checking: the next burst
/// wakes it.
const QUIET: u32 = 2;
/// The same while other processes want the processor.
const CROWDED_QUIET: u32 = 8;

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
    /// Whether other processes wanted the processor at the last check.
    is_crowded: bool,
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
    pub fn begin(&mut self, mark: u64, is_crowded: bool) -> Duration {
        self.is_crowded = is_crowded;
        self.mark = mark;
        self.quiet = 0;
        // This call counts as the first of two checks.
        match self.pause() {
            LOOK => HOLD,
            pause => pause + self.soon(),
        }
    }

    /// Performs a check at which the mark has this value.
    pub fn look(&mut self, mark: u64, is_crowded: bool) -> Next {
        self.is_crowded = is_crowded;
        let is_held = mark % 2 == 1;
        let over = mark / 2;
        if is_held && mark == self.mark {
            // Where others want the processor, the application may only wait for it.
            if !is_crowded {
                self.trust = 0;
            }
            self.quiet = 0;
            // The burst that the thread sends counts as over, and not as ended by the application.
            self.over = over + 1;
            return Next::End(self.soon());
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
            Next::Look(self.soon())
        } else if self.quiet >= self.patience() {
            Next::Rest
        } else {
            Next::Look(self.pause())
        }
    }

    /// The interval after a check that found a burst.
    fn soon(&self) -> Duration {
        match self.is_crowded {
            true => CROWDED_LOOK,
            false => LOOK,
        }
    }

    /// The interval after a check that found none.
    fn pause(&self) -> Duration {
        if self.is_crowded {
            return CROWDED_LOOK;
        }
        let doublings = (self.trust / TRUST_AFTER).min(RELAXED_DOUBLINGS);
        (LOOK * (1 << doublings)).min(RELAXED_HOLD - LOOK)
    }

    fn patience(&self) -> u32 {
        match self.is_crowded {
            true => CROWDED_QUIET,
            false => QUIET,
        }
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
            assert!(matches!(pace.look(2 * look, false), Next::Look(_)));
        }
        (pace, 2 * looks)
    }

    #[test]
    fn a_burst_that_is_left_is_ended_at_the_second_check() {
        let mut pace = Pace::default();
        assert_eq!(pace.look(1, false), Next::Look(LOOK));
        assert_eq!(pace.look(1, false), Next::End(LOOK));
        assert_eq!(pace.look(2, false), Next::Look(LOOK));
    }

    #[test]
    fn a_burst_that_is_not_ended_then_is_found_again() {
        let mut pace = Pace::default();
        pace.begin(1, false);
        assert_eq!(pace.look(1, false), Next::End(LOOK));
        assert_eq!(pace.look(1, false), Next::End(LOOK));
    }

    #[test]
    fn bursts_that_follow_each_other_are_left_alone() {
        let mut pace = Pace::default();
        pace.begin(1, false);
        for burst in 1..100 {
            assert_eq!(pace.look(2 * burst + 1, false), Next::Look(LOOK));
        }
    }

    #[test]
    fn an_application_that_ends_its_bursts_is_checked_less_often_until_one_is_left() {
        let mut pace = Pace::default();
        let pauses: Vec<_> = (1..200)
            .map(|burst| match pace.look(2 * burst, false) {
                Next::Look(pause) => pause,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(pauses.is_sorted());
        assert_eq!((pauses[0], pauses[198]), (LOOK, RELAXED_LOOK));
        assert_eq!(pace.look(401, false), Next::Look(LOOK));
        assert_eq!(pace.look(401, false), Next::End(LOOK));
        assert_eq!(pace.look(402, false), Next::Look(LOOK));
    }

    #[test]
    fn without_bursts_the_thread_rests() {
        for good_looks in [0, 200] {
            let (mut pace, mark) = after_good_looks(good_looks);
            let looks: Vec<_> = (0..3).map(|_| pace.look(mark, false)).collect();
            assert!(matches!(looks[..], [Next::Look(_), Next::Rest, _]));
        }
    }

    #[test]
    fn no_burst_is_held_longer_than_promised() {
        for (good_looks, limit) in [(0, HOLD), (200, RELAXED_HOLD)] {
            // The burst begins right after a check.
            let (mut pace, mark) = after_good_looks(good_looks);
            let Next::Look(mut held) = pace.look(mark, false) else {
                panic!("it rests");
            };
            while let Next::Look(pause) = pace.look(mark + 1, false) {
                held += pause;
            }
            assert_eq!(held, limit);
            // The burst wakes the thread.
            let (mut pace, mark) = after_good_looks(good_looks);
            let held = pace.begin(mark + 1, false);
            assert_eq!(pace.look(mark + 1, false), Next::End(LOOK));
            assert_eq!(held, limit);
        }
    }

    #[test]
    fn where_others_want_the_processor_the_thread_sleeps_for_longer_whatever_it_finds() {
        let (mut pace, mut mark) = after_good_looks(200);
        for burst in 0..400 {
            let found = pace.look(mark + 1, true);
            assert_eq!(found, Next::Look(CROWDED_LOOK));
            if burst % 2 == 0 {
                assert_eq!(pace.look(mark + 1, true), Next::End(CROWDED_LOOK));
            }
            mark += 2;
            assert_eq!(pace.look(mark, true), Next::Look(CROWDED_LOOK));
        }
        assert_eq!(pace.begin(mark + 1, true), 2 * CROWDED_LOOK);
        // The others are gone.
        assert_eq!(pace.look(mark + 2, false), Next::Look(RELAXED_LOOK));
    }

    #[test]
    fn where_others_want_the_processor_the_thread_rests_later() {
        let mut pace = Pace::default();
        let looks = (0..20).take_while(|_| pace.look(0, true) != Next::Rest);
        assert_eq!(looks.count(), 7);
    }

    #[test]
    fn a_rest_changes_nothing_about_trust() {
        let (mut pace, mark) = after_good_looks(200);
        while pace.look(mark, false) != Next::Rest {}
        assert_eq!(pace.begin(mark + 1, false), RELAXED_HOLD);
    }
}
