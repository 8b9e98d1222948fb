//! The bytes of a stream that its peer has not acknowledged: they may have to be sent again.

use std::collections::VecDeque;

use crate::wire::multipath::MAX_DATA;

/// Number of bytes of a block: a frame takes its data from one.
const BLOCK: u64 = MAX_DATA as u64;
/// Number of empty blocks that are kept for reuse while the stream is in use: 1 MiB.
const SPARE: usize = 16;

/// See the [module](self) description. Positions are offsets in the stream.
#[derive(Default)]
pub struct Retained {
    /// The blocks with the bytes from `acked` to `end`; block `n` of the stream begins at `n`
    /// times [`BLOCK`].
    blocks: VecDeque<Box<[u8]>>,
    spare: Vec<Box<[u8]>>,
    acked: u64,
    end: u64,
}

#[allow(
    clippy::indexing_slicing,
    reason = "a block has BLOCK bytes, and there are blocks for all bytes from `acked` to `end`"
)]
impl Retained {
    /// Returns up to where everything is acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Returns where the next byte is appended.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of bytes that are kept.
    pub fn len(&self) -> u64 {
        self.end - self.acked
    }

    /// Appends up to `len` bytes. `fill` is called with the number of bytes so far and memory for
    /// the next, and returns how many it has written: less than there is room for end it. Returns
    /// the number of bytes.
    pub fn append(&mut self, len: usize, mut fill: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        let mut done = 0;
        while done < len {
            let at = (self.end % BLOCK) as usize;
            self.provide_block();
            let Some(block) = self.blocks.back_mut() else {
                break;
            };
            let room = &mut block[at..];
            let room_len = room.len().min(len - done);
            let filled = fill(done, &mut room[..room_len]);
            done += filled;
            self.end += filled as u64;
            if filled < room_len {
                break;
            }
        }
        done
    }

    /// Provides the block for the next byte.
    fn provide_block(&mut self) {
        let needed = self.end / BLOCK - self.acked / BLOCK + 1;
        if (self.blocks.len() as u64) < needed {
            let spare = self.spare.pop();
            let block = spare.unwrap_or_else(|| vec![0; MAX_DATA].into());
            self.blocks.push_back(block);
        }
    }

    /// Returns the bytes of a range that is kept, up to the end of its first block.
    pub fn bytes(&self, from: u64, to: u64) -> &[u8] {
        let (from, to) = (from.max(self.acked), to.min(self.end));
        let index = (from / BLOCK - self.acked / BLOCK) as usize;
        match self.blocks.get(index) {
            Some(block) if from < to => {
                let at = from % BLOCK;
                let len = (to - from).min(BLOCK - at);
                &block[at as usize..(at + len) as usize]
            }
            _ => &[],
        }
    }

    /// Notes that everything up to `offset`, at most [`Retained::end`], is acknowledged.
    pub fn acknowledge(&mut self, offset: u64) {
        let before = self.acked / BLOCK;
        self.acked = self.acked.max(offset.min(self.end));
        for _ in before..self.acked / BLOCK {
            if let Some(block) = self.blocks.pop_front()
                && self.spare.len() < SPARE
            {
                self.spare.push(block);
            }
        }
        if self.acked == self.end {
            // An idle stream keeps little memory.
            self.blocks.clear();
            self.spare = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(retained: &mut Retained, bytes: &[u8]) {
        let appended = retained.append(bytes.len(), |at, room| {
            let len = room.len();
            room.copy_from_slice(&bytes[at..at + len]);
            len
        });
        assert_eq!(appended, bytes.len());
    }

    #[test]
    fn every_byte_is_kept_until_it_is_acknowledged() {
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            (random >> 33) % below
        };
        let byte = |at: u64| (at * 7 / 3) as u8;
        let mut retained = Retained::default();
        for _ in 0..2000 {
            let bytes: Vec<u8> = (retained.end()..retained.end() + next(3 * BLOCK / 2))
                .map(byte)
                .collect();
            append(&mut retained, &bytes);
            let mut at = retained.acked() + next(retained.len() + 1);
            while at < retained.end() {
                let part = retained.bytes(at, retained.end());
                assert!(!part.is_empty());
                for &is in part.iter().step_by(97) {
                    assert_eq!(is, byte(at), "at {at}");
                    at += 97.min(retained.end() - at);
                }
                at = at.div_ceil(BLOCK).max(1) * BLOCK;
            }
            let acked = match next(4) {
                0 => retained.end(),
                _ => retained.acked() + next(retained.len() + 1),
            };
            retained.acknowledge(acked);
            assert_eq!(retained.acked(), acked);
            let room = (retained.len() / BLOCK + 2) as usize;
            assert!(retained.blocks.len() <= room && retained.spare.len() <= SPARE);
        }
    }

    #[test]
    fn a_source_that_has_nothing_adds_nothing() {
        let mut retained = Retained::default();
        append(&mut retained, &[1; 10]);
        assert_eq!(retained.append(5, |_, _| 0), 0);
        append(&mut retained, &[2; 10]);
        assert_eq!(retained.bytes(8, 12), [1, 1, 2, 2]);
        assert_eq!(retained.bytes(20, 30), []);
    }
}
