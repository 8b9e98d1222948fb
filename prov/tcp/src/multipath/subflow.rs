//! One TCP connection of several that carry a stream.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use prov_base::buffer::{Incoming, Outgoing};
use prov_base::errno::{Errno, Result};
use prov_base::socket;
use prov_base::socket::silence::{Watch, signs};
use prov_base::socket::tcp::CALL_LIMIT;

use super::pace::Pace;
use super::retained::Retained;
use crate::wire::multipath::{FRAME, Frame};

/// Number of bytes that are read at once, and copied from there.
const AHEAD: usize = 64 << 10;
/// The same while frames are long: only what follows the data of a frame is copied.
const AHEAD_OF_BULK: usize = 4096;
/// Largest number of bytes that are copied to be sent from one buffer.
const SHORT: usize = 256;
/// Length of a frame's data from which on frames are long.
const BULK: usize = 16 << 10;

/// See the [module](self) description.
pub struct Subflow {
    /// Which one it is; the lowest that works is the first one.
    pub number: u8,
    socket: OwnedFd,
    /// Whether data may be sent on it: not after it has failed.
    pub can_send: bool,
    /// Whether the socket accepts no more at present.
    pub is_full: bool,
    /// Headers to send before the data of `data`, from an offset on.
    head: Vec<u8>,
    head_sent: usize,
    /// What is left to send of the frame that has begun.
    data: Range<u64>,
    /// What was sent on it and is not acknowledged; neighbours are joined.
    in_flight: VecDeque<Range<u64>>,
    /// Memory for bytes that are read ahead.
    buffer: Vec<u8>,
    /// Where the bytes are that were read and not processed.
    unread: Range<usize>,
    /// What is left to receive of the frame that has begun.
    pub incoming: Range<u64>,
    /// Whether the last frame was a long one.
    is_bulk: bool,
    /// Whether there may be something to read.
    pub is_readable: bool,
    /// Whether it may have ended. That is announced once, maybe before the data that precedes the end
    /// is read.
    may_end: bool,
    /// How it has ended: in order, or with an error.
    pub end: Option<Result>,
    watch: Watch,
    /// Number of bytes that the socket has accepted.
    accepted: u64,
    pace: Pace,
    /// When it was made.
    pub since: Instant,
}

