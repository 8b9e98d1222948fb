//! Non-blocking TCP sockets: creating, binding, connecting and closing them.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, ipproto, sockopt};
use rustix::time::Timespec;

use super::{ends, name, receive, switch_on};
use crate::errno::{Errno, Result};
use crate::random;

/// Creates a socket of the family of this address.
///
/// # Errors
/// Those of socket(2).
pub fn open(family: &SocketAddr) -> Result<OwnedFd> {
    let family = match family {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let tcp = Some(ipproto::TCP);
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        tcp,
    )?)
}

/// Creates a socket that will connect from `source`; if that is an unspecified address, only the
/// family is taken from it, and the kernel chooses the address.
///
/// # Errors
/// Those of bind(2).
pub fn from_source(source: &SocketAddr) -> Result<OwnedFd> {
    let socket = open(source)?;
    if !source.ip().is_unspecified() || source.port() != 0 {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if source.port() == 0 {
            // The system then chooses the port when the socket connects: connections to several
            // destinations can have the same one, and none is looked for among all sockets. A system
            // without the option chooses it now.
            let option = libc::IP_BIND_ADDRESS_NO_PORT;
            let _ = switch_on(socket.as_fd(), libc::IPPROTO_IP, option);
        }
        rustix::net::bind(&socket, source)?;
    }
    Ok(socket)
}

