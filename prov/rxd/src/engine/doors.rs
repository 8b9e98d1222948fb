//! Whether the ports of silent peers are closed, so that nobody has to wait for one that was killed.
//!
//! A host answers a datagram to a port that no socket has with an ICMP message, which the system reports at
//! a connected socket only. So an empty datagram, which this library ignores, goes to the peer from a
//! socket of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use prov_base::sockaddr;

use super::Core;
use crate::protocol::Name;

/// Limit of such sockets: more silent peers take turns.
const MOST: usize = 16;

/// Sockets that are connected to silent peers.
#[derive(Default)]
pub struct Doors(Vec<(Name, UdpSocket)>);

impl Doors {
    /// Sends a datagram to the port of a peer. Returns whether the answer to an earlier one, or to this
    /// one if it is there at once, was that the port is closed.
    fn is_closed(&mut self, name: &Name, addr: &SocketAddr) -> bool {
        let known = self.0.iter().position(|(known, _)| known == name);
        let (name, socket) = match known.map(|place| self.0.swap_remove(place)) {
            Some(known) => known,
            None => match connected(addr) {
                Ok(socket) => (*name, socket),
                Err(_) => return false,
            },
        };
        // An error that is pending is returned by any call, and is no longer pending then.
        let is_refused =
            |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
        let is_closed =
            socket.send(&[]).is_err_and(is_refused) || socket.recv(&mut [0]).is_err_and(is_refused);
        if !is_closed {
            if self.0.len() == MOST {
                self.0.remove(0);
            }
            self.0.push((name, socket));
        }
        is_closed
    }
}

fn connected(addr: &SocketAddr) -> std::io::Result<UdpSocket> {
    let any: IpAddr = match addr {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(addr)?;
    Ok(socket)
}

impl Core {
    /// Returns whether a peer's port is known to be closed; `false` over another provider than udp.
    #[cold]
    #[inline(never)]
    pub(super) fn is_port_closed(&mut self, name: &Name) -> bool {
        let below = self.below.as_ref();
        let is_udp = below.is_some_and(|below| {
            let provider = below.setting.core.fabric.prov_name.as_deref();
            provider == Some("udp")
        });
        match sockaddr::decode(name).filter(|_| is_udp) {
            Some(addr) => self.doors.is_closed(name, &addr),
            None => false,
        }
    }
}
