//! *Extension*: several TCP connections (subflows) that carry one stream, each of its bytes on any of
//! them.
//!
//! The side that accepted the first connection offers addresses and a token ([`Offer`]); the other
//! one connects to these, and proves with the token that it belongs to the stream ([`Join`]). From
//! an [`Op::Multipath`](super::header::Op::Multipath) message with [`SWITCH`] on, the stream of that
//! direction is sent in [`Frame`]s. Numbers are big-endian.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::WireError;

/// Subject of a message: the sender asks for an offer.
pub const ASK: u8 = 0;
/// Subject of a message: an [`Offer`].
pub const OFFER: u8 = 1;
/// Subject of a message: the last one of its direction that is sent without frames.
pub const SWITCH: u8 = 2;

/// Number of bytes of a frame before its data.
pub const FRAME: usize = 16;
/// Largest number of bytes of data in a frame.
pub const MAX_DATA: usize = 64 << 10;
/// Largest number of bytes of the stream that a sender keeps, and that a receiver has not
/// acknowledged.
pub const WINDOW: u64 = 16 << 20;
/// Largest number of subflows of a stream.
pub const MAX_SUBFLOWS: usize = 16;
/// Largest number of addresses in an offer.
pub const MAX_ADDRESSES: usize = MAX_SUBFLOWS;
/// Largest number of bytes of an offer.
pub const MAX_OFFER: usize = TOKEN + 2 + MAX_ADDRESSES * ADDRESS;

const TOKEN: usize = 16;
const ADDRESS: usize = 19;

/// Identifies a stream towards its own peer; nobody else can guess it.
pub type Token = [u8; TOKEN];

/// A frame on a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// This many bytes of the stream, at least one, follow, which begin at an offset.
    Data { offset: u64, len: usize },
    /// All bytes of the other direction up to this offset have been received in order.
    Ack { offset: u64 },
    /// Once everything up to this offset is received, that is to be acknowledged without delay.
    Ask { offset: u64 },
}

const DATA: u8 = 0xd0;
const ACK: u8 = 0xd1;
const ASK_FOR_ACK: u8 = 0xd2;

impl Frame {
    /// Encodes the frame, without its data.
    pub fn encode(self) -> [u8; FRAME] {
        let (kind, len, offset) = match self {
            Frame::Data { offset, len } => (DATA, len, offset),
            Frame::Ack { offset } => (ACK, 0, offset),
            Frame::Ask { offset } => (ASK_FOR_ACK, 0, offset),
        };
        let mut out = [0; FRAME];
        out[0] = kind;
        out[4..8].copy_from_slice(&(len as u32).to_be_bytes());
        out[8..16].copy_from_slice(&offset.to_be_bytes());
        out
    }

    /// Decodes a frame, without its data.
    pub fn decode(bytes: &[u8; FRAME]) -> Result<Frame, WireError> {
        let [kind, r0, r1, r2, l0, l1, l2, l3, offset @ ..] = *bytes;
        let len = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let offset = u64::from_be_bytes(offset);
        let is_in_range = offset
            .checked_add(len as u64)
            .is_some_and(|end| end <= i64::MAX as u64);
        match kind {
            DATA if [r0, r1, r2] == [0; 3] && (1..=MAX_DATA).contains(&len) && is_in_range => {
                Ok(Frame::Data { offset, len })
            }
            ACK if [r0, r1, r2] == [0; 3] && len == 0 && is_in_range => Ok(Frame::Ack { offset }),
            ASK_FOR_ACK if [r0, r1, r2] == [0; 3] && len == 0 && is_in_range => {
                Ok(Frame::Ask { offset })
            }
            _ => Err(WireError::Field("frame")),
        }
    }
}

/// What the peer needs to add subflows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    pub token: Token,
    /// Number of subflows that the sender wants for each pair of interfaces.
    pub streams: u8,
    /// Where the sender listens for subflows, at most [`MAX_ADDRESSES`], without scope.
    pub addresses: Vec<SocketAddr>,
}

impl Offer {
    /// Encodes the offer.
    pub fn encode(&self) -> Vec<u8> {
        let addresses = self.addresses.iter().take(MAX_ADDRESSES);
        let mut out = self.token.to_vec();
        out.push(self.streams);
        out.push(addresses.len() as u8);
        for addr in addresses {
            let (family, ip) = match addr.ip() {
                IpAddr::V4(ip) => (4, ip.to_ipv6_mapped()),
                IpAddr::V6(ip) => (6, ip),
            };
            out.push(family);
            out.extend_from_slice(&ip.octets());
            out.extend_from_slice(&addr.port().to_be_bytes());
        }
        out
    }

