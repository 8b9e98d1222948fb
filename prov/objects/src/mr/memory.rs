//! The memory of a region.

#![allow(
    clippy::indexing_slicing,
    reason = "a region has at least one piece and no more than there are places"
)]

use libc::iovec;

use prov_base::buffer::{IOV_LIMIT, Iov};
use prov_base::device_memory::Kind;
use prov_base::errno::{Errno, Result};
use prov_base::process_memory::{OtherIov, OtherPiece};

/// Segments of application memory, one after another. Unlike those of an
/// [`AppIov`](prov_base::buffer::AppIov), they may cover the whole address space, parts of which peers
/// then access.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Only the first `count` are valid.
    pieces: [Piece; IOV_LIMIT],
    count: usize,
    len: usize,
    /// Whose memory it is.
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    address: usize,
    len: usize,
}

impl Memory {
    /// Creates the memory of a region. A segment is truncated at the end of the address space,
    /// since programs register everything from some address on.
    ///
    /// # Errors `-FI_EINVAL` for no segment, more than [`IOV_LIMIT`], and a total beyond the
    /// address space.
    ///
    /// # Safety
    /// Each part of the memory is valid at the time when a peer accesses it, until the region is
    /// closed: the application guarantees this by registering it.
    pub unsafe fn new(iov: &[iovec]) -> Result<Self> {
        if iov.is_empty() || iov.len() > IOV_LIMIT {
            return Err(Errno::EINVAL);
        }
        let mut this = Memory {
            pieces: [Piece { address: 0, len: 0 }; IOV_LIMIT],
            count: iov.len(),
            len: 0,
            kind: Kind::HOST,
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

    /// Returns the same memory, which belongs to a device or to the host.
    ///
    /// # Safety
    /// It is of this kind.
    pub unsafe fn of_kind(self, kind: Kind) -> Self {
        Memory { kind, ..self }
    }

    /// Whose memory it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> usize {
        self.pieces[0].address
    }

    /// Iterates over the segments, as address and length in bytes.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = (usize, usize)> {
        let pieces = self.pieces[..self.count].iter();
        pieces.map(|piece| (piece.address, piece.len))
    }

    /// Returns the total length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the total length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether each segment of `other` is within one segment of this memory.
    pub fn contains(&self, other: &Memory) -> bool {
        other.pieces[..other.count].iter().all(|inner| {
            self.pieces[..self.count].iter().any(|outer| {
                // Neither sum overflows, see `new`.
                outer.address <= inner.address
                    && inner.address + inner.len <= outer.address + outer.len
            })
        })
    }

    /// Iterates over the first and the last byte of each segment.
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

    /// Returns `len` bytes from `offset` on; `None` if not all of them are in the memory. To be
    /// called only for a region that is held ([`Held`](super::Held)): a copy of this value may
    /// outlive the region.
    #[inline]
    pub(super) fn slice(&self, offset: usize, len: usize) -> Option<Iov<'_>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        if self.count == 1 && len <= isize::MAX as usize {
            let base = std::ptr::with_exposed_provenance_mut(self.pieces[0].address + offset);
            // SAFETY: the range is inside the registered memory, which the caller of `new` has
            // guaranteed to be valid.
            return Some(unsafe { self.owned(Iov::from_raw(base, len)) });
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
        // SAFETY: the parts are inside the registered memory, which the caller of `new` has
        // guaranteed to be valid.
        let memory = unsafe { Iov::from_iov(iov.as_ptr(), self.count) }.ok()?;
        // SAFETY: the memory is this one's.
        Some(unsafe { self.owned(memory) })
    }

    /// Returns a part of this memory as what it is.
    ///
    /// # Safety
    /// It is a part of this memory.
    #[inline]
    unsafe fn owned<'m>(&self, part: Iov<'m>) -> Iov<'m> {
        match self.kind.is_host() {
            true => part,
            // SAFETY: the caller guarantees that it is a part of this memory, which is of this kind,
            // as the caller of `of_kind` has guaranteed.
            false => unsafe { part.of_kind(self.kind) },
        }
    }
}
