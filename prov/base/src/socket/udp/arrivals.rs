//! Received datagrams: read from the socket one or several at a time, and kept until they are
//! taken. At most what one system call returns is kept; everything else stays in the socket.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Control, LEVEL};
use crate::errno::{Errno, Result};
use crate::kept_errno::KeptErrno;
use crate::sockaddr::{self, SIZE_IN6};

/// Limit of the pieces that one system call returns: more save little, and each has 64 KiB of room.
const PIECES: usize = 16;
/// Number of datagrams that were waiting at one time from which on they are coalesced: more than those of
/// programs that answer each other.
const BURST: usize = 4;
/// Limit of the bytes of a piece, which is one datagram or several of one sender (`UDP_GRO`): the
/// kernel's.
const ROOM: usize = 1 << 16;

/// See the [module](self) description.
#[derive(Default)]
pub struct Arrivals {
    /// [`PIECES`] rooms for a piece each. The system gives memory to what is written to.
    room: Vec<u8>,
    /// Whether the system may return several datagrams as one piece ([`Arrivals::coalesce`]).
    coalesces: bool,
    /// Whether the senders' addresses may be left out.
    is_anonymous: bool,
    pieces: [Piece; PIECES],
    /// Number of pieces that were received.
    count: usize,
    /// Index of the piece with the next datagram.
    at: usize,
    /// Offset of that datagram in the piece.
    offset: usize,
}

/// What was received into one room.
#[derive(Clone, Copy, Default)]
struct Piece {
    /// The sender; `None` if its address has an unknown format, or was left out.
    from: Option<SocketAddr>,
    len: usize,
    /// Bytes of each datagram but the last, which may be shorter.
    segment: usize,
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender, if it is known and named.
    pub from: Option<SocketAddr>,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Arrivals {
    /// Without datagrams. The senders are not looked up if they are not `named`.
    pub fn new(named: bool) -> Self {
        Arrivals {
            is_anonymous: !named,
            ..Arrivals::default()
        }
    }

    /// Has the system return several datagrams of one sender as one piece (`UDP_GRO`) from now on, if it
    /// can. All that is read from this socket afterwards has to be read here.
    #[cold]
    pub fn coalesce(&mut self, socket: BorrowedFd<'_>) {
        self.coalesces = true;
        super::receive_coalesced(socket);
    }

    /// Returns whether no datagram is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.at == self.count
    }

