//! Transfers between a socket and memory of the library and of the application.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::iovec;

use super::ahead::{Ahead, Read};
use super::device::stage;
use super::{IOV_LIMIT, Iov, NOTHING, STAGED};
use crate::device_memory::Kind;
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
    /// Whose memory each piece is, if one is a device's.
    devices: Option<Box<Devices>>,
    /// The library's own buffers are borrowed until the call.
    buffers: PhantomData<(&'a mut [u8], Way)>,
}

#[derive(Default)]
struct Devices {
    kinds: [Kind; TRANSFER_LIMIT],
    /// Whether the pieces may be written behind ([`Iov::defer`]).
    are_deferred: [bool; TRANSFER_LIMIT],
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
            devices: None,
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

    /// Shortens the list to its first `len` bytes.
    #[allow(
        clippy::indexing_slicing,
        reason = "there are no more pieces than places"
    )]
    pub fn truncate(&mut self, len: usize) {
        let mut left = len;
        for position in 0..self.count {
            if left == 0 {
                self.count = position;
                break;
            }
            let piece = &mut self.iov[position];
            piece.iov_len = piece.iov_len.min(left);
            left -= piece.iov_len;
        }
        self.len = self.len.min(len);
    }

    /// Adds application memory; `false` when the list is full.
    pub fn push_app(&mut self, memory: &Iov<'a>) -> bool {
        let fits = self.room() >= memory.pieces().len();
        if fits {
            if memory.has_device() {
                self.note_devices(memory);
            }
            memory.pieces().iter().for_each(|&piece| self.add(piece));
        }
        fits
    }

    /// Notes the kinds of the pieces that are added next.
    #[cold]
    fn note_devices(&mut self, memory: &Iov<'_>) {
        let devices = self.devices.get_or_insert_default();
        let places = devices.kinds.iter_mut().zip(&mut devices.are_deferred);
        for ((place, is_deferred), (kind, _)) in places.skip(self.count).zip(memory.segments()) {
            (*place, *is_deferred) = (kind, memory.shape.is_deferred());
        }
    }

    /// Returns the kind of a piece, and whether it may be written behind.
    fn kind(&self, position: usize) -> (Kind, bool) {
        let Some(devices) = &self.devices else {
            return (Kind::HOST, false);
        };
        let kind = devices.kinds.get(position).copied();
        let is_deferred = devices.are_deferred.get(position).copied();
        (kind.unwrap_or_default(), is_deferred.unwrap_or_default())
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
        for (position, piece) in self.iov[..self.count].iter().enumerate() {
            let skipped = at.min(piece.iov_len);
            at -= skipped;
            if skipped == piece.iov_len {
                continue;
            }
            let (kind, is_deferred) = self.kind(position);
            // SAFETY: the range is inside a piece, which is a borrowed buffer of the library or
            // memory of an operation in progress, of the kind that its owner has declared; it is
            // written only if the transfer receives.
            let mut part = unsafe {
                let base = piece.iov_base.cast::<u8>().add(skipped);
                Iov::from_raw(base, piece.iov_len - skipped).of_kind(kind)
            };
            if is_deferred {
                part.defer();
            }
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

    /// Copies the bytes from `at` on to a buffer, as far as they fit; returns the number of bytes.
    pub fn read_at(&self, at: usize, to: &mut [u8]) -> usize {
        self.walk(at, |done, part| {
            part.read_at(0, to.get_mut(done..).unwrap_or_default())
        })
    }

    /// Calls sendmsg(2) with `MSG_NOSIGNAL`; returns the number of bytes sent.
    ///
    /// # Errors
    /// Those of sendmsg(2); `-FI_EIO` if memory of a device cannot be read, of which nothing is sent.
    pub fn send(mut self, socket: BorrowedFd<'_>, flags: i32) -> Result<usize> {
        if self.has_device() {
            // No stream goes on with what is read ahead.
            return self.send_ahead(socket, flags, (0, &mut Ahead::default()));
        }
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

impl Outgoing<'_> {
    /// Whether some of the bytes are in the memory of a device.
    pub fn has_device(&self) -> bool {
        self.devices.is_some()
    }

    /// [`Outgoing::send`], for a list with bytes of a device: it is at this position of a stream, of which
    /// bytes are read ahead.
    ///
    /// # Errors
    /// Those of [`Outgoing::send`], and `-FI_EAGAIN` while a device reads the first bytes.
    #[cold]
    pub fn send_ahead(
        &self,
        socket: BorrowedFd<'_>,
        flags: i32,
        ahead: (u64, &mut Ahead),
    ) -> Result<usize> {
        self.send_staged(ahead, |bytes, has_more| {
            let mut part = Outgoing::default();
            part.push(bytes);
            part.send(socket, flags | if has_more { libc::MSG_MORE } else { 0 })
        })
    }

    /// Sends through a buffer of the host, as long as `send` takes all that it gets; it is told
    /// whether more bytes follow.
    ///
    /// # Errors
    /// Those of `send`, before anything was sent; `-FI_EIO` if memory of a device cannot be read, and
    /// `-FI_EAGAIN` while a device reads the first bytes.
    #[cold]
    pub fn send_staged(
        &self,
        ahead: (u64, &mut Ahead),
        mut send: impl FnMut(&[u8], bool) -> Result<usize>,
    ) -> Result<usize> {
        let mut stage = stage(self.len)?;
        let (position, ahead) = ahead;
        let mut sent = 0;
        while sent < self.len {
            let staged = match self.stage_from(sent, position, &mut stage, ahead) {
                Ok(staged) => staged,
                Err(Errno::EAGAIN) if sent != 0 => break,
                Err(error) => return Err(error),
            };
            let bytes = stage.get(..staged).unwrap_or_default();
            match send(bytes, sent + staged < self.len) {
                Ok(taken) => {
                    sent += taken;
                    if taken < staged {
                        break;
                    }
                }
                Err(_) if sent != 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Fills the buffer with the bytes from an offset on, which devices have copied; returns their
    /// number.
    fn stage_from(
        &self,
        at: usize,
        position: u64,
        stage: &mut [u8],
        ahead: &mut Ahead,
    ) -> Result<usize> {
        let mut outcome = Ok(());
        let staged = self.walk(at, |done, part| {
            let room = stage.get_mut(done..).unwrap_or_default();
            match ahead.read(part, position + (at + done) as u64, room) {
                Ok(Read::Bytes(count)) => count,
                Ok(Read::Later) => {
                    outcome = Err(Errno::EAGAIN);
                    0
                }
                Err(error) => {
                    outcome = Err(error);
                    0
                }
            }
        });
        match (staged, outcome) {
            (1.., Err(Errno::EAGAIN)) => Ok(staged),
            (_, outcome) => outcome.map(|()| staged),
        }
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

    /// As [`Incoming::copy_from`], from bytes of the library.
    pub fn write_at(&mut self, at: usize, bytes: &[u8]) -> usize {
        self.walk(at, |done, part| {
            part.write_at(0, bytes.get(done..).unwrap_or_default())
        })
    }

    /// Calls recvmsg(2); returns the number of bytes received, 0 at the end of the stream.
    pub fn receive(mut self, socket: BorrowedFd<'_>, flags: i32) -> Result<usize> {
        if self.devices.is_some() {
            return self.receive_staged(socket, flags);
        }
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

    /// Receives through a buffer of the host, until nothing more has arrived.
    #[cold]
    fn receive_staged(mut self, socket: BorrowedFd<'_>, flags: i32) -> Result<usize> {
        let mut stage = stage(self.len)?;
        let mut received = 0;
        while received < self.len {
            let room = STAGED.min(self.len - received).min(stage.len());
            let room = stage.get_mut(..room).unwrap_or_default();
            let wanted = room.len();
            let mut part = Incoming::default();
            part.push(room);
            let taken = match part.receive(socket, flags) {
                Ok(taken) => taken,
                Err(_) if received != 0 => break,
                Err(error) => return Err(error),
            };
            // SAFETY: the buffer is borrowed until the copies are made, which only read it.
            let bytes = unsafe { Iov::from_raw(stage.as_mut_ptr(), taken) };
            self.copy_from(received, &bytes);
            received += taken;
            if taken < wanted {
                break;
            }
        }
        Ok(received)
    }
}
