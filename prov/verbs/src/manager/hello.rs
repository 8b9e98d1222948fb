//! The 16 bytes before the connection data with XRC; numbers are in network byte order. The layout
//! is that of the provider's peers.

use prov_base::errno::{Errno, Result};

use super::message;
use crate::device::is_number;

/// Size of the structure in bytes.
pub const SIZE: usize = 16;

/// Largest number of bytes of connection data after the structure.
pub const DATA_LIMIT: usize = super::DATA_LIMIT - SIZE;

const VERSION: u8 = 2;

/// See the [module](self) description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Whether this is the request of the way back, which the side that was asked first sends.
    pub is_reciprocal: bool,
    /// In the first request, the port at which its sender listens for the way back; otherwise a
    /// port of the sender that distinguishes its requests.
    pub port: u16,
    /// The target on the peer's side to which the sender's initiator is connected already, or 0.
    pub target: u32,
    /// The sender's receive queue.
    pub queue: u32,
    /// Chosen by the sender of the first request, and returned in all related messages.
    pub tag: u32,
}

impl Hello {
    /// Encodes a message that begins with this.
    pub fn with(&self, data: &[u8]) -> Vec<u8> {
        let mut message = vec![VERSION, self.is_reciprocal.into()];
        message.extend(self.port.to_be_bytes());
        for number in [self.target, self.queue, self.tag] {
            message.extend(number.to_be_bytes());
        }
        if !self.is_reciprocal {
            let data = data.get(..DATA_LIMIT).unwrap_or(data);
            message.append(&mut message::answer(data));
        }
        message
    }

    /// Decodes the start of a message; returns it with the data after it.
    ///
    /// # Errors
    /// `-FI_EPROTO` for one that is too short or of another version, or with invalid numbers.
    pub fn of(message: &[u8]) -> Result<(Self, &[u8])> {
        let (&[version, reciprocal, p0, p1, ref numbers @ ..], rest) =
            message.split_first_chunk::<SIZE>().ok_or(Errno::EPROTO)?;
        let mut numbers = numbers.chunks_exact(4).map(|bytes| {
            let bytes = bytes.try_into().unwrap_or_default();
            u32::from_be_bytes(bytes)
        });
        let mut next = || numbers.next().ok_or(Errno::EPROTO);
        let hello = Hello {
            is_reciprocal: reciprocal != 0,
            port: u16::from_be_bytes([p0, p1]),
            target: next()?,
            queue: next()?,
            tag: next()?,
        };
        if version != VERSION || reciprocal > 1 {
            return Err(Errno::EPROTO);
        }
        is_number(hello.target)?;
        is_number(hello.queue)?;
        Ok((hello, message::of_answer(rest)))
    }
}

#[cfg(test)]
#[path = "../../../../fuzz/src/hello_check.rs"]
mod hello_check;

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        is_reciprocal: false,
        port: 0x1234,
        target: 0x00ab_cdef,
        queue: 0x0012_3456,
        tag: 0xfedc_ba98,
    };

    #[test]
    fn the_bytes_are_those_of_the_peers() {
        let bytes = [
            2, 0, 0x12, 0x34, 0, 0xab, 0xcd, 0xef, 0, 0x12, 0x34, 0x56, 0xfe, 0xdc, 0xba, 0x98, 3,
            7, 8, 9,
        ];
        assert_eq!(HELLO.with(&[7, 8, 9]), bytes);
        let back = Hello {
            is_reciprocal: true,
            ..HELLO
        };
        assert_eq!(back.with(&[7, 8, 9])[..2], [2, 1]);
        assert_eq!(back.with(&[7, 8, 9]).len(), SIZE);
    }

    #[test]
    fn a_hello_is_decoded_as_it_was_encoded_whatever_follows() {
        let all: Vec<u8> = (0..=255).collect();
        let mut numbers = 1u64;
        let mut number = |bits: u32| {
            numbers = numbers.wrapping_mul(6364136223846793005).wrapping_add(1);
            (numbers >> (64 - bits)) as u32
        };
        for round in 0..2000 {
            let hello = Hello {
                is_reciprocal: round % 3 == 0,
                port: number(16) as u16,
                target: number(24),
                queue: number(24),
                tag: number(32),
            };
            let data = &all[..number(6) as usize];
            let mut message = hello.with(data);
            assert!(message.len() <= 56);
            message.resize(196, 0);
            let expected = match hello.is_reciprocal {
                true => &[],
                false => &data[..data.len().min(DATA_LIMIT)],
            };
            assert_eq!(Hello::of(&message), Ok((hello, expected)));
            hello_check::check(&message);
            // Any bytes behind a valid beginning.
            message[SIZE..].fill_with(|| number(8) as u8);
            hello_check::check(&message);
        }
    }

    #[test]
    fn invalid_hellos_are_refused() {
        let whole = HELLO.with(b"data");
        for len in 0..SIZE {
            assert_eq!(Hello::of(&whole[..len]), Err(Errno::EPROTO), "{len}");
        }
        // The version, the reciprocal flag, and numbers of more than 24 bits.
        for (at, byte) in [(0, 1), (0, 3), (1, 2), (4, 1), (8, 0x80)] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            assert_eq!(Hello::of(&bytes), Err(Errno::EPROTO), "{at}");
        }
        let mut long = whole.clone();
        long[SIZE] = 255;
        hello_check::check(&long);
        assert_eq!(Hello::of(&long).unwrap().1, b"data");
    }
}
