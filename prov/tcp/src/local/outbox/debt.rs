//! Answers that a peer does not read.
//!
//! They wait in the outbox, and a peer that goes on asking would make it grow
//! without end. So nothing more is read from one that is owed too much. Two
//! honest peers must not come to wait for one another that way: where each owes
//! the other something, each also waits for answers, and as long as it does, it
//! may owe as much as an honest peer asks for.

/// Bytes of answers to a peer of which nothing is awaited.
const LIMIT: usize = 1 << 20;
/// Bytes of answers to one of which something is awaited: to all operations of an
/// endpoint with many peers, each as long as answers are that are copied.
const LIMIT_WHILE_WAITING: usize = 65536 * 4096;

/// What the answers in an outbox take. They are counted in two generations, of
/// which the older has left when the stream has come to `mark`: the sum is no
/// less than what has not left.
#[derive(Default, Debug)]
pub struct Debt {
    older: usize,
    newer: usize,
    mark: u64,
}

/// Positions in the stream: up to where everything has left, and where the queue
/// ends.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub sent: u64,
    pub queued: u64,
}

impl Debt {
    /// Answers that take so many bytes were queued; `false` if that makes it too
    /// much to read on.
    #[inline]
    pub fn add(&mut self, bytes: usize, awaits: bool, span: Span) -> bool {
        self.newer += bytes;
        self.total() <= LIMIT / 2 || self.is_within(limit(awaits), span)
    }

    /// Whether so much has left that there is reason to read on.
    pub fn is_small(&mut self, awaits: bool, span: Span) -> bool {
        self.is_within(limit(awaits) / 2, span)
    }

    fn is_within(&mut self, limit: usize, span: Span) -> bool {
        if span.sent == span.queued {
            (self.older, self.newer) = (0, 0);
        }
        if span.sent >= self.mark {
            (self.older, self.newer) = (self.newer, 0);
            self.mark = span.queued;
        }
        self.total() <= limit
    }

    #[inline]
    fn total(&self) -> usize {
        self.older + self.newer
    }
}

fn limit(awaits: bool) -> usize {
    match awaits {
        true => LIMIT_WHILE_WAITING,
        false => LIMIT,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a queue that knows what of it is answers.
        #[test]
        fn it_is_never_less_than_what_waits_nor_more_than_what_waited_a_while_ago(
            steps in prop::collection::vec((any::<bool>(), 0usize..40_000, 0u64..60_000), 1..400)
        ) {
            let mut debt = Debt::default();
            let mut span = Span { sent: 0, queued: 0 };
            let mut answers: VecDeque<(u64, usize)> = VecDeque::new();
            for (is_answer, len, leaves) in steps {
                span.queued += len as u64;
                if is_answer {
                    answers.push_back((span.queued, len));
                    debt.add(len, false, span);
                }
                span.sent = (span.sent + leaves).min(span.queued);
                while answers.front().is_some_and(|&(end, _)| end <= span.sent) {
                    answers.pop_front();
                }
                let waiting: usize = answers.iter().map(|(_, len)| len).sum();
                let is_small = debt.is_small(false, span);
                prop_assert!(debt.total() >= waiting);
                prop_assert_eq!(is_small, debt.total() <= LIMIT / 2);
                if span.sent == span.queued {
                    prop_assert_eq!(debt.total(), 0);
                }
            }
        }
    }

    #[test]
    fn what_is_too_much_depends_on_whether_anything_is_awaited() {
        let span = Span {
            sent: 0,
            queued: 1 << 30,
        };
        let mut debt = Debt::default();
        assert!(debt.add(LIMIT, false, span));
        assert!(!debt.add(1, false, span));
        assert!(debt.add(1, true, span));
        assert!(!debt.add(LIMIT_WHILE_WAITING, true, span));
    }

    #[test]
    fn what_has_left_is_owed_no_more_though_the_queue_is_never_empty() {
        let mut debt = Debt::default();
        for at in 0..1000 {
            let queued = (at + 2) * 1000;
            let sent = at * 1000;
            assert!(
                debt.add(LIMIT / 10, false, Span { sent, queued }),
                "at {at}"
            );
        }
    }
}
