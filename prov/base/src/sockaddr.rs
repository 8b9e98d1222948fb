//! Internet addresses in the two forms that C callers use: socket structures
//! (`FI_SOCKADDR_IN`, `FI_SOCKADDR_IN6`) and strings (`FI_ADDR_STR`,
//! fi_getinfo(3)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use fabric_abi::*;

use crate::errno::{Errno, Result};

/// Size of a `sockaddr_in` in bytes.
pub const SIZE_IN: usize = 16;
/// Size of a `sockaddr_in6` in bytes.
pub const SIZE_IN6: usize = 28;

/// An encoded socket structure of either family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    bytes: [u8; SIZE_IN6],
    len: usize,
}

impl Encoded {
    /// The bytes of the structure.
    #[allow(clippy::indexing_slicing, reason = "the length is that of a family")]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Encodes an address as a socket structure.
pub fn encode(addr: &SocketAddr) -> Encoded {
    let mut bytes = [0; SIZE_IN6];
    let family = match addr {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    bytes[0..2].copy_from_slice(&(family as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
    let len = match addr {
        SocketAddr::V4(v4) => {
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            SIZE_IN
        }
        SocketAddr::V6(v6) => {
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            SIZE_IN6
        }
    };
    Encoded { bytes, len }
}

/// Decodes the address in a socket structure; `None` for other families and for fewer bytes than
/// the family needs.
#[allow(
    clippy::indexing_slicing,
    reason = "the length of the family was compared"
)]
pub fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    if size_of_family(family)? > bytes.len() {
        return None;
    }
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    if i32::from(family) == libc::AF_INET {
        let ip = Ipv4Addr::from(*bytes[4..].first_chunk::<4>()?);
        Some(SocketAddrV4::new(ip, port).into())
    } else {
        let flow = u32::from_ne_bytes(*bytes[4..].first_chunk()?);
        let ip = Ipv6Addr::from(*bytes[8..].first_chunk::<16>()?);
        let scope = u32::from_ne_bytes(*bytes[24..].first_chunk()?);
        Some(SocketAddrV6::new(ip, port, flow, scope).into())
    }
}

/// Decodes an address that the application gives to an object whose addresses have this format
/// (`fi_info::addr_format`).
///
/// # Errors
/// `-FI_EINVAL` if there is none, `-FI_EAFNOSUPPORT` for one of another family.
pub fn decode_as(bytes: &[u8], format: u32) -> Result<SocketAddr> {
    let addr = decode(bytes).ok_or(Errno::EINVAL)?;
    let fits = match format {
        FI_SOCKADDR_IN => addr.is_ipv4(),
        FI_SOCKADDR_IN6 => addr.is_ipv6(),
        _ => true,
    };
    fits.then_some(addr).ok_or(Errno::EAFNOSUPPORT)
}

/// Returns the size of the socket structure of an `AF_*` family.
pub fn size_of_family(family: u16) -> Option<usize> {
    match i32::from(family) {
        libc::AF_INET => Some(SIZE_IN),
        libc::AF_INET6 => Some(SIZE_IN6),
        _ => None,
    }
}

/// Returns the `FI_SOCKADDR_*` format of an address.
pub fn format_of(addr: &SocketAddr) -> u32 {
    match addr {
        SocketAddr::V4(_) => FI_SOCKADDR_IN,
        SocketAddr::V6(_) => FI_SOCKADDR_IN6,
    }
}

/// Returns the same address without the interface (scope) of an IPv6 one; `None` if it names none.
pub fn without_scope(addr: &SocketAddr) -> Option<SocketAddr> {
    match addr {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            Some(SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), 0).into())
        }
        _ => None,
    }
}

/// Whether messages can be sent to the address: neither the address nor the port is unspecified.
pub fn is_destination(addr: &SocketAddr) -> bool {
    !addr.ip().is_unspecified() && addr.port() != 0
}

/// Returns the bytes of an internet address with another port; none for any other address.
pub fn at_port(addr: &[u8], port: u16) -> Vec<u8> {
    let Some(mut addr) = decode(addr) else {
        return Vec::new();
    };
    addr.set_port(port);
    encode(&addr).as_bytes().to_vec()
}

