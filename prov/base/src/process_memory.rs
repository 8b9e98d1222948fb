//! Memory of another process of this host: copied with process_vm_readv(2) and
//! process_vm_writev(2), or through an open file (proc_pid_mem(5)).
//!
//! No address of the other process is dereferenced here: the kernel copies, and refuses what the
//! other process has not mapped or this one may not access. A [`Seal`] shows that it is still the
//! same process, and that the memory still holds the bytes that were offered.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use libc::iovec;

use crate::buffer::{IOV_LIMIT, Iov};
use crate::device_sharing::{self, Location};
use crate::errno::{Errno, Result};
use crate::kept_errno::KeptErrno;
use crate::random;

/// A segment of another process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherPiece {
    /// Its address in that process; for memory of a device, its [`Location`].
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// The seal that is valid for this segment only, besides the process's, if any.
    pub seal: Option<Token>,
}

impl OtherPiece {
    /// Returns the segment as the system calls need it.
    pub fn iov(&self) -> iovec {
        iovec {
            iov_base: std::ptr::without_provenance_mut(self.addr as usize),
            iov_len: self.len as usize,
        }
    }
}

const NOTHING: iovec = iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Bytes of one encoded segment: its address, its length, and the address and the number of its
/// seal; the number is 0 if it has none.
const PIECE: usize = 4 * FIELD;
const FIELD: usize = 8;
/// Largest number of bytes of an encoded list.
pub const WRITTEN: usize = PIECE * IOV_LIMIT;

/// Up to [`IOV_LIMIT`] segments of another process's memory, one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherIov {
    pieces: [OtherPiece; IOV_LIMIT],
    count: usize,
}

impl OtherIov {
    /// Returns the segments, in order.
    #[allow(
        clippy::indexing_slicing,
        reason = "no list has more pieces than there are places"
    )]
    pub fn pieces(&self) -> &[OtherPiece] {
        &self.pieces[..self.count]
    }

    /// Returns the number of bytes of all segments; saturates.
    pub fn len(&self) -> u64 {
        let lens = self.pieces().iter().map(|piece| piece.len);
        lens.fold(0, u64::saturating_add)
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a segment; `false` if there are [`IOV_LIMIT`] already.
    pub fn push(&mut self, piece: OtherPiece) -> bool {
        match self.pieces.get_mut(self.count) {
            Some(slot) => {
                *slot = piece;
                self.count += 1;
                true
            }
            None => false,
        }
    }

    /// Adds `memory` of this process; `false` if it does not fit, or has memory of a device that no
    /// other process can open, or that only one seal vouches for.
    pub fn push_own(&mut self, memory: &Iov<'_>, seal: Option<Token>) -> bool {
        if memory.has_device() {
            return seal.is_none() && self.push_device(memory);
        }
        let pieces = memory.pieces().iter();
        let mut pieces = pieces.filter(|piece| piece.iov_len != 0);
        pieces.all(|piece| {
            self.push(OtherPiece {
                addr: piece.iov_base.expose_provenance() as u64,
                len: piece.iov_len as u64,
                seal,
            })
        })
    }

    #[cold]
    fn push_device(&mut self, memory: &Iov<'_>) -> bool {
        let mut pieces = memory.pieces().iter().enumerate();
        pieces.all(|(position, piece)| {
            let (kind, address) = (memory.kind(position), piece.iov_base.expose_provenance());
            let addr = match kind.is_host() {
                true => Some(address as u64),
                false => device_sharing::export(kind, address, piece.iov_len),
            };
            addr.is_some_and(|addr| {
                self.push(OtherPiece {
                    addr,
                    len: piece.iov_len as u64,
                    seal: None,
                })
            })
        })
    }

    /// Whether a segment is memory of a device.
    #[inline]
    pub fn has_device(&self) -> bool {
        self.pieces()
            .iter()
            .any(|piece| Location::is_one(piece.addr))
    }

    /// Adds `len` bytes that no other process can copy, so that one that tries gets `-FI_EFAULT`.
    pub fn push_out_of_reach(&mut self, len: usize) -> bool {
        /// An address that no process has.
        const NOWHERE: u64 = 1 << 63;
        self.push(OtherPiece {
            addr: NOWHERE,
            len: len as u64,
            seal: None,
        })
    }

    /// Whether other processes can copy these segments of this process's memory, as far as the
    /// first byte of each shows: not every mapping of a device can be copied. Memory that is a
    /// device's by its [`Location`] is taken to be.
    #[allow(
        clippy::indexing_slicing,
        reason = "no list has more pieces than there are places"
    )]
    pub fn can_be_copied(&self) -> bool {
        let mut bytes = [0u8; IOV_LIMIT];
        let of_host = self.pieces().iter();
        let of_host = of_host.filter(|piece| !Location::is_one(piece.addr));
        let mut far = [NOTHING; IOV_LIMIT];
        let mut count = 0;
        for (slot, piece) in far.iter_mut().zip(of_host) {
            *slot = OtherPiece { len: 1, ..*piece }.iov();
            count += 1;
        }
        let near = iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: count,
        };
        let pid = libc::pid_t::try_from(std::process::id());
        // SAFETY: `near` describes `bytes`, which has one writable byte for each piece.
        let copied = pid.map(|pid| unsafe { read(pid, &[near], &far[..count]) });
        matches!(copied, Ok(Ok(copied)) if copied == count)
    }

    /// Encodes the list for another process of this host; returns the encoded bytes.
    #[allow(
        clippy::indexing_slicing,
        reason = "no list has more pieces than there are places"
    )]
    pub fn write<'b>(&self, to: &'b mut [u8; WRITTEN]) -> &'b [u8] {
        let fields = self.pieces().iter().flat_map(|piece| {
            let seal = piece.seal.unwrap_or(Token { addr: 0, value: 0 });
            [piece.addr, piece.len, seal.addr, seal.value]
        });
        let (places, _) = to.as_chunks_mut::<FIELD>();
        for (place, field) in places.iter_mut().zip(fields) {
            *place = field.to_ne_bytes();
        }
        &to[..self.count * PIECE]
    }

    /// Decodes a list that another process has encoded; `None` unless all segments are non-empty
    /// and lie within the address space.
    pub fn read(bytes: &[u8]) -> Option<OtherIov> {
        let mut list = OtherIov::default();
        let (pieces, rest) = bytes.as_chunks::<PIECE>();
        for piece in pieces {
            let (fields, _) = piece.as_chunks::<FIELD>();
            let &[addr, len, seal, value] = fields else {
                return None;
            };
            let [addr, len, seal, value] = [addr, len, seal, value].map(u64::from_ne_bytes);
            let seal = (seal != 0).then_some(Token { addr: seal, value });
            let has_place = len != 0 && addr.checked_add(len).is_some();
            if !has_place || !list.push(OtherPiece { addr, len, seal }) {
                return None;
            }
        }
        (rest.is_empty() && list.len() <= isize::MAX as u64).then_some(list)
    }

    /// Returns at most `len` bytes from `offset` on.
    #[must_use]
    pub fn slice(&self, mut offset: u64, mut len: u64) -> OtherIov {
        let mut part = OtherIov::default();
        for piece in self.pieces() {
            let skipped = offset.min(piece.len);
            offset -= skipped;
            let taken = len.min(piece.len - skipped);
            len -= taken;
            if taken != 0 {
                part.push(OtherPiece {
                    addr: piece.addr.wrapping_add(skipped),
                    len: taken,
                    ..*piece
                });
            }
        }
        part
    }
}

