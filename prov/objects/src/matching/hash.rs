//! The hash of tags and sources, keyed with a secret of this process.
//!
//! Peers choose the tags of their messages. With a hash that they can compute, they could place all
//! of their messages in one bucket, and each lookup would walk the whole bucket while it holds the
//! lane's lock. With a secret key, the length of a bucket does not depend on the tags that they
//! choose.

use std::sync::OnceLock;

use prov_base::random;

/// The secret key of a hash table.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashKey {
    tag: u64,
    src: u64,
}

impl HashKey {
    /// Returns the key of this process, which is random and created on first use.
    pub fn of_process() -> Self {
        static KEY: OnceLock<HashKey> = OnceLock::new();
        *KEY.get_or_init(|| HashKey {
            tag: random::number(),
            // An odd factor makes the multiplication a bijection.
            src: random::number() | 1,
        })
    }

    /// Returns the bucket of a tag and a source in a table of `size` buckets, a power of two above
    /// 1. Doubling the table splits each bucket in two.
    #[inline]
    pub fn bucket(self, tag: u64, src: u64, size: usize) -> usize {
        // An odd constant without structure separates tags from sources.
        let word = tag ^ self.tag ^ src.wrapping_mul(0x9fb2_1c65_1e98_df25);
        // Folded multiply: every bit of the result depends on every bit of the
        // word and of the secret factor.
        let product = u128::from(word) * u128::from(self.src);
        let hash = product as u64 ^ (product >> 64) as u64;
        (hash >> ((size as u64).leading_zeros() + 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1 << 16;

    /// Tags that share a bucket of a hash without a key: multiples of the inverse of its factor.
    fn chosen_tags() -> impl Iterator<Item = u64> {
        let factor = 0xd6e8_feb8_6659_fd93_u64;
        let inverse = (0..6).fold(factor, |inverse, _| {
            inverse.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(inverse)))
        });
        (0..100_000u64).map(move |low| low.wrapping_mul(inverse))
    }

    #[test]
    #[cfg_attr(miri, ignore = "finding such tags takes miri minutes")]
    fn tags_chosen_to_share_a_bucket_are_spread() {
        let key = HashKey {
            tag: 0x5bd1_e995_1b87_3593,
            src: 0xc2b2_ae3d_27d4_eb4f,
        };
        let mut buckets = vec![0; SIZE];
        for tag in chosen_tags() {
            buckets[key.bucket(tag, u64::MAX, SIZE)] += 1;
        }
        let longest = buckets.iter().max();
        assert!(longest < Some(&32), "{longest:?}");
    }

    #[test]
    fn the_key_decides_where_a_tag_goes() {
        let keys = [1u64, 3, 5].map(|n| HashKey {
            tag: n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            src: n.wrapping_mul(0xc2b2_ae3d_27d4_eb4f) | 1,
        });
        let place = |key: HashKey| {
            (0..64)
                .map(|tag| key.bucket(tag, 0, SIZE))
                .collect::<Vec<_>>()
        };
        assert_ne!(place(keys[0]), place(keys[1]));
        assert_ne!(place(keys[1]), place(keys[2]));
    }

    #[test]
    fn doubling_a_table_splits_each_bucket() {
        let key = HashKey::of_process();
        for tag in 0..1000 {
            assert_eq!(key.bucket(tag, 7, 128) / 2, key.bucket(tag, 7, 64));
        }
    }
}
