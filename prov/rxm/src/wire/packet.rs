//! Packets: a head of 64 bytes, and what its kind has behind that.
//!
//! ```text
//!  0 version   1 kind   2 bytes of a segment   4 number of a segment
//!  8 connection, as the receiver calls it   16 message, as a side calls it
//! 24 place of a segment (2 bits)
//! 32 version   33 -   34 operation   35 -   36 flags   40 bytes of the message
//! 48 immediate data   56 tag, or datatype, operation and count of parts
//! ```

use fabric_abi::FI_REMOTE_CQ_DATA;
use prov_util::request::RemoteIov;

use super::connection::CONTROL_VERSION;
use super::part::{self, PARTS};
use super::{Malformed, Reader, Result};

/// Length of the header in bytes.
pub const HEAD: usize = 64;
/// Version of the second half of the header.
const OPERATION_HEAD_VERSION: u8 = 2;

/// The kind of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole message.
    Eager = 0,
    /// A segment of a message.
    Segment = 1,
    /// A message that the receiver reads (rendezvous).
    Announced = 2,
    /// The receiver has read a message.
    ReadDone = 3,
    /// An atomic operation.
    Atomic = 4,
    /// Its result.
    AtomicResult = 5,
    /// Number of receives that the peer has posted again (credits).
    Credit = 6,
    /// The memory to which the sender has to write an announced message.
    WriteTo = 7,
    /// The sender has written a message.
    WriteDone = 8,
    /// *Extension*: the last packet of an endpoint that is closed in good order, for a peer that
    /// understands it ([`Request::takes_leave`](super::connection::Request::takes_leave)).
    Leave = 0x80,
}

impl Kind {
    fn of_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Kind::Eager,
            1 => Kind::Segment,
            2 => Kind::Announced,
            3 => Kind::ReadDone,
            4 => Kind::Atomic,
            5 => Kind::AtomicResult,
            6 => Kind::Credit,
            7 => Kind::WriteTo,
            8 => Kind::WriteDone,
            0x80 => Kind::Leave,
            _ => return None,
        })
    }
}

/// The operation that a packet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Message = 0,
    TaggedMessage = 1,
    Atomic = 6,
    FetchAtomic = 7,
    CompareAtomic = 8,
}

/// The position of a segment in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    First = 1,
    Middle = 2,
    Last = 3,
}

/// The header of a packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub kind: Kind,
    /// The peer's number of the connection.
    pub connection: u32,
    /// The sender's identifier of the message.
    pub message: u64,
    pub operation: Operation,
    /// Bytes of the message.
    pub len: u64,
    /// Immediate data.
    pub data: Option<u64>,
    /// The tag; for atomic operations, [`Elements::word`].
    pub tag: u64,
    /// For a segment: length, number and position.
    pub segment: Option<(u16, u32, Position)>,
}

impl Head {
    /// Returns the header of a packet that only names a message.
    pub fn note(kind: Kind, connection: u32, message: u64) -> Self {
        Head {
            kind,
            connection,
            message,
            operation: Operation::Message,
            len: 0,
            data: None,
            tag: 0,
            segment: None,
        }
    }

    /// Writes the header to the front of a packet.
    #[inline(always)]
    pub fn write(&self, bytes: &mut [u8; HEAD]) {
        let (len, number, position) = match self.segment {
            Some((len, number, position)) => (len, number, position as u64),
            None => (0, 0, 0),
        };
        let flags = match self.data {
            Some(_) => FI_REMOTE_CQ_DATA as u32,
            None => 0,
        };
        let words = [
            u64::from_ne_bytes(first_word(CONTROL_VERSION, self.kind as u8, len, number)),
            // The C library uses a signed number here.
            i64::from(self.connection.cast_signed()).cast_unsigned(),
            self.message,
            position,
            u64::from_ne_bytes(operation_word(self.operation as u8, flags)),
            self.len,
            self.data.unwrap_or(0),
            self.tag,
        ];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
    }
}

#[inline(always)]
fn first_word(version: u8, kind: u8, len: u16, number: u32) -> [u8; 8] {
    let ([a, b], [c, d, e, f]) = (len.to_ne_bytes(), number.to_ne_bytes());
    [version, kind, a, b, c, d, e, f]
}

