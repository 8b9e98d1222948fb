//! Datagrams that leave together: those of one length for one destination as one piece that
//! the system takes apart (`UDP_SEGMENT`), and several pieces with one call (sendmmsg(2)).
//! On the network nothing tells them from datagrams that were sent one at a time.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Control, LEVEL};
use crate::buffer::Iov;
use crate::errno::{Errno, Result};
use crate::kept_errno::KeptErrno;
use crate::sockaddr::Encoded;

/// Datagrams in one piece at most: systems before Linux 6.10 take no more (`UDP_MAX_SEGMENTS`).
const SEGMENTS: usize = 64;
/// Bytes in one piece at most, as for a single datagram of IPv4.
const PIECE: usize = 65_507;
/// Pieces that one call sends at most.
const PIECES: usize = 16;

/// See the [module](self) description.
#[derive(Default)]
pub struct Outbox {
    /// Of all runs, one behind the other, from `start` of the first one on.
    bytes: Vec<u8>,
    runs: VecDeque<Run>,
    /// Datagrams in all runs.
    count: usize,
}

/// Datagrams for one destination.
struct Run {
    to: Encoded,
    /// Where its bytes begin.
    start: usize,
    len: usize,
    /// Bytes of each datagram; the last one may be shorter.
    segment: usize,
    count: usize,
    /// Whether the last datagram is shorter, so that none follows.
    is_closed: bool,
    /// Whether the system does not take it as one piece.
    is_apart: bool,
}

/// How sending has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Everything has left.
    All,
    /// The socket has no room for the rest.
    Full,
    /// The datagram behind those that have left is not sent, for this cause, and out of the
    /// outbox. More may be in it.
    Failed(Errno),
}

impl Outbox {
    /// Datagrams that wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none does.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that wait.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a copy of a datagram behind all others.
    pub fn push(&mut self, message: &Iov<'_>, to: &Encoded) {
        let len = message.len();
        self.count += 1;
        let start = self.bytes.len();
        message.append_to(&mut self.bytes);
        if let Some(run) = self.runs.back_mut()
            && run.takes(len, to)
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
    }

    /// Sends what waits, in order, and returns how many datagrams have left, and how that ended.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> (usize, Sent) {
        let mut left = 0;
        let outcome = loop {
            if self.runs.is_empty() {
                break Sent::All;
            }
            match self.send_some(socket) {
                Ok(count) => left += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break Sent::Full,
                Err(error) => match self.runs.front_mut() {
                    // One of them may be to blame, or that they are one piece.
                    Some(run) if run.is_one_piece() => run.is_apart = true,
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

    /// Sends the first pieces with one call, and returns how many datagrams that were.
    #[allow(
        clippy::indexing_slicing,
        reason = "there are as many of each as pieces, and runs lie in the bytes"
    )]
    fn send_some(&mut self, socket: BorrowedFd<'_>) -> Result<usize> {
        let _errno = KeptErrno::begin();
        let mut parts = [(0, 0, 0); PIECES];
        let mut filled = 0;
        'all: for run in &self.runs {
            let (size, datagrams) = match run.is_one_piece() {
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

    /// Forgets the first `datagrams`.
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
    /// Whether a datagram of this length can follow.
    fn takes(&self, len: usize, to: &Encoded) -> bool {
        !self.is_closed
            && !self.is_apart
            && (1..=self.segment).contains(&len)
            && self.count < SEGMENTS
            && self.len + len <= PIECE
            && self.to == *to
    }

    fn is_one_piece(&self) -> bool {
        self.count > 1 && !self.is_apart
    }
}

/// Has the system take a piece apart into datagrams of this length.
fn set_segment(header: &mut libc::msghdr, control: &mut Control, segment: u16) {
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the macros compute sizes and the location of the first entry in the control buffer,
    // which has space for it.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
        if let Some(first) = libc::CMSG_FIRSTHDR(header).as_mut() {
            first.cmsg_level = LEVEL;
            first.cmsg_type = libc::UDP_SEGMENT;
            first.cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(first)
                .cast::<u16>()
                .write_unaligned(segment);
        }
    }
}