impl Subflow {
    /// Creates a subflow on a connected socket.
    pub fn new(number: u8, socket: OwnedFd) -> Self {
        Subflow {
            number,
            socket,
            can_send: true,
            is_full: false,
            head: Vec::new(),
            head_sent: 0,
            data: 0..0,
            in_flight: VecDeque::new(),
            buffer: Vec::new(),
            unread: 0..0,
            incoming: 0..0,
            is_bulk: false,
            is_readable: true,
            may_end: false,
            end: None,
            watch: Watch::default(),
            accepted: 0,
            pace: Pace::new(Instant::now()),
            since: Instant::now(),
        }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Handles an event of the socket: whether it may be read, and may have ended.
    pub fn has_event(&mut self, is_readable: bool, may_end: bool) {
        self.is_readable |= is_readable;
        self.is_full = false;
        self.may_end |= may_end;
    }

    /// Whether nothing of a frame is left to send.
    pub fn is_between_frames(&self) -> bool {
        self.head.is_empty() && self.data.is_empty()
    }

    /// Whether no data of a frame is left to send.
    pub fn data_is_sent(&self) -> bool {
        self.data.is_empty()
    }

    /// Whether another frame may begin.
    pub fn takes_frames(&self) -> bool {
        self.can_send && !self.is_full && self.is_between_frames()
    }

    /// Begins a frame with this part of the stream.
    pub fn begin(&mut self, data: Range<u64>) {
        let frame = Frame::Data {
            offset: data.start,
            len: (data.end - data.start) as usize,
        };
        self.head.extend_from_slice(&frame.encode());
        match self.in_flight.back_mut() {
            Some(last) if last.end == data.start => last.end = data.end,
            _ => self.in_flight.push_back(data.clone()),
        }
        self.data = data;
    }

    /// Adds an acknowledgement before the next frame.
    pub fn acknowledge(&mut self, offset: u64) {
        self.head.extend_from_slice(&Frame::Ack { offset }.encode());
    }

    /// Adds a request for an acknowledgement.
    pub fn ask(&mut self, offset: u64) {
        self.head.extend_from_slice(&Frame::Ask { offset }.encode());
    }

    /// Sends the frame that has begun, as far as the socket accepts it. Returns whether it has
    /// accepted anything.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&mut self, retained: &Retained) -> Result<bool> {
        let mut any = false;
        while !self.is_between_frames() && !self.is_full {
            let head = self.head.get(self.head_sent..).unwrap_or_default();
            let known = retained.acked().min(self.data.end);
            let data = match self.data.start < known {
                // The peer has it from another subflow. It needs the rest of the frame, whatever
                // is in it.
                true => {
                    let len = (known - self.data.start).min(FILLER.len() as u64);
                    FILLER.get(..len as usize).unwrap_or_default()
                }
                false => retained.bytes(self.data.start, self.data.end),
            };
            let (head_len, data_len) = (head.len(), data.len());
            match send_both(self.socket.as_fd(), head, data) {
                Ok(sent) => {
                    any = true;
                    self.accepted += sent as u64;
                    self.head_sent += sent.min(head_len);
                    self.data.start += sent.saturating_sub(head_len) as u64;
                    self.is_full = sent < head_len + data_len;
                    if self.head_sent == self.head.len() {
                        self.head.clear();
                        self.head_sent = 0;
                    }
                }
                Err(Errno::EAGAIN | Errno::ENOBUFS) => self.is_full = true,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        if self.is_full {
            self.pace.is_full();
        }
        Ok(any)
    }

    /// Whether something was sent on it that is not acknowledged.
    #[cfg(test)]
    pub fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Forgets what is acknowledged.
    pub fn acknowledged(&mut self, offset: u64) {
        while self
            .in_flight
            .front()
            .is_some_and(|range| range.end <= offset)
        {
            self.in_flight.pop_front();
        }
        // Repeated ranges are not in order.
        self.in_flight.retain(|range| range.end > offset);
    }

    /// Stops sending. Returns what was sent on it and is not acknowledged.
    pub fn stop_sending(&mut self) -> VecDeque<Range<u64>> {
        self.can_send = false;
        self.head.clear();
        self.head_sent = 0;
        self.data = 0..0;
        std::mem::take(&mut self.in_flight)
    }

    /// Adds bytes that were read from its socket.
    pub fn was_read(&mut self, bytes: &[u8]) {
        let room = self.room(bytes.len());
        room.copy_from_slice(bytes);
        self.unread.end += bytes.len();
    }

    /// Returns memory for so many bytes behind those that were read.
    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.unread.end + len > self.buffer.len() {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        let end = self.unread.end + len;
        if self.buffer.len() < end {
            self.buffer.resize(end.max(AHEAD), 0);
        }
        self.buffer
            .get_mut(self.unread.end..end)
            .unwrap_or_default()
    }

    /// Returns the bytes that were read and not processed.
    pub fn buffered(&self) -> &[u8] {
        self.buffer.get(self.unread.clone()).unwrap_or_default()
    }

    /// Notes that bytes of those were processed.
    pub fn processed(&mut self, len: usize) {
        self.unread.start += len;
    }

    /// Whether reading it may bring something.
    pub fn may_read(&self) -> bool {
        self.end.is_none() && self.is_readable
    }

    /// Reads more into the buffer. Returns whether there was anything.
    pub fn fill(&mut self) -> bool {
        let ahead = match self.is_bulk && self.incoming.is_empty() {
            true => AHEAD_OF_BULK,
            false => AHEAD,
        };
        let ahead = ahead - self.unread.len().min(ahead - 1);
        self.room(ahead);
        let end = self.unread.end;
        let room = self.buffer.get_mut(end..end + ahead).unwrap_or_default();
        let received = socket::receive(self.socket.as_fd(), room);
        let received = self.note(received, ahead);
        self.unread.end += received;
        received != 0
    }

    /// Receives data of the frame that has begun directly to its destination, and what follows into
    /// the empty buffer. Returns the number of bytes at the destination.
    pub fn receive_directly(&mut self, to: Incoming<'_>) -> usize {
        let left = (self.incoming.end - self.incoming.start) as usize;
        let mut ahead = [0; AHEAD_OF_BULK];
        let mut to: Incoming<'_> = to;
        to.truncate(left);
        let room = to.len();
        let may_follow = room == left && to.push(&mut ahead);
        let wanted = to.len();
        let received = to.receive(self.socket.as_fd(), libc::MSG_DONTWAIT);
        let received = self.note(received, wanted);
        let placed = received.min(room);
        if may_follow {
            let behind = ahead.get(..received - placed).unwrap_or_default();
            self.was_read(behind);
        }
        self.incoming.start += placed as u64;
        placed
    }

    /// Handles the result of reading up to `wanted` bytes; returns the number of bytes.
    fn note(&mut self, received: Result<usize>, wanted: usize) -> usize {
        match received {
            Ok(0) if wanted != 0 => self.end = Some(Ok(())),
            Ok(received) => {
                // What comes later is announced by another event.
                if received < wanted.min(CALL_LIMIT) && !self.may_end {
                    self.is_readable = false;
                }
                return received;
            }
            Err(Errno::EAGAIN) => self.is_readable = false,
            Err(Errno::EINTR) => {}
            Err(error) => self.end = Some(Err(error)),
        }
        0
    }

    /// Whether the header of the next frame has arrived.
    pub fn has_header(&self) -> bool {
        self.incoming.is_empty() && self.buffered().len() >= FRAME
    }

    /// Decodes the header of the next frame, if it has arrived.
    pub fn next_frame(&mut self) -> Option<std::result::Result<Frame, crate::wire::WireError>> {
        let header = self.buffered().first_chunk::<FRAME>()?;
        let frame = Frame::decode(header);
        self.processed(FRAME);
        if let Ok(Frame::Data { offset, len }) = frame {
            self.incoming = offset..offset + len as u64;
            self.is_bulk = len >= BULK;
        }
        Some(frame)
    }

    /// Returns how long it takes until what the socket has, and so many bytes more, are delivered;
    /// `None` if that is not known.
    pub fn time_for(&mut self, now: Instant, more: u64) -> Option<Duration> {
        let queued = socket::unacknowledged(self.socket.as_fd()) as u64;
        self.pace.note(now, self.accepted, queued);
        self.pace.time_for(queued + more)
    }

    /// Whether the socket has data that the other host has not acknowledged.
    pub fn has_queued(&self) -> bool {
        socket::unacknowledged(self.socket.as_fd()) != 0
    }

    /// Whether the host at the other end owes the kernel an acknowledgement, and for how long it
    /// has not given any.
    pub fn silence(&mut self, now: Instant) -> Option<Duration> {
        let signs = signs(self.socket.as_fd()).ok()?;
        let silent = self.watch.note(&signs, now);
        signs.is_expected.then_some(silent)
    }
}

static FILLER: [u8; 4096] = [0; 4096];

/// Sends what is short from one buffer, which takes the kernel less time.
fn send_both(socket: BorrowedFd<'_>, head: &[u8], data: &[u8]) -> Result<usize> {
    let mut bytes = [0; SHORT];
    if let Some((first, rest)) = bytes.split_at_mut_checked(head.len())
        && let Some(second) = rest.get_mut(..data.len())
    {
        first.copy_from_slice(head);
        second.copy_from_slice(data);
        let len = head.len() + data.len();
        return socket::send(socket, bytes.get(..len).unwrap_or_default());
    }
    let mut out = Outgoing::default();
    out.push(head);
    out.push(data);
    out.send(socket, libc::MSG_DONTWAIT)
}
