//! Memory in one segment, where there never is more than one.

use std::marker::PhantomData;

use super::copy::copy;
use super::{Iov, Shape};

/// Memory in one segment, which other threads or processes may write to at any time: it can be
/// copied, and is never borrowed. Its owner is borrowed for `'m`.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'m> {
    base: *mut u8,
    len: usize,
    memory: PhantomData<&'m ()>,
}

// SAFETY: the memory belongs to an operation, not to a thread, as for `AppIov`.
unsafe impl Send for Piece<'static> {}
// SAFETY: a shared reference permits copies, which tolerate concurrent changes of the memory, as
// for `AppIov`.
unsafe impl Sync for Piece<'static> {}

impl<'m> Piece<'m> {
    /// No bytes.
    pub const EMPTY: Piece<'m> = Piece {
        base: std::ptr::dangling_mut(),
        len: 0,
        memory: PhantomData,
    };

    /// `len` bytes at `base`, which is not null.
    ///
    /// # Safety
    /// As for [`Iov::from_raw`].
    #[inline(always)]
    pub unsafe fn from_raw(base: *mut u8, len: usize) -> Self {
        Piece {
            base,
            len,
            memory: PhantomData,
        }
    }

    /// Returns the number of bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes after the first `count`; none if there are no more.
    #[inline(always)]
    pub fn skip(&self, count: usize) -> Piece<'m> {
        let count = count.min(self.len);
        Piece {
            base: self.base.wrapping_add(count),
            len: self.len - count,
            ..*self
        }
    }

    /// Returns the first `count` bytes, and those after them.
    #[inline(always)]
    pub fn split(&self, count: usize) -> (Piece<'m>, Piece<'m>) {
        let first = Piece {
            len: count.min(self.len),
            ..*self
        };
        (first, self.skip(count))
    }

    /// Copies as many of the bytes into `target` as fit; returns the number of bytes.
    #[inline(always)]
    pub fn copy_to(&self, target: &Iov<'_>) -> usize {
        if target.shape == Shape::PLAIN && self.len <= target.len {
            // SAFETY: both describe memory of operations in progress, valid for `len` bytes, which
            // the target's first piece has.
            unsafe {
                copy(self.base, target.first().iov_base.cast(), self.len);
            }
            return self.len;
        }
        Iov::from(*self).copy_pieces(target)
    }

    /// Copies as many bytes from `source` as fit; returns the number of bytes.
    #[inline(always)]
    pub fn copy_from(&self, source: &Iov<'_>) -> usize {
        if source.shape == Shape::PLAIN && source.len <= self.len {
            let from = source.first().iov_base.cast::<u8>().cast_const();
            // SAFETY: both describe memory of operations in progress, valid for the bytes of the
            // source, which were found to fit.
            unsafe { copy(from, self.base, source.len) };
            return source.len;
        }
        source.copy_pieces(&Iov::from(*self))
    }

    /// Copies as many bytes from `source`, beginning at `offset`, as fit; returns the number of
    /// bytes.
    #[inline(always)]
    pub fn copy_from_at(&self, source: &Iov<'_>, offset: usize) -> usize {
        if source.shape == Shape::PLAIN && offset <= source.len && self.len <= source.len - offset {
            let from = source.first().iov_base.cast::<u8>().cast_const();
            // SAFETY: both describe memory of operations in progress, and the source has `len`
            // bytes after the offset.
            unsafe { copy(from.add(offset), self.base, self.len) };
            return self.len;
        }
        self.copy_from(&source.slice(offset, self.len))
    }

    /// Writes these words to the start, each in this processor's byte order; returns the memory
    /// after them. `None`, and nothing is written, if they do not fit.
    #[inline(always)]
    pub fn write_words<const N: usize>(&self, words: [u64; N]) -> Option<Piece<'m>> {
        if size_of::<[u64; N]>() > self.len {
            return None;
        }
        for (at, word) in words.into_iter().enumerate() {
            // SAFETY: the memory belongs to an operation in progress, and the word is inside it;
            // the write assumes no alignment.
            unsafe { self.base.cast::<u64>().add(at).write_unaligned(word) };
        }
        Some(self.skip(size_of::<[u64; N]>()))
    }

    /// Copies as many of `bytes` to the start as fit; returns the number of bytes.
    #[inline(always)]
    pub fn write(&self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.len);
        // SAFETY: the memory belongs to an operation in progress, and is at least `len` bytes long.
        unsafe { copy(bytes.as_ptr(), self.base, len) };
        len
    }
}

