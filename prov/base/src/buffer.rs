//! Memory that the application lends to an operation, and socket [`transfer`]s from and to it.
//!
//! The seam (`prov_util::ffi`) makes an [`AppIov`] from the pointers of a call. fi_msg(3) requires
//! that such memory stays valid until the operation has completed, and that the application does
//! not access memory that the operation writes; every `unsafe` block of these files relies on that
//! one promise.

mod ahead;
mod copy;
mod device;
mod part;
mod persistence;
mod piece;
#[cfg(test)]
mod tests;
mod transfer;

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use libc::iovec;

pub use self::ahead::{Ahead, Fetched};
pub use self::copy::prefetch_to_write;
use self::copy::{copy, prefetch};
pub use self::device::STAGED;
pub use self::part::Part;
pub use self::persistence::can_write_back;
pub use self::piece::Piece;
pub use self::transfer::{Incoming, Outgoing, TRANSFER_LIMIT};
use crate::device_memory::Kind;
use crate::errno::{Errno, Result};

/// Largest number of buffers of one operation (`iov_limit`, `rma_iov_limit`; fi_endpoint(3)).
pub const IOV_LIMIT: usize = 4;

/// Memory that the application lends to an operation and leaves valid until the operation has
/// completed. The lifetime `'static` stands for that promise, which the compiler cannot check:
/// creating one from a pointer is unsafe, and no safe function creates one for memory of this
/// library, such as a segment or a registered region. Views of those are [`Iov`]s that borrow from
/// their owner.
pub type AppIov = Iov<'static>;

/// Up to [`IOV_LIMIT`] segments of memory, one after another, that are valid for `'m`.
///
/// There is one of it for a loan: it moves with the operation, and can be borrowed ([`Iov::view`],
/// [`Iov::slice`]) but not copied, so that no second one is left when the operation ends.
///
/// ```compile_fail,E0382
/// # use prov_base::buffer::AppIov;
/// fn keep(loan: AppIov, kept: &mut Vec<AppIov>) -> AppIov {
///     kept.push(loan);
///     loan
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use prov_base::buffer::AppIov;
/// fn keep_a_part(loan: &AppIov, kept: &mut Vec<AppIov>) {
///     kept.push(loan.slice(0, 8));
/// }
/// ```
///
/// ```compile_fail,E0596
/// # use prov_base::buffer::AppIov;
/// fn keep_what_is_borrowed(loan: &AppIov, kept: &mut Vec<AppIov>) {
///     kept.push(loan.take());
/// }
/// ```
///
/// ```compile_fail,E0599
/// # use prov_base::buffer::AppIov;
/// fn clone(loan: &AppIov) -> AppIov {
///     AppIov::clone(loan)
/// }
/// ```
pub struct Iov<'m> {
    /// The first entry is always initialized, the others up to `count`. None of the first `count`
    /// is empty.
    iov: [MaybeUninit<iovec>; IOV_LIMIT],
    shape: Shape,
    /// Sum of the lengths; checked for overflow when the value was created.
    len: usize,
    /// The owner of the memory is borrowed.
    memory: PhantomData<&'m ()>,
}

// SAFETY: the memory belongs to the operation, not to the thread that has posted it, as stated at
// the top of this file.
unsafe impl Send for AppIov {}
// SAFETY: a shared reference permits copies, which tolerate concurrent changes of the memory.
unsafe impl Sync for AppIov {}

/// The number of segments, and whose memory each is: in one word, so that one comparison finds the
/// usual case, a single segment of host memory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape(u64);

impl Shape {
    const NONE: Shape = Shape(0);
    /// One segment of host memory.
    const PLAIN: Shape = Shape(1);
    /// Bits below the kinds: the count, in the lower half, and [`Shape::DEFERRED`].
    const COUNT: u32 = 32;
    /// Memory of devices is written behind.
    const DEFERRED: u64 = 1 << 16;

    #[inline(always)]
    fn count(self) -> usize {
        self.0 as u16 as usize
    }

