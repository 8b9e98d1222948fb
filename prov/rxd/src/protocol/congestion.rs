//! Congestion control, pacing and timeouts: the arithmetic of one direction of one connection.

use super::host::Time;

/// One microsecond.
const US: Time = 1_000;
/// One millisecond.
const MS: Time = 1_000_000;

/// Shortest retransmission timeout: several turns of a peer's progress engine, also on a busy
/// machine.
const RTO_MIN: Time = 4 * MS;
/// Longest timeout, also after back-off: after a partition, packets flow again within this time.
pub const RTO_MAX: Time = 2_000 * MS;
/// Timeout before the first sample (RFC 6298 has a second, for the Internet).
const RTO_FIRST: Time = 50 * MS;
/// Part of the probe timeout that allows for the peer's delayed acknowledgement and scheduling.
const PROBE_SLACK: Time = MS / 2;
/// Most probes before the retransmission timeout counts.
pub const MAX_PROBES: u8 = 8;
/// A minimum of the round trip older than this is replaced.
const MIN_RTT_AGE: Time = 10_000 * MS;

/// The round trip to a peer (RFC 6298).
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    /// Smoothed; 0 before the first sample.
    pub smoothed: Time,
    variation: Time,
    /// The shortest one of late.
    pub least: Time,
    least_at: Time,
    /// Doublings of the timeout since the last sign of progress.
    backoff: u32,
}

impl RoundTrip {
    /// Takes in a sample of a transmission that is known to be the one that has arrived (Karn's algorithm).
    /// A longer one than the longest timeout counts as that: everything is repeated in that time anyway,
    /// and a longer estimate would make packets leave at a pace at which it ends late.
    pub fn sample(&mut self, now: Time, took: Time) {
        let took = took.clamp(1, RTO_MAX);
        if self.smoothed == 0 {
            self.smoothed = took;
            self.variation = took / 2;
            self.least = took;
            self.least_at = now;
            return;
        }
        let error = self.smoothed.abs_diff(took);
        self.variation = (3 * self.variation + error) / 4;
        self.smoothed = (7 * self.smoothed + took) / 8;
        if took <= self.least || now.saturating_sub(self.least_at) > MIN_RTT_AGE {
            self.least = took;
            self.least_at = now;
        }
    }

    /// The retransmission timeout.
    pub fn timeout(&self) -> Time {
        let plain = match self.smoothed {
            0 => RTO_FIRST,
            smoothed => (smoothed + (4 * self.variation).max(US)).max(RTO_MIN),
        };
        (plain << self.backoff.min(16)).min(RTO_MAX)
    }

    /// Time after which the last packet is repeated as a probe (the tail loss probe of RFC 8985), when so
    /// many have been sent since the last sign of progress, or the retransmission timeout if that is
    /// earlier. It follows the least round trip: a host that is busy makes round trips long, and a probe
    /// that comes too early costs one packet.
    pub fn probe_timeout(&self, probes: u8) -> Time {
        match self.smoothed {
            0 => self.timeout(),
            _ => ((2 * self.least + PROBE_SLACK) << probes.min(MAX_PROBES)).min(self.timeout()),
        }
    }

    /// The same for a peer of the C library, which takes two acknowledgements without progress for a loss.
    pub fn only_probe_timeout(&self) -> Time {
        match self.smoothed {
            0 => self.timeout(),
            smoothed => (2 * smoothed + (4 * self.variation).max(PROBE_SLACK)).min(self.timeout()),
        }
    }

    /// Doubles the timeout.
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// There was progress.
    pub fn progressed(&mut self) {
        self.backoff = 0;
    }

    /// Whether packets leave at a pace.
    pub fn is_paced(&self) -> bool {
        self.least >= PACED_FROM
    }

    /// Whether packets wait in queues on the way: the round trip is clearly longer than the least.
    fn has_queue(&self) -> bool {
        self.smoothed > self.least + (self.least / 4).max(100 * US)
    }
}

/// Packets of the first window (RFC 6928).
const FIRST_WINDOW: u32 = 10;
/// Losses that are recovered without a timeout do not make the window smaller than this.
const LEAST_WINDOW: u32 = 32;
/// Window after a timeout.
const RESTART_WINDOW: u32 = 2;
/// Loss rate, in parts of 1024, that is not taken for congestion as long as no queue builds up on the path.
/// The [`Congestion::noise`] is added to it.
const TOLERATED_LOSS: u32 = 32;
/// Least number of losses from which a loss rate is computed.
const FEW_LOSSES: u32 = 4;
/// Number of packets from which [`Congestion::noise`] is computed.
const NOISE_SAMPLE: u32 = 64;
/// Age in nanoseconds at which [`Congestion::noise`] is reset.
const NOISE_AGE: Time = 10_000 * MS;
/// Packets that may leave at once in spite of pacing.
const BURST: Time = 16;
/// Least round trip in nanoseconds from which on packets are paced. Where it is shorter, timers are too
/// coarse to space the packets of a window.
const PACED_FROM: Time = MS;