impl<'m> From<Piece<'m>> for Iov<'m> {
    #[inline]
    fn from(piece: Piece<'m>) -> Iov<'m> {
        // SAFETY: the creator of the piece has guaranteed that the memory is valid for its
        // lifetime.
        unsafe { Iov::from_raw(piece.base, piece.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::AppIov;
    use super::*;

    fn piece(bytes: &mut [u8]) -> Piece<'static> {
        // SAFETY: the tests keep the bytes, and access them otherwise only when the copies are
        // made.
        unsafe { Piece::from_raw(bytes.as_mut_ptr(), bytes.len()) }
    }

    fn iov(parts: &mut [&mut [u8]]) -> AppIov {
        let parts: Vec<libc::iovec> = parts
            .iter_mut()
            .map(|part| libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            })
            .collect();
        // SAFETY: the tests keep the parts, and access them otherwise only when the copies are
        // made.
        unsafe { AppIov::from_iov(parts.as_ptr(), parts.len()) }.unwrap()
    }

    #[test]
    fn bytes_of_any_length_are_copied_as_far_as_they_fit() {
        // Miri is slow: there some lengths stand for all.
        for len in (0..70).step_by(if cfg!(miri) { 23 } else { 1 }) {
            let mut bytes: Vec<u8> = (1..=len).collect();
            let all = bytes.clone();
            for room in [0, 1, 7, 33, 69] {
                let from = piece(&mut bytes);
                assert_eq!((from.len(), from.is_empty()), (len.into(), len == 0));
                let fits = room.min(all.len());
                let (mut first, mut second) = (vec![0; room / 3], vec![0; room - room / 3]);
                assert_eq!(from.copy_to(&iov(&mut [&mut first, &mut second])), fits);
                let (mut one, mut other) = (vec![0; room], vec![0; room]);
                assert_eq!(from.copy_to(&iov(&mut [&mut one])), fits);
                assert_eq!(piece(&mut other).write(&all), fits);
                assert_eq!([&first[..], &second[..]].concat(), one);
                assert_eq!(one, other);
                assert_eq!(one[..fits], all[..fits]);
                assert!(one[fits..].iter().all(|byte| *byte == 0));
                let mut back = vec![0; room];
                let (front, rest) = bytes.split_at_mut(usize::from(len) / 2);
                assert_eq!(piece(&mut back).copy_from(&iov(&mut [front, rest])), fits);
                assert_eq!(back, one);
                back.fill(0);
                assert_eq!(piece(&mut back).copy_from(&iov(&mut [&mut bytes])), fits);
                assert_eq!(back, one);
                for at in [0, 1, room / 2, room, usize::from(len)] {
                    let rest = all.get(at..).unwrap_or_default();
                    let fits = room.min(rest.len());
                    for parts in [1, 2] {
                        back.fill(0);
                        let (front, tail) = bytes.split_at_mut(all.len() / parts);
                        let source = iov(&mut [front, tail]);
                        assert_eq!(piece(&mut back).copy_from_at(&source, at), fits);
                        assert_eq!(back[..fits], rest[..fits]);
                        assert!(back[fits..].iter().all(|byte| *byte == 0));
                    }
                }
            }
        }
    }

    #[test]
    fn words_are_written_if_there_is_room_for_all() {
        let mut bytes = [7; 20];
        let all = piece(&mut bytes);
        assert!(all.write_words([1, 2, 3]).is_none());
        let rest = all.write_words([1, 2]).unwrap();
        assert_eq!(rest.len(), 4);
        let words = [1u64.to_ne_bytes(), 2u64.to_ne_bytes()].concat();
        assert_eq!((&bytes[..16], &bytes[16..]), (&words[..], &[7; 4][..]));
    }

    #[test]
    fn bytes_are_split_where_there_are_so_many() {
        let mut bytes = [1, 2, 3];
        let all = piece(&mut bytes);
        for (count, first) in [(0, 0), (2, 2), (3, 3), (4, 3)] {
            let (front, rest) = all.split(count);
            assert_eq!((front.len(), rest.len()), (first, 3 - first));
        }
    }

    #[test]
    fn skipping_some_bytes_leaves_the_rest_or_nothing() {
        let mut bytes = [1, 2, 3];
        let all = piece(&mut bytes);
        let mut rest = [0; 3];
        assert_eq!(all.skip(1).copy_to(&iov(&mut [&mut rest])), 2);
        assert_eq!(rest, [2, 3, 0]);
        assert!(all.skip(3).is_empty() && all.skip(4).is_empty());
    }
}
