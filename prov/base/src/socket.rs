//! Sockets. Connected stream sockets: sending, receiving and the addresses of their ends; [`tcp`]
//! creates them, [`silence`] detects hosts that have failed, [`zerocopy`] sends without copies.
//! Datagram sockets are in [`udp`].

pub mod silence;
pub mod tcp;
pub mod udp;
pub mod zerocopy;

use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Once;

use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use crate::errno::{Errno, Result};
use crate::logging::UTIL;

/// Accepts the next pending connection of a listening socket. The result does not block, and is closed
/// in programs that the process executes: with accept4(2), or where that is denied, with calls of
/// older kernels.
///
/// # Errors
/// Those of accept(2); `-FI_EAGAIN` if there is no connection.
pub fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match rustix::net::accept_with(listener, flags).map_err(Errno::from) {
        Err(error) if error.is_denial() => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                log::info!(target: UTIL.core, "accept4(2) is denied ({error}): accept(2) instead");
            });
            accept_in_steps(listener)
        }
        accepted => accepted,
    }
}

/// Switches an option of a socket on; returns `false` if the system does not have it, or refuses.
#[must_use]
fn switch_on(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int) -> bool {
    let on: libc::c_int = 1;
    // SAFETY: setsockopt(2) reads as many bytes as are passed from the value, an `int`.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    status == 0
}

fn accept_in_steps(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    let socket = rustix::net::accept(listener)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Sends from one buffer, without waiting; returns the number of bytes sent.
///
/// # Errors
/// Those of send(2); `-FI_EAGAIN` if the socket's buffer is full.
#[inline]
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::send(socket, bytes, flags)?)
}

/// Receives into one buffer, without waiting; returns the number of bytes received, 0 at the end of
/// the stream.
///
/// # Errors
/// Those of recv(2); `-FI_EAGAIN` if no bytes have arrived.
#[inline]
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    let (received, _) = rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT)?;
    Ok(received)
}

/// Returns the number of bytes that have arrived and are not yet received.
pub fn waiting(socket: BorrowedFd<'_>) -> usize {
    let bytes = rustix::io::ioctl_fionread(socket).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or(0)
}

/// Returns the number of bytes that were sent on a TCP socket and are not acknowledged, or still wait
/// to leave.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes an `int`.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    match status {
        0 => usize::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

/// Returns the socket's own address.
///
/// # Errors
/// Those of getsockname(2).
pub fn name(socket: BorrowedFd<'_>) -> Result<SocketAddr> {
    Ok(rustix::net::getsockname(socket)?.try_into()?)
}

/// Returns the address of the socket's peer.
///
/// # Errors
/// Those of getpeername(2); `-FI_ENOTCONN` if it has none.
pub fn peer_name(socket: BorrowedFd<'_>) -> Result<SocketAddr> {
    let name = rustix::net::getpeername(socket)?.ok_or(Errno::ENOTCONN)?;
    Ok(name.try_into()?)
}

/// Returns the process at the other end of a unix(7) socket, as the kernel knew it when the socket
/// was connected (`SO_PEERCRED`). Its `pid` is 0 if it is in another pid namespace, which rustix's
/// own function cannot represent.
///
/// # Errors
/// Those of getsockopt(2).
pub fn peer_credentials(socket: BorrowedFd<'_>) -> Result<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: libc::uid_t::MAX,
        gid: libc::gid_t::MAX,
    };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: `peer` has room for `len` bytes.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut peer).cast(),
            &mut len,
        )
    };
    Errno::check(done).map_err(|_| Errno::last_os_error())?;
    Ok(peer)
}

/// Returns the addresses of the socket itself and of its peer.
///
/// # Errors
/// Those of [`name`] and [`peer_name`].
pub fn ends(socket: BorrowedFd<'_>) -> Result<(SocketAddr, SocketAddr)> {
    Ok((name(socket)?, peer_name(socket)?))
}

/// Returns the address of the socket's peer, for the log.
pub fn peer_text(socket: BorrowedFd<'_>) -> String {
    match peer_name(socket) {
        Ok(addr) => addr.to_string(),
        Err(_) => "a peer that is gone".to_string(),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn what_is_accepted_does_not_block_and_is_closed_by_exec() {
        for accept in [accept, accept_in_steps] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            assert_eq!(accept(listener.as_fd()).unwrap_err(), Errno::EAGAIN);
            let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let far = accept(listener.as_fd()).unwrap();
            assert_eq!(receive(far.as_fd(), &mut [0]), Err(Errno::EAGAIN));
            let status = rustix::fs::fcntl_getfl(&far).unwrap();
            assert!(status.contains(rustix::fs::OFlags::NONBLOCK));
            let flags = rustix::io::fcntl_getfd(&far).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }
}
