//! Datagrams that are sent in batches: those of one length to one destination as one piece that the
//! system divides (`UDP_SEGMENT`), and several pieces with one system call (sendmmsg(2)). On the
//! network they are the same as datagrams that are sent one at a time.

use crate::bounded;
use crate::bounds::OPERATIONS;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Control, LEVEL, divides};
use crate::buffer::Iov;
use crate::errno::{Errno, Result};
use crate::kept_errno::KeptErrno;
use crate::sockaddr::Encoded;

/// Limit of the datagrams in one piece: that of Linux before 6.10 (`UDP_MAX_SEGMENTS`).
const SEGMENTS: usize = 64;
/// Limit of the bytes in one piece: that of a single datagram over IPv4.
const PIECE: usize = 65_507;
/// Limit of the pieces that one system call sends; bounds the memory on the stack.
const PIECES: usize = 16;

/// See the [module](self) description.
#[derive(Default)]
pub struct Outbox {
    /// The bytes of all runs, one after another; those before the first run's `start` were sent.
    bytes: Vec<u8>,
    runs: VecDeque<Run>,
    /// Datagrams in all runs.
    count: usize,
}

/// Datagrams for one destination.
struct Run {
    to: Encoded,
    /// Offset of its first byte.
    start: usize,
    len: usize,
    /// Bytes of each datagram; the last one may be shorter.
    segment: usize,
    count: usize,
    /// Whether the last datagram is shorter, so that no other can follow in this run.
    is_closed: bool,
    /// Whether its datagrams are sent one at a time, since the system has refused them as one piece.
    is_apart: bool,
}

/// How sending has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Everything was sent.
    All,
    /// The socket has no room for the rest.
    Full,
    /// The datagram after those that were sent failed with this error, and was removed. More may
    /// follow it in the outbox.
    Failed(Errno),
}

impl Outbox {
    /// Returns the number of datagrams.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of bytes in use, including those that were sent.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a copy of a datagram.
    pub fn push(&mut self, message: &Iov<'_>, to: &Encoded) {
        let len = message.len();
        self.count += 1;
        let start = self.bytes.len();
        message.append_to(&mut self.bytes);
        if let Some(run) = self.runs.back_mut()
            && run.takes(start, len, to)
        {
            run.len += len;
            run.count += 1;
            run.is_closed = len < run.segment;
            return;
        }
        self.runs.push_back(Run {
            to: *to,
            start,
            len,
            segment: len,
            count: 1,
            is_closed: len == 0,
            is_apart: false,
        });
        bounded!(self.runs, OPERATIONS);
    }

