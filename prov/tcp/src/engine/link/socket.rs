//! TCP sockets as the provider needs them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use prov_local::host;
use prov_util::errno::{Errno, Result};
use prov_util::random;
pub use prov_util::socket::{ends, name, peer_name, receive, send};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, ipproto, sockopt};

use crate::params::Params;

fn open(family: &SocketAddr) -> Result<OwnedFd> {
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

/// Options of a connection's socket.
fn set_up(socket: BorrowedFd<'_>, params: &Params) {
    // A socket without these works, but is slower, or silent for longer when
    // its peer's host is gone.
    if params.nodelay() {
        let _ = sockopt::set_tcp_nodelay(socket, true);
    }
    let _ = super::watch::probe(socket, params);
}

/// Chooses how a connected socket sends where its peer is on this host, as the
/// addresses or the peer (its `host::mark`) say: nothing is lost on the way, and what
/// paces the sender only slows it, but what waits in a long queue has left the
/// caches when it is received.
pub fn set_up_path(socket: BorrowedFd<'_>, peer: u32, params: &Params) {
    if !host::is_within(socket, peer) {
        return;
    }
    let sndbuf = params.local_sndbuf_size;
    if (1..=largest_sndbuf()).contains(&sndbuf) {
        // A socket with another buffer works, only slower.
        let _ = sockopt::set_socket_send_buffer_size(socket, sndbuf);
    }
    if params.local_congestion != "system"
        && let Err(error) = sockopt::set_tcp_congestion(socket, &params.local_congestion)
    {
        log::info!(
            target: crate::LOG.ep_ctrl,
            "congestion control {} is not to be had: {error}",
            params.local_congestion
        );
    }
}

/// The largest send buffer that a socket can be given (net.core.wmem_max, which
/// cannot be read in every network namespace).
fn largest_sndbuf() -> usize {
    static LARGEST: OnceLock<usize> = OnceLock::new();
    *LARGEST.get_or_init(|| {
        let probe = || -> Result<usize> {
            let socket = open(&SocketAddr::from(([127, 0, 0, 1], 0)))?;
            sockopt::set_socket_send_buffer_size(&socket, i32::MAX as usize)?;
            // The system doubles what it is given.
            Ok(sockopt::socket_send_buffer_size(&socket)? / 2)
        };
        probe().unwrap_or(0)
    })
}

/// A socket that is being connected from `source`, whose port is not used, to
/// `dest`.
pub fn connect(source: Option<SocketAddr>, dest: &SocketAddr, params: &Params) -> Result<OwnedFd> {
    let source = source.filter(|source| source.is_ipv4() == dest.is_ipv4());
    let socket = match source {
        Some(source) => from_source(&source)?,
        None => open(dest)?,
    };
    connect_bound(socket, dest, params)
}

/// A socket that will connect from `source`; an unspecified address leaves that
/// to the system, and gives the family.
pub fn from_source(source: &SocketAddr) -> Result<OwnedFd> {
    let socket = open(source)?;
    if !source.ip().is_unspecified() || source.port() != 0 {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, source)?;
    }
    Ok(socket)
}

/// A bound socket that is being connected to `dest`.
pub fn connect_bound(socket: OwnedFd, dest: &SocketAddr, params: &Params) -> Result<OwnedFd> {
    set_up(socket.as_fd(), params);
    start_connect(socket.as_fd(), dest)?;
    Ok(socket)
}

