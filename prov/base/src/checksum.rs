//! CRC-32C of what is short, such as the headers of packets.

/// Returns the CRC-32C of two words, in the byte order of the host, and of the bytes behind them,
/// continued from `sum`. The crate that computes it for any length needs four times as many instructions
/// for some ten bytes as this, where the processor has one for it.
#[inline]
pub fn crc32c(sum: u32, front: [u64; 2], rest: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        return unsafe { with_instruction(sum, front, rest) };
    }
    portable(sum, front, rest)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn with_instruction(sum: u32, front: [u64; 2], rest: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let mut state = u64::from(!sum);
    for word in front {
        state = _mm_crc32_u64(state, word);
    }
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        state = _mm_crc32_u64(state, u64::from_ne_bytes(*word));
    }
    let mut state = state as u32;
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        state = _mm_crc32_u32(state, u32::from_ne_bytes(*word));
    }
    for byte in rest {
        state = _mm_crc32_u8(state, *byte);
    }
    !state
}

fn portable(sum: u32, front: [u64; 2], rest: &[u8]) -> u32 {
    let [one, other] = front.map(u64::to_ne_bytes);
    [one.as_slice(), other.as_slice(), rest]
        .into_iter()
        .fold(sum, crc32c::crc32c_append)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_all_bytes() {
        let bytes: Vec<u8> = (0..200_u8).map(|n| n.wrapping_mul(37)).collect();
        for len in 16..bytes.len() {
            let bytes = bytes.get(..len).unwrap();
            let (one, rest) = bytes.split_first_chunk().unwrap();
            let (other, rest) = rest.split_first_chunk().unwrap();
            let front = [one, other].map(|word| u64::from_ne_bytes(*word));
            for sum in [0, 7, u32::MAX] {
                let expected = crc32c::crc32c_append(sum, bytes);
                assert_eq!(crc32c(sum, front, rest), expected);
                assert_eq!(portable(sum, front, rest), expected);
            }
        }
    }
}