/// Returns the string form of an address, such as `fi_sockaddr_in://10.1.2.3:4567`.
pub fn to_string(addr: &SocketAddr) -> String {
    match addr {
        SocketAddr::V4(v4) => format!("fi_sockaddr_in://{}:{}", v4.ip(), v4.port()),
        SocketAddr::V6(v6) => format!("fi_sockaddr_in6://[{}]:{}", v6.ip(), v6.port()),
    }
}

/// Whether a node name is the string form of an address.
pub fn is_uri(node: &str) -> bool {
    node.contains("://")
}

/// Parses the string form of an address. Host and port may be missing and are then unspecified;
/// text after the port (`/...`, `?...`) has no meaning for internet addresses and is ignored.
pub fn parse(text: &str) -> Option<SocketAddr> {
    let (scheme, rest) = text.split_once("://")?;
    let rest = rest.split(['/', '?']).next()?;
    let (host, port) = match rest.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']')?;
            (
                host,
                after.strip_prefix(':').or(after.is_empty().then_some("")),
            )
        }
        None => match rest.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, Some("")),
        },
    };
    let port = match port? {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    let any = |ip: IpAddr| if host.is_empty() { Some(ip) } else { None };
    let ip = match scheme.to_ascii_lowercase().as_str() {
        "fi_sockaddr_in" => any(Ipv4Addr::UNSPECIFIED.into())
            .or_else(|| host.parse::<Ipv4Addr>().ok().map(IpAddr::V4)),
        "fi_sockaddr_in6" => any(Ipv6Addr::UNSPECIFIED.into())
            .or_else(|| host.parse::<Ipv6Addr>().ok().map(IpAddr::V6)),
        "fi_sockaddr" | "fi_sockaddr_ip" => {
            any(Ipv4Addr::UNSPECIFIED.into()).or_else(|| host.parse().ok())
        }
        _ => None,
    }?;
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_addresses_decode_to_themselves() {
        let scoped = SocketAddrV6::new("fe80::1:2".parse().unwrap(), 7, 9, 3);
        for addr in ["10.1.2.3:4567".parse().unwrap(), SocketAddr::V6(scoped)] {
            assert_eq!(decode(encode(&addr).as_bytes()), Some(addr));
        }
        assert_eq!(encode(&scoped.into()).as_bytes().len(), SIZE_IN6);
    }

    #[test]
    fn short_and_foreign_structures_are_refused() {
        let v6: SocketAddr = "[::1]:5".parse().unwrap();
        let bytes = encode(&v6);
        for len in 0..SIZE_IN6 {
            assert_eq!(decode(&bytes.as_bytes()[..len]), None);
        }
        assert_eq!(decode(&[0xff; 28]), None);
    }

    #[test]
    fn string_forms_read_back() {
        for text in [
            "fi_sockaddr_in://10.1.2.3:4567",
            "fi_sockaddr_in6://[fe80::6:12]:7",
        ] {
            assert_eq!(to_string(&parse(text).unwrap()), text);
        }
        let same = |a, b: &str| assert_eq!(parse(a), Some(b.parse().unwrap()), "{a}");
        same("fi_sockaddr://10.31.6.12:7471?qos=3", "10.31.6.12:7471");
        same("FI_SOCKADDR_IN://:80", "0.0.0.0:80");
        same("fi_sockaddr_in6://[::1]", "[::1]:0");
        same("fi_sockaddr_ip://10.0.0.1", "10.0.0.1:0");
    }

    #[test]
    fn malformed_strings_are_refused() {
        for text in [
            "",
            "10.1.2.3",
            "fi_sockaddr_in://host:1",
            "fi_sockaddr_in://1.2.3.4:65536",
            "fi_sockaddr_in6://[::1:5",
            "fi_sockaddr_in6://[::1]5",
            "fi_sockaddr_ib://[::1]:1",
            "fi_sockaddr_in://[::1]:1",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
