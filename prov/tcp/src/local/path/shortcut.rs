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
use std::sync::Arc;

use prov_base::buffer::{Ahead, Incoming, Outgoing};
use prov_base::errno::{Errno, Result};
use prov_base::{random, socket};

use super::send_to;
use crate::local::neighbour::{OutOfTurn, Remark, Subject};
use crate::local::stream::{Moved, SharedStream};
use prov_local::barrier;
use prov_local::channel::Channel;
use prov_local::doorbell::DoorbellOfPeer;
use prov_local::link::{Link, LocalTransport};
use prov_local::process::OtherFiles;
use prov_local::ring::Broken;

/// Memory that both ends of a connection share.
pub struct Shortcut<T: LocalTransport> {
    /// What the two do with each other by it. Its channel also carries the stream of the connection.
    pub link: Link<T>,
    /// Number of bytes of the stream's next record that were received.
    received: usize,
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
    /// The log target.
    target: &'static str,
}

/// What a link has besides shared memory: the connection's socket.
pub struct Wire {
    socket: Arc<OwnedFd>,
    pid: u32,
}

impl Wire {
    /// Returns that of a connection with this socket to the process `pid`.
    pub fn new(socket: &Arc<OwnedFd>, pid: u32) -> Wire {
        Wire {
            socket: socket.clone(),
            pid,
        }
    }
}

