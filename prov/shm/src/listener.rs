//! How two processes of one host and user find each other: a listening socket under a name, which
//! ends with its process (unix(7), abstract names).
//!
//! The kernel tells each process who the other is. The socket stays open between the two: the
//! descriptors of the shared memory are sent over it, it wakes sleeping threads, and its end is the
//! end of the other process. Where a process has few descriptors left, both close it when the link is
//! open, and threads are woken by a datagram ([`Bell`]).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use prov_base::errno::{Errno, Result};
use prov_base::{random, socket};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Resource, getrlimit};

/// Length in bytes of the longest name: with the service and the user's id before it, a name has to
/// fit into the 107 bytes of an abstract socket address (unix(7)).
pub const LONGEST_NAME: usize = 80;

/// Largest number of descriptors in a packet: one of the channel, one of the doorbell, one of the
/// table of regions.
pub const DESCRIPTORS: usize = 3;

/// Bound of connections that wait in the kernel to be accepted (listen(2)).
const BACKLOG: i32 = 4096;

/// The socket by which others find this process under a name.
pub struct Listener {
    socket: OwnedFd,
    /// A descriptor to give up for a moment when the process has no other one left, so that a peer
    /// can be told ([`Listener::accept_to_refuse`]).
    reserve: Option<OwnedFd>,
}

/// One end of the socket between two processes.
pub struct Wire {
    /// `None` when it was given back.
    socket: Option<OwnedFd>,
    /// The other process's bell, if the socket may be given back, and this process's own.
    bells: Option<(Arc<Bell>, u32)>,
    /// The other process's id, as the kernel reports it here; 0 if it does not, as between
    /// containers.
    pub pid: u32,
}

/// The packet that wakes a sleeping peer.
pub const WAKE: &[u8] = b"\0";

/// Part of the soft limit of descriptors (`RLIMIT_NOFILE`) beyond which sockets are given back: the
/// rest is for links that are being set up, what makes copies faster, and the application.
const PART: u64 = 2;

fn unconnected() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Returns the id of the user whose processes communicate.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the socket address of a name of this user's service.
fn address(service: &str, name: &str) -> Result<SocketAddrUnix> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(Errno::EINVAL);
    }
    let full = format!("{service}/{}/{name}", user());
    Ok(SocketAddrUnix::new_abstract_name(full.as_bytes())?)
}

impl Listener {
    /// Reserves a name; connections are not accepted yet.
    ///
    /// # Errors
    /// `-FI_EADDRINUSE` if another process or endpoint has it, `-FI_EINVAL` if it is invalid,
    /// others of socket(2).
    pub fn new(service: &str, name: &str) -> Result<Listener> {
        let socket = unconnected()?;
        net::bind(&socket, &address(service, name)?)?;
        Ok(Listener {
            socket,
            reserve: None,
        })
    }

    /// Starts accepting connections.
    ///
    /// # Errors
    /// Those of listen(2).
    pub fn listen(&mut self) -> Result {
        net::listen(&self.socket, BACKLOG)?;
        self.reserve = unconnected().ok();
        Ok(())
    }

