//! TCP sockets with the options that users can set.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::local::host;
use prov_base::errno::{Errno, Result};
use prov_base::socket::silence::{patience, probe};
use prov_base::socket::tcp;
pub use prov_base::socket::tcp::{
    CALL_LIMIT, connect_outcome, end, from_source, listen, rebind, wait_writable,
};
pub use prov_base::socket::{name, peer_name, receive, send};
use rustix::net::sockopt;

use crate::params::Params;

/// Sets the options of a connection's socket.
fn set_up(socket: BorrowedFd<'_>, params: &Params) {
    // A socket without these works, but is slower, or detects the failure of its peer's host later.
    if params.nodelay() {
        let _ = sockopt::set_tcp_nodelay(socket, true);
    }
    let _ = probe(socket, patience(params.connect_timeout()));
}

/// Sets the congestion control and send buffer of a connected socket whose peer is on this host, as
/// the addresses or the peer (its `host::mark`) show; returns whether it is. There is no loss on that
/// path and pacing only slows the sender, and the data of a long queue has left the caches when it is
/// received.
pub fn set_up_path(socket: BorrowedFd<'_>, peer: u32, params: &Params) -> bool {
    if !host::is_within(socket, peer) {
        return false;
    }
    let sndbuf = params.local_sndbuf_size;
    if (1..=tcp::largest_sndbuf()).contains(&sndbuf) {
        // A socket with another buffer size works, but slower.
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
    true
}

/// Number of bytes that wait in the socket of a subflow until they may be sent: enough to keep a
/// network of 100 Gbit/s busy for 10 microseconds, and few enough that a slow one takes few, which
/// would be the last to arrive.
const UNSENT: i32 = 128 << 10;

/// Bounds what a subflow takes before it can send it, so that each takes as much as it carries.
pub fn limit_unsent(socket: BorrowedFd<'_>) {
    // Without it, more waits on slow subflows.
    let _ = tcp::limit_unsent(socket, UNSENT);
}

/// Returns the address of a peer that requests a connection; `None` if it has gone, or the system
/// does not say, so that it gets none.
pub fn name_of_requester(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    let named = peer_name(socket);
    if let Err(error) = named
        && error != Errno::ENOTCONN
    {
        log::warn!(
            target: crate::LOG.ep_ctrl,
            "a peer gets no connection, since the system does not give its address: {error}"
        );
    }
    named.ok()
}

/// Creates a socket and starts connecting it from `source`, whose port is ignored, to `dest`.
pub fn connect(source: Option<SocketAddr>, dest: &SocketAddr, params: &Params) -> Result<OwnedFd> {
    let source = source.filter(|source| source.is_ipv4() == dest.is_ipv4());
    let socket = match source {
        Some(source) => from_source(&source)?,
        None => tcp::open(dest)?,
    };
    connect_bound(socket, dest, params)
}

/// Starts connecting a bound socket to `dest`.
pub fn connect_bound(socket: OwnedFd, dest: &SocketAddr, params: &Params) -> Result<OwnedFd> {
    set_up(socket.as_fd(), params);
    tcp::start_connect(socket.as_fd(), dest)?;
    Ok(socket)
}

/// Creates a socket bound to `addr`; with port 0, to a port in the range of the parameters.
pub fn bound(addr: &SocketAddr, params: &Params) -> Result<OwnedFd> {
    tcp::bound(addr, params.port_range(), crate::LOG.ep_ctrl)
}

/// As [`bound`], at as many ports in a row.
pub fn bound_in_row(addr: &SocketAddr, count: usize, params: &Params) -> Result<Vec<OwnedFd>> {
    tcp::bound_in_row(addr, count, params.port_range(), crate::LOG.ep_ctrl)
}

/// Accepts the next pending connection of a listening socket.
pub fn accept(listener: BorrowedFd<'_>, params: &Params) -> Result<OwnedFd> {
    let socket = prov_base::socket::accept(listener)?;
    set_up(socket.as_fd(), params);
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use prov_base::errno::Errno;

    use super::*;

    /// Creates both ends of a connection within this host.
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
            let socket = tcp::open(&SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
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
        let largest = tcp::largest_sndbuf();
        assert_eq!(buffer(largest), [2 * largest; 2]);
        assert_eq!(buffer(100_000), [200_000; 2]);
        assert_eq!(buffer(largest + 1), system);
    }
}
