//! The first packet of either side of a link: who it is, what it can do, and what it wants.

use std::sync::Arc;

use prov_base::process_memory::Token;
use prov_local::barrier;

use crate::listener::{Bell, LONGEST_NAME, Wire};

/// First word of a first packet: identification and version of the protocol.
pub(in crate::engine) const HELLO: u64 = u64::from_le_bytes(*b"fi_shm\x06\x00");
/// Flag: the sender's process participates in [`barrier`].
pub(super) const HAS_BARRIER: u64 = 1;
/// Flag: the sender wants the link.
pub(super) const WANTS: u64 = 4;
/// Flag: the sender's process has no descriptor left for the link.
pub(super) const IS_FULL: u64 = 8;

/// Flag: the sender can do without the socket once the link is open; the upper half of the word is the
/// number of its bell.
pub(super) const HAS_BELL: u64 = 16;
/// Flag: the sender's process has few descriptors left.
pub(super) const IS_CROWDED: u64 = 32;
/// Flag of an answer: the socket is given back once the link is open.
pub(super) const GIVES_BACK: u64 = 64;
/// Number of bits of a word before the number of a bell.
const FLAGS: u32 = 32;

/// Number of words before the name.
const WORDS: usize = 4;
/// Largest size of a packet in bytes.
pub(super) const PACKET: usize = WORDS * 8 + LONGEST_NAME;

/// The contents of the first packet of either side.
pub(super) struct Introduction<'a> {
    pub(super) flags: u64,
    pub(super) seal: Token,
    pub(super) name: &'a str,
}

impl<'a> Introduction<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let words = [HELLO, self.flags, self.seal.addr, self.seal.value];
        let mut bytes = words.map(u64::to_ne_bytes).concat();
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    /// The number of the sender's bell, if it has said that it has one.
    pub(super) fn bell(&self) -> u32 {
        (self.flags >> FLAGS) as u32
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (words, name) = bytes.split_at_checked(WORDS * 8)?;
        let mut words = words
            .as_chunks()
            .0
            .iter()
            .map(|word| u64::from_ne_bytes(*word));
        let mut next = || words.next().unwrap_or_default();
        if next() != HELLO {
            return None;
        }
        if name.is_empty() || name.len() > LONGEST_NAME {
            return None;
        }
        Some(Introduction {
            flags: next(),
            seal: Token {
                addr: next(),
                value: next(),
            },
            name: str::from_utf8(name).ok()?,
        })
    }
}

/// Returns the flags that tell a peer whether this side needs the socket, and can do without it.
pub(super) fn thrift(wire: &Wire, bell: Option<&Arc<Bell>>) -> u64 {
    let crowded = if wire.is_crowded() { IS_CROWDED } else { 0 };
    match bell {
        // The end of a process whose id is unknown is noticed by its socket alone.
        Some(bell) if wire.pid != 0 => crowded | HAS_BELL | u64::from(bell.number) << FLAGS,
        _ => crowded,
    }
}

pub(super) fn own_flags() -> u64 {
    if barrier::is_available() {
        HAS_BARRIER
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn introductions_are_read_as_they_were_written() {
        let seal = Token { addr: 3, value: 4 };
        let said = Introduction {
            flags: WANTS | HAS_BARRIER,
            seal,
            name: "a:b",
        };
        let bytes = said.encode();
        let read = Introduction::decode(&bytes).unwrap();
        assert_eq!(
            (read.flags, read.seal, read.name),
            (WANTS | HAS_BARRIER, seal, "a:b")
        );
        for len in 0..WORDS * 8 {
            assert!(Introduction::decode(&bytes[..len]).is_none());
        }
        let mut other = bytes.clone();
        other[6] += 1;
        assert!(Introduction::decode(&other).is_none());
    }
}
