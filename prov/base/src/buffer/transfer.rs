//! Transfers between a socket and memory of the library and of the application.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::iovec;

use super::{IOV_LIMIT, Iov, NOTHING};
use crate::errno::{Errno, Result};

/// Largest number of segments of one socket call: enough for headers and data of several messages,
/// in an array on the stack.
pub const TRANSFER_LIMIT: usize = 16;

/// The memory that one socket call sends or receives (`Way`): the library's own and the
/// application's, in order.
pub struct Transfer<'a, Way> {
    iov: [iovec; TRANSFER_LIMIT],
    count: usize,
    len: usize,
    /// The library's own buffers are borrowed until the call.
    buffers: PhantomData<(&'a mut [u8], Way)>,
}

/// The direction of bytes that are sent.
pub struct Out;

/// The direction of bytes that are received.
pub struct In;

/// Bytes to send.
pub type Outgoing<'a> = Transfer<'a, Out>;

/// Memory for bytes to receive.
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
    /// Returns the number of bytes to send, or that can be received.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether that number is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the list may be too full for another piece of application memory.
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

    /// Adds memory of the library; `false` if the list is full.
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

    /// Calls `copy` for each segment from `at` on, with the number of bytes copied so far, until it
    /// copies none; returns the total.
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
            // SAFETY: the range is inside a piece, which is a borrowed buffer of the library or
            // memory of an operation in progress; it is written only if the transfer receives.
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
        // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = self.iov.as_mut_ptr();
        header.msg_iovlen = self.count as _;
        header
    }
}

impl<'a> Outgoing<'a> {
    /// Adds bytes of the library; `false` if the list is full.
    pub fn push(&mut self, bytes: &'a [u8]) -> bool {
        self.push_own(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// Copies the bytes from `at` on to `to`, as far as they fit; returns the number of bytes.
    pub fn copy_to(&self, at: usize, to: &Iov<'_>) -> usize {
        self.walk(at, |done, part| part.copy_to(&to.slice(done, usize::MAX)))
    }

    /// Calls sendmsg(2) with `MSG_NOSIGNAL`; returns the number of bytes sent.
    pub fn send(mut self, socket: BorrowedFd<'_>, flags: i32) -> Result<usize> {
        let sent = if self.count == 1 {
            let piece = self.iov[0];
            // SAFETY: the piece is a borrowed buffer of the library or memory of an operation in
            // progress, valid for reads of its length.
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
            // SAFETY: `header` describes such pieces, and `self`, which contains their list,
            // outlives the call.
            unsafe { libc::sendmsg(socket.as_raw_fd(), &header, flags | libc::MSG_NOSIGNAL) }
        };
        usize::try_from(sent).map_err(|_| Errno::last_os_error())
    }
}

impl<'a> Incoming<'a> {
    /// Adds memory of the library; `false` if the list is full.
    pub fn push(&mut self, bytes: &'a mut [u8]) -> bool {
        self.push_own(bytes.as_mut_ptr(), bytes.len())
    }

    /// Copies bytes to the memory from `at` on, as far as they fit; returns the number of bytes.
    pub fn copy_from(&mut self, at: usize, from: &Iov<'_>) -> usize {
        self.walk(at, |done, part| from.slice(done, usize::MAX).copy_to(part))
    }

    /// Calls recvmsg(2); returns the number of bytes received, 0 at the end of the stream.
    pub fn receive(mut self, socket: BorrowedFd<'_>, flags: i32) -> Result<usize> {
        let received = if self.count == 1 {
            let piece = self.iov[0];
            // SAFETY: the piece is a mutably borrowed buffer of the library or memory of an
            // operation in progress, valid for writes of its length.
            unsafe { libc::recv(socket.as_raw_fd(), piece.iov_base, piece.iov_len, flags) }
        } else {
            let mut header = self.header();
            // SAFETY: `header` describes such pieces, and `self`, which contains their list,
            // outlives the call.
            unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) }
        };
        usize::try_from(received).map_err(|_| Errno::last_os_error())
    }
}
