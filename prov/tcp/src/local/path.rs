//! Which way the bytes of a connection take: through its socket, or, between two
//! processes of one host, through memory that they share. They change from the
//! one to the other at a message that says so, each direction by itself.
//!
//! The side that asked for the connection makes the memory, puts a number into
//! it and says which of its files it is; the other side has made sure which
//! process that is ([`neighbour`](crate::local::neighbour)), opens the file, which only
//! who has rights over that process can, and tells the number back. Each side's
//! answer is the last that it sends through the socket, which stays to wake who
//! sleeps and to tell of the peer's end.

mod place;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use prov_base::buffer::{Incoming, Outgoing, Piece};
use prov_base::errno::{Errno, Result};
use prov_base::{random, socket};

use crate::local::far_end::Holder;
use crate::local::neighbour::{OutOfTurn, Remark, Subject};
use crate::local::stream::{Moved, Stream};
use prov_local::barrier;
use prov_local::channel::{FlightWords, Next};
use prov_local::parts::{Inflow, Outflow};
use prov_local::process::open_segment;
use prov_local::ring::Broken;

/// Memory that both ends of a connection share.
pub struct Shortcut {
    stream: Stream,
    out: Out,
    /// Whether the peer sends through it.
    is_in: bool,
    /// The number to be told to the peer when this side sends through it, as
    /// soon as what is queued has left.
    departs: Option<u64>,
    /// Whether it is in the list of those that wait for room.
    pub is_starved: bool,
    /// How the socket has ended, after which nothing is added to the memory.
    end: Option<Result<usize>>,
    /// What the peer attaches to, until it has.
    offered: Option<Offered>,
    /// Where to log.
    target: &'static str,
}

/// What a peer is asked to attach to.
struct Offered {
    /// Open as long as this.
    _fd: OwnedFd,
    /// What it finds there.
    secret: u64,
}

/// Where what is sent goes.
enum Out {
    Socket,
    /// To the memory, when these bytes have left through the socket, which are
    /// the last.
    Leaving(Vec<u8>),
    Memory,
}

/// What has come through the socket of a connection that goes through memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    Nothing,
    /// Calls to wake.
    Calls,
    /// So many that there may be more.
    More,
}

/// Reads of the socket before others have their turn.
const HEARINGS: u32 = 16;

/// What wakes the peer.
const WAKE: &[u8] = b"\0";

impl Shortcut {
    fn new(stream: Stream, offered: Option<Offered>, target: &'static str) -> Self {
        Shortcut {
            stream,
            out: Out::Socket,
            is_in: false,
            departs: None,
            is_starved: false,
            end: None,
            offered,
            target,
        }
    }

    /// New memory, and what to tell the peer of it. `target` is where to log.
    ///
    /// # Errors
    /// Those of [`Stream::create`], `-FI_EIO` without random numbers.
    pub fn offer(target: &'static str) -> Result<(Self, Remark)> {
        let secret = random::secret()?;
        let (stream, fd) = Stream::create(secret)?;
        let remark = Remark {
            subject: Subject::Memory,
            id: u64::from(fd.as_raw_fd().unsigned_abs()),
            word: has_barrier(),
        };
        let offered = Offered { _fd: fd, secret };
        Ok((Shortcut::new(stream, Some(offered), target), remark))
    }

    /// The memory that a process has offered with this remark; this side is to
    /// send through it ([`Shortcut::departure`]).
    ///
    /// # Errors
    /// Those of [`open_segment`] and [`Stream::attach`].
    pub fn attach(holder: Holder, remark: &Remark, target: &'static str) -> Result<Self> {
        let number = u32::try_from(remark.id).map_err(|_| Errno::EINVAL)?;
        let segment = open_segment(holder.pid, number)?;
        let (mut stream, secret) = Stream::attach(segment.as_fd())?;
        stream.is_asymmetric(remark.word & has_barrier() != 0);
        let mut shortcut = Shortcut::new(stream, None, target);
        shortcut.departs = Some(secret);
        Ok(shortcut)
    }

    /// Whether the peer has been offered it and has not answered.
    pub fn is_offered(&self) -> bool {
        self.offered.is_some()
    }

