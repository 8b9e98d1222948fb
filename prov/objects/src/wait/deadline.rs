//! The deadline of a blocking call.

use std::time::{Duration, Instant};

/// The time at which a blocking call gives up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

/// The time until a [`Deadline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// The deadline has passed.
    Over,
    /// This much time is left.
    For(Duration),
    /// The deadline never comes.
    Forever,
}

impl Deadline {
    /// Creates the deadline `timeout` milliseconds from now; none for a negative value.
    pub fn after_ms(timeout: i32) -> Self {
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        Self(timeout.map(|timeout| Instant::now() + timeout))
    }

    /// Returns the time that is left.
    pub fn remaining(self) -> Remaining {
        match self.0 {
            None => Remaining::Forever,
            Some(end) => match end.checked_duration_since(Instant::now()) {
                None | Some(Duration::ZERO) => Remaining::Over,
                Some(left) => Remaining::For(left),
            },
        }
    }

    /// Returns whether the deadline has passed.
    pub fn is_over(self) -> bool {
        self.remaining() == Remaining::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_zero_is_over_immediately_and_a_negative_one_never() {
        assert!(Deadline::after_ms(0).is_over());
        assert_eq!(Deadline::after_ms(-1).remaining(), Remaining::Forever);
        assert!(!Deadline::after_ms(i32::MAX).is_over());
    }
}