#[inline(always)]
fn operation_word(operation: u8, flags: u32) -> [u8; 8] {
    let [a, b, c, d] = flags.to_ne_bytes();
    [OPERATION_HEAD_VERSION, 0, operation, 0, a, b, c, d]
}

/// A received packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Packet<'a> {
    /// This side's number of the connection.
    pub connection: u32,
    /// The sender's identifier of the message.
    pub message: u64,
    pub body: Body<'a>,
}

/// A whole message, or the beginning of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// `None` for an untagged one.
    pub tag: Option<u64>,
    /// Immediate data.
    pub data: Option<u64>,
    /// Length of the whole message in bytes.
    pub len: u64,
}

/// The content of a packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Body<'a> {
    Eager(Envelope, &'a [u8]),
    Segment(Envelope, Position, &'a [u8]),
    /// The memory from which it is to be read, and its first bytes, if any.
    Announced(Envelope, RemoteIov, &'a [u8]),
    ReadDone,
    Atomic(Atomic<'a>),
    /// The outcome as a negative error number or 0, and the result.
    AtomicResult(i32, &'a [u8]),
    Credit,
    Leave,
    /// The memory to which it is to be written.
    WriteTo(RemoteIov),
    WriteDone,
}

/// A peer's atomic operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Atomic<'a> {
    pub operation: Operation,
    pub elements: Elements,
    /// The memory, where [`RemotePiece::len`] counts elements instead of bytes.
    ///
    /// [`RemotePiece::len`]: prov_util::request::RemotePiece
    pub memory: RemoteIov,
    /// The operands, followed by the comparison values.
    pub operands: &'a [u8],
}

/// The elements of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elements {
    /// `enum fi_datatype`
    pub datatype: u8,
    /// `enum fi_op`
    pub op: u8,
    /// Number of segments of the memory.
    pub parts: u8,
}

impl Elements {
    /// Returns the encoded form, which takes the place of a tag.
    pub fn word(self) -> u64 {
        u64::from_ne_bytes([self.datatype, self.op, self.parts, 0, 0, 0, 0, 0])
    }

    fn of_word(word: u64) -> Self {
        let [datatype, op, parts, ..] = word.to_ne_bytes();
        Elements {
            datatype,
            op,
            parts,
        }
    }
}

const SHORT: Malformed = Malformed("length of a packet");

/// A whole message without immediate data, the most frequent packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plain<'a> {
    /// This side's number of the connection.
    pub connection: u32,
    /// `None` for an untagged one.
    pub tag: Option<u64>,
    pub payload: &'a [u8],
}

impl<'a> Plain<'a> {
    /// Decodes such a message; `None` for all other packets, which [`Packet::read`] decodes.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "constant indices of the words of a head"
    )]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, behind) = bytes.split_first_chunk::<HEAD>()?;
        let words = head.as_chunks::<8>().0;
        let word = |at: usize| u64::from_ne_bytes(words[at]);
        let [version, kind, ..] = words[0];
        let [operation_version, _, operation, _, flags @ ..] = words[4];
        let is_plain = version == CONTROL_VERSION
            && kind == Kind::Eager as u8
            && operation_version == OPERATION_HEAD_VERSION
            && operation <= Operation::TaggedMessage as u8
            && u32::from_ne_bytes(flags) & FI_REMOTE_CQ_DATA as u32 == 0;
        if !is_plain {
            return None;
        }
        Some(Plain {
            connection: word(1) as u32,
            tag: (operation != 0).then(|| word(7)),
            payload: behind.get(..usize::try_from(word(5)).ok()?)?,
        })
    }
}

