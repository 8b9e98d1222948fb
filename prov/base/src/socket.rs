//! Connected stream sockets: what goes through them, and whose ends they are.
//! [`tcp`] makes them, [`silence`] watches over them, [`zerocopy`] spares copies.

pub mod silence;
pub mod tcp;
pub mod zerocopy;

use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::net::{RecvFlags, SendFlags};

use crate::errno::{Errno, Result};

/// Sends from one buffer, without waiting: the bytes that left.
///
/// # Errors
/// Those of send(2); `-FI_EAGAIN` where there is no room.
#[inline]
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::send(socket, bytes, flags)?)
}

/// Receives into one buffer, without waiting: the bytes that came, 0 at the end
/// of the stream.
///
/// # Errors
/// Those of recv(2); `-FI_EAGAIN` where nothing has come.
#[inline]
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    let (received, _) = rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT)?;
    Ok(received)
}

/// Bytes that have come and were not received.
pub fn waiting(socket: BorrowedFd<'_>) -> usize {
    let bytes = rustix::io::ioctl_fionread(socket).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or(0)
}

/// The address at the socket's near end.
///
/// # Errors
/// Those of getsockname(2).
pub fn name(socket: BorrowedFd<'_>) -> Result<SocketAddr> {
    Ok(rustix::net::getsockname(socket)?.try_into()?)
}

/// The address at the socket's far end.
///
/// # Errors
/// Those of getpeername(2); `-FI_ENOTCONN` without one.
pub fn peer_name(socket: BorrowedFd<'_>) -> Result<SocketAddr> {
    let name = rustix::net::getpeername(socket)?.ok_or(Errno::ENOTCONN)?;
    Ok(name.try_into()?)
}

/// The process at the far end of a unix(7) socket, as the kernel knew it when the socket was
/// connected (`SO_PEERCRED`). Its `pid` is 0 where it is in another pid namespace, which
/// rustix's own function does not provide for.
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

/// The addresses at the socket's near and far end.
///
/// # Errors
/// As above.
pub fn ends(socket: BorrowedFd<'_>) -> Result<(SocketAddr, SocketAddr)> {
    Ok((name(socket)?, peer_name(socket)?))
}

/// The address at the socket's far end, for the log.
pub fn peer_text(socket: BorrowedFd<'_>) -> String {
    match peer_name(socket) {
        Ok(addr) => addr.to_string(),
        Err(_) => "a peer that is gone".to_string(),
    }
}
