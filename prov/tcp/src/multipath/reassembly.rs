//! The bytes of a stream that arrived before others that precede them.

use std::collections::BTreeMap;

use crate::wire::WireError;
use crate::wire::multipath::WINDOW;

/// Largest number of pieces. The gaps between them are as many; a sender causes few, each at least
/// as long as the data of a frame.
const MAX_PIECES: usize = 4096;
/// Largest number of bytes of a piece to which more are appended, which may copy it.
const GROWN: usize = 256 << 10;

/// See the [module](self) description. Positions are offsets in the stream.
#[derive(Default)]
pub struct Reassembly {
    /// Everything before was taken.
    next: u64,
    /// The pieces by their beginnings. None is empty, and none overlaps another one.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Number of bytes of the first piece that were taken.
    taken: usize,
}

impl Reassembly {
    /// Returns the position of the byte that is needed next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Checks that a range of bytes that a peer announces is one that it may send.
    pub fn check(&self, offset: u64, len: usize) -> Result<(), WireError> {
        // The peer may send again what has been received.
        match offset.saturating_add(len as u64) <= self.next.saturating_add(WINDOW) {
            true => Ok(()),
            false => Err(WireError::Field("offset")),
        }
    }

    /// Notes that the next `len` bytes were received elsewhere.
    pub fn skip(&mut self, len: usize) {
        self.next += len as u64;
        while let Some(entry) = self.pieces.first_entry() {
            let (start, end) = (*entry.key(), *entry.key() + entry.get().len() as u64);
            if end <= self.next {
                entry.remove();
                self.taken = 0;
                continue;
            }
            self.taken = self.next.saturating_sub(start) as usize;
            break;
        }
    }

    /// Adds bytes at a position; those that are there already, or were taken, are dropped.
    ///
    /// # Errors
    /// There are too many pieces.
    #[allow(
        clippy::indexing_slicing,
        reason = "`len` and `known` are at most the length"
    )]
    pub fn insert(&mut self, mut at: u64, mut bytes: &[u8]) -> Result<(), WireError> {
        let old = self.next.saturating_sub(at).min(bytes.len() as u64);
        (at, bytes) = (at + old, &bytes[old as usize..]);
        while !bytes.is_empty() {
            let after = self.pieces.range(at..).next();
            let room = after.map_or(u64::MAX, |(start, _)| start - at);
            let count = self.pieces.len();
            let before = self.pieces.range_mut(..=at).next_back();
            let before = before.map(|(start, piece)| (start + piece.len() as u64, piece));
            if let Some((end, _)) = &before
                && *end > at
            {
                let known = (*end - at).min(bytes.len() as u64);
                (at, bytes) = (at + known, &bytes[known as usize..]);
                continue;
            }
            let len = room.min(bytes.len() as u64) as usize;
            let part = &bytes[..len];
            match before {
                Some((end, piece)) if end == at && piece.len() < GROWN => {
                    piece.extend_from_slice(part);
                }
                _ if count == MAX_PIECES => return Err(WireError::Field("gaps between frames")),
                _ => _ = self.pieces.insert(at, part.to_vec()),
            }
            (at, bytes) = (at + len as u64, &bytes[len..]);
        }
        Ok(())
    }

    /// Returns the bytes that are next, as far as they are in one piece.
    pub fn front(&self) -> &[u8] {
        match self.pieces.first_key_value() {
            Some((&start, piece)) if start <= self.next => {
                piece.get(self.taken..).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// Returns the number of bytes that are next.
    pub fn ready(&self) -> usize {
        let mut end = self.next;
        for (&start, piece) in &self.pieces {
            if start > end {
                break;
            }
            end = start + piece.len() as u64;
        }
        (end - self.next) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_order_and_overlap_gives_the_stream() {
        let mut random = 7u64;
        let mut below = |limit: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            (random >> 33) as usize % limit
        };
        for _ in 0..300 {
            let stream: Vec<u8> = (0..1 + below(5000)).map(|_| below(256) as u8).collect();
            let mut reassembly = Reassembly::default();
            let mut got: Vec<u8> = Vec::new();
            while got.len() < stream.len() {
                let from = match below(8) {
                    0 => got.len(),
                    _ => below(stream.len()),
                };
                let to = from + 1 + below(stream.len() - from);
                if from == got.len() && below(2) == 0 {
                    got.extend(&stream[from..to]);
                    reassembly.skip(to - from);
                } else {
                    reassembly.insert(from as u64, &stream[from..to]).unwrap();
                }
                while below(3) != 0 && !reassembly.front().is_empty() {
                    let front = reassembly.front();
                    let len = 1 + below(front.len());
                    got.extend(&front[..len]);
                    reassembly.skip(len);
                }
                assert_eq!(reassembly.next(), got.len() as u64);
                assert!(reassembly.ready() >= reassembly.front().len());
            }
            assert!(got == stream);
            assert!(reassembly.pieces.is_empty() && reassembly.front().is_empty());
        }
    }

    #[test]
    fn a_sender_cannot_use_more_memory_than_the_window() {
        let mut reassembly = Reassembly::default();
        assert!(reassembly.check(0, 1).is_ok());
        assert!(reassembly.check(WINDOW - 1, 1).is_ok());
        assert!(reassembly.check(WINDOW - 1, 2).is_err());
        assert!(reassembly.check(u64::MAX, 2).is_err());
        reassembly.skip(10);
        assert!(reassembly.check(WINDOW, 10).is_ok() && reassembly.check(0, 5).is_ok());
        // Nor can it with pieces of one byte.
        let outcome = (0..).step_by(2).map(|at| reassembly.insert(at + 20, &[1]));
        let refused = outcome.take(MAX_PIECES + 1).filter(Result::is_err).count();
        assert_eq!((refused, reassembly.pieces.len()), (1, MAX_PIECES));
    }
}
