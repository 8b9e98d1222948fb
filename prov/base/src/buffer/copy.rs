//! Copies of bytes that other threads or processes may write to at any time, by length.

/// memmove(3), without a function call for the few bytes of short messages.
///
/// # Safety
/// That of [`std::ptr::copy`].
#[inline(always)]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe {
        match len {
            8..=16 => copy_ends::<u64>(from, to, len),
            17..=32 => copy_ends::<u128>(from, to, len),
            _ => std::ptr::copy(from, to, len),
        }
    }
}

/// [`copy`], with stores that bypass this processor's caches if `past_caches`.
///
/// # Safety
/// As above.
#[inline(always)]
pub(super) unsafe fn store(from: *const u8, to: *mut u8, len: usize, past_caches: bool) {
    // SAFETY: the caller's.
    unsafe {
        match len >= PAST_CACHES && past_caches {
            true => past(from, to, len),
            false => copy(from, to, len),
        }
    }
}

/// [`copy`] with stores that bypass the caches, of a cache line at least.
///
/// # Safety
/// As above.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn past(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const WORD: usize = size_of::<__m128i>();
    let before = to.align_offset(LINE).min(len);
    let lines = (len - before) / LINE;
    let overlaps = from.addr().abs_diff(to.addr()) < len;
    // SAFETY: the caller's; where the two do not overlap, which is seen first. Of
    // lines, `lines` follow the first `before` bytes, and begin at an address that is a
    // multiple of their size.
    unsafe {
        if overlaps {
            return std::ptr::copy(from, to, len);
        }
        std::ptr::copy_nonoverlapping(from, to, before);
        for at in (0..lines).map(|line| before + line * LINE) {
            let words: [__m128i; LINE / WORD] =
                std::array::from_fn(|word| _mm_loadu_si128(from.add(at + word * WORD).cast()));
            for (number, word) in words.into_iter().enumerate() {
                _mm_stream_si128(to.add(at + number * WORD).cast(), word);
            }
        }
        let done = before + lines * LINE;
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), len - done);
        // Orders these stores before all later stores of this thread.
        _mm_sfence();
    }
}

/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn past(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { copy(from, to, len) };
}

/// Smallest number of bytes in one segment that are stored past the caches where the caller
/// requests that. No length reaches it where the processor has no such stores.
pub const PAST_CACHES: usize = if cfg!(target_arch = "x86_64") {
    512
} else {
    usize::MAX
};
/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes that are prefetched in one step: about as many lines as a processor can request at the
/// same time.
const FETCHED: usize = 2 << 10;

/// Prefetches the first of these bytes.
#[cfg(target_arch = "x86_64")]
pub(super) fn prefetch(from: *const u8, len: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for at in (0..len.min(FETCHED)).step_by(LINE) {
        // SAFETY: a hint, which no address makes wrong.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast()) };
    }
}

/// Prefetches the cache line of a byte for writing.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn prefetch_to_write(at: *const u8) {
    // SAFETY: a hint, which no address makes wrong, and which processors that do not
    // know it pass over. The intrinsic would fetch it to be read, where the build may not
    // take for granted that they all do.
    unsafe {
        std::arch::asm!(
            "prefetchw [{at}]",
            at = in(reg) at,
            options(nostack, preserves_flags, readonly),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn prefetch_to_write(_at: *const u8) {}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn prefetch(_from: *const u8, _len: usize) {}

/// Copies `len` bytes as the first and the last word, which may overlap.
///
/// # Safety
/// That of [`std::ptr::copy`], and there are as many bytes at least as a `Word`
/// has.
#[inline(always)]
unsafe fn copy_ends<Word: Copy>(from: *const u8, to: *mut u8, len: usize) {
    let behind = len - size_of::<Word>();
    // SAFETY: the caller's: both words lie inside, and both are read before one
    // is written.
    unsafe {
        let first = from.cast::<Word>().read_unaligned();
        let last = from.add(behind).cast::<Word>().read_unaligned();
        to.cast::<Word>().write_unaligned(first);
        to.add(behind).cast::<Word>().write_unaligned(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stored_past_the_caches_are_at_their_destination_and_nowhere_else() {
        let from: Vec<u8> = (0..3000u32).map(|at| (at * 7 / 5) as u8).collect();
        for len in [512, 513, 575, 1000, 2048, 2100] {
            for (start, place) in [(0, 0), (1, 0), (0, 1), (63, 17), (64, 64), (5, 63)] {
                let mut to = vec![0xee; 3000];
                // SAFETY: `len` bytes from both places on are inside.
                unsafe {
                    let to = to.as_mut_ptr().add(place);
                    store(from.as_ptr().add(start), to, len, true);
                }
                assert_eq!(to[place..place + len], from[start..start + len]);
                let rest = to[..place].iter().chain(&to[place + len..]);
                assert!(rest.copied().all(|byte| byte == 0xee));
            }
        }
    }

    #[test]
    fn bytes_stored_past_the_caches_may_overlap_their_source() {
        for (start, place) in [(0, 100), (100, 0), (0, 1), (1, 0)] {
            let mut bytes: Vec<u8> = (0..3000u32).map(|at| (at / 3) as u8).collect();
            let expected = bytes[start..start + 2000].to_vec();
            let base = bytes.as_mut_ptr();
            // SAFETY: 2,000 bytes from both places on are inside.
            unsafe { store(base.add(start), base.add(place), 2000, true) };
            assert_eq!(bytes[place..place + 2000], expected);
        }
    }
}
