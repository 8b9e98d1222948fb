//! The protocol of rxm, compatible with the C library: connection data, and the packets that
//! endpoints exchange over a connection. It converts between bytes and values, without I/O.
//!
//! Both ends have the same byte order; connections between different ones are refused. Fields that
//! a packet does not use are undefined.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod connection;
#[cfg(test)]
mod hostile;
pub mod packet;
pub mod part;

/// A violation of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

/// The result of decoding what a peer has sent.
pub type Result<T> = std::result::Result<T, Malformed>;

/// Decodes numbers at the front of a byte string.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_ne_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}
