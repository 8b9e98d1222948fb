//! The time by which a peer has to answer.

use std::time::{Duration, Instant};

/// Delay in noticing a deadline from which on it is put off: a process that looks, or sleeps until
/// then, notices it within some milliseconds, and within tens of them on a busy machine.
const LATE: Duration = Duration::from_millis(100);

/// The time by which a peer has to answer. It passes while this side looks for the answer: if this
/// side has made no calls, or has waited for a processor, for which the peer may have waited, too,
/// then the time begins anew, once.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    is_put_off: bool,
}

impl Deadline {
    /// Creates a deadline.
    pub fn new(at: Instant) -> Self {
        Deadline {
            at,
            is_put_off: false,
        }
    }

    /// Returns when it is to be looked at.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Returns whether the time is over. If not, it may have been put off, to `again` from `now` on.
    pub fn is_over(&mut self, now: Instant, again: Duration) -> bool {
        let Some(late) = now.checked_duration_since(self.at) else {
            return false;
        };
        if late < LATE || self.is_put_off {
            return true;
        }
        *self = Deadline {
            at: now + again,
            is_put_off: true,
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGAIN: Duration = Duration::from_secs(15);

    #[test]
    fn a_deadline_that_is_noticed_in_time_is_not_put_off() {
        let now = Instant::now();
        let mut deadline = Deadline::new(now);
        assert!(!Deadline::new(now + AGAIN).is_over(now, AGAIN));
        assert!(deadline.is_over(now + LATE / 2, AGAIN));
        assert_eq!(deadline.at(), now);
    }

    #[test]
    fn one_that_is_noticed_late_is_put_off_once() {
        let now = Instant::now();
        let mut deadline = Deadline::new(now);
        let noticed = now + LATE * 50;
        assert!(!deadline.is_over(noticed, AGAIN));
        assert_eq!(deadline.at(), noticed + AGAIN);
        assert!(!deadline.is_over(noticed + LATE, AGAIN));
        assert!(deadline.is_over(noticed + AGAIN * 2, AGAIN));
    }
}
