//! Memory that the two processes at the ends of a connection share.
//!
//! Each direction changes from the socket to the memory by itself, at a message that announces the change.
//!
//! The side that requested the connection creates the memory, writes a number into it, and sends
//! the number of the memory's descriptor. The other side has identified that process
//! ([`neighbour`](crate::local::neighbour)), opens the file, for which it needs access rights to
//! the process, and returns the number in the memory. The answer of each side is the last data that
//! it sends through the socket. The socket stays open, to wake sleeping threads and to report the
//! peer's end.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use prov_base::buffer::{Ahead, Incoming, Outgoing, Piece};
use prov_base::errno::{Errno, Result};
use prov_base::{random, socket};

use super::send_to;
use crate::local::neighbour::{OutOfTurn, Remark, Subject};
use crate::local::stream::{Moved, SharedStream};
use prov_local::barrier;
use prov_local::channel::{Channel, Next};
use prov_local::doorbell::DoorbellOfPeer;
use prov_local::process::OtherFiles;
use prov_local::relocation::Relocating;
use prov_local::ring::Broken;

/// Memory that both ends of a connection share.
pub struct Shortcut {
    stream: SharedStream,
    out: Out,
    /// The peer's doorbell, until all of this side's data goes through the memory: before that, its
    /// data in the socket wakes the peer, and a packet to wake it would be mixed with it.
    bell: Option<DoorbellOfPeer>,
    /// Whether the peer sends through the memory.
    is_in: bool,
    /// The number to return to the peer when this side begins to send through the memory, once the
    /// queued data is sent.
    departs: Option<u64>,
    /// How the socket has ended. Nothing is added to the memory after that.
    end: Option<Result<usize>>,
    /// The offer to the peer, until it has attached.
    offered: Option<Offered>,
    /// This side's relocated payloads, if the peer looks for these.
    relocating: Option<Box<Relocating>>,
    /// The log target.
    target: &'static str,
}

/// Memory that a peer is asked to attach to.
struct Offered {
    /// Kept open for the peer.
    _fd: OwnedFd,
    /// The number that the peer finds there.
    secret: u64,
}

/// The destination of outgoing data. Its tag is a byte of its own, which every message compares.
#[repr(u8)]
enum Out {
    Socket,
    /// The memory, once these last bytes are sent through the socket.
    Leaving(Vec<u8>),
    Memory,
}

/// What has arrived through the socket of a connection that uses memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    Nothing,
    /// Packets to wake this side.
    Calls,
    /// So many packets that there may be more.
    More,
}

/// Number of reads of one socket before the others have their turn.
const HEARINGS: u32 = 16;

/// The data that wakes the peer.
const WAKE: &[u8] = b"\0";

impl Shortcut {
    fn new(
        stream: SharedStream,
        bell: DoorbellOfPeer,
        offered: Option<Offered>,
        target: &'static str,
    ) -> Self {
        Shortcut {
            stream,
            out: Out::Socket,
            bell: Some(bell),
            is_in: false,
            departs: None,
            end: None,
            offered,
            relocating: None,
            target,
        }
    }

    /// Handles what the peer has said about itself with the memory.
    fn peer_has(&mut self, abilities: u64) {
        let has_barrier = abilities & own_abilities() & BARRIERS != 0;
        self.stream.channel.is_asymmetric(has_barrier);
        let follows = abilities & RELOCATIONS != 0;
        self.relocating = follows.then(|| Box::new(self.stream.channel.relocating()));
    }

    /// Creates memory. Returns it, and the remark that offers it to the peer with this doorbell.
    /// `target` is the log target.
    ///
    /// # Errors
    /// Those of [`SharedStream::create`], `-FI_EIO` if there are no random numbers.
    pub fn offer(bell: DoorbellOfPeer, target: &'static str) -> Result<(Self, Remark)> {
        let secret = random::secret()?;
        let (stream, fd) = SharedStream::create(secret)?;
        let remark = Remark {
            subject: Subject::Memory,
            id: u64::from(fd.as_raw_fd().unsigned_abs()),
            word: own_abilities(),
        };
        let offered = Offered { _fd: fd, secret };
        Ok((Shortcut::new(stream, bell, Some(offered), target), remark))
    }

    /// Attaches to the memory that a process with this doorbell has offered with this remark. This
    /// side then has to send through it ([`Shortcut::departure`]).
    ///
    /// # Errors
    /// Those of [`OtherFiles::segment`] and [`SharedStream::attach`].
    pub fn attach(
        peer: &OtherFiles,
        bell: DoorbellOfPeer,
        remark: &Remark,
        target: &'static str,
    ) -> Result<Self> {
        let segment = peer.segment(remark.id)?;
        let (stream, secret) = SharedStream::attach(segment.as_fd())?;
        let mut shortcut = Shortcut::new(stream, bell, None, target);
        shortcut.peer_has(remark.word);
        shortcut.departs = Some(secret);
        Ok(shortcut)
    }

    /// Whether the memory was offered to the peer, which has not answered.
    pub fn is_offered(&self) -> bool {
        self.offered.is_some()
    }

