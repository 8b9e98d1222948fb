//! Reproducible random numbers, and the contents of messages that follow from their numbers.

/// A generator (splitmix64).
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Whether something with this probability, in parts of a million, happens.
    pub fn happens(&mut self, millionths: u64) -> bool {
        millionths != 0 && self.below(1_000_000) < millionths
    }
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The bytes from `offset` on of the content with this number.
pub fn fill(content: u64, offset: usize, bytes: &mut [u8]) {
    let (mut at, mut place) = (offset, 0);
    while place < bytes.len() {
        let word = mixed(content ^ mixed(at as u64 / 8)).to_le_bytes();
        let skip = at % 8;
        let len = (8 - skip).min(bytes.len() - place);
        bytes[place..place + len].copy_from_slice(&word[skip..skip + len]);
        place += len;
        at += len;
    }
}

/// Whether the bytes are those of the content.
pub fn is_content(content: u64, offset: usize, bytes: &[u8]) -> bool {
    let mut expected = [0; 4096];
    let expected = &mut expected[..bytes.len()];
    fill(content, offset, expected);
    expected == bytes
}