    /// The peer says that it sends through the memory from now on. Whether this
    /// is its answer to the offer, after which this side is to do the same. The
    /// end of the socket may have shown already, and shows once: it is for
    /// [`Shortcut::hear`].
    ///
    /// # Errors
    /// It has said so before, or does not know the number.
    pub fn comes_in(&mut self, remark: &Remark) -> std::result::Result<bool, OutOfTurn> {
        if self.is_in {
            return Err(OutOfTurn);
        }
        let offered = self.offered.take();
        if let Some(offered) = &offered {
            if offered.secret != remark.id {
                return Err(OutOfTurn);
            }
            self.stream.is_asymmetric(remark.word & has_barrier() != 0);
            self.departs = Some(0);
        }
        self.is_in = true;
        Ok(offered.is_some())
    }

    /// What is to be sent through the socket as the last, by
    /// [`Shortcut::depart`], if this side is to send through the memory from now
    /// on.
    pub fn departure(&mut self) -> Option<Remark> {
        self.departs.take().map(|id| Remark {
            subject: Subject::Moved,
            id,
            word: has_barrier(),
        })
    }

    /// Whether what is sent goes through the memory.
    #[inline(always)]
    pub fn is_out(&self) -> bool {
        !matches!(self.out, Out::Socket)
    }

    /// Whether the last bytes have not all left the socket.
    pub fn is_leaving(&self) -> bool {
        matches!(self.out, Out::Leaving(_))
    }

    /// Whether what comes does.
    #[inline(always)]
    pub fn is_in(&self) -> bool {
        self.is_in
    }

    /// Sends these bytes through the socket, as the last, and everything else
    /// through the memory from now on. Nothing else is queued.
    ///
    /// # Errors
    /// The socket's.
    pub fn depart(&mut self, socket: BorrowedFd<'_>, last: &[u8]) -> Result {
        self.out = Out::Leaving(last.to_vec());
        match self.leave(socket) {
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => Ok(()),
            other => other,
        }
    }

    /// Sends what is left of the last bytes.
    ///
    /// # Errors
    /// The socket's; `-FI_EAGAIN` where it does not take all.
    pub fn leave(&mut self, socket: BorrowedFd<'_>) -> Result {
        if let Out::Leaving(last) = &mut self.out {
            let sent = socket::send(socket, last)?;
            last.drain(..sent);
            if !last.is_empty() {
                return Err(Errno::EAGAIN);
            }
            self.out = Out::Memory;
        }
        Ok(())
    }

    /// Takes what has come through the socket besides: calls to wake, and its
    /// end. A peer that has more of them than it ever would gets another turn.
    pub fn hear(&mut self, socket: BorrowedFd<'_>) -> Heard {
        let mut calls = [0; 1024];
        let mut heard = Heard::Nothing;
        for _ in 0..HEARINGS {
            if self.end.is_some() {
                return heard;
            }
            match socket::receive(socket, &mut calls) {
                Ok(0) => self.end = Some(Ok(0)),
                Ok(_) => heard = Heard::Calls,
                Err(Errno::EAGAIN) => return heard,
                Err(Errno::EINTR) => {}
                Err(error) => self.end = Some(Err(error)),
            }
        }
        Heard::More
    }

    /// Whether the socket has ended.
    pub fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Sends bytes that `fill` puts in place, if they are few and there is room
    /// known for them; whether it has.
    #[inline(always)]
    pub fn send_short(&mut self, socket: &OwnedFd, len: usize, fill: impl FnOnce(Piece)) -> bool {
        matches!(self.out, Out::Memory)
            && self.stream.send_short(
                len,
                fill,
                #[cold]
                || call(socket.as_fd()),
            )
    }

