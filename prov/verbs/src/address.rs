//! Addresses of connections: internet addresses, and InfiniBand addresses (`struct sockaddr_ib`).

use std::ffi::CStr;
use std::net::{Ipv6Addr, SocketAddr};

use fabric_abi::FI_SOCKADDR_IB;
use prov_base::errno::{Errno, Result};
use prov_base::sockaddr;

use crate::sys::rdmacm::storage;

/// `AF_IB`
const FAMILY_INFINIBAND: u16 = 27;
/// Number of bytes of a `struct sockaddr_ib`.
const SIZE_INFINIBAND: usize = 48;

/// The port spaces of RDMA CM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSpace {
    /// Reliable connections between IP addresses.
    Tcp,
    /// Connection requests and answers only, between IP addresses.
    Udp,
    /// Between InfiniBand addresses.
    Infiniband,
}

/// An address that RDMA CM accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SocketAddress {
    /// `FI_SOCKADDR_IN`, `FI_SOCKADDR_IN6`
    Internet(SocketAddr),
    /// `FI_SOCKADDR_IB`
    Infiniband([u8; SIZE_INFINIBAND]),
}

impl SocketAddress {
    /// Decodes the address in a socket structure; `None` for another family, and for too few bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let family = u16::from_ne_bytes(*bytes.first_chunk()?);
        if family == FAMILY_INFINIBAND {
            return bytes.first_chunk().copied().map(SocketAddress::Infiniband);
        }
        sockaddr::decode(bytes).map(SocketAddress::Internet)
    }

    /// Encodes the address as a socket structure.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            SocketAddress::Internet(address) => sockaddr::encode(address).as_bytes().to_vec(),
            SocketAddress::Infiniband(bytes) => bytes.to_vec(),
        }
    }

    /// Returns the `FI_SOCKADDR_*` format of the address.
    pub fn format(&self) -> u32 {
        match self {
            SocketAddress::Internet(address) => sockaddr::format_of(address),
            SocketAddress::Infiniband(_) => FI_SOCKADDR_IB,
        }
    }

    /// Returns the port space of the address.
    pub fn space(&self) -> PortSpace {
        match self {
            SocketAddress::Internet(_) => PortSpace::Tcp,
            SocketAddress::Infiniband(_) => PortSpace::Infiniband,
        }
    }

    /// Returns the address in librdmacm's representation.
    pub(crate) fn to_storage(&self) -> storage {
        let mut bytes = [0; 128];
        let encoded = self.encode();
        for (place, byte) in bytes.iter_mut().zip(encoded) {
            *place = byte;
        }
        storage { bytes }
    }

    /// Reads librdmacm's representation; `None` if there is no address yet.
    pub(crate) fn of_storage(storage: &storage) -> Option<Self> {
        Self::decode(&storage.bytes)
    }
}

/// Returns the InfiniBand address that a node and a service name: `fi_sockaddr_ib://[GID]` or a GID
/// in the notation of IPv6 addresses, and a port number.
///
/// # Errors `-FI_ENODATA` for other names.
pub fn infiniband_named(node: Option<&CStr>, service: Option<&CStr>) -> Result<SocketAddress> {
    let text = |name: Option<&'_ CStr>| name.map(|name| name.to_str().unwrap_or("?").to_owned());
    let gid = match text(node) {
        None => Ipv6Addr::UNSPECIFIED,
        Some(node) => {
            let bare = node.strip_prefix("fi_sockaddr_ib://").unwrap_or(&node);
            let bare = bare.trim_start_matches('[').trim_end_matches(']');
            bare.parse().map_err(|_| Errno::ENODATA)?
        }
    };
    let port: u16 = match text(service) {
        None => 0,
        Some(service) => service.parse().map_err(|_| Errno::ENODATA)?,
    };
    /// The partition key that matches every partition.
    const ANY_PARTITION: u16 = 0xffff;
    /// `RDMA_IB_PS_IB`: the service identifiers of the port space, each with a port in its low
    /// bits.
    const SERVICES: u64 = 0x013f_0000;
    let mut bytes = [0; SIZE_INFINIBAND];
    bytes[..2].copy_from_slice(&FAMILY_INFINIBAND.to_ne_bytes());
    bytes[2..4].copy_from_slice(&ANY_PARTITION.to_be_bytes());
    bytes[8..24].copy_from_slice(&gid.octets());
    bytes[24..32].copy_from_slice(&(SERVICES | u64::from(port)).to_be_bytes());
    bytes[32..40].copy_from_slice(&u64::MAX.to_be_bytes());
    Ok(SocketAddress::Infiniband(bytes))
}

/// Returns the port space of addresses of this format.
pub fn space_of(format: u32) -> PortSpace {
    match format {
        FI_SOCKADDR_IB => PortSpace::Infiniband,
        _ => PortSpace::Tcp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_both_forms() {
        let mut infiniband = [7; SIZE_INFINIBAND];
        infiniband[..2].copy_from_slice(&FAMILY_INFINIBAND.to_ne_bytes());
        for address in [
            SocketAddress::Internet("10.77.0.1:7471".parse().unwrap()),
            SocketAddress::Internet("[fe80::1]:1".parse().unwrap()),
            SocketAddress::Infiniband(infiniband),
        ] {
            assert_eq!(
                SocketAddress::decode(&address.encode()),
                Some(address.clone())
            );
            assert_eq!(
                SocketAddress::of_storage(&address.to_storage()),
                Some(address)
            );
        }
    }

    #[test]
    fn invalid_addresses_are_not_decoded() {
        let nothing = storage { bytes: [0; 128] };
        assert_eq!(SocketAddress::of_storage(&nothing), None);
        let mut short = [0; SIZE_INFINIBAND - 1];
        short[..2].copy_from_slice(&FAMILY_INFINIBAND.to_ne_bytes());
        assert_eq!(SocketAddress::decode(&short), None);
        assert_eq!(SocketAddress::decode(&[2]), None);
    }
}