/// Starts connecting a socket that may be bound already.
fn start_connect(socket: BorrowedFd<'_>, dest: &SocketAddr) -> Result {
    match rustix::net::connect(socket, dest) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A socket bound to `addr`, or with port 0 to one in the port range of the
/// parameters.
pub fn bound(addr: &SocketAddr, params: &Params) -> Result<OwnedFd> {
    let socket = open(addr)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    let range = match params.port_range() {
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
        match rustix::net::bind(&socket, &SocketAddr::new(addr.ip(), port)) {
            Ok(()) => return Ok(socket),
            Err(rustix::io::Errno::ADDRINUSE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    log::warn!(
        target: crate::LOG.ep_ctrl,
        "every port from {} to {} is in use at {}",
        range.start(),
        range.end(),
        addr.ip()
    );
    Err(Errno::EADDRNOTAVAIL)
}

/// Puts a socket that `bind` makes for `addr` in the place of another one, which
/// stays there if that fails.
pub fn rebind(
    socket: &mut Option<OwnedFd>,
    addr: &SocketAddr,
    bind: impl Fn(&SocketAddr) -> Result<OwnedFd>,
) -> Result {
    let old = socket.as_ref().and_then(|old| name(old.as_fd()).ok());
    let is_own = |old: &SocketAddr| addr.port() != 0 && old.port() == addr.port();
    let made = match (bind(addr), old.filter(is_own)) {
        // It may be the old one that is in the way.
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

/// Makes a bound socket listen.
pub fn listen(socket: BorrowedFd<'_>, backlog: i32) -> Result {
    Ok(rustix::net::listen(socket, backlog)?)
}

/// The next connection that waits at a listening socket.
pub fn accept(listener: BorrowedFd<'_>, params: &Params) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::accept_with(listener, flags)?;
    set_up(socket.as_fd(), params);
    Ok(socket)
}

/// Why a connection attempt failed, once it has ended; success for one that is
/// still under way.
pub fn connect_outcome(socket: BorrowedFd<'_>) -> Result {
    match sockopt::socket_error(socket)? {
        Ok(()) if reached_itself(socket) => Err(Errno::ECONNREFUSED),
        Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether nobody listens, and the system gave the socket the port of the peer.
fn reached_itself(socket: BorrowedFd<'_>) -> bool {
    ends(socket).is_ok_and(|(near, far)| near == far)
}

/// A call that moved fewer bytes than it was asked to has stopped at the
/// socket's limit, and an event will tell when there is more to do; unless it
/// moved so many. The system cuts a call short below 2 GiB, whatever the socket
/// has room for, and no event follows.
pub const CALL_LIMIT: usize = 1 << 30;

/// Ends a connection so that what the peer has not read yet still reaches it:
/// a socket closed with unread bytes would reset the connection.
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

/// Waits until one of the sockets has room for writing, at most so long.
pub fn wait_writable(sockets: &[impl AsFd], timeout: std::time::Duration) {
    use rustix::event::{PollFd, PollFlags};
    let timeout = rustix::time::Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut fds: Vec<_> = sockets
        .iter()
        .map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT))
        .collect();
    // The caller looks at the clock itself.
    let _ = rustix::event::poll(&mut fds, Some(&timeout));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a connection within this host.
    fn local_pair(params: &Params) -> [OwnedFd; 2] {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = bound(&any, params).unwrap();
        listen(listener.as_fd(), 1).unwrap();
        let near = connect(None, &name(listener.as_fd()).unwrap(), params).unwrap();
        wait_writable(&[near.as_fd()], std::time::Duration::from_secs(60));
        connect_outcome(near.as_fd()).unwrap();
        let far = loop {
            match accept(listener.as_fd(), params) {
                Err(Errno::EAGAIN) => std::thread::yield_now(),
                far => break far.unwrap(),
            }
        };
        for end in [&near, &far] {
            set_up_path(end.as_fd(), 0, params);
        }
        [near, far]
    }

    #[test]
    fn connections_within_the_host_get_another_congestion_control() {
        let system = || {
            let socket = open(&SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            sockopt::tcp_congestion(socket).unwrap()
        };
        let congestion = |setting: &str| {
            let params = Params {
                local_congestion: setting.into(),
                ..Params::default()
            };
            let [near, far] = local_pair(&params).map(|end| sockopt::tcp_congestion(end).unwrap());
            assert_eq!(near, far);
            near
        };
        assert_eq!(congestion("reno"), "reno");
        for setting in ["system", "no such thing"] {
            assert_eq!(congestion(setting), system());
        }
    }

    #[test]
    fn connections_within_the_host_get_a_send_buffer_that_the_system_can_give() {
        let buffer = |local_sndbuf_size: usize| {
            let params = Params {
                local_sndbuf_size,
                ..Params::default()
            };
            local_pair(&params).map(|end| sockopt::socket_send_buffer_size(end).unwrap())
        };
        let system = buffer(0);
        let largest = largest_sndbuf();
        assert_eq!(buffer(largest), [2 * largest; 2]);
        assert_eq!(buffer(100_000), [200_000; 2]);
        assert_eq!(buffer(largest + 1), system);
    }

    #[test]
    fn a_socket_that_is_still_connecting_has_not_failed() {
        let params = Params::default();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let unconnected = bound(&any, &params).unwrap();
        assert_eq!(connect_outcome(unconnected.as_fd()), Ok(()));
    }

    #[test]
    fn a_socket_that_reaches_itself_is_refused() {
        let params = Params::default();
        let socket = bound(&SocketAddr::from(([127, 0, 0, 1], 0)), &params).unwrap();
        let own = name(socket.as_fd()).unwrap();
        let socket = connect_bound(socket, &own, &params).unwrap();
        wait_writable(&[socket.as_fd()], std::time::Duration::from_secs(60));
        assert_eq!(connect_outcome(socket.as_fd()), Err(Errno::ECONNREFUSED));
    }
}
