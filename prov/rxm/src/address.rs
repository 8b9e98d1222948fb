//! Addresses of endpoints: where they listen. They connect from other ports.

use std::net::SocketAddr;

use prov_util::errno::{Errno, Result};
use prov_util::sockaddr;

/// The bytes of an address.
pub fn bytes(addr: &SocketAddr) -> Vec<u8> {
    sockaddr::encode(addr).as_bytes().to_vec()
}

/// An address as the provider below has it.
///
/// # Errors
/// `-FI_EAFNOSUPPORT` for one that is no internet address.
pub fn read(bytes: &[u8]) -> Result<SocketAddr> {
    sockaddr::decode(bytes).ok_or(Errno::EAFNOSUPPORT)
}

/// The same address at another port.
pub fn at_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}
