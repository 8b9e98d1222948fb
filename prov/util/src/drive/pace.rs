//! How often the thread looks after the bursts of a lane.
//!
//! The application marks where bursts begin and end, without the time. A burst
//! that is found at two looks in a row has been left, and is ended. Each look
//! takes a timer and the processor from the application, above all on a virtual
//! machine; so an application that ends its bursts itself is looked after less
//! often. The price is that when it first stops calling in the middle of a
//! burst, that burst waits longer. After that it is watched closely again.

use std::time::Duration;

/// How long a burst is left to an application that is watched closely, at most.
pub const HOLD: Duration = Duration::from_micros(50);
/// How long it is left to one that has always ended its bursts, at most.
pub const RELAXED_HOLD: Duration = Duration::from_micros(400);
/// Between two looks, closely: a burst is ended after one to two of these.
const LOOK: Duration = Duration::from_micros(25);
/// Looks after which the pause between them is twice as long, if at each of
/// them there were bursts that the application had ended.
const TRUST_AFTER: u32 = 16;
/// Looks in a row without a burst after which the thread does not look any more:
/// the next one wakes it.
const QUIET: u32 = 2;

/// What the thread knows about the bursts of a lane.
#[derive(Default)]
pub struct Pace {
    /// The mark at the last look.
    mark: u64,
    /// Bursts that were over at the last look.
    over: u64,
    /// Looks at bursts that the application had ended. A rest does not change
    /// what it is known for.
    trust: u32,
    /// Looks since there was a burst.
    quiet: u32,
}

/// What to do after a look.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Look again after this time.
    Look(Duration),
    /// The application has left a burst: end it, and look again.
    End(Duration),
    /// Look no more until there is a burst.
    Rest,
}

impl Pace {
    /// The lane has to be looked after from now on, since a burst began; when
    /// to look. `mark` is odd while messages are held back.
    pub fn begin(&mut self, mark: u64) -> Duration {
        self.mark = mark;
        self.quiet = 0;
        // This was the first of two looks.
        match self.pause() {
            LOOK => HOLD,
            pause => pause + LOOK,
        }
    }

    /// A look, at which the mark was this.
    pub fn look(&mut self, mark: u64) -> Next {
        let is_held = mark % 2 == 1;
        let over = mark / 2;
        if is_held && mark == self.mark {
            self.trust = 0;
            self.quiet = 0;
            // This one counts as over, and for nothing.
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

    /// A pace that has seen so many looks at bursts that the application ended.
    fn after_good_looks(looks: u64) -> (Pace, u64) {
        let mut pace = Pace::default();
        for look in 1..=looks {
            assert!(matches!(pace.look(2 * look), Next::Look(_)));
        }
        (pace, 2 * looks)
    }

    #[test]
    fn a_burst_that_is_left_is_ended_at_the_second_look() {
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
    fn who_ends_bursts_is_watched_less_until_one_is_left() {
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
            // It begins right after a look.
            let (mut pace, mark) = after_good_looks(good_looks);
            let Next::Look(mut held) = pace.look(mark) else {
                panic!("it rests");
            };
            while let Next::Look(pause) = pace.look(mark + 1) {
                held += pause;
            }
            assert_eq!(held, limit);
            // It wakes the thread.
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