    /// Decodes an offer that has arrived as a whole.
    pub fn decode(bytes: &[u8]) -> Result<Offer, WireError> {
        let wrong = WireError::Field("offer of subflows");
        let (token, rest) = bytes.split_first_chunk::<TOKEN>().ok_or(wrong)?;
        let (&[streams, count], rest) = rest.split_first_chunk::<2>().ok_or(wrong)?;
        let (entries, left) = rest.as_chunks::<ADDRESS>();
        if !left.is_empty() || entries.len() != usize::from(count) || entries.len() > MAX_ADDRESSES
        {
            return Err(wrong);
        }
        let address = |entry: &[u8; ADDRESS]| {
            let [family, ip @ .., p0, p1] = *entry;
            let port = u16::from_be_bytes([p0, p1]);
            let mapped = Ipv6Addr::from(ip);
            match family {
                4 => Some((mapped.to_ipv4_mapped()?, port).into()),
                6 => Some((mapped, port).into()),
                _ => None,
            }
        };
        let addresses: Option<Vec<_>> = entries.iter().map(address).collect();
        Ok(Offer {
            token: *token,
            streams,
            addresses: addresses.ok_or(wrong)?,
        })
    }
}

/// The connection data of a request for a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Join {
    pub token: Token,
    /// Which subflow it is, below [`MAX_SUBFLOWS`]. It replaces the one with this number.
    pub number: u8,
}

impl Join {
    /// Encodes the data.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.token.to_vec();
        out.push(self.number);
        out
    }

    /// Decodes the data.
    pub fn decode(bytes: &[u8]) -> Result<Join, WireError> {
        match bytes.split_first_chunk::<TOKEN>() {
            Some((&token, &[number])) if usize::from(number) < MAX_SUBFLOWS => {
                Ok(Join { token, number })
            }
            _ => Err(WireError::Field("request for a subflow")),
        }
    }
}

/// The any address stands for no choice of the system's: no peer can connect to it.
pub fn is_reachable(addr: &SocketAddr) -> bool {
    let is_link_local = match addr.ip() {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_link_local && !addr.ip().is_unspecified() && addr.ip() != IpAddr::V4(Ipv4Addr::BROADCAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_decoded_as_they_were_encoded() {
        for frame in [
            Frame::Data { offset: 0, len: 1 },
            Frame::Data {
                offset: 1 << 40,
                len: MAX_DATA,
            },
            Frame::Ack { offset: 77 },
            Frame::Ask { offset: 1 << 50 },
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
    }

    #[test]
    fn impossible_frames_are_refused() {
        let good = Frame::Data { offset: 5, len: 9 }.encode();
        for (at, byte) in [(0, 0), (0, 3), (1, 1), (3, 1), (4, 1), (8, 0x80), (8, 0xff)] {
            let mut bad = good;
            bad[at] = byte;
            assert!(Frame::decode(&bad).is_err(), "{at}");
        }
        let empty = Frame::Data { offset: 5, len: 0 }.encode();
        assert!(Frame::decode(&empty).is_err());
        let mut ack = Frame::Ack { offset: 5 }.encode();
        ack[7] = 1;
        assert!(Frame::decode(&ack).is_err());
    }

    #[test]
    fn offers_and_requests_are_decoded_as_they_were_encoded() {
        let offer = Offer {
            token: [7; 16],
            streams: 2,
            addresses: vec![
                "10.0.0.1:4000".parse().unwrap(),
                "[fd00::1]:5000".parse().unwrap(),
            ],
        };
        let bytes = offer.encode();
        assert_eq!(Offer::decode(&bytes), Ok(offer));
        for cut in 0..bytes.len() {
            assert!(Offer::decode(&bytes[..cut]).is_err());
        }
        let join = Join {
            token: [1; 16],
            number: 15,
        };
        assert_eq!(Join::decode(&join.encode()), Ok(join));
        for number in [16, 255] {
            assert!(Join::decode(&Join { number, ..join }.encode()).is_err());
        }
        assert!(Join::decode(&[0; 16]).is_err() && Join::decode(&[0; 18]).is_err());
    }
}