    /// Reads datagrams from the socket if none is left: one piece, or, if `several` are likely, as many
    /// pieces as there is room for. recvmmsg(2) takes longer than recvmsg(2) for a single one, and that
    /// longer than recvfrom(2), also if there is nothing: that is used until a burst has come for the first
    /// time, from when on datagrams are [coalesced](Arrivals::coalesce).
    ///
    /// # Errors
    /// Those of recvmsg(2); `-FI_EAGAIN` if there are no datagrams.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, several: bool) -> Result {
        if !self.is_empty() {
            return Ok(());
        }
        if self.room.is_empty() {
            self.room = vec![0; PIECES * ROOM];
        }
        (self.count, self.at, self.offset) = (0, 0, 0);
        self.count = match (several, self.coalesces) {
            (false, false) => self.receive_plain(socket)?,
            (false, true) => self.receive_one(socket)?,
            (true, _) => self.receive_several(socket)?,
        };
        if self.count >= BURST && !self.coalesces {
            self.coalesce(socket);
        }
        Ok(())
    }

    /// Reads one datagram, which the system has not coalesced with others.
    fn receive_plain(&mut self, socket: BorrowedFd<'_>) -> Result<usize> {
        let _errno = KeptErrno::begin();
        let mut name = [0u8; SIZE_IN6];
        let mut name_len = SIZE_IN6 as libc::socklen_t;
        let (name_at, name_len_at) = match self.is_anonymous {
            true => (std::ptr::null_mut(), std::ptr::null_mut()),
            false => (name.as_mut_ptr(), &raw mut name_len),
        };
        // SAFETY: `room` has at least as many bytes as the call is told, since it is not empty, and
        // the name is null or a variable of this function, with its length.
        let received = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                socket.as_raw_fd(),
                self.room.as_mut_ptr(),
                ROOM,
                libc::MSG_DONTWAIT,
                name_at,
                name_len_at,
            )
        };
        let len = usize::try_from(received).map_err(|_| Errno::last_os_error())?;
        let len = len.min(ROOM);
        let from = match self.is_anonymous {
            true => None,
            false => name.get(..name_len as usize).and_then(sockaddr::decode),
        };
        if let Some(piece) = self.pieces.first_mut() {
            *piece = Piece {
                from,
                len,
                segment: len,
            };
        }
        Ok(1)
    }

    fn receive_one(&mut self, socket: BorrowedFd<'_>) -> Result<usize> {
        let _errno = KeptErrno::begin();
        let mut name = [0u8; SIZE_IN6];
        let mut control: Control = [0; _];
        let mut vector = libc::iovec {
            iov_base: self.room.as_mut_ptr().cast(),
            iov_len: ROOM,
        };
        let mut header = header(&mut name, &mut vector, &mut control);
        // SAFETY: the header describes variables of this function and parts of `room`, which
        // outlive the call.
        let received = unsafe {
            libc::syscall(
                libc::SYS_recvmsg,
                socket.as_raw_fd(),
                &raw mut header,
                libc::MSG_DONTWAIT,
            )
        };
        let len = usize::try_from(received).map_err(|_| Errno::last_os_error())?;
        if let Some(piece) = self.pieces.first_mut() {
            *piece = Piece::of(len, &name, &header);
        }
        Ok(1)
    }

    #[inline(never)]
    fn receive_several(&mut self, socket: BorrowedFd<'_>) -> Result<usize> {
        let _errno = KeptErrno::begin();
        let mut names = [[0u8; SIZE_IN6]; PIECES];
        let mut controls: [Control; PIECES] = [[0; _]; PIECES];
        let mut vectors = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: ROOM,
        }; PIECES];
        // SAFETY: the structures consist of integers and pointers, for which zero is a valid value.
        let mut headers: [libc::mmsghdr; PIECES] = unsafe { std::mem::zeroed() };
        let rooms = self.room.chunks_exact_mut(ROOM);
        let places = rooms.zip(&mut vectors).zip(&mut names).zip(&mut controls);
        for ((((room, vector), name), control), slot) in places.zip(&mut headers) {
            vector.iov_base = room.as_mut_ptr().cast();
            slot.msg_hdr = header(name, vector, control);
        }
        // SAFETY: the headers describe variables of this function and separate parts of `room`,
        // which outlive the call. The timeout may be null.
        let received = unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                PIECES,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut::<libc::timespec>(),
            )
        };
        let count = usize::try_from(received).map_err(|_| Errno::last_os_error())?;
        let came = headers.iter().zip(&names).zip(&mut self.pieces);
        for ((slot, name), piece) in came.take(count) {
            *piece = Piece::of(slot.msg_len as usize, name, &slot.msg_hdr);
        }
        Ok(count.min(PIECES))
    }

    /// Returns the next datagram.
    #[inline]
    pub fn front(&self) -> Option<Datagram<'_>> {
        if self.is_empty() {
            return None;
        }
        let piece = self.pieces.get(self.at)?;
        let start = self.at * ROOM + self.offset;
        let len = piece.segment.min(piece.len - self.offset);
        Some(Datagram {
            from: piece.from,
            bytes: self.room.get(start..start + len)?,
        })
    }

    /// Removes the next datagram.
    #[inline]
    pub fn pop(&mut self) {
        let Some(piece) = self.pieces.get(self.at).filter(|_| self.at < self.count) else {
            return;
        };
        self.offset += piece.segment;
        if self.offset >= piece.len {
            self.at += 1;
            self.offset = 0;
        }
    }
}

impl Piece {
    /// Describes a piece from what the system returned. Lengths are limited to the room.
    fn of(len: usize, name: &[u8; SIZE_IN6], header: &libc::msghdr) -> Self {
        let named = (header.msg_namelen as usize).min(name.len());
        let len = len.min(ROOM);
        let segment = match coalesced(header) {
            Some(segment @ 1..) => segment,
            _ => len,
        };
        Piece {
            from: name.get(..named).and_then(sockaddr::decode),
            len,
            segment,
        }
    }
}

/// A header for one piece.
fn header(
    name: &mut [u8; SIZE_IN6],
    vector: &mut libc::iovec,
    control: &mut Control,
) -> libc::msghdr {
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = name.len() as _;
    header.msg_iov = vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Control>() as _;
    header
}

/// Bytes of each of the datagrams that came as one piece, if the system says that it is one.
#[inline]
fn coalesced(header: &libc::msghdr) -> Option<usize> {
    if header.msg_controllen == 0 {
        return None;
    }
    // SAFETY: the header describes the control buffer that the system has filled and that the
    // caller keeps; the macros stay inside it, and the length of an entry is checked before it is
    // read.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(entry) = message.as_ref() {
            let needed = libc::CMSG_LEN(size_of::<c_int>() as u32) as usize;
            if (entry.cmsg_level, entry.cmsg_type) == (LEVEL, libc::UDP_GRO)
                && entry.cmsg_len >= needed
            {
                let segment = libc::CMSG_DATA(message).cast::<c_int>().read_unaligned();
                return usize::try_from(segment).ok();
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}
