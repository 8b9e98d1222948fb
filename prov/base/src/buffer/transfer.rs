//! Transfers between a socket and memory of ours and the application's.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::iovec;

use super::{IOV_LIMIT, Iov, NOTHING};
use crate::errno::{Errno, Result};

/// Pieces that one socket call moves at most.
pub const TRANSFER_LIMIT: usize = 16;

/// What one socket call moves `Way`: our own bytes and the application's, in order.
pub struct Transfer<'a, Way> {
    iov: [iovec; TRANSFER_LIMIT],
    count: usize,
    len: usize,
    /// Our own buffers are borrowed until the call.
    buffers: PhantomData<(&'a mut [u8], Way)>,
}

/// The way of bytes that leave.
pub struct Out;

/// The way of bytes that come.
pub struct In;

/// Bytes that go out.
pub type Outgoing<'a> = Transfer<'a, Out>;

/// Room for bytes that come in.
pub type Incoming<'a> = Transfer<'a, In>;

impl<Way> Default for Transfer<'_, Way> {
    fn default() -> Self {
        Transfer {
            iov: [NOTHING; TRANSFER_LIMIT],
            count: 0,
            len: 0,
            buffers: PhantomData,
        }
    }
}

impl<'a, Way> Transfer<'a, Way> {
    /// Bytes that leave, or room for those that come.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether that is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether not one more piece of application memory is sure to fit.
    pub fn is_full(&self) -> bool {
        self.room() < IOV_LIMIT + 1
    }

    /// Adds application memory; `false` when the list is full.
    pub fn push_app(&mut self, memory: &Iov<'a>) -> bool {
        let fits = self.room() >= memory.pieces().len();
        if fits {
            memory.pieces().iter().for_each(|&piece| self.add(piece));
        }
        fits
    }

    /// Adds memory of our own; `false` when the list is full.
    fn push_own(&mut self, bytes: *mut u8, len: usize) -> bool {
        let fits = self.room() >= 1;
        if fits {
            self.add(iovec {
                iov_base: bytes.cast(),
                iov_len: len,
            });
        }
        fits
    }

    fn room(&self) -> usize {
        TRANSFER_LIMIT - self.count
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "`room` was asked before a piece was added"
    )]
    fn add(&mut self, piece: iovec) {
        if piece.iov_len != 0 {
            self.iov[self.count] = piece;
            self.count += 1;
            self.len += piece.iov_len;
        }
    }

    /// Calls `copy` for each piece from `at` on with the bytes that were copied
    /// before, until it copies none; how many it has copied.
    #[allow(
        clippy::indexing_slicing,
        reason = "`room` was asked before a piece was added"
    )]
    fn walk(&self, mut at: usize, mut copy: impl FnMut(usize, &Iov<'_>) -> usize) -> usize {
        let mut done = 0;
        for piece in &self.iov[..self.count] {
            let skipped = at.min(piece.iov_len);
            at -= skipped;
            if skipped == piece.iov_len {
                continue;
            }
            // SAFETY: inside a piece, which is a borrowed buffer of ours or
            // application memory of an operation in flight; written to only
            // where it is room for what comes in.
            let part = unsafe {
                let base = piece.iov_base.cast::<u8>().add(skipped);
                Iov::from_raw(base, piece.iov_len - skipped)
            };
            let copied = copy(done, &part);
            done += copied;
            if copied < part.len() {
                break;
            }
        }
        done
    }

    fn header(&mut self) -> libc::msghdr {
        // SAFETY: every field of a `msghdr` may be zero.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = self.iov.as_mut_ptr();
        header.msg_iovlen = self.count as _;
        header
    }
}

impl<'a> Outgoing<'a> {
    /// Adds our own bytes; `false` when the list is full.
    pub fn push(&mut self, bytes: &'a [u8]) -> bool {
        self.push_own(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// Copies the bytes from `at` on to `to`, as far as there is room; how many.
    pub fn copy_to(&self, at: usize, to: &Iov<'_>) -> usize {
        self.walk(at, |done, part| part.copy_to(&to.slice(done, usize::MAX)))
    }

    /// `sendmsg(2)` with `MSG_NOSIGNAL`; bytes that the socket took.
    pub fn send(mut self, socket: BorrowedFd<'_>, flags: i32) -> Result<usize> {
        let sent = if self.count == 1 {
            let piece = self.iov[0];
            // SAFETY: the piece is a borrowed buffer of ours or application
            // memory of an operation in flight, valid for its length.
            unsafe {
                libc::send(
                    socket.as_raw_fd(),
                    piece.iov_base,
                    piece.iov_len,
                    flags | libc::MSG_NOSIGNAL,
                )
            }
        } else {
            let header = self.header();
            // SAFETY: `header` describes pieces as above, and `self` outlives
            // the call.
            unsafe { libc::sendmsg(socket.as_raw_fd(), &header, flags | libc::MSG_NOSIGNAL) }
        };
        usize::try_from(sent).map_err(|_| Errno::last_os_error())
    }
}

impl<'a> Incoming<'a> {
    /// Adds our own room; `false` when the list is full.
    pub fn push(&mut self, bytes: &'a mut [u8]) -> bool {
        self.push_own(bytes.as_mut_ptr(), bytes.len())
    }

    /// Copies bytes to the place from `at` on, as far as there is room; how many.
    pub fn copy_from(&mut self, at: usize, from: &Iov<'_>) -> usize {
        self.walk(at, |done, part| from.slice(done, usize::MAX).copy_to(part))
    }

    /// `recvmsg(2)`; bytes that came, 0 at the end of the stream.
    pub fn receive(mut self, socket: BorrowedFd<'_>, flags: i32) -> Result<usize> {
        let received = if self.count == 1 {
            let piece = self.iov[0];
            // SAFETY: the piece is an exclusively borrowed buffer of ours or
            // application memory of an operation in flight.
            unsafe { libc::recv(socket.as_raw_fd(), piece.iov_base, piece.iov_len, flags) }
        } else {
            let mut header = self.header();
            // SAFETY: `header` describes pieces as above, and `self` outlives
            // the call.
            unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) }
        };
        usize::try_from(received).map_err(|_| Errno::last_os_error())
    }
}
