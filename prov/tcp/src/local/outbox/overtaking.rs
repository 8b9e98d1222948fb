//! Requests for reads overtake the answers to the peer's reads at the end of the queue.
//!
//! Otherwise two processes that read from each other would take turns: the requests of one would
//! leave behind all the data that the other one has asked for, and that one's next requests would
//! arrive meanwhile. The data of an answer is not limited, so that this would halve the bandwidth
//! of a connection. Nothing depends on the order of the two: an answer has no operation on this
//! side, and a request is not mentioned by its position.

use std::collections::VecDeque;

use prov_base::bounded;
use prov_base::bounds::OPERATIONS;
use prov_util::mr::Grant;

use super::{Outbox, QueuedPiece};
use crate::wire::header::SEQUENCE;

/// Largest number of answers that are overtaken: each is renumbered then.
const MOST: usize = 256;

/// The answers at the end of a queue.
#[derive(Default)]
pub struct Answers {
    /// The position in the stream of each, ascending. The first ones may have begun to leave.
    starts: VecDeque<u64>,
    /// The position at which the last one ended; if the queue ends elsewhere, something is behind
    /// it, and they are overtaken no longer.
    end: u64,
}

impl Outbox {
    /// Appends an answer: its header and registered memory. Requests that follow may overtake it, if
    /// nothing knows it by its position (`is_movable`).
    pub fn push_answer(&mut self, header: &[u8], grants: &[Grant], is_movable: bool) {
        let starts = &mut self.answers.starts;
        if self.answers.end != self.queued || !is_movable || starts.len() == MOST {
            starts.clear();
        }
        if is_movable {
            starts.push_back(self.queued);
            bounded!(starts, OPERATIONS);
        }
        self.push(header);
        for &grant in grants {
            self.push_registered(grant);
        }
        self.answers.end = self.queued;
    }

    /// Inserts a request with this sequence number, which was to be the last one, before the answers
    /// at the end of the queue that have not begun to leave. Returns `false` if there are none.
    pub fn push_before_answers(&mut self, request: &mut [u8], sequence: u8) -> bool {
        let answers = &mut self.answers;
        if answers.end != self.queued {
            answers.starts.clear();
        }
        while answers.starts.front().is_some_and(|&at| at < self.sent) {
            answers.starts.pop_front();
        }
        let Some(&position) = answers.starts.front() else {
            return false;
        };
        let Some((index, place)) = self.place_of(position) else {
            return false;
        };
        self.renumber_answers();
        // Numbers are modulo 256.
        let overtaken = self.answers.starts.len() as u8;
        if let Some(number) = request.get_mut(SEQUENCE) {
            *number = sequence.wrapping_sub(overtaken);
        }
        let len = request.len();
        self.bytes.splice(place..place, request.iter().copied());
        if let Some(QueuedPiece::Own(own)) = self.segments.get_mut(index) {
            *own += len;
        }
        for start in &mut self.answers.starts {
            *start += len as u64;
        }
        self.queued += len as u64;
        self.answers.end = self.queued;
        true
    }

    /// Returns the segment with the library's bytes at a position, and where they are.
    fn place_of(&self, position: u64) -> Option<(usize, usize)> {
        let (mut at, mut own) = (self.sent, self.head);
        for (index, segment) in self.segments.iter().enumerate() {
            let len = segment.len() as u64;
            let is_own = matches!(segment, QueuedPiece::Own(_));
            if is_own && (at..at + len).contains(&position) {
                return Some((index, own + (position - at) as usize));
            }
            at += len;
            if is_own {
                own += len as usize;
            }
        }
        None
    }

