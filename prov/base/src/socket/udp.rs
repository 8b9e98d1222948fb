//! Non-blocking UDP sockets: creation, binding, multicast groups, and sends of single datagrams.
//! [`outbox`] and [`arrivals`] send and receive many with one system call.
//!
//! The C library's functions for these system calls are cancellation points; syscall(2)
//! is not (`crate::system_calls`).

pub mod arrivals;
pub mod outbox;

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::switch_on;
use crate::buffer::Iov;
use crate::errno::{Errno, Result};
use crate::kept_errno::KeptErrno;
use crate::sockaddr::Encoded;

/// Bytes of the longest datagram: an IP packet's 65,535 less the header of UDP.
pub const LONGEST: usize = 65_527;

/// The level of socket options of UDP (`SOL_UDP`).
const LEVEL: c_int = libc::SOL_UDP;

/// A socket of the family that this address has.
///
/// # Errors
/// Those of socket(2).
pub fn open(family: &SocketAddr) -> Result<OwnedFd> {
    let family = match family {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let udp = Some(ipproto::UDP);
    let kind = SocketType::DGRAM;
    Ok(rustix::net::socket_with(family, kind, flags, udp)?)
}

/// A socket bound to `addr`.
///
/// # Errors
/// Those of bind(2).
pub fn bound(addr: &SocketAddr) -> Result<OwnedFd> {
    let socket = open(addr)?;
    rustix::net::bind(&socket, addr)?;
    Ok(socket)
}

/// Sets the size of the receive buffer in bytes, at most to what the system permits
/// (net.core.rmem_max).
pub fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) {
    // A socket with another buffer works, and drops more.
    let _ = sockopt::set_socket_recv_buffer_size(socket, bytes);
}

/// Has the system return several datagrams of one sender as one piece (`UDP_GRO`), which
/// [`arrivals`] divides, if it can.
fn receive_coalesced(socket: BorrowedFd<'_>) {
    // A system without the option delivers each datagram separately.
    let _ = switch_on(socket, LEVEL, libc::UDP_GRO);
}

/// Returns whether the system divides a piece into datagrams (`UDP_SEGMENT`). Linux before 4.18
/// would ignore into which, and send the piece as one datagram.
fn divides(socket: BorrowedFd<'_>) -> bool {
    static DIVIDES: OnceLock<bool> = OnceLock::new();
    *DIVIDES.get_or_init(|| {
        let mut length: c_int = 0;
        let mut len = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: the option's value is an `int`, which has room for the length that is passed.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                LEVEL,
                libc::UDP_SEGMENT,
                (&raw mut length).cast(),
                &raw mut len,
            )
        };
        done == 0
    })
}

/// Joins a multicast group, at the interface that the routes lead to, or the one that an IPv6
/// address is scoped to.
///
/// # Errors
/// Those of setsockopt(2): `-FI_EADDRINUSE` where the socket is a member.
pub fn join(socket: BorrowedFd<'_>, group: &SocketAddr) -> Result {
    let any = std::net::Ipv4Addr::UNSPECIFIED;
    match group {
        SocketAddr::V4(v4) => sockopt::set_ip_add_membership(socket, v4.ip(), &any)?,
        SocketAddr::V6(v6) => sockopt::set_ipv6_add_membership(socket, v6.ip(), v6.scope_id())?,
    }
    Ok(())
}

/// Leaves a multicast group.
///
/// # Errors
/// Those of setsockopt(2): `-FI_EADDRNOTAVAIL` where the socket is no member.
pub fn leave(socket: BorrowedFd<'_>, group: &SocketAddr) -> Result {
    let any = std::net::Ipv4Addr::UNSPECIFIED;
    match group {
        SocketAddr::V4(v4) => sockopt::set_ip_drop_membership(socket, v4.ip(), &any)?,
        SocketAddr::V6(v6) => sockopt::set_ipv6_drop_membership(socket, v6.ip(), v6.scope_id())?,
    }
    Ok(())
}

/// Returns whether an address is that of a multicast group.
pub fn is_group(addr: &SocketAddr) -> bool {
    match addr.ip() {
        IpAddr::V4(ip) => ip.is_multicast(),
        IpAddr::V6(ip) => ip.is_multicast(),
    }
}

/// Sends one datagram.
///
/// # Errors
/// Those of sendto(2): `-FI_EAGAIN` where there is no room, `-FI_EMSGSIZE` for one that is
/// too long.
#[inline]
pub fn send(socket: BorrowedFd<'_>, message: &Iov<'_>, to: &Encoded) -> Result {
    let _errno = KeptErrno::begin();
    let pieces = message.pieces();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let name = to.as_bytes();
    let sent = if let [] | [_] = pieces {
        // SAFETY: the piece is valid for reads of its length, and the address has the length that
        // is passed.
        unsafe {
            libc::syscall(
                libc::SYS_sendto,
                socket.as_raw_fd(),
                message.address(),
                message.len(),
                flags,
                name.as_ptr(),
                name.len(),
            )
        }
    } else {
        // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len() as _;
        header.msg_iov = pieces.as_ptr().cast_mut();
        header.msg_iovlen = pieces.len() as _;
        // SAFETY: the header describes memory that outlives the call, which only reads it.
        unsafe {
            libc::syscall(
                libc::SYS_sendmsg,
                socket.as_raw_fd(),
                &raw const header,
                flags,
            )
        }
    };
    match sent {
        0.. => Ok(()),
        _ => Err(Errno::last_os_error()),
    }
}

/// Waits until the socket is writable, at most for this time.
pub fn wait_writable(socket: &impl AsFd, timeout: std::time::Duration) {
    super::tcp::wait_writable(&[socket.as_fd()], timeout);
}

/// Room for one control message with an `int` or a `u16`.
const CONTROL_WORDS: usize = 3;

/// A buffer of control messages (cmsg(3)), aligned as they have to be.
type Control = [u64; CONTROL_WORDS];

const _: () = {
    // SAFETY: the function computes a size, and accesses no memory.
    let room = unsafe { libc::CMSG_SPACE(size_of::<c_int>() as u32) };
    assert!(room as usize <= size_of::<Control>());
};

#[cfg(test)]
mod tests;
