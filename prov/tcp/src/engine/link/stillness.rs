//! Whether the peer of a connection takes nothing at present.

/// What a connection looked like at the last check, and what follows from that.
#[derive(Default)]
pub struct Stillness {
    /// Whether a check is due: there is at most one.
    pub is_watched: bool,
    /// Number of announced messages that the peer has requested or fetched, modulo 2^32.
    answers: u32,
    seen: Seen,
}

/// A connection at a point in time.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Seen {
    /// Position in the stream up to which everything was sent.
    sent: u64,
    /// Position in the stream of the end of the queue.
    queued: u64,
    answers: u32,
}

/// What has happened since the last check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Still {
    /// Whether none of the bytes that were queued has left.
    pub queue: bool,
    /// Whether none of the messages was requested that were announced up to this position in the
    /// stream.
    pub announced: Option<u64>,
}

impl Stillness {
    /// The peer has requested or fetched an announced message.
    #[inline]
    pub fn answered(&mut self) {
        self.answers = self.answers.wrapping_add(1);
    }

    /// Notes how far a connection is.
    pub fn note(&mut self, sent: u64, queued: u64) {
        self.seen = Seen {
            sent,
            queued,
            answers: self.answers,
        };
    }

    /// Compares how far a connection is with what was noted.
    pub fn since(&self, sent: u64) -> Still {
        Still {
            queue: sent == self.seen.sent,
            announced: (self.answers == self.seen.answers).then_some(self.seen.queued),
        }
    }
}
