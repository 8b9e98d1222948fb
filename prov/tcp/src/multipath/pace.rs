//! How fast a subflow is, and how long its queue.

use std::time::{Duration, Instant};

/// Least time between two measurements: some round trips in a data center.
const INTERVAL: Duration = Duration::from_millis(4);
/// Time for which a measured pace is believed. A subflow that is taken for slow is given little, and
/// would never be seen to be faster.
const BELIEVED: Duration = Duration::from_secs(1);

/// The measured pace of a subflow.
pub struct Pace {
    /// Bytes per second; 0 until it is known.
    rate: u64,
    measured: Instant,
    /// For how long the subflow was in use since it had all that it could carry.
    doubt: Duration,
    /// How many bytes had been delivered then.
    delivered: u64,
    /// Whether others were on their way.
    was_busy: bool,
    /// Whether the socket was full since.
    was_full: bool,
}

impl Pace {
    pub fn new(now: Instant) -> Self {
        Pace {
            rate: 0,
            measured: now,
            doubt: Duration::ZERO,
            delivered: 0,
            was_busy: false,
            was_full: false,
        }
    }

    /// Notes that the socket accepts no more.
    pub fn is_full(&mut self) {
        self.was_full = true;
    }

    /// Notes that of the bytes that were `sent`, `queued` have not been delivered.
    pub fn note(&mut self, now: Instant, sent: u64, queued: u64) {
        let passed = now.saturating_duration_since(self.measured);
        if passed < INTERVAL {
            return;
        }
        let delivered = sent.saturating_sub(queued);
        if self.was_busy && queued != 0 {
            let bytes = delivered.saturating_sub(self.delivered);
            let rate = u128::from(bytes) * 1_000_000 / passed.as_micros().max(1);
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            self.doubt = match self.was_full {
                true => Duration::ZERO,
                false => self.doubt + passed,
            };
            self.rate = match self.rate {
                // A subflow is not slow because it was given little.
                before if (rate < before || before == 0) && !self.was_full => before,
                0 => rate,
                // A moving average: single intervals are uneven.
                before => before - before / 4 + rate / 4,
            };
        }
        if self.doubt > BELIEVED {
            self.rate = 0;
            self.doubt = Duration::ZERO;
        }
        self.measured = now;
        self.delivered = delivered;
        self.was_busy = queued != 0;
        self.was_full = false;
    }

    /// Returns how long it takes to deliver so many bytes, if that is known.
    pub fn time_for(&self, bytes: u64) -> Option<Duration> {
        let micros = u128::from(bytes) * 1_000_000;
        let micros = micros.checked_div(self.rate.into())?;
        Some(Duration::from_micros(
            u64::try_from(micros).unwrap_or(u64::MAX),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_that_of_the_times_when_there_is_a_queue() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(pace.time_for(1000), None);
        let mut sent = 0;
        let mut step = |pace: &mut Pace, millis: u64, bytes: u64, queued: u64| {
            now += Duration::from_millis(millis);
            sent += bytes;
            if bytes > 1 {
                pace.is_full();
            }
            pace.note(now, sent, queued);
        };
        // Nothing is sent for a long time.
        step(&mut pace, 10_000, 0, 0);
        step(&mut pace, 10, 5000, 5000);
        for _ in 0..30 {
            // 100 bytes in a millisecond.
            step(&mut pace, 10, 1000, 5000);
        }
        let near = |pace: &Pace, millis: u64| {
            let time = pace.time_for(1000).unwrap().as_micros();
            assert!(
                (millis * 990..millis * 1010).contains(&(time as u64)),
                "{time}"
            );
        };
        near(&pace, 10);
        // Too short to tell, and idle.
        step(&mut pace, 1, 1000, 6000);
        step(&mut pace, 10_000, 0, 0);
        near(&pace, 10);
        step(&mut pace, 10, 5000, 5000);
        for _ in 0..60 {
            step(&mut pace, 20, 1000, 5000);
        }
        near(&pace, 20);
        // It is given little.
        for _ in 0..40 {
            step(&mut pace, 20, 1, 5000);
        }
        near(&pace, 20);
        for _ in 0..11 {
            step(&mut pace, 20, 1, 5000);
        }
        assert_eq!(pace.time_for(1000), None);
        // Nothing is known from that.
        step(&mut pace, 20, 1, 5000);
        assert_eq!(pace.time_for(1000), None);
        for _ in 0..30 {
            step(&mut pace, 10, 1000, 5000);
        }
        near(&pace, 10);
    }
}
