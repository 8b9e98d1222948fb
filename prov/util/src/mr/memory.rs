//! The memory of a region.

#![allow(
    clippy::indexing_slicing,
    reason = "a region has at least one piece and no more than there are places"
)]

use libc::iovec;

use crate::buffer::{IOV_LIMIT, Iov};
use crate::errno::{Errno, Result};
use crate::process_memory::{OtherIov, OtherPiece};

/// Pieces of application memory, one after another. Unlike an
/// [`AppIov`](crate::buffer::AppIov) they may cover all of the address space, of which
/// peers then access parts.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Only the first `count` are meaningful.
    pieces: [Piece; IOV_LIMIT],
    count: usize,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    address: usize,
    len: usize,
}

impl Memory {
    /// A piece ends where the address space does, however long it is said to be:
    /// programs register all that there is from some address on. `-FI_EINVAL` for no
    /// piece at all, more than [`IOV_LIMIT`], and a total beyond the address space.
    ///
    /// # Safety
    /// Whatever part of the memory a peer accesses is valid at that time, until
    /// the region is closed: the application's side of registering it.
    pub unsafe fn new(iov: &[iovec]) -> Result<Self> {
        if iov.is_empty() || iov.len() > IOV_LIMIT {
            return Err(Errno::EINVAL);
        }
        let mut this = Memory {
            pieces: [Piece { address: 0, len: 0 }; IOV_LIMIT],
            count: iov.len(),
            len: 0,
        };
        for (piece, iov) in this.pieces.iter_mut().zip(iov) {
            let address = iov.iov_base as usize;
            *piece = Piece {
                address,
                len: iov.iov_len.min(usize::MAX - address),
            };
            this.len = this.len.checked_add(piece.len).ok_or(Errno::EINVAL)?;
        }
        Ok(this)
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.pieces[0].address
    }

    /// The pieces, each with its address and length in bytes.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = (usize, usize)> {
        let pieces = self.pieces[..self.count].iter();
        pieces.map(|piece| (piece.address, piece.len))
    }

    /// Bytes in all pieces together.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is not one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether every piece of `other` is within one piece of this memory.
    pub fn contains(&self, other: &Memory) -> bool {
        other.pieces[..other.count].iter().all(|inner| {
            self.pieces[..self.count].iter().any(|outer| {
                // Neither sum overflows, see `new`.
                outer.address <= inner.address
                    && inner.address + inner.len <= outer.address + outer.len
            })
        })
    }

    /// The first and the last byte of each piece.
    pub fn ends(&self) -> impl Iterator<Item = OtherIov> {
        let pieces = self.pieces[..self.count].iter();
        pieces.filter(|piece| piece.len != 0).map(|piece| {
            let mut ends = OtherIov::default();
            for addr in [piece.address, piece.address + piece.len - 1] {
                ends.push(OtherPiece {
                    addr: addr as u64,
                    len: 1,
                    seal: None,
                });
            }
            ends
        })
    }

    /// `len` bytes from `offset` on; `None` where not all of them are in the
    /// memory. For a region that is held ([`Held`](super::Held)) alone: a copy of this
    /// type may outlive it.
    #[inline]
    pub(super) fn slice(&self, offset: usize, len: usize) -> Option<Iov<'_>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        if self.count == 1 && len <= isize::MAX as usize {
            let base = std::ptr::with_exposed_provenance_mut(self.pieces[0].address + offset);
            // SAFETY: within the registered memory, for whose validity the
            // application answers (see `new`).
            return Some(unsafe { Iov::from_raw(base, len) });
        }
        let mut iov = [iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; IOV_LIMIT];
        let (mut skip, mut left) = (offset, len);
        for (part, piece) in iov.iter_mut().zip(&self.pieces[..self.count]) {
            let start = skip.min(piece.len);
            let take = left.min(piece.len - start);
            skip -= start;
            left -= take;
            part.iov_base = std::ptr::with_exposed_provenance_mut(piece.address + start);
            part.iov_len = take;
        }
        // SAFETY: the parts are within the registered memory, for whose
        // validity the application answers (see `new`).
        unsafe { Iov::from_iov(iov.as_ptr(), self.count) }.ok()
    }
}
