//! How much of a copy its owner takes at once, where the helper puts its parts
//! directly.

use std::time::Duration;

/// What the owner takes first, of 64: what is left for the helper is done at the same
/// time, as it was with the copies before. Each part that is taken is a call of the
/// kernel, which takes as long as to copy many KiB.
#[derive(Debug)]
pub(super) struct Share {
    of_64: u32,
    /// Whether the last copy was helped with.
    is_helped: bool,
    /// Copies that were made without help since the last trial.
    alone: u32,
}

/// At first: the helper comes a little later.
const FIRST: u32 = 36;
/// The owner takes no less than so much, and no more.
const LEAST: u32 = 24;
const MOST: u32 = 58;
/// Copies without help of which one is a trial.
const TRIAL: u32 = 16;

impl Default for Share {
    fn default() -> Self {
        Share {
            of_64: FIRST,
            is_helped: true,
            alone: 0,
        }
    }
}

impl Share {
    /// How many of so many parts the owner takes first.
    pub(super) fn take(&mut self, parts: u16) -> u16 {
        if !self.is_helped {
            self.alone = self.alone.wrapping_add(1);
            if !self.alone.is_multiple_of(TRIAL) {
                return parts;
            }
        }
        let taken = (u32::from(parts) * self.of_64).div_ceil(64);
        taken.min(parts.into()) as u16
    }

    /// A copy is over. It was helped with if there is a time for which the owner has
    /// waited for the helper in the end, of so much in all; 0 if the helper was done
    /// before.
    /// Nothing follows for the share if the owner did not take it `at_once`.
    pub(super) fn took(&mut self, at_once: bool, waited: Option<Duration>, all: Duration) {
        self.is_helped = waited.is_some();
        let (true, Some(waited)) = (at_once, waited) else {
            return;
        };
        let of_64 = match waited.as_nanos() {
            0 => self.of_64 - 1,
            waited => {
                // Half of that the owner could have done meanwhile.
                let more = waited.saturating_mul(32) / all.as_nanos().max(1);
                self.of_64 + more.clamp(1, 4) as u32
            }
        };
        self.of_64 = of_64.clamp(LEAST, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TIME: Option<Duration> = Some(Duration::ZERO);

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn both_come_to_be_done_at_the_same_time() {
        // Of 64 parts, the owner does so many in the time of one of the helper's.
        for (speed, expected) in [(1, 32), (2, 43), (4, 52)] {
            let mut share = Share::default();
            for _ in 0..100 {
                let own = u64::from(share.take(64));
                let (owner, helper) = (us(own), us((64 - own) * speed));
                let waited = helper.saturating_sub(owner);
                share.took(true, Some(waited), helper.max(owner));
            }
            assert!(share.take(64).abs_diff(expected) <= 1, "{share:?}");
        }
    }

    #[test]
    fn who_gets_no_help_takes_all_but_on_trial() {
        let mut share = Share::default();
        assert_eq!(share.take(8), 5);
        share.took(true, None, us(10));
        let taken: Vec<_> = (0..2 * TRIAL).map(|_| share.take(8)).collect();
        assert_eq!(taken.iter().filter(|taken| **taken == 5).count(), 2);
        assert!(taken.iter().all(|taken| [5, 8].contains(taken)));
        // However far it came at once.
        share.took(false, NO_TIME, us(10));
        assert_eq!(share.take(8), 5);
        (0..100).for_each(|_| share.took(false, NO_TIME, us(10)));
        assert_eq!(share.take(8), 5);
        assert_eq!((share.take(1), share.take(0)), (1, 0));
    }

    #[test]
    fn each_side_takes_something_of_a_copy() {
        let mut share = Share::default();
        (0..100).for_each(|_| share.took(true, Some(us(1_000)), us(1)));
        assert_eq!(share.take(64), MOST as u16);
        (0..100).for_each(|_| share.took(true, NO_TIME, us(1)));
        assert_eq!(share.take(64), LEAST as u16);
        share.took(true, NO_TIME, us(0));
        share.took(true, Some(Duration::MAX), us(0));
    }
}