    /// Adds 1 to the sequence numbers of the answers.
    fn renumber_answers(&mut self) {
        let (mut at, mut own) = (self.sent, self.head);
        let mut starts = self.answers.starts.iter();
        let mut next = starts.next();
        for segment in &self.segments {
            let len = segment.len() as u64;
            if let QueuedPiece::Own(_) = segment {
                while let Some(&start) = next
                    && (at..at + len).contains(&start)
                {
                    let number = own + (start - at) as usize + SEQUENCE;
                    if let Some(number) = self.bytes.get_mut(number) {
                        *number = number.wrapping_add(1);
                    }
                    next = starts.next();
                }
                own += len as usize;
            }
            at += len;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::super::ZeroCopySends;
    use super::*;
    use crate::local::path::Path;

    const LEN: usize = 16;

    fn message(what: u8, sequence: u8) -> [u8; LEN] {
        let mut message = [what; LEN];
        message[SEQUENCE] = sequence;
        message
    }

    /// Sends everything; returns what the messages are.
    fn sent(outbox: &mut Outbox) -> String {
        let (near, mut far) = UnixStream::pair().unwrap();
        let path = Path::through(near.as_fd());
        let mut lent = ZeroCopySends::default();
        assert_eq!(
            outbox.flush(&mut None, path, usize::MAX, &mut lent),
            Ok(true)
        );
        drop(near);
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).unwrap();
        let (messages, rest) = bytes.as_chunks::<LEN>();
        assert!(rest.is_empty());
        for (pair, at) in messages.windows(2).zip(0..) {
            let numbers = [pair[0][SEQUENCE], pair[1][SEQUENCE]];
            assert_eq!(
                numbers[1],
                numbers[0].wrapping_add(1),
                "behind message {at}"
            );
        }
        messages
            .iter()
            .map(|message| char::from(message[0]))
            .collect()
    }

    /// Queues messages: an answer (`a`), one for a device (`d`), a request (`r`) or another one.
    fn queue(outbox: &mut Outbox, what: &str, sequence: &mut u8) {
        for what in what.bytes() {
            let mut message = message(what, *sequence);
            match what {
                b'a' | b'd' => outbox.push_answer(&message, &[], what == b'a'),
                b'r' if outbox.push_before_answers(&mut message, *sequence) => {}
                _ => outbox.push(&message),
            }
            *sequence = sequence.wrapping_add(1);
        }
    }

    #[test]
    fn requests_overtake_the_answers_at_the_end_and_nothing_else() {
        for (queued, leave) in [
            ("aaar", "raaa"),
            ("aarar", "rraaa"),
            ("maamar", "maamra"),
            ("aamrr", "aamrr"),
            ("aadar", "aadra"),
            ("adr", "adr"),
            ("rmr", "rmr"),
            ("marm", "mram"),
            ("marmarr", "mramrra"),
        ] {
            let mut outbox = Outbox::default();
            // The numbers begin again in between.
            let mut sequence = 253;
            queue(&mut outbox, queued, &mut sequence);
            assert_eq!(sent(&mut outbox), leave, "{queued}");
            queue(&mut outbox, "aar", &mut sequence);
            assert_eq!(sent(&mut outbox), "raa");
        }
    }

    #[test]
    fn an_answer_that_has_begun_to_leave_is_not_overtaken() {
        let mut outbox = Outbox::default();
        let mut sequence = 0;
        queue(&mut outbox, "maaa", &mut sequence);
        // The message, and a part of an answer.
        outbox.advance(LEN + 3);
        queue(&mut outbox, "r", &mut sequence);
        let order: Vec<u8> = outbox.bytes[outbox.head..].to_vec();
        let (rest, behind) = order.split_at(LEN - 3);
        assert_eq!(rest, &message(b'a', 1)[3..]);
        let expected = [(b'r', 2), (b'a', 3), (b'a', 4)];
        let expected: Vec<u8> = expected
            .iter()
            .flat_map(|&(what, number)| message(what, number))
            .collect();
        assert_eq!(behind, expected);
    }

    #[test]
    fn any_number_of_answers_is_overtaken_or_none_of_many() {
        for count in [1, MOST - 1, MOST, MOST + 1, 3 * MOST] {
            let mut outbox = Outbox::default();
            let mut sequence = 7;
            let queued = "a".repeat(count) + "rr";
            queue(&mut outbox, &queued, &mut sequence);
            let leave = sent(&mut outbox);
            assert_eq!(leave.len(), count + 2);
            assert_eq!(leave.matches('r').count(), 2);
        }
    }
}