/// A random number that stays at its address in this process's memory while the memory that it
/// vouches for holds the bytes that were offered. A process that copies reads the number after the
/// bytes, and so knows that they were valid until then. Next to it is a secret, by which other
/// processes prove that they can read this memory, and the address of the cards of memory of
/// devices ([`device_sharing`]).
#[derive(Debug)]
pub struct Seal(Box<[AtomicU64; 3]>);

/// The address and number of a [`Seal`], as other processes know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Where the number stands.
    pub addr: u64,
    /// The number.
    pub value: u64,
}

impl Token {
    /// Returns where a process with this seal has the address of its cards ([`device_sharing`]).
    pub fn cards(&self) -> u64 {
        self.addr.wrapping_add(2 * FIELD as u64)
    }
}

impl Seal {
    /// `-FI_EIO` without random numbers.
    pub fn new() -> Result<Seal> {
        let (number, secret) = (random::secret()?.max(1), random::secret()?);
        let numbers = [number, secret, device_sharing::table_of_this_process()];
        Ok(Seal(Box::new(numbers.map(AtomicU64::new))))
    }

    /// Returns the address and the number, for other processes.
    #[allow(
        clippy::indexing_slicing,
        reason = "the offsets are constants within the array"
    )]
    pub fn token(&self) -> Token {
        Token {
            addr: std::ptr::from_ref(&*self.0).expose_provenance() as u64,
            value: self.0[0].load(Ordering::Relaxed),
        }
    }

    /// Returns the secret, known only to processes that can read this process's memory.
    #[allow(
        clippy::indexing_slicing,
        reason = "the offsets are constants within the array"
    )]
    pub fn secret(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }

    /// Invalidates the seal. Bytes written to the memory after this are not mistaken for those that
    /// were offered.
    #[allow(
        clippy::indexing_slicing,
        reason = "the offsets are constants within the array"
    )]
    pub fn destroy(&self) {
        self.0[0].store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// Copies from segments of another process's memory, which only the kernel accesses, to segments of
/// this one's; returns the number of bytes.
///
/// # Safety
/// `near` describes memory that may be written to.
pub unsafe fn read(pid: libc::pid_t, near: &[iovec], far: &[iovec]) -> Result<usize> {
    // SAFETY: the caller guarantees that `near` describes writable memory.
    unsafe { copy(libc::process_vm_readv, pid, near, far) }
}

/// Copies from segments of this process's memory to segments of another one's, which only the
/// kernel accesses; returns the number of bytes.
///
/// # Safety
/// `near` describes memory that may be read.
pub unsafe fn write(pid: libc::pid_t, near: &[iovec], far: &[iovec]) -> Result<usize> {
    // SAFETY: the caller guarantees that `near` describes readable memory.
    unsafe { copy(libc::process_vm_writev, pid, near, far) }
}

/// Copies from an address in another process, whose memory is open as `file` (proc_pid_mem(5)), to
/// memory of this one; returns the number of bytes, 0 if that memory does not exist.
///
/// # Safety
/// `near` describes memory that may be written to.
pub unsafe fn read_at(file: BorrowedFd<'_>, near: iovec, addr: u64) -> Result<usize> {
    let _errno = KeptErrno::begin();
    let fd = file.as_raw_fd();
    // SAFETY: the caller guarantees that `near` describes writable memory; the system checks the
    // address in the other process.
    outcome(unsafe { libc::pread64(fd, near.iov_base, near.iov_len, addr.cast_signed()) })
}

/// Copies from memory of this process to an address in another one, whose memory is open as `file`;
/// returns the number of bytes, 0 if that memory does not exist.
///
/// # Safety
/// `near` describes memory that may be read.
pub unsafe fn write_at(file: BorrowedFd<'_>, near: iovec, addr: u64) -> Result<usize> {
    let _errno = KeptErrno::begin();
    let fd = file.as_raw_fd();
    // SAFETY: the caller guarantees that `near` describes readable memory; the system checks the
    // address in the other process.
    outcome(unsafe { libc::pwrite64(fd, near.iov_base, near.iov_len, addr.cast_signed()) })
}

/// `process_vm_readv(2)` or its counterpart.
type Copy = unsafe extern "C" fn(
    libc::pid_t,
    *const iovec,
    libc::c_ulong,
    *const iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// # Safety
/// `near` describes memory that `call` may read or write.
#[inline(always)]
unsafe fn copy(call: Copy, pid: libc::pid_t, near: &[iovec], far: &[iovec]) -> Result<usize> {
    let _errno = KeptErrno::begin();
    let (count, far_count) = (near.len() as libc::c_ulong, far.len() as libc::c_ulong);
    // SAFETY: the caller guarantees that `call` may access the memory that `near` describes; the
    // system checks `far` against the mappings of the other process.
    outcome(unsafe { call(pid, near.as_ptr(), count, far.as_ptr(), far_count, 0) })
}

fn outcome(copied: isize) -> Result<usize> {
    usize::try_from(copied).map_err(|_| match Errno::last_os_error() {
        error if error.number() == libc::ESRCH => Errno::ESHUTDOWN,
        error => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_others_cannot_copy_is_detected() {
        // SAFETY: nothing is to be copied.
        if unsafe { read(0, &[], &[]) } == Err(Errno::ENOSYS) {
            // Emulators of other architectures lack the call.
            return;
        }
        let mut list = OtherIov::default();
        assert!(list.can_be_copied());
        let bytes = [[1u8; 4], [2; 4]];
        for part in &bytes {
            assert!(list.push(OtherPiece {
                addr: part.as_ptr().expose_provenance() as u64,
                len: 4,
                seal: None,
            }));
        }
        assert!(list.can_be_copied());
        // No process has memory at this address.
        list.push(OtherPiece {
            addr: 8,
            len: 16,
            seal: None,
        });
        assert!(!list.can_be_copied());
    }

    fn list(pieces: &[(u64, u64)]) -> OtherIov {
        let mut list = OtherIov::default();
        for &(addr, len) in pieces {
            let seal = (len % 2 == 0).then_some(Token { addr: 9, value: 7 });
            assert!(list.push(OtherPiece { addr, len, seal }));
        }
        list
    }

    fn written(list: &OtherIov) -> Vec<u8> {
        list.write(&mut [0; WRITTEN]).to_vec()
    }

    #[test]
    fn a_list_is_decoded_as_it_was_encoded() {
        let sent = list(&[(0x1000, 5), (7, 1 << 40), (0x3000, 1), (0x4000, 2)]);
        let bytes = written(&sent);
        assert_eq!(bytes.len(), WRITTEN);
        assert_eq!(OtherIov::read(&bytes), Some(sent));
        for cut in 0..bytes.len() {
            let read = OtherIov::read(&bytes[..cut]);
            assert_eq!(read.is_some(), cut % PIECE == 0);
            assert_ne!(read, Some(sent));
        }
    }

    #[test]
    fn lying_lists_are_refused() {
        let refused = |pieces: &[(u64, u64)]| OtherIov::read(&written(&list(pieces))).is_none();
        assert!(!refused(&[(1, 1)]));
        assert!(refused(&[(1, 1), (2, 0)]));
        assert!(refused(&[(u64::MAX, 2)]));
        assert!(refused(&[(1, u64::MAX / 2), (1, u64::MAX / 2)]));
        let mut five = written(&list(&[(1, 1); 4]));
        five.extend_from_within(..PIECE);
        assert!(OtherIov::read(&five).is_none());
    }
}
