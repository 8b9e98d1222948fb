//! The result of the test of one message size.

use std::time::Duration;

/// The pattern of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One message at a time, which the other side answers.
    BackAndForth,
    /// A stream from the client to the server.
    OneWay,
    /// A stream in each direction, at the same time.
    BothWays,
}

impl Pattern {
    /// The name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::BackAndForth => "pingpong",
            Pattern::OneWay => "oneway",
            Pattern::BothWays => "bothways",
        }
    }
}

/// The result of the test of one message size.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub pattern: Pattern,
    /// Bytes of a message.
    pub size: usize,
    /// Messages that one side sent.
    pub sent: u64,
    pub acknowledged: u64,
    pub elapsed: Duration,
    pub latencies: Latencies,
}

impl Outcome {
    /// Returns the number of messages, of both directions if there are two.
    pub fn messages(&self) -> u64 {
        match self.pattern {
            Pattern::OneWay => self.sent,
            Pattern::BackAndForth | Pattern::BothWays => self.sent * 2,
        }
    }

    /// Bytes of these messages.
    pub fn bytes(&self) -> u64 {
        self.messages() * self.size as u64
    }

    /// Returns microseconds for each message.
    pub fn micros_each(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e6 / self.messages() as f64
    }

    /// Returns millions of bytes per second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes() as f64 / (self.elapsed.as_secs_f64() * 1e6)
    }
}

/// Latencies in one direction, half of a round trip each.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Microseconds, in ascending order.
    sorted: Vec<f64>,
}

impl Latencies {
    /// Computes them from round trips.
    pub fn new(round_trips: Vec<Duration>) -> Latencies {
        let half = |trip: &Duration| trip.as_secs_f64() * 1e6 / 2.0;
        let mut sorted: Vec<f64> = round_trips.iter().map(half).collect();
        sorted.sort_by(f64::total_cmp);
        Latencies { sorted }
    }

    /// Returns the latency that this share of the messages, in percent, did not exceed (nearest
    /// rank).
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let rank = (self.sorted.len() as f64 * percent / 100.0).ceil() as usize;
        let last = self.sorted.len().checked_sub(1)?;
        self.sorted.get(rank.saturating_sub(1).min(last)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let trips = (1..=200).rev().map(|each| Duration::from_micros(each * 2));
        let latencies = Latencies::new(trips.collect());
        let percentile = |percent| latencies.percentile(percent).unwrap().round() as u64;
        assert_eq!(
            [0.0, 50.0, 99.0, 99.9, 100.0].map(percentile),
            [1, 100, 198, 200, 200]
        );
        assert_eq!(Latencies::default().percentile(50.0), None);
    }

    #[test]
    fn both_ways_counts_the_messages_of_both_sides() {
        let outcome = |pattern| Outcome {
            pattern,
            size: 1000,
            sent: 10,
            acknowledged: 10,
            elapsed: Duration::from_micros(100),
            latencies: Latencies::default(),
        };
        let one = outcome(Pattern::OneWay);
        assert_eq!((one.messages(), one.bytes()), (10, 10_000));
        assert!((one.micros_each() - 10.0).abs() < 1e-9 && (one.bandwidth() - 100.0).abs() < 1e-9);
        let both = outcome(Pattern::BothWays);
        assert!((both.micros_each() - 5.0).abs() < 1e-9 && (both.bandwidth() - 200.0).abs() < 1e-9);
    }
}