impl prov_local::link::Wire for Wire {
    #[cold]
    fn wake(&self) {
        // If the socket's buffer is full, the data in it wakes the peer; a broken socket is detected
        // otherwise.
        let _ = socket::send(self.socket.as_fd(), WAKE);
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn pid(&self) -> u32 {
        self.pid
    }
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

impl<T: LocalTransport> Shortcut<T> {
    fn new(
        mut link: Link<T>,
        channel: Channel,
        bell: DoorbellOfPeer,
        offered: Option<Offered>,
        target: &'static str,
    ) -> Self {
        link.channel = Some(channel);
        Shortcut {
            link,
            received: 0,
            out: Out::Socket,
            bell: Some(bell),
            is_in: false,
            departs: None,
            end: None,
            offered,
            target,
        }
    }

    /// Handles what the peer has said about itself with the memory.
    fn peer_has(&mut self, abilities: u64) {
        let has_barrier = abilities & own_abilities() & BARRIERS != 0;
        let follows = abilities & RELOCATIONS != 0;
        let Link {
            channel,
            relocating,
            pulls,
            ..
        } = &mut self.link;
        if let Some(channel) = channel {
            channel.is_asymmetric(has_barrier);
            pulls.meet(channel.inflow());
            pulls.follow(channel.relocated());
            *relocating = follows.then(|| Box::new(channel.relocating()));
        }
    }

    /// Creates memory for a link. Returns it, and the remark that offers it to the peer with this
    /// doorbell. `target` is the log target.
    ///
    /// # Errors
    /// Those of [`Channel::create`], `-FI_EIO` if there are no random numbers.
    pub fn offer(
        link: Link<T>,
        bell: DoorbellOfPeer,
        target: &'static str,
    ) -> Result<(Self, Remark)> {
        let secret = random::secret()?;
        let (channel, fd) = Channel::create()?;
        channel.set_secret(secret);
        let remark = Remark {
            subject: Subject::Memory,
            id: u64::from(fd.as_raw_fd().unsigned_abs()),
            word: own_abilities(),
        };
        let offered = Offered { _fd: fd, secret };
        Ok((
            Shortcut::new(link, channel, bell, Some(offered), target),
            remark,
        ))
    }

    /// Attaches to the memory that a process with this doorbell has offered with this remark. This
    /// side then has to send through it ([`Shortcut::departure`]).
    ///
    /// # Errors
    /// Those of [`OtherFiles::segment`] and [`Channel::attach`].
    pub fn attach(
        link: Link<T>,
        peer: &OtherFiles,
        bell: DoorbellOfPeer,
        remark: &Remark,
        target: &'static str,
    ) -> Result<Self> {
        let segment = peer.segment(remark.id)?;
        let channel = Channel::attach(segment.as_fd())?;
        let secret = channel.secret();
        let mut shortcut = Shortcut::new(link, channel, bell, None, target);
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
            if let (Some(bell), Some(channel)) = (self.bell.take(), &mut self.link.channel) {
                channel.rings(bell);
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

    /// Whether something has arrived through the memory, or the connection has ended.
    pub fn has_next(&self) -> bool {
        let channel = self.link.channel.as_ref();
        let has_come = channel.is_some_and(|channel| channel.receiver.has_next());
        self.is_in && (has_come || self.end.is_some())
    }

    /// Returns the stream in the memory.
    fn stream(&mut self) -> Option<SharedStream<'_>> {
        Some(SharedStream {
            channel: self.link.channel.as_mut()?,
            received: &mut self.received,
        })
    }

    /// Whether what this side sends to the peer may go by the link.
    #[inline(always)]
    pub fn sends(&self) -> bool {
        matches!(self.out, Out::Memory)
    }

    /// Returns the number of bytes of the stream that have arrived through the memory and were not
    /// received.
    pub fn waiting(&mut self) -> usize {
        self.stream().map_or(0, |stream| stream.waiting())
    }

    /// Whether a send that found no space may be retried.
    pub fn has_room(&mut self) -> bool {
        match self.out {
            // The next attempt reports the error.
            Out::Memory => {
                let stream = self.stream();
                stream.is_none_or(|mut stream| stream.has_room().unwrap_or(true))
            }
            Out::Leaving(_) => true,
            Out::Socket => false,
        }
    }

    /// Returns the number of bytes that a call has transferred, `-FI_EAGAIN` if none.
    #[inline(always)]
    fn moved(&self, moved: Option<std::result::Result<Moved, Broken>>) -> Result<usize> {
        match moved.ok_or(Errno::EAGAIN)? {
            Ok(Moved { bytes, wakes }) => {
                if wakes {
                    self.link.wake_peer();
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
                let moved = self.stream().map(|mut stream| stream.send(bytes));
                self.moved(moved)
            }
            Out::Leaving(_) => {
                self.leave(socket)?;
                let moved = self.stream().map(|mut stream| stream.send(bytes));
                self.moved(moved)
            }
            Out::Socket => socket::send(socket, bytes),
        }
    }

    /// Returns the stream to receive from; `None` while what it has is behind a message of the link whose
    /// payload precedes it.
    #[inline(always)]
    fn incoming(&mut self) -> Option<SharedStream<'_>> {
        match self.link.may_take_more() {
            true => self.stream(),
            false => None,
        }
    }

    /// Receives bytes that came through the memory.
    #[inline(always)]
    pub(super) fn receive(&mut self, to: &mut [u8]) -> Result<usize> {
        let moved = self.incoming().map(|mut stream| stream.receive(to));
        let moved = self.moved(moved);
        self.or_end(moved)
    }

    pub(super) fn receive_in(&mut self, mut to: Incoming<'_>) -> Result<usize> {
        let moved = self.incoming();
        let moved = moved.map(|mut stream| stream.receive_in(&mut to));
        let moved = self.moved(moved);
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
        let moved = self.stream().map(|mut stream| stream.send_out(&out));
        self.moved(moved)
    }

    /// Replaces the result of a receive without data by the end of the socket, if it has ended.
    #[inline(always)]
    fn or_end(&self, received: Result<usize>) -> Result<usize> {
        let channel = self.link.channel.as_ref();
        let has_more = channel.is_some_and(|channel| channel.receiver.has_next());
        match (received, self.end) {
            (Err(Errno::EAGAIN), Some(end)) if !has_more => end,
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
    use prov_message::EpKey;

    use super::*;
    use crate::engine::link::messages::Tcp;

    /// Returns the two sides of memory, of which the first has this doorbell.
    fn pair(bell: DoorbellOfPeer, ends: [&Arc<OwnedFd>; 2]) -> (Shortcut<Tcp>, Shortcut<Tcp>) {
        let [one, other] = ends.map(|end| Link::new(EpKey::default(), Wire::new(end, 0)));
        let (channel, fd) = Channel::create().unwrap();
        let attached = Channel::attach(fd.as_fd()).unwrap();
        let silent = DoorbellOfPeer::silent();
        (
            Shortcut::new(one, channel, bell, None, "test"),
            Shortcut::new(other, attached, silent, None, "test"),
        )
    }

    fn sockets() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
        let (socket, far) = UnixStream::pair().unwrap();
        for end in [&socket, &far] {
            end.set_nonblocking(true).unwrap();
        }
        (Arc::new(socket.into()), Arc::new(far.into()))
    }

    #[test]
    fn payloads_are_relocated_for_peers_that_look_for_them_only() {
        let (socket, far) = sockets();
        let (mut here, _there) = pair(DoorbellOfPeer::silent(), [&socket, &far]);
        here.peer_has(BARRIERS);
        assert!(here.link.relocating.is_none());
        here.peer_has(own_abilities());
        assert!(here.link.relocating.unwrap().publish(1, 4096));
    }

    #[test]
    fn a_side_that_still_sends_through_the_socket_sends_no_wake_up_in_between() {
        let bell = Doorbell::create().unwrap();
        let (socket, far) = sockets();
        let (mut here, mut there) = pair(bell.of_peer(), [&socket, &far]);
        let fill = |from: &mut Shortcut<Tcp>| {
            // The area may get more memory in the course of this.
            while from.has_room() {
                while from.send(far.as_fd(), &[1; 4096]).is_ok() {}
            }
            from.link.channel.as_mut().unwrap().sleep();
            bell.arm();
        };
        let empty = |to: &mut Shortcut<Tcp>| {
            let mut bytes = vec![0; 1 << 20];
            to.receive(&mut bytes).unwrap();
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