    fn is_deferred(self) -> bool {
        self.0 & Self::DEFERRED != 0
    }

    /// Whether a segment is memory of a device.
    #[inline(always)]
    fn has_device(self) -> bool {
        self.0 >> Self::COUNT != 0
    }

    #[inline]
    fn kind(self, position: usize) -> Kind {
        Kind::from_number((self.0 >> (Self::COUNT as usize + 8 * position)) as u8)
    }

    /// Adds a segment.
    #[inline]
    fn push(&mut self, kind: Kind) {
        let kind = u64::from(kind.number()) << (Self::COUNT as usize + 8 * self.count());
        self.0 = (self.0 | kind) + 1;
    }

    #[inline]
    fn set_kind(&mut self, position: usize, kind: Kind) {
        let shift = Self::COUNT as usize + 8 * position;
        self.0 = self.0 & !(0xff << shift) | u64::from(kind.number()) << shift;
    }
}

const NOTHING: iovec = iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

impl<'m> Iov<'m> {
    /// No memory: an empty message.
    pub const EMPTY: Iov<'m> = {
        let mut iov = [MaybeUninit::uninit(); IOV_LIMIT];
        iov[0] = MaybeUninit::new(NOTHING);
        Iov {
            iov,
            shape: Shape::NONE,
            len: 0,
            memory: PhantomData,
        }
    };

    /// One buffer of `len` bytes at `base`.
    ///
    /// # Safety
    /// The memory is valid for the accesses through the result for `'m`: an
    /// [`AppIov`]'s until the operation completes.
    #[inline]
    pub unsafe fn from_raw(base: *mut u8, len: usize) -> Self {
        let mut iov = [MaybeUninit::uninit(); IOV_LIMIT];
        iov[0] = MaybeUninit::new(match len {
            0 => NOTHING,
            _ => iovec {
                iov_base: base.cast(),
                iov_len: len,
            },
        });
        Iov {
            iov,
            shape: Shape(u64::from(len != 0)),
            len,
            memory: PhantomData,
        }
    }

    /// Returns the buffers of an I/O vector; `-FI_EINVAL` for more than [`IOV_LIMIT`] buffers or a
    /// total beyond the address space.
    ///
    /// # Safety
    /// `iov` points to `count` entries, each as in [`AppIov::from_raw`].
    #[inline]
    pub unsafe fn from_iov(iov: *const iovec, count: usize) -> Result<Self> {
        if count > IOV_LIMIT || (iov.is_null() && count != 0) {
            return Err(Errno::EINVAL);
        }
        let mut this = Self::EMPTY;
        for i in 0..count {
            // SAFETY: `i` is less than `count`, and the caller guarantees that there are `count`
            // valid entries.
            this.push(unsafe { *iov.add(i) })?;
        }
        Ok(this)
    }

    /// Takes the place of `other`, which is empty afterwards; moves no more entries than it has.
    #[inline(always)]
    pub fn assign(&mut self, other: &mut Self) {
        if other.shape.0 > Shape::PLAIN.0 {
            self.iov = other.iov;
        } else {
            self.iov[0] = other.iov[0];
        }
        self.shape = other.shape;
        self.len = other.len;
        other.shape = Shape::NONE;
        other.len = 0;
    }

    /// Returns the loan, and leaves an empty one in its place.
    #[inline(always)]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns all bytes, to be used while the loan is borrowed.
    #[inline(always)]
    pub fn view(&self) -> Part<'_, 'm> {
        Part::new(self, self.again())
    }

    /// Returns the same loan once more, for a request that is built twice, or posted again.
    ///
    /// # Safety
    /// At most one of both is kept by an operation.
    #[inline(always)]
    pub unsafe fn duplicate(&self) -> Self {
        self.again()
    }

    #[inline(always)]
    fn again(&self) -> Self {
        Iov {
            iov: self.iov,
            shape: self.shape,
            len: self.len,
            memory: PhantomData,
        }
    }

    #[inline]
    fn push(&mut self, piece: iovec) -> Result {
        if piece.iov_len == 0 {
            return Ok(());
        }
        let slot = self.iov.get_mut(self.shape.count());
        let slot = slot.ok_or(Errno::EINVAL)?;
        self.len = self
            .len
            .checked_add(piece.iov_len)
            .filter(|&len| len <= isize::MAX as usize)
            .ok_or(Errno::EINVAL)?;
        *slot = MaybeUninit::new(piece);
        self.shape.push(Kind::HOST);
        Ok(())
    }

    #[inline]
    fn first(&self) -> iovec {
        // SAFETY: the first entry is always initialized, see `iov`.
        unsafe { self.iov[0].assume_init() }
    }

    /// Returns the number of bytes of all segments together.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte; if there are no bytes, the place they were cut from,
    /// or null. The address is a value to report (`fi_cq_data_entry::buf`), not one to read
    /// through.
    #[inline]
    pub fn address(&self) -> *mut std::ffi::c_void {
        self.first().iov_base
    }

    /// Returns the segments, for a system call's I/O vector.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "the count is at most that of the pieces"
    )]
    pub fn pieces(&self) -> &[iovec] {
        // SAFETY: the first `count` entries are initialized, see `iov`.
        unsafe { self.iov[..self.shape.count()].assume_init_ref() }
    }

    /// Returns the segment, if there is just one.
    #[inline(always)]
    pub fn single(&self) -> Option<&iovec> {
        // SAFETY: the first entry is always initialized, see `iov`.
        (self.shape.count() == 1).then(|| unsafe { self.iov[0].assume_init_ref() })
    }

    /// Returns `len` bytes from `offset` on, both limited to the bytes that exist, to be used while
    /// the loan is borrowed. An empty result keeps its place, which is its [`AppIov::address`].
    #[inline]
    pub fn slice(&self, offset: usize, len: usize) -> Part<'_, 'm> {
        Part::new(self, self.cut(offset, len))
    }

    /// Returns `len` bytes from `offset` on, as [`Iov::slice`] does, and gives up the others.
    #[inline]
    pub fn into_slice(self, offset: usize, len: usize) -> Iov<'m> {
        self.cut(offset, len)
    }

    /// Returns the first `len` bytes, or all if there are fewer, and keeps those after them.
    #[inline]
    pub fn split_to(&mut self, len: usize) -> Iov<'m> {
        let front = self.cut(0, len);
        *self = self.cut(front.len, usize::MAX);
        front
    }

    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "the count is at most that of the pieces"
    )]
    fn cut(&self, offset: usize, len: usize) -> Iov<'m> {
        if offset == 0 && len >= self.len {
            return self.again();
        }
        if len == 0 {
            return self.nothing_at(offset);
        }
        let (mut skip, mut left) = (offset, len);
        let mut part = Self::EMPTY;
        part.shape = Shape(self.shape.0 & Shape::DEFERRED);
        for (position, piece) in self.pieces().iter().enumerate() {
            if left == 0 {
                break;
            }
            if skip >= piece.iov_len {
                skip -= piece.iov_len;
                continue;
            }
            let take = left.min(piece.iov_len - skip);
            part.iov[part.shape.count()] = MaybeUninit::new(iovec {
                iov_base: piece.iov_base.cast::<u8>().wrapping_add(skip).cast(),
                iov_len: take,
            });
            part.shape.push(self.shape.kind(position));
            part.len += take;
            left -= take;
            skip = 0;
        }
        part
    }

    /// Returns these bytes followed by the others; `None` if that is more than [`IOV_LIMIT`]
    /// segments.
    pub fn followed_by(self, others: Iov<'m>) -> Option<Iov<'m>> {
        let mut both = self;
        for (position, piece) in others.pieces().iter().enumerate() {
            let place = both.iov.get_mut(both.shape.count())?;
            *place = MaybeUninit::new(*piece);
            both.shape.push(others.shape.kind(position));
            both.len += piece.iov_len;
        }
        Some(both)
    }

    /// Returns no bytes, at the place of the byte at `offset` or behind the last one.
    #[cold]
    fn nothing_at(&self, offset: usize) -> Iov<'m> {
        let mut skip = offset;
        let mut place = std::ptr::null_mut();
        for piece in self.pieces() {
            let within = skip.min(piece.iov_len);
            place = piece.iov_base.cast::<u8>().wrapping_add(within).cast();
            skip -= within;
            if within < piece.iov_len {
                break;
            }
        }
        let mut nothing = Self::EMPTY;
        nothing.iov[0] = MaybeUninit::new(iovec {
            iov_base: place,
            iov_len: 0,
        });
        nothing
    }

    /// Copies `bytes` into the memory from `offset` on; returns how many bytes fit.
    #[inline(always)]
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> usize {
        if self.shape == Shape::PLAIN && offset == 0 && bytes.len() <= self.len {
            // SAFETY: the first piece is valid for `len` bytes and belongs to
            // the operation until it completes.
            unsafe {
                copy(bytes.as_ptr(), self.first().iov_base.cast(), bytes.len());
            }
            return bytes.len();
        }
        self.write_pieces(offset, bytes)
    }

    #[inline(never)]
    fn write_pieces(&self, offset: usize, bytes: &[u8]) -> usize {
        if self.shape.has_device() {
            return self.write_device(offset, bytes);
        }
        let part = self.slice(offset, bytes.len());
        let mut done = 0;
        for piece in part.pieces() {
            // SAFETY: the piece is valid for its length and belongs to the
            // operation; `slice` made the pieces sum to at most `bytes.len()`.
            // The source may overlap it (an endpoint that sends to itself).
            unsafe {
                copy(
                    bytes.as_ptr().add(done),
                    piece.iov_base.cast(),
                    piece.iov_len,
                );
            }
            done += piece.iov_len;
        }
        done
    }

    /// Copies from the memory at `offset` into `bytes`; returns the number of bytes copied.
    #[inline(always)]
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> usize {
        if self.shape == Shape::PLAIN && offset == 0 && bytes.len() <= self.len {
            // SAFETY: the first piece is valid for reads of `len` bytes and belongs to the
            // operation until it completes.
            unsafe {
                copy(
                    self.first().iov_base.cast::<u8>().cast_const(),
                    bytes.as_mut_ptr(),
                    bytes.len(),
                );
            }
            return bytes.len();
        }
        self.read_pieces(offset, bytes)
    }

    /// Copies like [`AppIov::read_at`] from the start, for memory that another process may write to
    /// concurrently: each byte is read exactly once, with a volatile access, eight at a time where
    /// they are aligned, so that the bytes that are checked are the bytes that are used.
    #[allow(clippy::indexing_slicing, reason = "limited to the room")]
    pub fn read_once(&self, bytes: &mut [u8]) -> usize {
        if self.shape.has_device() {
            return self.read_device(0, bytes);
        }
        let mut done = 0;
        for piece in self.pieces() {
            let base = piece.iov_base.cast::<u8>().cast_const();
            let room = bytes.get_mut(done..).unwrap_or_default();
            let len = room.len().min(piece.iov_len);
            let (front, rest) = room[..len].split_at_mut(base.align_offset(8).min(len));
            for (at, byte) in front.iter_mut().enumerate() {
                // SAFETY: the memory belongs to an operation in progress and is valid for this
                // range; a volatile read of a byte tolerates concurrent changes.
                *byte = unsafe { base.add(at).read_volatile() };
            }
            let base = base.wrapping_add(front.len());
            let (words, back) = rest.as_chunks_mut::<8>();
            for (at, word) in words.iter_mut().enumerate() {
                // SAFETY: the memory is valid as above, and `align_offset` has made the address a
                // multiple of 8.
                *word = unsafe { base.cast::<u64>().add(at).read_volatile() }.to_ne_bytes();
            }
            let base = base.wrapping_add(words.len() * 8);
            for (at, byte) in back.iter_mut().enumerate() {
                // SAFETY: the memory is valid as above, and these are its last bytes.
                *byte = unsafe { base.add(at).read_volatile() };
            }
            done += len;
        }
        done
    }

    #[inline(never)]
    fn read_pieces(&self, offset: usize, bytes: &mut [u8]) -> usize {
        if self.shape.has_device() {
            return self.read_device(offset, bytes);
        }
        let part = self.slice(offset, bytes.len());
        let mut done = 0;
        for piece in part.pieces() {
            // SAFETY: the piece is valid for reads of its length and belongs to the operation; the
            // pieces of a slice have at most `bytes.len()` bytes together.
            unsafe {
                copy(
                    piece.iov_base.cast::<u8>().cast_const(),
                    bytes.as_mut_ptr().add(done),
                    piece.iov_len,
                );
            }
            done += piece.iov_len;
        }
        done
    }

    /// Fills the memory.
    pub fn fill(&self, byte: u8) {
        if self.shape.has_device() {
            return self.fill_device(byte);
        }
        for piece in self.pieces() {
            // SAFETY: the piece is valid for its length and belongs to the
            // operation.
            unsafe { std::ptr::write_bytes(piece.iov_base.cast::<u8>(), byte, piece.iov_len) };
        }
    }

    /// Appends all bytes to `bytes`.
    #[inline]
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        if self.shape.has_device() {
            return self.append_device_to(bytes);
        }
        bytes.reserve(self.len);
        for piece in self.pieces() {
            let at = bytes.len();
            // SAFETY: room for `self.len` more was reserved above, the piece
            // is valid for its length, and a fresh part of a `Vec` overlaps
            // no memory of the application.
            unsafe {
                copy(
                    piece.iov_base.cast::<u8>().cast_const(),
                    bytes.as_mut_ptr().add(at),
                    piece.iov_len,
                );
                bytes.set_len(at + piece.iov_len);
            }
        }
    }

    /// Prefetches the beginning of the first segment, which another processor has written: its
    /// cache lines are then requested all together.
    #[inline]
    pub fn prefetch(&self) {
        let first = self.first();
        prefetch(first.iov_base.cast::<u8>().cast_const(), first.iov_len);
    }

    /// Copies as much of `self` into `target` as fits; returns the number of bytes.
    #[inline(always)]
    pub fn copy_to(&self, target: &Iov<'_>) -> usize {
        if self.shape == Shape::PLAIN && target.shape == Shape::PLAIN && self.len <= target.len {
            let (from, to) = (self.first().iov_base, target.first().iov_base);
            // SAFETY: both descriptions are of memory of operations in progress, and each has a
            // single piece, which is valid for `len` bytes.
            unsafe { copy(from.cast(), to.cast(), self.len) };
            return self.len;
        }
        self.copy_pieces(target)
    }

    #[inline(never)]
    fn copy_pieces(&self, target: &Iov<'_>) -> usize {
        if self.shape.has_device() || target.shape.has_device() {
            return self.copy_with_device(target);
        }
        let mut done = 0;
        for piece in self.pieces() {
            let room = target.slice(done, piece.iov_len);
            let mut from = piece.iov_base.cast::<u8>().cast_const();
            for place in room.pieces() {
                // SAFETY: both descriptions are of memory of operations in progress; the place is
                // at most as long as the rest of `piece`, so that `from` stays inside it.
                unsafe {
                    copy(from, place.iov_base.cast(), place.iov_len);
                    from = from.add(place.iov_len);
                }
            }
            done += room.len();
        }
        done
    }
}

impl Default for Iov<'_> {
    #[inline(always)]
    fn default() -> Self {
        Self::EMPTY
    }
}

impl std::fmt::Debug for Iov<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Iov({} bytes in {})", self.len, self.shape.count())
    }
}