    /// [`Stream::peek`].
    #[inline(always)]
    pub fn peek(&self) -> Option<Next<'_>> {
        match self.is_in {
            true => self.stream.peek(),
            false => None,
        }
    }

    /// Whether there is something that [`Shortcut::peek`] does not show: what is left
    /// of bytes that were received in part, or the end.
    #[inline(always)]
    pub fn has_rest(&self) -> bool {
        self.is_in && (self.end.is_some() || self.stream.has_rest())
    }

    /// [`Stream::take_short`].
    #[inline(always)]
    pub fn take_short(&mut self, socket: &OwnedFd) {
        if self.stream.take_short() {
            self.wake(socket.as_fd());
        }
    }

    /// Whether something has come through the memory, or it has ended.
    #[inline(always)]
    pub fn has_next(&self) -> bool {
        self.is_in && (self.stream.has_next() || self.end.is_some())
    }

    /// [`Stream::waiting`].
    pub fn waiting(&self) -> usize {
        self.stream.waiting()
    }

    /// Whether what found no room may be tried again.
    pub fn has_room(&mut self) -> bool {
        match self.out {
            // The next attempt reports what is wrong.
            Out::Memory => self.stream.has_room().unwrap_or(true),
            Out::Leaving(_) => true,
            Out::Socket => false,
        }
    }

    /// Says that this side has acted upon all that has come through the memory, and
    /// through the socket before.
    #[inline(always)]
    pub fn settle(&self) {
        self.stream.settle();
    }

    /// Whether the peer has said so of all that was sent.
    pub fn is_settled(&self) -> bool {
        matches!(self.out, Out::Memory) && self.stream.is_settled()
    }

    /// [`Stream::filled`].
    pub fn filled(&self) -> u64 {
        self.stream.filled()
    }

    /// [`Stream::flights`].
    pub fn flights(&self) -> FlightWords {
        self.stream.flights()
    }

    /// [`Stream::flights_of_peer`].
    pub fn flights_of_peer(&self) -> FlightWords {
        self.stream.flights_of_peer()
    }

    /// [`Stream::inflow`].
    pub fn inflow(&self) -> Inflow {
        self.stream.inflow()
    }

    /// [`Stream::outflow`].
    pub fn outflow(&self) -> Outflow {
        self.stream.outflow()
    }

    /// Wakes the peer if it sleeps, since something that is no message was written to the
    /// memory.
    pub fn wake_sleeper(&mut self, socket: BorrowedFd<'_>) {
        if self.stream.must_wake() {
            self.wake(socket);
        }
    }

    /// [`Stream::sleep`].
    pub fn sleep(&mut self) {
        self.stream.sleep();
    }

    /// [`Stream::is_awake`].
    pub fn is_awake(&self) -> bool {
        self.stream.is_awake()
    }

    /// The bytes that a call has moved, `-FI_EAGAIN` for none.
    #[inline(always)]
    fn moved(
        &self,
        socket: BorrowedFd<'_>,
        moved: std::result::Result<Moved, Broken>,
    ) -> Result<usize> {
        match moved {
            Ok(Moved { bytes, wakes }) => {
                if wakes {
                    self.wake(socket);
                }
                match bytes {
                    0 => Err(Errno::EAGAIN),
                    bytes => Ok(bytes),
                }
            }
            Err(broken) => Err(self.protocol_error(broken)),
        }
    }

    #[inline(always)]
    fn send(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
        match self.out {
            Out::Memory => {
                let moved = self.stream.send(bytes);
                self.moved(socket, moved)
            }
            Out::Leaving(_) => {
                self.leave(socket)?;
                let moved = self.stream.send(bytes);
                self.moved(socket, moved)
            }
            Out::Socket => socket::send(socket, bytes),
        }
    }

    fn send_out(&mut self, socket: BorrowedFd<'_>, out: Outgoing<'_>, flags: i32) -> Result<usize> {
        if let Out::Socket = self.out {
            return out.send(socket, flags);
        }
        self.leave(socket)?;
        let moved = self.stream.send_out(&out);
        self.moved(socket, moved)
    }

    /// Nothing has come: whether nothing will.
    #[inline(always)]
    fn or_end(&self, received: Result<usize>) -> Result<usize> {
        match (received, self.end) {
            (Err(Errno::EAGAIN), Some(end)) => end,
            (received, _) => received,
        }
    }

    /// Wakes the peer. What this side still sends through the socket does that
    /// besides, and a call would stand in the middle of it.
    #[cold]
    fn wake(&self, socket: BorrowedFd<'_>) {
        if let Out::Memory = self.out {
            call(socket);
        }
    }

    #[cold]
    fn protocol_error(&self, broken: Broken) -> Errno {
        log::warn!(
            target: self.target,
            "a peer of this host has spoilt the memory shared with it: {}",
            broken.0
        );
        Errno::EPROTO
    }
}

#[cold]
fn call(socket: BorrowedFd<'_>) {
    // A socket that takes no more has something to wake the peer already, and
    // one that is broken tells by itself.
    let _ = socket::send(socket, WAKE);
}

fn has_barrier() -> u64 {
    barrier::is_available().into()
}

/// The way that a connection's bytes take now.
pub struct Path<'a> {
    socket: BorrowedFd<'a>,
    shortcut: Option<&'a mut Shortcut>,
}

