//! Addresses of endpoints: the addresses at which they listen. They connect from other ports.

use std::net::SocketAddr;

use prov_base::errno::{Errno, Result};
use prov_base::sockaddr;

/// Returns the bytes of an address.
pub fn bytes(addr: &SocketAddr) -> Vec<u8> {
    sockaddr::encode(addr).as_bytes().to_vec()
}

/// Decodes an address of the provider below.
///
/// # Errors
/// `-FI_EAFNOSUPPORT` if it is not an internet address.
pub fn read(bytes: &[u8]) -> Result<SocketAddr> {
    sockaddr::decode(bytes).ok_or(Errno::EAFNOSUPPORT)
}

/// Returns the same address with another port.
pub fn at_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}
