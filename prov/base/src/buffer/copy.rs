//! Copies of bytes that other threads or processes may write to at any time, by length.

/// memmove(3), without a function call for the few bytes of short messages and their headers.
///
/// # Safety
/// That of [`std::ptr::copy`].
#[inline(always)]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees what `std::ptr::copy` requires, and the length is at least that
    // of the words.
    unsafe {
        match len {
            8..=16 => copy_ends::<u64>(from, to, len),
            17..=32 => copy_ends::<u128>(from, to, len),
            33..=64 => copy_ends::<[u128; 2]>(from, to, len),
            65..=128 => copy_ends::<[u128; 4]>(from, to, len),
            ..=SHORT => std::ptr::copy(from, to, len),
            _ => copy_long(from, to, len),
        }
    }
}

/// Bytes up to which memmove(3) of the GNU C library uses vector instructions; beyond that, it uses `rep movsb`
/// on processors that announce it as fast.
const SHORT: usize = 2 << 10;
/// Bytes of a page.
const PAGE: usize = 4 << 10;
/// Distances in bytes, apart from whole pages, from the source to the destination at which `rep movsb` of AMD's
/// processors (Zen 3 and later) copies less than a tenth as many bytes in a second as at others.
const SLOW: std::ops::Range<usize> = 1..16;

/// [`copy`] of many bytes.
///
/// # Safety
/// That of [`std::ptr::copy`].
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    let apart = to.addr().wrapping_sub(from.addr());
    let is_slow = SLOW.contains(&(apart % PAGE));
    let overlaps = from.addr().abs_diff(to.addr()) < len;
    if !is_slow || overlaps || !cfg!(target_arch = "x86_64") {
        // SAFETY: the caller guarantees what the function requires.
        return unsafe { std::ptr::copy(from, to, len) };
    }
    let mut at = 0;
    while at < len {
        let part = SHORT.min(len - at);
        // SAFETY: the part is inside the ranges that the caller has guaranteed.
        unsafe { std::ptr::copy(from.add(at), to.add(at), part) };
        at += part;
    }
}

/// Prefetches the first of these bytes.
#[cfg(target_arch = "x86_64")]
pub(super) fn prefetch(from: *const u8, len: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    /// Bytes of a cache line.
    const LINE: usize = 64;
    /// Bytes that are prefetched in one step: about as many lines as a processor can request at the
    /// same time.
    const FETCHED: usize = 2 << 10;
    for at in (0..len.min(FETCHED)).step_by(LINE) {
        // SAFETY: a prefetch is a hint, which is valid for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast()) };
    }
}

/// Prefetches the cache line of a byte for writing.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub fn prefetch_to_write(at: *const u8) {
    // SAFETY: the instruction is a hint, which is valid for any address, and which processors
    // without it ignore. The intrinsic would prefetch for reading unless the build assumes that all
    // processors have the instruction.
    unsafe {
        std::arch::asm!(
            "prefetchw [{at}]",
            at = in(reg) at,
            options(nostack, preserves_flags, readonly),
        );
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
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
    // SAFETY: the caller guarantees that both ranges are valid and at least as long as a word, so
    // that both words lie inside; both are read before one is written, so that the ranges may
    // overlap.
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
    fn all_bytes_are_copied_and_no_others_also_where_the_ranges_overlap() {
        // Miri is slow: there some lengths stand for all.
        for len in (0..200).step_by(if cfg!(miri) { 33 } else { 1 }) {
            for apart in [-7isize, 0, 3, 300] {
                let mut bytes: Vec<u8> = (0..1000).map(|at| (at % 251) as u8).collect();
                let mut expected = bytes.clone();
                let to = (400 + apart) as usize;
                expected.copy_within(400..400 + len, to);
                let start = bytes.as_mut_ptr();
                // SAFETY: both ranges are within the vector.
                unsafe { copy(start.add(400), start.add(to), len) };
                assert_eq!(bytes, expected, "{len} bytes, {apart} apart");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri copies many bytes as it copies few ones")]
    fn many_bytes_are_copied_at_every_distance() {
        for len in [SHORT, SHORT + 1, 3 * SHORT - 1] {
            for apart in [-9000, -17, -9, 0, 1, 9, 16, 4105, 8192 + 15, 8192 + 16] {
                let mut bytes: Vec<u8> = (0..30_000).map(|at| (at % 251) as u8).collect();
                let mut expected = bytes.clone();
                let to = (10_000 + apart) as usize;
                expected.copy_within(10_000..10_000 + len, to);
                let start = bytes.as_mut_ptr();
                // SAFETY: both ranges are within the vector.
                unsafe { copy(start.add(10_000), start.add(to), len) };
                assert!(bytes == expected, "{len} bytes, {apart} apart");
            }
        }
    }
}
