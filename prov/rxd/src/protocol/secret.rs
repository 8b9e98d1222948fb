//! Numbers that nobody can guess who is not told them.

#[allow(
    deprecated,
    reason = "the keyed form of the hash has no other name in the library"
)]
use std::hash::SipHasher;
use std::hash::{Hash, Hasher};

/// Bits of a peer's number that are its index: most peers at one time.
const INDEX_BITS: u32 = 20;

/// Most peers of an endpoint at one time.
pub const MAX_PEERS: usize = 1 << INDEX_BITS;

/// A source of such numbers.
pub struct Secret {
    key: [u64; 2],
    round_keys: [u32; 4],
    counter: u64,
}

impl Secret {
    /// With random bits.
    pub fn new(key: [u64; 2]) -> Self {
        let round = |n: u64| keyed(key, (1, n)) as u32;
        Secret {
            key,
            round_keys: [round(0), round(1), round(2), round(3)],
            counter: 0,
        }
    }

    /// The next random number.
    pub fn next(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        keyed(self.key, (0, self.counter))
    }

    /// A new address for the peer with this index: its lower half is the peer's number
    /// ([`Secret::index_of`]), which is never 0.
    pub fn address_of(&mut self, index: u32) -> u64 {
        loop {
            let random = self.next();
            let salt = (random as u32) << INDEX_BITS;
            let number = self.permuted(salt | index);
            if number != 0 {
                return random & 0xffff_ffff_0000_0000 | u64::from(number);
            }
        }
    }

    /// The index within a number.
    #[inline(always)]
    pub fn index_of(&self, number: u32) -> usize {
        let [a, b, c, d] = self.round_keys;
        let mut number = number;
        for key in [d, c, b, a] {
            let (high, low) = (number >> 16, number & 0xffff);
            // The round of `permuted`, backwards.
            number = ((low ^ mixed(high, key)) << 16) | high;
        }
        (number & ((1 << INDEX_BITS) - 1)) as usize
    }

    /// A permutation of all numbers that depends on the key (a Feistel network).
    fn permuted(&self, number: u32) -> u32 {
        let mut number = number;
        for key in self.round_keys {
            let (high, low) = (number >> 16, number & 0xffff);
            number = (low << 16) | (high ^ mixed(low, key));
        }
        number
    }
}

/// The round function: 16 bits of half a number and a key.
#[inline(always)]
fn mixed(half: u32, key: u32) -> u32 {
    let product = (half ^ key).wrapping_mul(0x9e37_79b1);
    (product ^ (product >> 15)).wrapping_mul(key | 1) >> 16
}

fn keyed([k0, k1]: [u64; 2], value: impl Hash) -> u64 {
    #[allow(deprecated, reason = "as above")]
    let mut hasher = SipHasher::new_with_keys(k0, k1);
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_index_is_recovered_from_its_number() {
        let mut secret = Secret::new([1, 2]);
        for index in [0, 1, 2, 1000, 0xf_ffff] {
            for _ in 0..100 {
                let address = secret.address_of(index);
                assert_ne!(address as u32, 0);
                assert_eq!(secret.index_of(address as u32), index as usize);
            }
        }
    }

    #[test]
    fn numbers_of_one_index_differ_and_depend_on_the_secret() {
        let (mut one, mut other) = (Secret::new([1, 2]), Secret::new([1, 3]));
        let address = one.address_of(5);
        assert_ne!(address, one.address_of(5));
        assert_ne!(address as u32, other.address_of(5) as u32);
    }
}
