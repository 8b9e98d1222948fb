//! How two processes of one host and user find each other: a listening socket under a name, which
//! ends with its process (unix(7), abstract names).
//!
//! The kernel tells each process who the other is. The socket stays open between the two: the
//! descriptors of the shared memory are sent over it, it wakes sleeping threads, and its end is the
//! end of the other process.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use prov_base::errno::{Errno, Result};
use prov_base::socket;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// Length in bytes of the longest name: with the service and the user's id before it, a name has to
/// fit into the 107 bytes of an abstract socket address (unix(7)).
pub const LONGEST_NAME: usize = 80;

/// Largest number of descriptors in a packet: one of the channel, one of the table of regions.
pub const DESCRIPTORS: usize = 2;

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
    socket: OwnedFd,
    /// The other process's id, as the kernel reports it here; 0 if it does not, as between
    /// containers.
    pub pid: u32,
}

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
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match net::accept_with(&self.socket, flags) {
            Ok(socket) => Wire::new(socket).map(Some),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
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
                socket,
                pid: peer.pid.unsigned_abs(),
            }),
            false => Err(Errno::EPERM),
        }
    }

    /// Sends a packet, with up to [`DESCRIPTORS`] descriptors.
    ///
    /// # Errors
    /// `-FI_EAGAIN` if the other side's buffer is full, `-FI_EINVAL` for more descriptors, others
    /// of sendmsg(2).
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
        net::sendmsg(&self.socket, &bytes, &mut control, SendFlags::NOSIGNAL)?;
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
        let received = net::recvmsg(&self.socket, &mut bytes, &mut control, flags)?;
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

impl AsFd for Wire {
    /// Readable when a packet has arrived, or the other side has ended.
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
}
