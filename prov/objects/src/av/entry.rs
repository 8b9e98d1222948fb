//! Compact storage of peers' addresses, by address family.

#![allow(
    clippy::indexing_slicing,
    reason = "a record is as long as its kind of entries says"
)]

use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Range;

/// One slot of an address table, which holds an address or is free.
pub trait AddressSlot: Copy + Send + Sync + 'static {
    /// Size of the encoded form.
    const SIZE: usize;
    /// A free slot.
    const FREE: Self;

    /// Returns the slot for `addr`; `None` for an address family that it cannot hold.
    fn pack(addr: &SocketAddr) -> Option<Self>;

    /// Returns the address; `None` for a free slot.
    fn unpack(self) -> Option<SocketAddr>;

    /// Whether the slot holds an address.
    fn is_used(self) -> bool;

    /// The identity of a peer: slots with equal keys hold the same peer.
    type Key: Hash + Eq;

    /// Returns the key.
    fn key(self) -> Self::Key;

    /// Returns whether both hold the same peer.
    fn same(self, other: Self) -> bool {
        self.key() == other.key()
    }

    /// Writes the [`AddressSlot::SIZE`] bytes of the encoded form. The first byte is 0 exactly in a free
    /// slot.
    fn encode(self, bytes: &mut [u8]);

    /// Reads the encoded form. Any bytes are a valid slot.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// An IPv4 address and port: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V4Entry(u64);

const V4_USED: u64 = 1 << 63;

impl AddressSlot for V4Entry {
    type Key = u64;
    const SIZE: usize = 8;
    const FREE: Self = V4Entry(0);

    fn pack(addr: &SocketAddr) -> Option<Self> {
        match addr {
            SocketAddr::V4(v4) => {
                let ip = u64::from(v4.ip().to_bits());
                Some(V4Entry(V4_USED | ip << 16 | u64::from(v4.port())))
            }
            SocketAddr::V6(_) => None,
        }
    }

    fn unpack(self) -> Option<SocketAddr> {
        let ip = Ipv4Addr::from_bits((self.0 >> 16) as u32);
        (self.0 & V4_USED != 0).then(|| SocketAddr::new(ip.into(), self.0 as u16))
    }

    fn is_used(self) -> bool {
        self.0 & V4_USED != 0
    }

    fn key(self) -> Self::Key {
        self.0
    }

    fn encode(self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.0.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(V4Entry(u64::from_be_bytes(*bytes.first_chunk()?)))
    }
}

/// An IPv4 or IPv6 address with its port: 28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V6Entry {
    ip: [u8; 16],
    scope: u32,
    /// Kept for look-ups; not part of a peer's identity.
    flow: u32,
    port: u16,
    state: u16,
}

/// Position of the flow label in the encoded form.
pub const V6_FLOW: Range<usize> = 4..8;

const V6_USED: u16 = 1;
/// The address is an IPv4 one, in the last four bytes of `ip`.
const V6_IS_V4: u16 = 2;

impl AddressSlot for V6Entry {
    type Key = (u64, u64, u64);
    const SIZE: usize = 28;
    const FREE: Self = V6Entry {
        ip: [0; 16],
        scope: 0,
        flow: 0,
        port: 0,
        state: 0,
    };

    fn pack(addr: &SocketAddr) -> Option<Self> {
        Some(match addr {
            SocketAddr::V4(v4) => V6Entry {
                ip: v4.ip().to_ipv6_mapped().octets(),
                port: v4.port(),
                state: V6_USED | V6_IS_V4,
                ..Self::FREE
            },
            SocketAddr::V6(v6) => V6Entry {
                ip: v6.ip().octets(),
                scope: v6.scope_id(),
                flow: v6.flowinfo(),
                port: v6.port(),
                state: V6_USED,
            },
        })
    }

    fn unpack(self) -> Option<SocketAddr> {
        if self.state & V6_USED == 0 {
            return None;
        }
        let ip = Ipv6Addr::from(self.ip);
        Some(if self.state & V6_IS_V4 != 0 {
            let [.., a, b, c, d] = self.ip;
            SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), self.port)
        } else {
            SocketAddrV6::new(ip, self.port, self.flow, self.scope).into()
        })
    }

    fn is_used(self) -> bool {
        self.state & V6_USED != 0
    }

    fn key(self) -> Self::Key {
        let ip = u128::from_ne_bytes(self.ip);
        let rest = u64::from(self.scope) << 32
            | u64::from(self.port) << 16
            | u64::from(self.state & (V6_USED | V6_IS_V4));
        (ip as u64, (ip >> 64) as u64, rest)
    }

    fn encode(self, bytes: &mut [u8]) {
        bytes[..2].copy_from_slice(&self.state.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.port.to_ne_bytes());
        bytes[V6_FLOW].copy_from_slice(&self.flow.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.scope.to_ne_bytes());
        bytes[12..28].copy_from_slice(&self.ip);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 28] = bytes.first_chunk()?;
        Some(V6Entry {
            state: u16::from_le_bytes(*bytes.first_chunk()?),
            port: u16::from_ne_bytes(*bytes[2..].first_chunk()?),
            flow: u32::from_ne_bytes(*bytes[V6_FLOW].first_chunk()?),
            scope: u32::from_ne_bytes(*bytes[8..].first_chunk()?),
            ip: *bytes[12..].first_chunk()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back<E: AddressSlot>(addr: &str) {
        let addr: SocketAddr = addr.parse().unwrap();
        let entry = E::pack(&addr).unwrap();
        assert_eq!(entry.unpack(), Some(addr));
        let mut bytes = vec![0; E::SIZE];
        entry.encode(&mut bytes);
        assert_eq!(E::decode(&bytes).unwrap().unpack(), Some(addr));
        assert_ne!(bytes[0], 0);
        assert!(E::decode(&bytes[1..]).is_none());
    }

    #[test]
    fn packed_addresses_unpack_to_themselves() {
        back::<V4Entry>("10.1.2.3:65535");
        back::<V6Entry>("10.1.2.3:65535");
        back::<V6Entry>("[fe80::1%7]:1");
        assert_eq!(size_of::<V4Entry>(), 8);
        assert_eq!(size_of::<V6Entry>(), 28);
    }

    #[test]
    fn free_slots_hold_nothing() {
        assert_eq!(V4Entry::FREE.unpack(), None);
        assert_eq!(V6Entry::FREE.unpack(), None);
        assert!(V4Entry::decode(&[0; 8]).is_some_and(|slot| !slot.is_used()));
        assert!(V6Entry::decode(&[0; 28]).is_some_and(|slot| !slot.is_used()));
    }

    #[test]
    fn a_mapped_address_is_not_the_ipv4_address() {
        let v4 = V6Entry::pack(&"10.1.2.3:4".parse().unwrap()).unwrap();
        let mapped = V6Entry::pack(&"[::ffff:10.1.2.3]:4".parse().unwrap()).unwrap();
        assert!(!v4.same(mapped));
    }

    #[test]
    fn the_flow_label_is_no_part_of_a_peers_identity() {
        let with_flow = |flow| {
            let addr = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, flow, 0);
            V6Entry::pack(&addr.into()).unwrap()
        };
        assert!(with_flow(0).same(with_flow(9)));
    }
}
