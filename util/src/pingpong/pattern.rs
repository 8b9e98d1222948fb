//! The contents of messages when the data is checked: the same on both sides, different for each
//! message.

const ALPHABET: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Offset of a message's pattern to that of the previous message, in letters.
const STEP: u32 = 7;

/// The patterns of one direction, message by message.
#[derive(Default)]
pub struct Patterns {
    /// Number of messages so far; wraps like the other side's.
    count: u32,
}

impl Patterns {
    /// Returns the contents of the next message.
    pub fn next(&mut self, size: usize) -> Vec<u8> {
        let start = self.count.wrapping_mul(STEP) as usize % ALPHABET.len();
        self.count = self.count.wrapping_add(1);
        ALPHABET
            .iter()
            .copied()
            .cycle()
            .skip(start)
            .take(size)
            .collect()
    }

    /// Messages so far.
    pub fn count(&self) -> u64 {
        u64::from(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_starts_seven_letters_further() {
        let mut patterns = Patterns::default();
        assert_eq!(patterns.next(3), b"012");
        assert_eq!(patterns.next(3), b"789");
        assert_eq!(patterns.next(0), b"");
        assert_eq!(patterns.next(64)[..3], *b"lmn");
    }
}
