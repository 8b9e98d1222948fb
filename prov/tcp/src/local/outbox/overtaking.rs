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
