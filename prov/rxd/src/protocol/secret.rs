//! Numbers that nobody can guess who is not told them.

#[allow(
    deprecated,
    reason = "the keyed form of the hash has no other name in the library"
)]
use std::hash::SipHasher;
use std::hash::{Hash, Hasher};

use super::host::{Name, Time};

/// Bits of a peer's number that are its index: most peers at one time.
const INDEX_BITS: u32 = 20;

/// Most peers of an endpoint at one time.
pub const MAX_PEERS: usize = 1 << INDEX_BITS;

/// Time for which one cookie is given out; it is accepted for as long again.
const COOKIE_AGE: Time = 16_000_000_000;

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

    /// What proves that a request with this address and this name was answered at its path, about now.
    /// Nothing is kept of it. Never 0.
    pub fn cookie(&self, now: Time, address: u64, name: &Name) -> u64 {
        self.cookie_of(now / COOKIE_AGE, address, name)
    }

    /// Whether it is one of the last two times that cookies are for.
    pub fn is_cookie(&self, now: Time, address: u64, name: &Name, cookie: u64) -> bool {
        let age = now / COOKIE_AGE;
        [age, age.wrapping_sub(1)]
            .into_iter()
            .any(|age| self.cookie_of(age, address, name) == cookie)
    }

    fn cookie_of(&self, age: u64, address: u64, name: &Name) -> u64 {
        keyed(self.key, (2, age, address, name)).max(1)
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
    fn a_cookie_is_for_one_request_and_some_time() {
        let secret = Secret::new([1, 2]);
        let name = [7; 64];
        let cookie = secret.cookie(0, 5, &name);
        assert!(secret.is_cookie(2 * COOKIE_AGE - 1, 5, &name, cookie));
        assert!(!secret.is_cookie(2 * COOKIE_AGE, 5, &name, cookie));
        assert!(!secret.is_cookie(0, 6, &name, cookie));
        assert!(!secret.is_cookie(0, 5, &[8; 64], cookie));
        assert!(!Secret::new([1, 3]).is_cookie(0, 5, &name, cookie));
    }

    #[test]
    fn numbers_of_one_index_differ_and_depend_on_the_secret() {
        let (mut one, mut other) = (Secret::new([1, 2]), Secret::new([1, 3]));
        let address = one.address_of(5);
        assert_ne!(address, one.address_of(5));
        assert_ne!(address as u32, other.address_of(5) as u32);
    }
}
