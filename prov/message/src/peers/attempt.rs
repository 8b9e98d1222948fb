//! Establishing a link, in several attempts.

use std::time::{Duration, Instant};

use prov_base::errno::Errno;

/// How long an endpoint tries to reach a peer.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Time from the first attempt until all waiting requests fail.
    pub connect: Duration,
    /// Time from the first refusal until then: the peer's host answers, and the peer may be
    /// restarting.
    pub refused: Duration,
    /// Pause before the second attempt; it doubles with each further one.
    pub first_pause: Duration,
    /// Longest pause between two attempts.
    pub longest_pause: Duration,
}

impl Patience {
    /// The parameters for a link that has to be established within `connect`: a peer that refuses
    /// gets a fifteenth of that time, but at least 100 ms, and the pauses grow from 10 ms to 500
    /// ms.
    pub fn within(connect: Duration) -> Self {
        Patience {
            connect,
            refused: (connect / 15).max(Duration::from_millis(100)),
            first_pause: Duration::from_millis(10),
            longest_pause: Duration::from_millis(500),
        }
    }
}

/// The reason why an attempt, or an open link, has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The peer was not reached, or did not answer.
    Unreached(Errno),
    /// The peer's host answers and refuses the link.
    Refused(Errno),
    /// Another attempt would fail in the same way.
    Hopeless(Errno),
    /// The peer has closed its endpoint in good order. It may come back at its address.
    Closed(Errno),
}

impl Failure {
    /// Classifies an error as a passing failure: as a refusal if the error says so.
    pub fn of(error: Errno) -> Self {
        match error {
            // `EKEYREJECTED`: another process has answered before the proof of identity.
            Errno::ECONNREFUSED | Errno::EKEYREJECTED => Failure::Refused(error),
            error => Failure::Unreached(error),
        }
    }

    /// Returns the error that operations report.
    pub fn error(self) -> Errno {
        match self {
            Failure::Unreached(error)
            | Failure::Refused(error)
            | Failure::Hopeless(error)
            | Failure::Closed(error) => error,
        }
    }
}

/// The attempts to establish a link, until there is one or they are given up.
pub(super) struct Attempt<L> {
    /// The time at which all waiting requests fail.
    pub deadline: Instant,
    /// The pause before the next attempt.
    pause: Duration,
    pub stage: Stage<L>,
}

/// The state of an attempt.
pub(super) enum Stage<L> {
    /// It is under way.
    UnderWay {
        /// The link that is being established, once it has a key.
        link: Option<L>,
        /// The peer's own request, which has crossed ours.
        crossing: Option<L>,
    },
    /// It has failed; the next one is due at this time.
    Pausing(Instant),
}

impl<L> Attempt<L> {
    /// Creates the first attempt, under way.
    pub fn begin(patience: &Patience, now: Instant) -> Self {
        Attempt {
            deadline: now + patience.connect,
            pause: patience.first_pause,
            stage: Stage::under_way(None),
        }
    }

    /// Creates an attempt that begins after the first pause, and returns when that is.
    pub fn begin_later(patience: &Patience, now: Instant) -> (Self, Instant) {
        let mut attempt = Attempt::begin(patience, now);
        let at = now + attempt.pause;
        attempt.stage = Stage::Pausing(at);
        (attempt, at)
    }

    /// Handles a failed attempt. Returns when the next one is due, if another one makes sense in
    /// the remaining time.
    pub fn fail(&mut self, failure: Failure, patience: &Patience, now: Instant) -> Option<Instant> {
        match failure {
            Failure::Unreached(_) | Failure::Closed(_) => {}
            Failure::Refused(_) => self.deadline = self.deadline.min(now + patience.refused),
            Failure::Hopeless(_) => return None,
        }
        let at = now + self.pause;
        if at >= self.deadline {
            return None;
        }
        self.pause = (self.pause * 2).min(patience.longest_pause);
        self.stage = Stage::Pausing(at);
        Some(at)
    }
}

impl<L> Stage<L> {
    /// Under way with this link.
    pub fn under_way(link: Option<L>) -> Self {
        Stage::UnderWay {
            link,
            crossing: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// The times of attempts that all fail like this and take no time, from the first on.
    fn attempts(patience: &Patience, failure: Failure) -> Vec<Duration> {
        let start = Instant::now();
        let mut attempt = Attempt::<u32>::begin(patience, start);
        let mut at = start;
        let mut made = vec![Duration::ZERO];
        while let Some(next) = attempt.fail(failure, patience, at) {
            made.push(next - start);
            at = next;
        }
        made
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let patience = Patience::within(MILLISECOND * 3000);
        let made = attempts(&patience, Failure::Unreached(Errno::EHOSTUNREACH));
        let made: Vec<u128> = made.iter().map(Duration::as_millis).collect();
        let expected = [0, 10, 30, 70, 150, 310, 630, 1130, 1630, 2130, 2630];
        assert_eq!(made, expected);
    }

    #[test]
    fn a_refusing_peer_is_given_less_time() {
        let patience = Patience::within(MILLISECOND * 15_000);
        assert_eq!(patience.refused, MILLISECOND * 1000);
        let refused = attempts(&patience, Failure::of(Errno::ECONNREFUSED));
        let unreached = attempts(&patience, Failure::of(Errno::EHOSTUNREACH));
        assert!(refused.last() < Some(&patience.refused));
        assert!(unreached.last() > Some(&(patience.connect - patience.longest_pause * 2)));
    }

    #[test]
    fn later_refusals_do_not_extend_the_time() {
        let patience = Patience::within(MILLISECOND * 1000);
        let start = Instant::now();
        let mut attempt = Attempt::<u32>::begin(&patience, start);
        let refused = Failure::Refused(Errno::ECONNREFUSED);
        assert!(attempt.fail(refused, &patience, start).is_some());
        let late = start + patience.refused - MILLISECOND;
        assert_eq!(attempt.fail(refused, &patience, late), None);
    }

    #[test]
    fn a_hopeless_attempt_is_not_repeated() {
        let patience = Patience::within(MILLISECOND * 15_000);
        let made = attempts(&patience, Failure::Hopeless(Errno::ECONNREFUSED));
        assert_eq!(made.len(), 1);
    }

    #[test]
    fn a_refusing_peer_is_retried_for_at_least_100_ms() {
        assert_eq!(Patience::within(MILLISECOND).refused, MILLISECOND * 100);
    }
}
