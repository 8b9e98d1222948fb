//! The tcp protocol as a sans-I/O module: bytes to messages and back.
//!
//! The format is described in docs/tcp-wire.md. The module is independent of sockets, endpoints and
//! time; everything that a peer sends is checked here before the engine sees it.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![forbid(unsafe_code)]

pub mod atomic;
pub mod authentication;
pub mod direct;
pub mod handshake;
pub mod header;
pub mod multipath;
pub mod rdm;
pub mod simple;
pub mod stream;

use std::fmt;

/// Byte order of the multi-byte fields of a stream. Two hosts with the same byte order use it;
/// otherwise both use big-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteOrder {
    /// This host's own order.
    Native,
    /// Network order, towards a host of the other endianness.
    Big,
}

impl ByteOrder {
    #[inline]
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            ByteOrder::Native => u16::from_ne_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    #[inline]
    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            ByteOrder::Native => u64::from_ne_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        }
    }

    #[inline]
    fn put_u16(self, value: u16) -> [u8; 2] {
        match self {
            ByteOrder::Native => value.to_ne_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    #[inline]
    fn put_u64(self, value: u64) -> [u8; 8] {
        match self {
            ByteOrder::Native => value.to_ne_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }
}

/// A violation of the protocol. The peer's connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// An unsupported protocol version.
    Version(u8),
    /// A message of the handshake that is not allowed at this point.
    UnexpectedType(u8),
    /// More connection data than [`handshake::MAX_DATA`].
    DataTooLong(usize),
    /// The byte order mark is neither this host's nor the other one's.
    ByteOrderMark(u64),
    /// An operation that does not exist or was not negotiated.
    Opcode(u8),
    /// A header length that is invalid for its operation.
    HeaderSize(u8),
    /// More remote buffers than [`header::RMA_IOV_LIMIT`].
    RmaIovCount(u8),
    /// A total size that is smaller than the header or beyond the address space.
    Size(u64),
    /// A payload on an operation without one, or of the wrong length.
    Payload(u64),
    /// A field with an invalid value for its operation.
    Field(&'static str),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Version(version) => write!(
                f,
                "protocol version {version}, which is not that of tcp (the C library's provider \
                 sockets has another protocol)"
            ),
            WireError::UnexpectedType(kind) => write!(f, "handshake message of type {kind}"),
            WireError::DataTooLong(len) => write!(f, "{len} bytes of connection data"),
            WireError::ByteOrderMark(mark) => write!(f, "byte order mark {mark:#x}"),
            WireError::Opcode(op) => write!(f, "operation {op:#x}"),
            WireError::HeaderSize(size) => write!(f, "header of {size} bytes"),
            WireError::RmaIovCount(count) => write!(f, "{count} remote buffers"),
            WireError::Size(size) => write!(f, "message size {size}"),
            WireError::Payload(len) => write!(f, "payload of {len} bytes"),
            WireError::Field(name) => write!(f, "invalid {name}"),
        }
    }
}

impl std::error::Error for WireError {}