/// The congestion window: NewReno (RFC 5681, RFC 6582), apart from what a loss means; see
/// [`Congestion::lost`].
#[derive(Clone, Copy, Debug)]
pub struct Congestion {
    /// In packets.
    pub window: u32,
    threshold: u32,
    /// Packets acknowledged towards the next step of congestion avoidance.
    steps: u32,
    /// Whether the window, and nothing else, has held packets back since the last acknowledgement.
    pub limits: bool,
    /// Packets acknowledged and lost of late.
    delivered: u32,
    lost: u32,
    /// Packets acknowledged and lost with small windows.
    small: (u32, u32),
    /// Random loss: the loss rate with small windows, in parts of 1024, which congestion of this connection
    /// does not explain.
    noise: u32,
    noise_at: Time,
    /// Window and threshold before the last reduction, to undo it, and how many of the losses have to
    /// turn out to be none for that.
    before: Option<(u32, u32, u32)>,
    /// Time at which the next packet may leave.
    leaves_at: Time,
}

impl Default for Congestion {
    fn default() -> Self {
        Congestion {
            window: FIRST_WINDOW,
            threshold: u32::MAX,
            steps: 0,
            limits: false,
            delivered: 0,
            lost: 0,
            small: (0, 0),
            noise: 0,
            noise_at: 0,
            before: None,
            leaves_at: 0,
        }
    }
}

impl Congestion {
    /// So many packets have arrived; the window does not grow beyond `most`.
    pub fn delivered(&mut self, packets: u32, most: u32) {
        self.delivered = self.delivered.saturating_add(packets);
        self.small.0 = self.small.0.saturating_add(packets);
        if !self.limits || self.window >= most {
            return;
        }
        if self.window < self.threshold {
            self.window = (self.window + packets).min(most);
            return;
        }
        self.steps += packets;
        if self.steps >= self.window {
            self.steps -= self.window;
            self.window += 1;
        }
    }

    /// A round trip has passed.
    pub fn round(&mut self, now: Time) {
        self.limits = false;
        if now.saturating_sub(self.noise_at) > NOISE_AGE {
            self.noise = 0;
        }
        let (delivered, lost) = self.small;
        if self.window > 2 * LEAST_WINDOW {
            self.small = (0, 0);
        } else if delivered + lost >= NOISE_SAMPLE {
            self.small = (0, 0);
            self.noise = lost * 1024 / (delivered + lost);
            self.noise_at = now;
            if self.noise > TOLERATED_LOSS {
                // A smaller window did not help.
                self.threshold = u32::MAX;
            }
        }
        self.delivered /= 2;
        self.lost /= 2;
    }

    /// One more packet is lost.
    pub fn count_loss(&mut self) {
        self.lost = self.lost.saturating_add(1);
        self.small.1 = self.small.1.saturating_add(1);
    }

    /// Notes that this many packets were taken for lost wrongly. If most of those that have reduced the
    /// window were, the reduction is undone.
    pub fn uncount_losses(&mut self, packets: u32) {
        self.lost = self.lost.saturating_sub(packets);
        self.small.1 = self.small.1.saturating_sub(packets);
        if let Some((.., losses)) = &mut self.before {
            *losses = losses.saturating_sub(packets);
            if *losses == 0 {
                self.undo();
            }
        }
    }

    /// Packets of the flight were lost, for the first time since the last such call's flight has
    /// arrived. The window is halved if there is a queue on the way, or if clearly more is lost than
    /// with the least window. Other losses are taken for noise.
    pub fn lost(&mut self, round_trip: &RoundTrip) {
        let all = u64::from(self.delivered) + u64::from(self.lost);
        let tolerated = u64::from(TOLERATED_LOSS + self.noise * 3 / 2);
        let many = self.lost >= FEW_LOSSES && u64::from(self.lost) * 1024 > all * tolerated;
        if self.window <= LEAST_WINDOW || (!many && !round_trip.has_queue()) {
            return;
        }
        self.before = Some((self.window, self.threshold, (self.lost / 2).max(1)));
        (self.delivered, self.lost) = (0, 0);
        self.threshold = (self.window / 2).max(LEAST_WINDOW);
        self.window = self.window.min(self.threshold);
        self.steps = 0;
    }

    /// Handles a retransmission timeout.
    pub fn timed_out(&mut self) {
        if self.window > RESTART_WINDOW {
            self.before = Some((self.window, self.threshold, 1));
        }
        self.threshold = (self.window / 2).max(LEAST_WINDOW);
        self.window = RESTART_WINDOW;
        self.steps = 0;
    }