    /// Sends the datagrams in order. Returns how many were sent, and the outcome.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> (usize, Sent) {
        let divides = divides(socket);
        let mut left = 0;
        let outcome = loop {
            if self.runs.is_empty() {
                break Sent::All;
            }
            match self.send_some(socket, divides) {
                Ok(count) => left += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break Sent::Full,
                Err(error) => match self.runs.front_mut() {
                    // One of them may be to blame, or that they are one piece.
                    Some(run) if divides && run.is_one_piece() => run.is_apart = true,
                    _ => {
                        self.remove(1);
                        break Sent::Failed(error);
                    }
                },
            }
        };
        if self.runs.is_empty() {
            self.bytes.clear();
        }
        (left, outcome)
    }

    /// Sends the first pieces with one call, and returns how many datagrams that were. Where the
    /// system does not divide pieces, each datagram is one.
    #[allow(
        clippy::indexing_slicing,
        reason = "there are as many of each as pieces, and runs lie in the bytes"
    )]
    pub(super) fn send_some(&mut self, socket: BorrowedFd<'_>, divides: bool) -> Result<usize> {
        let _errno = KeptErrno::begin();
        let mut parts = [(0, 0, 0); PIECES];
        let mut filled = 0;
        'all: for run in &self.runs {
            let (size, datagrams) = match divides && run.is_one_piece() {
                true => (run.len, run.count),
                false => (run.segment, 1),
            };
            let mut at = 0;
            while at < run.len.max(1) {
                if filled == PIECES {
                    break 'all;
                }
                parts[filled] = (run.start + at, size.min(run.len - at), datagrams);
                filled += 1;
                at += size.max(1);
            }
        }
        // SAFETY: the structures consist of integers and pointers, for which zero is a valid value.
        let (mut headers, mut vectors): ([libc::mmsghdr; PIECES], [libc::iovec; PIECES]) =
            unsafe { std::mem::zeroed() };
        let mut controls: [Control; PIECES] = [[0; _]; PIECES];
        let mut piece = 0;
        for run in &self.runs {
            let mut left = run.count;
            while left > 0 && piece < filled {
                let (start, len, datagrams) = parts[piece];
                let name = run.to.as_bytes();
                vectors[piece] = libc::iovec {
                    iov_base: self.bytes[start..start + len].as_ptr().cast_mut().cast(),
                    iov_len: len,
                };
                let header = &mut headers[piece].msg_hdr;
                header.msg_name = name.as_ptr().cast_mut().cast();
                header.msg_namelen = name.len() as _;
                header.msg_iov = &raw mut vectors[piece];
                header.msg_iovlen = 1;
                if datagrams > 1 {
                    set_segment(header, &mut controls[piece], run.segment as u16);
                }
                left -= datagrams;
                piece += 1;
            }
        }
        // SAFETY: the first `filled` headers describe memory that outlives the call, which writes
        // to their `msg_len` only.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_sendmmsg,
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                filled,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        let Ok(sent) = usize::try_from(sent) else {
            return Err(Errno::last_os_error());
        };
        let datagrams = parts[..sent.min(filled)].iter().map(|part| part.2).sum();
        self.remove(datagrams);
        Ok(datagrams)
    }

    /// Removes the datagram that is behind `before` others.
    pub fn withdraw(&mut self, mut before: usize) {
        for at in 0..self.runs.len() {
            let Some(run) = self.runs.get_mut(at) else {
                return;
            };
            if before >= run.count {
                before -= run.count;
                continue;
            }
            self.count -= 1;
            let rest = run.split_off(before);
            if run.count == 0 {
                self.runs.remove(at);
            }
            let at = at + usize::from(before != 0);
            if let Some(rest) = rest.without_first() {
                self.runs.insert(at, rest);
            }
            if self.runs.is_empty() {
                self.bytes.clear();
            }
            return;
        }
    }

    /// Removes the first `datagrams`.
    fn remove(&mut self, mut datagrams: usize) {
        self.count -= datagrams.min(self.count);
        while datagrams > 0
            && let Some(run) = self.runs.front_mut()
        {
            if datagrams < run.count {
                let bytes = datagrams * run.segment;
                run.start += bytes;
                run.len -= bytes;
                run.count -= datagrams;
                return;
            }
            datagrams -= run.count;
            self.runs.pop_front();
        }
    }
}

impl Run {
    /// Returns whether a datagram of this length to this destination, whose bytes begin at `start`, can
    /// be appended. The bytes of a datagram that was withdrawn may lie in between.
    fn takes(&self, start: usize, len: usize, to: &Encoded) -> bool {
        !self.is_closed
            && !self.is_apart
            && self.start + self.len == start
            && (1..=self.segment).contains(&len)
            && self.count < SEGMENTS
            && self.len + len <= PIECE
            && self.to == *to
    }

    /// Divides the run behind its first `count` datagrams, which is fewer than it has; returns the
    /// others. Nothing more can be appended to the first part.
    fn split_off(&mut self, count: usize) -> Run {
        let bytes = count * self.segment;
        let rest = Run {
            to: self.to,
            start: self.start + bytes,
            len: self.len - bytes,
            segment: self.segment,
            count: self.count - count,
            is_closed: self.is_closed,
            is_apart: self.is_apart,
        };
        (self.len, self.count, self.is_closed) = (bytes, count, true);
        rest
    }

    /// Removes the first datagram; `None` if there is no other.
    fn without_first(mut self) -> Option<Run> {
        if self.count <= 1 {
            return None;
        }
        self.start += self.segment;
        self.len -= self.segment;
        self.count -= 1;
        Some(self)
    }

    fn is_one_piece(&self) -> bool {
        self.count > 1 && !self.is_apart
    }
}

/// Has the system divide a piece into datagrams of this length.
fn set_segment(header: &mut libc::msghdr, control: &mut Control, segment: u16) {
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the macros compute sizes and the location of the first entry in the control buffer,
    // which has space for it and its value. No reference is made to the entry: one would not
    // extend to the value behind it.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
        let first = libc::CMSG_FIRSTHDR(header);
        if !first.is_null() {
            (*first).cmsg_level = LEVEL;
            (*first).cmsg_type = libc::UDP_SEGMENT;
            (*first).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(first)
                .cast::<u16>()
                .write_unaligned(segment);
        }
    }
}
