//! The making of a link, over several attempts.

use std::time::{Duration, Instant};

use prov_util::errno::Errno;

/// How long an endpoint tries to reach a peer.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From the first attempt until everything that waits fails.
    pub connect: Duration,
    /// From the first refusal until then: somebody is there who may be
    /// restarting.
    pub refused: Duration,
    /// Pause before the second attempt; doubles with each.
    pub first_pause: Duration,
    /// Longest pause between two attempts.
    pub longest_pause: Duration,
}

impl Patience {
    /// For a link that has to come about within `connect`: a fifteenth of it, or
    /// a tenth of a second if that is longer, for a peer that refuses, and pauses
    /// from 10 ms to half a second.
    pub fn within(connect: Duration) -> Self {
        Patience {
            connect,
            refused: (connect / 15).max(Duration::from_millis(100)),
            first_pause: Duration::from_millis(10),
            longest_pause: Duration::from_millis(500),
        }
    }
}

/// Why an attempt, or an open link, has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Nobody was reached, or nobody answered.
    Unreached(Errno),
    /// Somebody is there and does not want a link.
    Refused(Errno),
    /// Another attempt would end in the same way.
    Hopeless(Errno),
}

impl Failure {
    /// A failure that may pass: a refusal, where that is what the error says.
    pub fn of(error: Errno) -> Self {
        match error {
            // The latter is somebody who goes before the proof.
            Errno::ECONNREFUSED | Errno::EKEYREJECTED => Failure::Refused(error),
            error => Failure::Unreached(error),
        }
    }

    /// The error as operations report it.
    pub fn error(self) -> Errno {
        match self {
            Failure::Unreached(error) | Failure::Refused(error) | Failure::Hopeless(error) => error,
        }
    }
}

/// Attempts to make a link, until there is one or they are given up.
pub(super) struct Attempt<L> {
    /// When everything that waits fails.
    pub deadline: Instant,
    /// How long to wait before the attempt after this one.
    pause: Duration,
    pub stage: Stage<L>,
}

/// What an attempt is doing.
pub(super) enum Stage<L> {
    /// It is under way.
    UnderWay {
        /// The link that is being made, once it has a name.
        link: Option<L>,
        /// The peer's own request, which has met ours.
        crossing: Option<L>,
    },
    /// It has failed; this is when the next one is due.
    Pausing(Instant),
}

impl<L> Attempt<L> {
    /// The first one, under way.
    pub fn begin(patience: &Patience, now: Instant) -> Self {
        Attempt {
            deadline: now + patience.connect,
            pause: patience.first_pause,
            stage: Stage::under_way(None),
        }
    }

    /// One that begins after a first pause; when.
    pub fn begin_later(patience: &Patience, now: Instant) -> (Self, Instant) {
        let mut attempt = Attempt::begin(patience, now);
        let at = now + attempt.pause;
        attempt.stage = Stage::Pausing(at);
        (attempt, at)
    }

    /// It has failed. When to try again, if there is hope and time.
    pub fn fail(&mut self, failure: Failure, patience: &Patience, now: Instant) -> Option<Instant> {
        match failure {
            Failure::Unreached(_) => {}
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

    /// When attempts that fail like this are made, from the first on, each of
    /// which takes no time.
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
    fn who_refuses_is_given_less_time() {
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
    fn the_hopeless_is_not_tried_again() {
        let patience = Patience::within(MILLISECOND * 15_000);
        let made = attempts(&patience, Failure::Hopeless(Errno::ECONNREFUSED));
        assert_eq!(made.len(), 1);
    }

    #[test]
    fn a_refusal_is_borne_for_a_tenth_of_a_second_at_least() {
        assert_eq!(Patience::within(MILLISECOND).refused, MILLISECOND * 100);
    }
}