    /// Undoes the last reduction of the window.
    fn undo(&mut self) {
        if let Some((window, threshold, _)) = self.before.take() {
            self.window = self.window.max(window);
            self.threshold = self.threshold.max(threshold);
        }
    }

    /// Keeps a reduction of the window for good.
    pub fn confirm(&mut self) {
        self.before = None;
    }

    /// Time at which the next packet may leave: now or later.
    pub fn next_departure(&self, round_trip: &RoundTrip) -> Time {
        match round_trip.is_paced() {
            false => 0,
            true => self.leaves_at,
        }
    }

    /// A packet leaves. The pace is 1.25 windows per round trip, and two in slow start.
    pub fn departs(&mut self, now: Time, round_trip: &RoundTrip) {
        if !round_trip.is_paced() {
            return;
        }
        let window = Time::from(self.window.max(1));
        let interval = match self.window < self.threshold {
            true => round_trip.smoothed / (2 * window),
            false => round_trip.smoothed * 4 / (5 * window),
        };
        let earliest = now.saturating_sub(BURST * interval);
        self.leaves_at = self.leaves_at.max(earliest) + interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_round_trip_and_doubles() {
        let mut trip = RoundTrip::default();
        assert_eq!(trip.timeout(), RTO_FIRST);
        for _ in 0..100 {
            trip.sample(0, 20 * MS);
        }
        assert!((20 * MS..22 * MS).contains(&trip.timeout()));
        trip.back_off();
        assert!((40 * MS..44 * MS).contains(&trip.timeout()));
        for _ in 0..100 {
            trip.back_off();
        }
        assert_eq!(trip.timeout(), RTO_MAX);
        trip.progressed();
        assert!(trip.timeout() < 22 * MS);
    }

    #[test]
    fn a_round_trip_of_many_seconds_does_not_stop_the_sender() {
        let mut trip = RoundTrip::default();
        trip.sample(0, 20_000 * MS);
        let mut congestion = Congestion::default();
        congestion.timed_out();
        let now = 100_000 * MS;
        for _ in 0..=BURST + 1 {
            congestion.departs(now, &trip);
        }
        assert!(congestion.next_departure(&trip) < now + RTO_MAX);
    }

    #[test]
    fn the_window_doubles_each_round_and_is_halved_when_there_is_a_queue() {
        let mut trip = RoundTrip::default();
        trip.sample(0, MS);
        let mut congestion = Congestion::default();
        for _ in 0..5 {
            congestion.limits = true;
            congestion.delivered(congestion.window, 1024);
        }
        assert_eq!(congestion.window, 320);
        congestion.count_loss();
        congestion.lost(&trip);
        assert_eq!(congestion.window, 320, "no queue: noise");
        for _ in 0..100 {
            trip.sample(0, 4 * MS);
        }
        congestion.lost(&trip);
        assert_eq!(congestion.window, 160);
        congestion.limits = true;
        congestion.delivered(160, 1024);
        assert_eq!(congestion.window, 161);
        congestion.timed_out();
        assert_eq!(congestion.window, RESTART_WINDOW);
        congestion.uncount_losses(1);
        assert_eq!(congestion.window, 161);
    }

    #[test]
    fn many_losses_are_congestion_even_without_a_queue() {
        let mut trip = RoundTrip::default();
        trip.sample(0, MS);
        let mut congestion = Congestion {
            window: 400,
            ..Congestion::default()
        };
        congestion.delivered(80, 1024);
        for _ in 0..5 {
            congestion.count_loss();
        }
        congestion.lost(&trip);
        assert_eq!(congestion.window, 200);
    }

    #[test]
    fn losses_that_persist_at_the_smallest_window_are_not_congestion() {
        let mut trip = RoundTrip::default();
        trip.sample(0, MS);
        let mut congestion = Congestion {
            window: 400,
            ..Congestion::default()
        };
        let mut now = 1;
        for _ in 0..100 {
            for _ in 0..congestion.window / 5 {
                congestion.count_loss();
            }
            congestion.limits = true;
            congestion.delivered(congestion.window * 4 / 5, 1024);
            congestion.lost(&trip);
            congestion.round(now);
            now += MS;
        }
        assert!(congestion.window >= 1000, "{}", congestion.window);
    }

    #[test]
    fn packets_are_spread_over_the_round_trip() {
        let mut trip = RoundTrip::default();
        trip.sample(0, 100 * MS);
        let mut congestion = Congestion {
            window: 100,
            threshold: 0,
            ..Congestion::default()
        };
        let (mut now, mut sent) = (1_000 * MS, 0);
        let end = now + 100 * MS;
        while now < end {
            while congestion.next_departure(&trip) <= now {
                congestion.departs(now, &trip);
                sent += 1;
            }
            now += 100 * US;
        }
        assert!((125..=125 + 17).contains(&sent), "{sent}");
    }
}