impl<'a> Packet<'a> {
    /// Decodes a packet.
    ///
    /// # Errors
    /// If it is invalid.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "constant indices of the words of a head, and a length of at most what is there"
    )]
    pub fn read(bytes: &'a [u8]) -> Result<Self> {
        let (head, behind) = bytes.split_first_chunk::<HEAD>().ok_or(SHORT)?;
        let words = head.as_chunks::<8>().0;
        let word = |at: usize| u64::from_ne_bytes(words[at]);
        let [version, kind, low, high, ..] = words[0];
        let [operation_version, _, operation, _, a, b, c, d] = words[4];
        let kind = Kind::of_byte(kind).ok_or(Malformed("kind of a packet"))?;
        if version != CONTROL_VERSION {
            return Err(Malformed("version of a packet"));
        }
        let envelope = |len| {
            if operation_version != OPERATION_HEAD_VERSION {
                return Err(Malformed("version of an operation"));
            }
            let tag = match operation {
                0 => None,
                1 => Some(word(7)),
                _ => return Err(Malformed("operation of a message")),
            };
            let flags = u32::from_ne_bytes([a, b, c, d]);
            let has_data = u64::from(flags) & FI_REMOTE_CQ_DATA != 0;
            Ok(Envelope {
                tag,
                data: has_data.then(|| word(6)),
                len,
            })
        };
        let len = word(5);
        let body = match kind {
            Kind::Eager => {
                let payload = usize::try_from(len).ok().and_then(|len| behind.get(..len));
                Body::Eager(envelope(len)?, payload.ok_or(SHORT)?)
            }
            Kind::Segment => {
                let payload = behind.get(..usize::from(u16::from_ne_bytes([low, high])));
                let position =
                    match words[3][if cfg!(target_endian = "little") { 0 } else { 7 }] & 3 {
                        1 => Position::First,
                        2 => Position::Middle,
                        3 => Position::Last,
                        _ => return Err(Malformed("place of a segment")),
                    };
                Body::Segment(envelope(len)?, position, payload.ok_or(SHORT)?)
            }
            Kind::Announced => {
                let (list, front) = part::read_list(behind)?;
                let most = usize::try_from(len).unwrap_or(usize::MAX).min(front.len());
                Body::Announced(envelope(len)?, list, &front[..most])
            }
            Kind::ReadDone => Body::ReadDone,
            Kind::WriteTo => Body::WriteTo(part::read_list(behind)?.0),
            Kind::WriteDone => Body::WriteDone,
            Kind::Credit => Body::Credit,
            Kind::Leave => Body::Leave,
            Kind::Atomic => Body::Atomic(atomic(operation, word(7), behind)?),
            Kind::AtomicResult => {
                let (status, result) = atomic_result(behind)?;
                Body::AtomicResult(status, result)
            }
        };
        Ok(Packet {
            connection: word(1) as u32,
            message: word(2),
            body,
        })
    }
}

fn atomic(operation: u8, word: u64, behind: &[u8]) -> Result<Atomic<'_>> {
    let operation = match operation {
        6 => Operation::Atomic,
        7 => Operation::FetchAtomic,
        8 => Operation::CompareAtomic,
        _ => return Err(Malformed("form of an atomic operation")),
    };
    let elements = Elements::of_word(word);
    if usize::from(elements.parts) > PARTS {
        return Err(Malformed("parts of an atomic operation"));
    }
    let (list, operands) = part::read_parts(behind, elements.parts.into())?;
    Ok(Atomic {
        operation,
        elements,
        memory: list,
        operands,
    })
}

fn atomic_result(behind: &[u8]) -> Result<(i32, &[u8])> {
    let mut reader = Reader(behind);
    let (status, len) = (reader.take().ok_or(SHORT)?, reader.take().ok_or(SHORT)?);
    // These two fields are in network byte order.
    let (status, len) = (i32::from_be_bytes(status), u32::from_be_bytes(len));
    let result = reader.0.get(..len as usize).ok_or(SHORT)?;
    Ok((status, result))
}

/// Length in bytes of what precedes the result of an atomic operation.
pub const RESULT_HEAD: usize = 8;

/// Returns what precedes the result of an atomic operation.
pub fn result_head(status: i32, len: usize) -> [u8; RESULT_HEAD] {
    let mut bytes = [0; RESULT_HEAD];
    bytes[..4].copy_from_slice(&status.to_be_bytes());
    bytes[4..].copy_from_slice(&(len as u32).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests;
