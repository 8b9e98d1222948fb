//! Addresses of endpoints that send datagrams (`FI_ADDR_IB_UD`).

use crate::device::Gid;

/// Size of an address in bytes.
pub const SIZE: usize = 32;

/// An address: a port, and a queue pair there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// The port's address.
    pub gid: Gid,
    /// The number of the queue pair.
    pub pair: u32,
    /// The port's address in its subnet.
    pub lid: u16,
    /// The partition key.
    pub partition: u16,
    /// The service under which name servers know it; 0 for any.
    pub service: u16,
    /// The service level.
    pub service_level: u8,
}

impl Name {
    /// Encodes the address as the C library does: in the host's byte order, padded with zeros.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..16].copy_from_slice(&self.gid.0);
        bytes[16..20].copy_from_slice(&self.pair.to_ne_bytes());
        bytes[20..22].copy_from_slice(&self.lid.to_ne_bytes());
        bytes[22..24].copy_from_slice(&self.partition.to_ne_bytes());
        bytes[24..26].copy_from_slice(&self.service.to_ne_bytes());
        bytes[26] = self.service_level;
        bytes
    }

    /// Decodes an address; `None` for fewer bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SIZE] = bytes.first_chunk()?;
        let short = |at: usize| {
            let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u16::from_ne_bytes(*bytes))
        };
        Some(Name {
            gid: Gid(*bytes.first_chunk()?),
            pair: u32::from_ne_bytes(*bytes[16..].first_chunk()?),
            lid: short(20),
            partition: short(22),
            service: short(24),
            service_level: bytes[26],
        })
    }

    /// Whether the port has an address beyond its subnet.
    pub fn has_gid(&self) -> bool {
        self.gid.0[8..].iter().any(|&byte| byte != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_their_bytes() {
        let name = Name {
            gid: Gid(*b"0123456789abcdef"),
            pair: 0x0012_3456,
            lid: 7,
            partition: 0xffff,
            service: 5678,
            service_level: 3,
        };
        let bytes = name.encode();
        assert_eq!(Name::decode(&bytes), Some(name));
        assert_eq!(bytes[27..], [0; 5]);
        assert_eq!(Name::decode(&bytes[1..]), None);
        assert!(name.has_gid() && !Name::default().has_gid());
    }
}
