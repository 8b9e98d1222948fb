//! The path that the bytes of a connection take: through its socket, through several
//! ([`multipath`](crate::multipath)), or, between two processes of one host, through shared memory
//! ([`shortcut`]).

mod place;
pub mod shortcut;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use prov_base::buffer::{Ahead, Incoming, Outgoing};
use prov_base::errno::Result;
use prov_base::socket;

use crate::multipath::Multipath;

pub use self::place::zeros;
pub use self::shortcut::{Heard, Shortcut};

/// The current path of a connection.
pub struct Path<'a> {
    socket: BorrowedFd<'a>,
    shortcut: Option<&'a mut Shortcut>,
    multipath: Option<&'a mut Multipath>,
    /// Number of bytes to send before the stream is divided into frames, if it is to be.
    plain_left: Option<u64>,
}

impl<'a> Path<'a> {
    /// The path of a connection with this socket, with a shortcut or without, and with several
    /// subflows or without.
    #[inline(always)]
    pub fn of(
        socket: &'a OwnedFd,
        shortcut: &'a mut Option<Box<Shortcut>>,
        multipath: &'a mut Option<Box<Multipath>>,
    ) -> Self {
        Path {
            socket: socket.as_fd(),
            shortcut: shortcut.as_deref_mut(),
            multipath: multipath.as_deref_mut(),
            plain_left: None,
        }
    }

    /// The path of a connection that has a single socket.
    #[inline(always)]
    pub fn without_subflows(socket: &'a OwnedFd, shortcut: &'a mut Option<Box<Shortcut>>) -> Self {
        Path {
            shortcut: shortcut.as_deref_mut(),
            ..Path::through(socket.as_fd())
        }
    }

    /// The path through a socket.
    #[inline(always)]
    pub fn through(socket: BorrowedFd<'a>) -> Self {
        Path {
            socket,
            shortcut: None,
            multipath: None,
            plain_left: None,
        }
    }

    /// The same path for a queue of which this was `sent`: it may be divided into frames from a
    /// position on.
    #[must_use]
    pub fn at_position(mut self, sent: u64) -> Self {
        let multipath = self.multipath.as_ref();
        let until = multipath.and_then(|multipath| multipath.plain_until);
        self.plain_left = until.map(|until| until.saturating_sub(sent));
        self
    }

    /// Whether the connection has several subflows, or is about to have them.
    pub fn is_divided(&self) -> bool {
        self.multipath.is_some()
    }

    /// Sends without frames, up to the position from which on there are frames.
    fn send_plain(
        &mut self,
        len: usize,
        send: impl FnOnce(BorrowedFd<'_>, usize) -> Result<usize>,
    ) -> Result<usize> {
        let Some(left) = self.plain_left else {
            return send(self.socket, len);
        };
        let sent = send(self.socket, len.min(left as usize))?;
        let left = left - sent as u64;
        self.plain_left = Some(left);
        if left == 0
            && let Some(multipath) = &mut self.multipath
        {
            multipath.departs();
        }
        Ok(sent)
    }

    /// Whether frames have begun since this value was created: more is accepted then, although the
    /// last call has not sent everything.
    pub fn has_turned(&mut self) -> bool {
        self.plain_left.take_if(|left| *left == 0).is_some()
    }

    /// Whether outgoing data goes through memory.
    pub fn is_short(&self) -> bool {
        self.shortcut
            .as_ref()
            .is_some_and(|shortcut| shortcut.is_out())
    }

    /// Returns the socket, for operations of the kernel.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket
    }

    /// Sends from one buffer. Returns the number of bytes sent, `-FI_EAGAIN` if there is no space.
    ///
    /// # Errors
    /// Those of the socket, and `-FI_EPROTO` if the peer has written an invalid value to the
    /// memory.
    #[inline(always)]
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        match (&mut self.shortcut, &mut self.multipath) {
            (None, None) => socket::send(self.socket, bytes),
            (Some(shortcut), _) => shortcut.send(self.socket, bytes),
            (None, Some(multipath)) if multipath.is_out() => multipath.send(bytes),
            (None, Some(_)) => self.send_plain(bytes.len(), |socket, len| {
                socket::send(socket, bytes.get(..len).unwrap_or(bytes))
            }),
        }
    }

    /// See [`Outgoing::send`], and for bytes of devices [`Outgoing::send_ahead`].
    ///
    /// # Errors
    /// Those of [`Path::send`].
    pub fn send_out(
        &mut self,
        mut out: Outgoing<'_>,
        flags: i32,
        ahead: (u64, &mut Ahead),
    ) -> Result<usize> {
        match (&mut self.shortcut, &mut self.multipath) {
            (None, None) => send_to(self.socket, out, flags, ahead),
            (Some(shortcut), _) => shortcut.send_out(self.socket, out, flags, ahead),
            (None, Some(multipath)) if multipath.is_out() => match out.has_device() {
                false => multipath.send_out(&out),
                true => out.send_staged(ahead, |bytes, _| multipath.send(bytes)),
            },
            (None, Some(_)) => self.send_plain(out.len(), |socket, len| {
                out.truncate(len);
                send_to(socket, out, flags, ahead)
            }),
        }
    }

    /// Receives into one buffer. Returns 0 at the end.
    ///
    /// # Errors
    /// Those of [`Path::send`]; `-FI_EAGAIN` if nothing has arrived.
    #[inline(always)]
    pub fn receive(&mut self, to: &mut [u8]) -> Result<usize> {
        match (&mut self.shortcut, &mut self.multipath) {
            (Some(shortcut), _) if shortcut.is_in() => shortcut.receive(self.socket, to),
            (None, Some(multipath)) if multipath.is_in() => multipath.receive(to),
            _ => socket::receive(self.socket, to),
        }
    }

    /// See [`Incoming::receive`].
    ///
    /// # Errors
    /// Those of [`Path::receive`].
    pub fn receive_in(&mut self, to: Incoming<'_>) -> Result<usize> {
        match (&mut self.shortcut, &mut self.multipath) {
            (Some(shortcut), _) if shortcut.is_in() => shortcut.receive_in(self.socket, to),
            (None, Some(multipath)) if multipath.is_in() => multipath.receive_in(to),
            _ => to.receive(self.socket, libc::MSG_DONTWAIT),
        }
    }

    /// Returns the number of bytes that have arrived and were not received.
    pub fn waiting(&mut self) -> usize {
        match (&self.shortcut, &mut self.multipath) {
            (Some(shortcut), _) if shortcut.is_in() => shortcut.waiting(),
            (None, Some(multipath)) if multipath.is_in() => multipath.waiting(),
            _ => socket::waiting(self.socket),
        }
    }
}

fn send_to(
    socket: BorrowedFd<'_>,
    out: Outgoing<'_>,
    flags: i32,
    ahead: (u64, &mut Ahead),
) -> Result<usize> {
    match out.has_device() {
        false => out.send(socket, flags),
        true => out.send_ahead(socket, flags, ahead),
    }
}