impl<'a> Path<'a> {
    /// Of a connection with this socket, and perhaps a shortcut.
    #[inline(always)]
    pub fn of(socket: &'a OwnedFd, shortcut: &'a mut Option<Box<Shortcut>>) -> Self {
        Path {
            socket: socket.as_fd(),
            shortcut: shortcut.as_deref_mut(),
        }
    }

    /// Through a socket.
    pub fn through(socket: BorrowedFd<'a>) -> Self {
        Path {
            socket,
            shortcut: None,
        }
    }

    /// Whether what is sent goes through memory.
    pub fn is_short(&self) -> bool {
        self.shortcut
            .as_ref()
            .is_some_and(|shortcut| shortcut.is_out())
    }

    /// The socket, for what the kernel alone can do.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket
    }

    /// Sends from one buffer; the bytes that left, `-FI_EAGAIN` where there is no
    /// room.
    ///
    /// # Errors
    /// The socket's, and `-FI_EPROTO` where the peer has broken the memory; here
    /// as below.
    #[inline(always)]
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        match &mut self.shortcut {
            None => socket::send(self.socket, bytes),
            Some(shortcut) => shortcut.send(self.socket, bytes),
        }
    }

    /// [`Outgoing::send`].
    ///
    /// # Errors
    /// As above.
    pub fn send_out(&mut self, out: Outgoing<'_>, flags: i32) -> Result<usize> {
        match &mut self.shortcut {
            None => out.send(self.socket, flags),
            Some(shortcut) => shortcut.send_out(self.socket, out, flags),
        }
    }

    /// Receives into one buffer; 0 at the end.
    ///
    /// # Errors
    /// As above; `-FI_EAGAIN` for nothing yet.
    #[inline(always)]
    pub fn receive(&mut self, to: &mut [u8]) -> Result<usize> {
        match &mut self.shortcut {
            Some(shortcut) if shortcut.is_in => {
                let moved = shortcut.stream.receive(to);
                shortcut.or_end(shortcut.moved(self.socket, moved))
            }
            _ => socket::receive(self.socket, to),
        }
    }

    /// [`Incoming::receive`].
    ///
    /// # Errors
    /// As above.
    pub fn receive_in(&mut self, mut to: Incoming<'_>) -> Result<usize> {
        match &mut self.shortcut {
            Some(shortcut) if shortcut.is_in => {
                let moved = shortcut.stream.receive_in(&mut to);
                shortcut.or_end(shortcut.moved(self.socket, moved))
            }
            _ => to.receive(self.socket, libc::MSG_DONTWAIT),
        }
    }

    /// Bytes that have come and were not received.
    pub fn waiting(&self) -> usize {
        match &self.shortcut {
            Some(shortcut) if shortcut.is_in => shortcut.waiting(),
            _ => socket::waiting(self.socket),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn who_has_not_left_the_socket_does_not_call_in_the_middle_of_what_goes_there() {
        let (stream, fd) = Stream::create(5).unwrap();
        let (attached, _) = Stream::attach(fd.as_fd()).unwrap();
        let mut here = Shortcut::new(stream, None, "test");
        let mut there = Shortcut::new(attached, None, "test");
        let (socket, far) = UnixStream::pair().unwrap();
        for end in [&socket, &far] {
            end.set_nonblocking(true).unwrap();
        }
        let fill = |from: &mut Shortcut| {
            // There may be more of it in time.
            while from.has_room() {
                while from.send(far.as_fd(), &[1; 4096]).is_ok() {}
            }
            from.sleep();
        };
        let empty = |to: &mut Shortcut| {
            let mut bytes = vec![0; 1 << 20];
            let moved = to.stream.receive(&mut bytes);
            to.moved(socket.as_fd(), moved).unwrap();
        };
        let mut calls = [0; 8];

        // The peer waits for room and sleeps, and this side has something to send
        // through the socket.
        there.out = Out::Memory;
        here.is_in = true;
        fill(&mut there);
        empty(&mut here);
        assert_eq!(socket::receive(far.as_fd(), &mut calls), Err(Errno::EAGAIN));

        here.depart(socket.as_fd(), b"last").unwrap();
        assert_eq!(socket::receive(far.as_fd(), &mut calls), Ok(4));
        fill(&mut there);
        empty(&mut here);
        assert_eq!(socket::receive(far.as_fd(), &mut calls), Ok(WAKE.len()));
    }
}