    /// Handles that the peer sends through the memory from this point on. Returns whether this is
    /// its answer to the offer, after which this side has to do the same. If the end of the socket
    /// has been reported in the meantime, [`Shortcut::hear`] has kept it.
    ///
    /// # Errors
    /// The peer has announced this before, or does not know the number.
    pub fn comes_in(&mut self, remark: &Remark) -> std::result::Result<bool, OutOfTurn> {
        if self.is_in {
            return Err(OutOfTurn);
        }
        let offered = self.offered.take();
        if let Some(offered) = &offered {
            if offered.secret != remark.id {
                return Err(OutOfTurn);
            }
            self.peer_has(remark.word);
            self.departs = Some(0);
        }
        self.is_in = true;
        Ok(offered.is_some())
    }

    /// Returns the last data to send through the socket, by [`Shortcut::depart`], if this side has
    /// to change to the memory.
    pub fn departure(&mut self) -> Option<Remark> {
        self.departs.take().map(|id| Remark {
            subject: Subject::Moved,
            id,
            word: own_abilities(),
        })
    }

    /// Whether outgoing data goes through the memory.
    #[inline(always)]
    pub fn is_out(&self) -> bool {
        !matches!(self.out, Out::Socket)
    }

    /// Whether some of the last bytes have not been sent through the socket.
    pub fn is_leaving(&self) -> bool {
        matches!(self.out, Out::Leaving(_))
    }

    /// Whether incoming data comes through the memory.
    #[inline(always)]
    pub fn is_in(&self) -> bool {
        self.is_in
    }