    /// Accepts the next connection, if there is one.
    ///
    /// # Errors
    /// `-FI_EPERM` for another user's process, which is rejected; others of accept(2).
    pub fn accept(&self) -> Result<Option<Wire>> {
        match socket::accept(self.socket.as_fd()) {
            Ok(socket) => Wire::new(socket).map(Some),
            Err(Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Accepts the next connection although the process has no descriptor left, for `refuse` to tell the
    /// peer; it is closed afterwards. Returns whether there was one, and the means to accept it.
    pub fn accept_to_refuse(&mut self, refuse: impl FnOnce(&Wire)) -> bool {
        if self.reserve.take().is_none() {
            return false;
        }
        let accepted = self.accept();
        if let Ok(Some(wire)) = &accepted {
            refuse(wire);
        }
        let any = !matches!(accepted, Ok(None));
        drop(accepted);
        self.reserve = unconnected().ok();
        any
    }
}

impl AsFd for Listener {
    /// Readable when there is a connection to accept.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Wire {
    /// Connects to the process that has a name.
    ///
    /// # Errors
    /// `-FI_ECONNREFUSED` if no process has it, or it does not accept connections yet, `-FI_EAGAIN`
    /// if too many wait, `-FI_EPERM` if it is another user's.
    pub fn reach(service: &str, name: &str) -> Result<Wire> {
        let socket = unconnected()?;
        net::connect(&socket, &address(service, name)?)?;
        Wire::new(socket)
    }

    /// Checks the process at the other end.
    fn new(socket: OwnedFd) -> Result<Wire> {
        let peer = socket::peer_credentials(socket.as_fd())?;
        match peer.uid == user() {
            true => Ok(Wire {
                socket: Some(socket),
                bells: None,
                pid: peer.pid.unsigned_abs(),
            }),
            false => Err(Errno::EPERM),
        }
    }

    /// Returns the socket; `None` if it was given back.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(OwnedFd::as_fd)
    }

    /// Whether this process has few descriptors left. The lowest free number is given to a descriptor,
    /// so that the socket's shows that.
    pub fn is_crowded(&self) -> bool {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let number = self.socket.as_ref().map(|socket| socket.as_raw_fd());
        number.is_some_and(|number| u64::from(number.unsigned_abs()) >= limit / PART)
    }

    /// From now on the other process is woken by its bell if the socket has ended.
    pub fn has_bells(&mut self, own: Arc<Bell>, other: u32) {
        self.bells = Some((own, other));
    }

    /// Whether [`Wire::has_bells`] was called.
    pub fn may_be_given_back(&self) -> bool {
        self.bells.is_some()
    }

    /// Closes the socket.
    pub fn give_back(&mut self) {
        self.socket = None;
    }

    /// Wakes the threads of the other process that sleep.
    #[cold]
    pub fn wake(&self) {
        // If the socket's buffer is full, the peer is woken by the packets in it.
        let sent = self.send(WAKE, None);
        // If the socket has ended without a bell, so does the link.
        if let (Err(Errno::ENOTCONN | Errno::EPIPE | Errno::ECONNRESET), Some((own, other))) =
            (sent, &self.bells)
        {
            own.ring(*other);
        }
    }

    /// Sends a packet, with up to [`DESCRIPTORS`] descriptors.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if the other side's buffer is full, `-FI_EINVAL` for more descriptors,
    /// `-FI_ENOTCONN` if the socket was given back, others of sendmsg(2).
    pub fn send<'fd>(
        &self,
        packet: &[u8],
        with: impl IntoIterator<Item = BorrowedFd<'fd>>,
    ) -> Result {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let with: Vec<BorrowedFd<'fd>> = with.into_iter().collect();
        if !with.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&with)) {
            return Err(Errno::EINVAL);
        }
        let bytes = [IoSlice::new(packet)];
        let socket = self.socket.as_ref().ok_or(Errno::ENOTCONN)?;
        net::sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives a packet, truncated to `packet`; returns its length, and its descriptors, at most
    /// [`DESCRIPTORS`]. A length of 0 is the end of the other side.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if none has arrived, `-FI_EMFILE` for one with descriptors for which this process
    /// has no room, others of recvmsg(2).
    pub fn receive(&self, packet: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(packet)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let socket = self.socket.as_ref().ok_or(Errno::ENOTCONN)?;
        let received = net::recvmsg(socket, &mut bytes, &mut control, flags)?;
        let mut with = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                with.extend(fds);
            }
        }
        // A packet never has more descriptors than `space` has room for.
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::EMFILE);
        }
        Ok((received.bytes, with))
    }
}

/// A socket by which threads of this process are woken by those that have no other to it.
pub struct Bell {
    socket: OwnedFd,
    /// Leads to it, for processes of this host and user.
    pub number: u32,
}

/// Number of times that a bell may be rung until it is listened to again: more than the system keeps
/// (net.unix.max_dgram_qlen, usually 10).
const RINGS: u32 = 64;

/// Number of names that are tried for a bell: each is taken by one of 2^32 at most.
const TRIES: u32 = 16;