/// Starts connecting a socket that may be bound already.
///
/// # Errors
/// Those of connect(2); `EINPROGRESS` is not an error here.
pub fn start_connect(socket: BorrowedFd<'_>, dest: &SocketAddr) -> Result {
    match rustix::net::connect(socket, dest) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Creates a socket bound to `addr`; with port 0, bound to one of the given ports, if any are
/// given. `target` is the log target.
///
/// # Errors
/// Those of bind(2); `-FI_EADDRNOTAVAIL` if all of the ports are in use.
pub fn bound(
    addr: &SocketAddr,
    ports: Option<RangeInclusive<u16>>,
    target: &str,
) -> Result<OwnedFd> {
    let socket = open(addr)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    let range = match ports {
        Some(range) if addr.port() == 0 => range,
        _ => {
            rustix::net::bind(&socket, addr)?;
            return Ok(socket);
        }
    };
    let ports = u32::from(range.end() - range.start()) + 1;
    let first = random::number() as u32 % ports;
    for i in 0..ports {
        let port = range.start() + ((first + i) % ports) as u16;
        let mut at = *addr;
        at.set_port(port);
        match rustix::net::bind(&socket, &at) {
            Ok(()) => return Ok(socket),
            Err(rustix::io::Errno::ADDRINUSE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    log::warn!(
        target: target,
        "every port from {} to {} is in use at {}",
        range.start(),
        range.end(),
        addr.ip()
    );
    Err(Errno::EADDRNOTAVAIL)
}

/// Number of attempts to find unused ports that follow each other, and number of further attempts
/// with ports that may be used again.
const ROW_ATTEMPTS: usize = 128;

/// Which ports a row of ports that follow each other may consist of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// Ports at which no socket is bound, not even one that does not listen yet: who has no port of
    /// its own choice takes nobody's.
    Unused,
    /// All ports that may be bound with `SO_REUSEADDR`: those of a given row, and on a host where
    /// closed connections (`TIME_WAIT`) leave no row of unused ones.
    Reusable,
}

impl Row {
    /// Returns the attempts to find a row: one if the first port is given.
    pub fn attempts(is_given: bool) -> impl Iterator<Item = Row> {
        let (unused, reusable) = match is_given {
            true => (0, 1),
            false => (ROW_ATTEMPTS, ROW_ATTEMPTS),
        };
        let unused = std::iter::repeat_n(Row::Unused, unused);
        unused.chain(std::iter::repeat_n(Row::Reusable, reusable))
    }

    /// Returns whether the port of an address may be bound with `SO_REUSEADDR`, as far as this
    /// decides it.
    ///
    /// # Errors
    /// Those of socket(2) and bind(2) other than `-FI_EADDRINUSE`.
    pub fn takes(self, addr: &SocketAddr) -> Result<bool> {
        match self {
            Row::Unused => is_free(addr),
            Row::Reusable => Ok(true),
        }
    }
}

/// Returns sockets that are bound to consecutive ports, of which the first is as for [`bound`].
///
/// # Errors
/// Those of [`bound`]; `-FI_EADDRINUSE` if one of the ports after a given one is in use, or no
/// consecutive free ports were found.
pub fn bound_in_row(
    addr: &SocketAddr,
    count: usize,
    ports: Option<RangeInclusive<u16>>,
    target: &str,
) -> Result<Vec<OwnedFd>> {
    let is_given = addr.port() != 0;
    let last = match &ports {
        Some(range) if !is_given => *range.end(),
        _ => u16::MAX,
    };
    for attempt in Row::attempts(is_given) {
        let first = bound(addr, ports.clone(), target)?;
        let at = name(first.as_fd())?;
        let mut row = vec![first];
        let behind = (at.port()..=last).skip(1).take(count.saturating_sub(1));
        let mut followed = Ok(());
        for port in behind {
            let mut at = at;
            at.set_port(port);
            let socket = open(&at)?;
            sockopt::set_socket_reuseaddr(&socket, attempt == Row::Reusable)?;
            followed = rustix::net::bind(&socket, &at);
            if followed.is_err() {
                break;
            }
            row.push(socket);
        }
        match followed {
            Ok(()) if row.len() == count.max(1) => return Ok(row),
            Ok(()) | Err(rustix::io::Errno::ADDRINUSE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    log::warn!(
        target: target,
        "there are no {count} free ports in a row at {addr}"
    );
    Err(Errno::EADDRINUSE)
}

/// Whether no socket is bound to an address, not even one that does not listen yet.
///
/// # Errors
/// Those of socket(2) and bind(2) other than `-FI_EADDRINUSE`.
fn is_free(addr: &SocketAddr) -> Result<bool> {
    let socket = open(addr)?;
    match rustix::net::bind(&socket, addr) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::ADDRINUSE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Replaces a socket by one that `bind` creates for `addr`; keeps the old one if that fails.
///
/// # Errors
/// Those of `bind`.
pub fn rebind(
    socket: &mut Option<OwnedFd>,
    addr: &SocketAddr,
    bind: impl Fn(&SocketAddr) -> Result<OwnedFd>,
) -> Result {
    let old = socket.as_ref().and_then(|old| name(old.as_fd()).ok());
    let is_own = |old: &SocketAddr| addr.port() != 0 && old.port() == addr.port();
    let made = match (bind(addr), old.filter(is_own)) {
        // The address may be in use by the old socket.
        (Err(Errno::EADDRINUSE), Some(old)) => {
            *socket = None;
            let made = bind(addr);
            if made.is_err() {
                *socket = bind(&old).ok();
            }
            made
        }
        (made, _) => made,
    };
    *socket = Some(made?);
    Ok(())
}

/// Makes a bound socket listen. Its port may be bound again when it is closed, although there are
/// closed connections (`TIME_WAIT`), which have the option from it.
///
/// # Errors
/// Those of listen(2).
pub fn listen(socket: BorrowedFd<'_>, backlog: i32) -> Result {
    sockopt::set_socket_reuseaddr(socket, true)?;
    Ok(rustix::net::listen(socket, backlog)?)
}

/// Returns why a connection attempt failed, once it has ended; success for one that is still in
/// progress.
///
/// # Errors
/// The reason; `-FI_ECONNREFUSED` also for a socket that has connected to itself.
pub fn connect_outcome(socket: BorrowedFd<'_>) -> Result {
    match sockopt::socket_error(socket)? {
        Ok(()) if reached_itself(socket) => Err(Errno::ECONNREFUSED),
        Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether no process listens, and the kernel gave the socket the port of the peer.
fn reached_itself(socket: BorrowedFd<'_>) -> bool {
    ends(socket).is_ok_and(|(near, far)| near == far)
}

/// Bound of one socket call, in bytes. A call that moved fewer bytes than requested has usually
/// stopped at the socket's limit, and an event follows when more can be moved. A call that moved
/// this many may have been cut short by the kernel, below 2 GiB and whatever the socket has room
/// for; no event follows then.
pub const CALL_LIMIT: usize = 1 << 30;

/// Ends a connection such that data that the peer has not read yet still reaches it: closing a
/// socket with unread bytes would reset the connection.
pub fn end(socket: OwnedFd) {
    if rustix::net::shutdown(&socket, Shutdown::Write).is_ok() {
        let mut sink = [0; 4096];
        for _ in 0..64 {
            if !matches!(receive(socket.as_fd(), &mut sink), Ok(1..)) {
                break;
            }
        }
    }
}

/// Bounds the number of bytes that a socket accepts before it can send them.
///
/// # Errors
/// Those of setsockopt(2).
pub fn limit_unsent(socket: BorrowedFd<'_>, bytes: libc::c_int) -> Result {
    // SAFETY: setsockopt(2) reads as many bytes as are passed from the value, an `int`.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

/// Waits until one of the sockets is writable, at most for this time.
pub fn wait_writable(sockets: &[impl AsFd], timeout: Duration) {
    let timeout = Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut fds: Vec<_> = sockets
        .iter()
        .map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT))
        .collect();
    // The caller checks the time itself.
    let _ = rustix::event::poll(&mut fds, Some(&timeout));
}

/// Returns the largest send buffer that a socket can be given, in bytes (net.core.wmem_max, which
/// cannot be read in every network namespace).
pub fn largest_sndbuf() -> usize {
    static LARGEST: OnceLock<usize> = OnceLock::new();
    *LARGEST.get_or_init(|| {
        let probe = || -> Result<usize> {
            let socket = open(&SocketAddr::from(([127, 0, 0, 1], 0)))?;
            sockopt::set_socket_send_buffer_size(&socket, i32::MAX as usize)?;
            // The kernel doubles the size that it is given.
            Ok(sockopt::socket_send_buffer_size(&socket)? / 2)
        };
        probe().unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_any_port() -> OwnedFd {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        bound(&any, None, "test").unwrap()
    }

    #[test]
    fn a_socket_from_a_source_without_a_port_gets_one_when_it_connects() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let any: SocketAddr = any.parse().unwrap();
            let Ok(listener) = bound(&any, None, "test") else {
                // Not every machine has IPv6.
                assert!(any.is_ipv6());
                continue;
            };
            listen(listener.as_fd(), 1).unwrap();
            let socket = from_source(&any).unwrap();
            assert_eq!(name(socket.as_fd()), Ok(any));
            start_connect(socket.as_fd(), &name(listener.as_fd()).unwrap()).unwrap();
            let own = name(socket.as_fd()).unwrap();
            assert!(own.ip() == any.ip() && own.port() != 0);
        }
    }

    #[test]
    fn a_socket_that_is_still_connecting_has_not_failed() {
        assert_eq!(connect_outcome(on_any_port().as_fd()), Ok(()));
    }

    #[test]
    fn a_socket_that_reaches_itself_is_refused() {
        let socket = on_any_port();
        let own = name(socket.as_fd()).unwrap();
        start_connect(socket.as_fd(), &own).unwrap();
        wait_writable(&[socket.as_fd()], Duration::from_secs(60));
        assert_eq!(connect_outcome(socket.as_fd()), Err(Errno::ECONNREFUSED));
    }

    /// Leaves a closed connection in `TIME_WAIT` at each of the ports of a row.
    fn leave_closed_connections(row: &[OwnedFd]) {
        for listener in row {
            listen(listener.as_fd(), 1).unwrap();
            let at = name(listener.as_fd()).unwrap();
            let mut far = std::net::TcpStream::connect(at).unwrap();
            wait_readable(listener);
            // Who closes first keeps the port.
            drop(crate::socket::accept(listener.as_fd()).unwrap());
            assert_eq!(std::io::Read::read(&mut far, &mut [0]).unwrap(), 0);
        }
    }

    fn wait_readable(socket: &OwnedFd) {
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        rustix::event::poll(&mut fds, None).unwrap();
    }

    #[test]
    fn ports_of_closed_connections_are_part_of_a_row() {
        const COUNT: u16 = 4;
        // Another socket may be given one of the ports meanwhile.
        let finds_row = |_| {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let row = bound_in_row(&any, COUNT.into(), None, "test").unwrap();
            let first = name(row[0].as_fd()).unwrap().port();
            leave_closed_connections(&row);
            drop(row);
            let ports = first..=first + COUNT - 1;
            bound_in_row(&any, COUNT.into(), Some(ports), "test").is_ok()
        };
        assert!((0..20).any(finds_row));
    }

    #[test]
    fn a_row_has_no_port_at_which_a_socket_is_bound_while_there_are_others() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let rows: Vec<_> = (0..8)
            .map(|_| bound_in_row(&any, 8, None, "test").unwrap())
            .collect();
        let ports = rows.iter().flatten();
        let ports = ports.map(|socket| name(socket.as_fd()).unwrap().port());
        let unique: std::collections::HashSet<_> = ports.collect();
        assert_eq!(unique.len(), 64);
    }
}