    /// Sends these bytes as the last ones through the socket; all later data goes through the
    /// memory. The queue must be empty.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn depart(&mut self, socket: BorrowedFd<'_>, last: &[u8]) -> Result {
        self.out = Out::Leaving(last.to_vec());
        match self.leave(socket) {
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => Ok(()),
            other => other,
        }
    }

    /// Sends the rest of the last bytes.
    ///
    /// # Errors
    /// Those of the socket; `-FI_EAGAIN` if it does not accept all bytes.
    pub fn leave(&mut self, socket: BorrowedFd<'_>) -> Result {
        if let Out::Leaving(last) = &mut self.out {
            let sent = socket::send(socket, last)?;
            last.drain(..sent);
            if !last.is_empty() {
                return Err(Errno::EAGAIN);
            }
            self.out = Out::Memory;
            if let Some(bell) = self.bell.take() {
                self.stream.channel.rings(bell);
            }
        }
        Ok(())
    }

    /// Reads the packets that wake this side, and the end of the socket. A peer that sends more of
    /// them than it ever needs is read again in another turn.
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

    /// Sends bytes, which `fill` writes, if they fit into a slot that is known to be free. Returns
    /// whether they were sent.
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

    /// See [`SharedStream::peek`].
    #[inline(always)]
    pub fn peek(&self) -> Option<Next<'_>> {
        match self.is_in {
            true => self.stream.peek(),
            false => None,
        }
    }

    /// Whether there is data that [`Shortcut::peek`] does not return: the rest of a message that
    /// was received in part, or the end.
    #[inline(always)]
    pub fn has_rest(&self) -> bool {
        self.is_in && (self.end.is_some() || self.stream.has_rest())
    }

    /// See [`SharedStream::take_short`].
    #[inline(always)]
    pub fn take_short(&mut self, socket: &OwnedFd) {
        if self.stream.take_short() {
            call(socket.as_fd());
        }
    }

    /// Whether data has arrived through the memory, or the connection has ended.
    #[inline(always)]
    pub fn has_next(&self) -> bool {
        self.is_in && (self.stream.channel.receiver.has_next() || self.end.is_some())
    }

    /// See [`SharedStream::waiting`].
    pub fn waiting(&self) -> usize {
        self.stream.waiting()
    }

    /// Whether a send that found no space may be retried.
    pub fn has_room(&mut self) -> bool {
        match self.out {
            // The next attempt reports the error.
            Out::Memory => self.stream.has_room().unwrap_or(true),
            Out::Leaving(_) => true,
            Out::Socket => false,
        }
    }

    /// Returns the channel in the memory.
    #[inline(always)]
    pub fn channel(&self) -> &Channel {
        &self.stream.channel
    }

    /// As [`Shortcut::channel`], to be changed.
    pub fn channel_mut(&mut self) -> &mut Channel {
        &mut self.stream.channel
    }

    /// See [`Channel::is_settled`]; `false` while data goes through the socket.
    pub fn is_settled(&self) -> bool {
        matches!(self.out, Out::Memory) && self.stream.channel.is_settled()
    }

    /// Whether payloads that the peer was offered can be copied elsewhere in this process's memory.
    pub fn can_relocate(&self) -> bool {
        self.relocating.is_some()
    }

    /// See [`Relocating::publish`].
    #[must_use]
    pub fn relocate(&mut self, name: u64, addr: u64) -> bool {
        let relocating = self.relocating.as_mut();
        relocating.is_some_and(|relocating| relocating.publish(name, addr))
    }

    /// The peer has a payload. See [`Relocating::withdraw`].
    pub fn has_fetched(&mut self, name: u64) {
        if let Some(relocating) = &mut self.relocating {
            relocating.withdraw(name);
        }
    }

    /// Returns the number of bytes that a call has transferred, `-FI_EAGAIN` if none.
    #[inline(always)]
    fn moved(
        &self,
        socket: BorrowedFd<'_>,
        moved: std::result::Result<Moved, Broken>,
    ) -> Result<usize> {
        match moved {
            Ok(Moved { bytes, wakes }) => {
                if wakes {
                    call(socket);
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
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
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

    /// Receives bytes that came through the memory.
    #[inline(always)]
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, to: &mut [u8]) -> Result<usize> {
        let moved = self.stream.receive(to);
        let moved = self.moved(socket, moved);
        self.or_end(moved)
    }

    pub(super) fn receive_in(
        &mut self,
        socket: BorrowedFd<'_>,
        mut to: Incoming<'_>,
    ) -> Result<usize> {
        let moved = self.stream.receive_in(&mut to);
        let moved = self.moved(socket, moved);
        self.or_end(moved)
    }

    pub(super) fn send_out(
        &mut self,
        socket: BorrowedFd<'_>,
        out: Outgoing<'_>,
        flags: i32,
        ahead: (u64, &mut Ahead),
    ) -> Result<usize> {
        if let Out::Socket = self.out {
            return send_to(socket, out, flags, ahead);
        }
        if out.has_device() {
            return out.send_staged(ahead, |bytes, _| self.send(socket, bytes));
        }
        self.leave(socket)?;
        let moved = self.stream.send_out(&out);
        self.moved(socket, moved)
    }

    /// Replaces the result of a receive without data by the end of the socket, if it has ended.
    #[inline(always)]
    fn or_end(&self, received: Result<usize>) -> Result<usize> {
        match (received, self.end) {
            (Err(Errno::EAGAIN), Some(end)) => end,
            (received, _) => received,
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

/// Wakes the peer.
#[cold]
pub fn call(socket: BorrowedFd<'_>) {
    // If the socket's buffer is full, the data in it wakes the peer; a broken socket is detected
    // otherwise.
    let _ = socket::send(socket, WAKE);
}

/// Ability: the process participates in barriers ([`barrier`]).
const BARRIERS: u64 = 1 << 0;
/// Ability: the process looks for payloads that were copied elsewhere
/// ([`relocation`](prov_local::relocation)).
const RELOCATIONS: u64 = 1 << 1;

/// Returns what this process can do with shared memory.
fn own_abilities() -> u64 {
    match barrier::is_available() {
        true => BARRIERS | RELOCATIONS,
        false => RELOCATIONS,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use prov_local::doorbell::Doorbell;

    use super::*;

    #[test]
    fn payloads_are_relocated_for_peers_that_look_for_them_only() {
        let (stream, _fd) = SharedStream::create(5).unwrap();
        let mut here = Shortcut::new(stream, DoorbellOfPeer::silent(), None, "test");
        here.peer_has(BARRIERS);
        assert!(!here.can_relocate() && !here.relocate(1, 4096));
        here.peer_has(own_abilities());
        assert!(here.relocate(1, 4096));
    }

    #[test]
    fn a_side_that_still_sends_through_the_socket_sends_no_wake_up_in_between() {
        let (stream, fd) = SharedStream::create(5).unwrap();
        let (attached, _) = SharedStream::attach(fd.as_fd()).unwrap();
        let bell = Doorbell::create().unwrap();
        let mut here = Shortcut::new(stream, bell.of_peer(), None, "test");
        let mut there = Shortcut::new(attached, DoorbellOfPeer::silent(), None, "test");
        let (socket, far) = UnixStream::pair().unwrap();
        for end in [&socket, &far] {
            end.set_nonblocking(true).unwrap();
        }
        let fill = |from: &mut Shortcut| {
            // The area may get more memory in the course of this.
            while from.has_room() {
                while from.send(far.as_fd(), &[1; 4096]).is_ok() {}
            }
            from.channel_mut().sleep();
            bell.arm();
        };
        let empty = |to: &mut Shortcut| {
            let mut bytes = vec![0; 1 << 20];
            let moved = to.stream.receive(&mut bytes);
            to.moved(socket.as_fd(), moved).unwrap();
        };
        let mut calls = [0; 8];

        // The peer sleeps and waits for space, and this side has data to send through the socket.
        there.out = Out::Memory;
        here.is_in = true;
        fill(&mut there);
        empty(&mut here);
        assert_eq!(socket::receive(far.as_fd(), &mut calls), Err(Errno::EAGAIN));
        assert!(bell.is_armed(), "others can wake it");

        here.depart(socket.as_fd(), b"last").unwrap();
        assert_eq!(socket::receive(far.as_fd(), &mut calls), Ok(4));
        fill(&mut there);
        empty(&mut here);
        assert_eq!(socket::receive(far.as_fd(), &mut calls), Ok(WAKE.len()));
        assert!(!bell.is_armed());
    }
}