impl Bell {
    /// Creates one that has not been rung.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2).
    pub fn new() -> Result<Bell> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        for _ in 0..TRIES {
            let number = random::number() as u32;
            match net::bind(&socket, &Bell::address(number)?) {
                Err(rustix::io::Errno::ADDRINUSE) => {}
                bound => {
                    bound?;
                    return Ok(Bell { socket, number });
                }
            }
        }
        Err(Errno::EADDRINUSE)
    }

    fn address(number: u32) -> Result<SocketAddrUnix> {
        let name = format!("fi_shm_bell/{}/{number:08x}", user());
        Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
    }

    /// Wakes the process whose bell has this number.
    pub fn ring(&self, number: u32) {
        // If its buffer is full, the process is woken by the datagrams in it; if there is none, the
        // process has ended.
        if let Ok(address) = Bell::address(number) {
            let _ = net::sendto(&self.socket, WAKE, SendFlags::NOSIGNAL, &address);
        }
    }

    /// Takes note that it was rung. Whoever has rung it, all links are looked at. Returns whether it
    /// may have been rung more often: any process of the host can ring it, and none keeps this one
    /// busy.
    #[must_use]
    pub fn silence(&self) -> bool {
        let mut word = [0; 1];
        (0..RINGS).all(|_| net::recv(&self.socket, word.as_mut_slice(), RecvFlags::empty()).is_ok())
    }
}

impl AsFd for Bell {
    /// Readable when it was rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    use super::*;

    const SERVICE: &str = "fi_local_test";

    fn name(of: &str) -> String {
        format!("{}:{of}", std::process::id())
    }

    #[test]
    fn packets_and_descriptors_go_both_ways_until_the_end() {
        let mut listener = Listener::new(SERVICE, &name("both")).unwrap();
        listener.listen().unwrap();
        assert!(listener.accept().unwrap().is_none());
        let near = Wire::reach(SERVICE, &name("both")).unwrap();
        let far = listener.accept().unwrap().unwrap();
        assert_eq!(
            (near.pid, far.pid),
            (std::process::id(), std::process::id())
        );
        let mut bytes = [0; 8];
        assert_eq!(far.receive(&mut bytes).err(), Some(Errno::EAGAIN));
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        near.send(b"one", Some(memory.as_fd())).unwrap();
        near.send(b"two", None).unwrap();
        let (len, with) = far.receive(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"one");
        File::from(with.into_iter().next().unwrap())
            .write_all(b"shared")
            .unwrap();
        let mut file = File::from(memory);
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "shared");
        let (len, with) = far.receive(&mut bytes).unwrap();
        assert_eq!((&bytes[..len], with.len()), (&b"two"[..], 0));
        drop(near);
        assert_eq!(far.receive(&mut bytes).unwrap().0, 0);
    }

    #[test]
    fn a_name_is_one_owners_and_leads_in_when_the_door_is_open() {
        let name = name("one");
        assert_eq!(Wire::reach(SERVICE, &name).err(), Some(Errno::ECONNREFUSED));
        let mut listener = Listener::new(SERVICE, &name).unwrap();
        assert_eq!(Listener::new(SERVICE, &name).err(), Some(Errno::EADDRINUSE));
        assert_eq!(Wire::reach(SERVICE, &name).err(), Some(Errno::ECONNREFUSED));
        listener.listen().unwrap();
        assert!(Wire::reach(SERVICE, &name).is_ok());
        drop(listener);
        assert!(Listener::new(SERVICE, &name).is_ok());
    }

    #[test]
    fn an_invalid_name_is_refused() {
        for bad in ["", &"x".repeat(LONGEST_NAME + 1)] {
            assert_eq!(Listener::new(SERVICE, bad).err(), Some(Errno::EINVAL));
            assert_eq!(Wire::reach(SERVICE, bad).err(), Some(Errno::EINVAL));
        }
    }

    #[test]
    fn a_peer_is_woken_by_its_bell_when_the_socket_is_given_back() {
        let mut listener = Listener::new(SERVICE, &name("bell")).unwrap();
        listener.listen().unwrap();
        let mut near = Wire::reach(SERVICE, &name("bell")).unwrap();
        let far = listener.accept().unwrap().unwrap();
        let (own, other) = (Arc::new(Bell::new().unwrap()), Bell::new().unwrap());
        let is_rung = |bell: &Bell| {
            let mut word = [0; 1];
            net::recv(bell, word.as_mut_slice(), RecvFlags::PEEK).is_ok()
        };
        near.has_bells(own.clone(), other.number);
        near.wake();
        assert_eq!(far.receive(&mut [0; 8]).unwrap().0, WAKE.len());
        assert!(!is_rung(&other));
        // The other side gives it back first.
        drop(far);
        near.wake();
        assert!(is_rung(&other));
        assert!(!other.silence());
        assert!(!is_rung(&other));
        near.give_back();
        assert!(near.socket().is_none());
        near.wake();
        near.wake();
        assert!(is_rung(&other) && !is_rung(&own));
        // Nobody has the number any longer.
        drop(other);
        near.wake();
    }
}
