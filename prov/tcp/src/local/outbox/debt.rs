//! The limit of answers that a peer does not read.
//!
//! Answers wait in the outbox, and a peer that keeps sending requests would make it grow without
//! bound. So nothing more is read from a peer with too many unread answers. Two well-behaved peers
//! must not deadlock that way: if each has unread answers of the other, each also waits for
//! answers, and as long as it does, it may have as many as a well-behaved peer requests.

/// Largest number of bytes of answers to a peer from which nothing is awaited.
const LIMIT: usize = 1 << 20;
/// Largest number of bytes of answers to one from which something is awaited: for all operations of
/// an endpoint with many peers, each of the largest size of answers that are copied.
const LIMIT_WHILE_WAITING: usize = 65536 * 4096;

/// The memory of the answers in an outbox. They are counted in two generations; the older one has
/// been sent when the stream has reached `mark`. So the sum is not less than what has not been
/// sent.
#[derive(Default, Debug)]
pub struct Debt {
    older: usize,
    newer: usize,
    mark: u64,
}

/// Positions in the stream: the end of what has been sent, and the end of the queue.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub sent: u64,
    pub queued: u64,
}

impl Debt {
    /// Counts queued answers of this many bytes. Returns `false` if reading has to stop.
    #[inline]
    pub fn add(&mut self, bytes: usize, awaits: bool, span: Span) -> bool {
        self.newer += bytes;
        self.total() <= LIMIT / 2 || self.is_within(limit(awaits), span)
    }

    /// Notes that so many bytes were inserted before answers.
    pub fn was_overtaken(&mut self, bytes: usize) {
        self.mark += bytes as u64;
    }

    /// Returns whether enough has been sent to resume reading.
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
        /// Compared with a queue that knows which of its bytes are answers.
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
    fn the_limit_of_answers_depends_on_whether_anything_is_awaited() {
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
    fn answers_that_were_sent_do_not_count_even_if_the_queue_is_never_empty() {
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
