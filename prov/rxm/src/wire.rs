//! The protocol of rxm, as the C library speaks it: connection data, and the
//! packets that endpoints send one another over a connection. Bytes and values,
//! nothing else.
//!
//! Both ends have the same byte order: connections are refused where they have
//! not. What a field is not used for in a packet may hold anything.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod connection;
#[cfg(test)]
mod hostile;
pub mod packet;
pub mod part;

/// What a peer does that it never would.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

/// The result of reading what a peer has sent.
pub type Result<T> = std::result::Result<T, Malformed>;

/// Reads numbers off the front of bytes.
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
