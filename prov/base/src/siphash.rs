//! SipHash-1-3 with the key zero: a hash of bytes that all processes, builds and releases compute
//! alike. It is no protection against those who choose the bytes.

/// The state of a hash (Jean-Philippe Aumasson and Daniel J. Bernstein, "SipHash: a fast
/// short-input PRF"), with one round for each word and three at the end.
#[derive(Clone, Debug)]
pub struct SipHash {
    state: [u64; 4],
    /// The bytes behind the last whole word, in the lowest ones.
    tail: u64,
    /// Number of all bytes.
    len: u64,
}

impl Default for SipHash {
    /// The hash of no bytes.
    fn default() -> Self {
        SipHash {
            state: [
                0x736f_6d65_7073_6575,
                0x646f_7261_6e64_6f6d,
                0x6c79_6765_6e65_7261,
                0x7465_6462_7974_6573,
            ],
            tail: 0,
            len: 0,
        }
    }
}

impl SipHash {
    /// Adds bytes behind those before.
    pub fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.tail |= u64::from(*byte) << (8 * (self.len % 8));
            self.len = self.len.wrapping_add(1);
            if self.len.is_multiple_of(8) {
                let word = std::mem::take(&mut self.tail);
                self.absorb(word);
            }
        }
    }

    /// Returns the hash of all bytes.
    pub fn finish(&self) -> u64 {
        let mut this = self.clone();
        this.absorb(self.len << 56 | self.tail);
        this.state[2] ^= 0xff;
        for _ in 0..3 {
            this.round();
        }
        this.state.iter().fold(0, |all, word| all ^ word)
    }

    fn absorb(&mut self, word: u64) {
        self.state[3] ^= word;
        self.round();
        self.state[0] ^= word;
    }

    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.state;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32);
        c = c.wrapping_add(b);
        a = a.wrapping_add(d);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        self.state = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> u64 {
        let mut hash = SipHash::default();
        hash.write(bytes);
        hash.finish()
    }

    /// The values are those of another implementation.
    #[test]
    fn the_hash_is_siphash_1_3() {
        assert_eq!(hash(b""), 0xd1fb_a762_150c_532c);
        assert_eq!(hash(b"abc"), 0xc03b_c3a0_0426_30f2);
        assert_eq!(hash(&(0..=255).collect::<Vec<u8>>()), 0x31ae_646a_fba7_0308);
    }

    #[test]
    fn bytes_may_come_in_parts() {
        let bytes: Vec<u8> = (0..100).collect();
        for cut in 0..bytes.len() {
            let (front, rest) = bytes.split_at(cut);
            let mut parts = SipHash::default();
            parts.write(front);
            parts.write(rest);
            assert_eq!(parts.finish(), hash(&bytes));
        }
    }
}
