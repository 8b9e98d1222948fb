//! What packets look like: docs/rxd-wire.md. Nothing here keeps state.
//!
//! All numbers are in the byte order of the host, as those of the C library are.

mod checksum;
mod setup;

use prov_base::errno::Errno;
use prov_util::request::{RemoteIov, RemotePiece};

use super::host::Form;

pub use checksum::seal;
pub use setup::{Hello, SetupAnswer, SetupRequest};

/// Version of the protocol, in every packet.
pub const VERSION: u8 = 2;

/// Types of packets.
pub mod kind {
    pub const MESSAGE: u8 = 0;
    pub const TAGGED: u8 = 1;
    pub const READ: u8 = 2;
    pub const WRITE: u8 = 4;
    pub const ATOMIC: u8 = 6;
    pub const FETCH: u8 = 7;
    pub const COMPARE: u8 = 8;
    /// Request to set up a connection.
    pub const REQUEST: u8 = 9;
    /// Answer to a request.
    pub const ANSWER: u8 = 10;
    pub const ACK: u8 = 11;
    /// The rest of a message or a write.
    pub const DATA: u8 = 12;
    /// The result of a read or an atomic operation.
    pub const RESULT: u8 = 13;
    /// Extension: an operation was refused.
    pub const REFUSAL: u8 = 16;
}

/// Flags of packets.
pub mod flag {
    /// There is immediate data.
    pub const DATA: u16 = 1 << 0;
    /// There is a tag.
    pub const TAG: u16 = 1 << 4;
    /// There is no [`Extent`](super::Extent).
    pub const INLINE: u16 = 1 << 5;
    /// Extension: how often the packet has been sent before, up to [`MAX_REPEATS`](super::MAX_REPEATS),
    /// shifted by [`REPEATS_SHIFT`].
    pub const REPEATS: u16 = 7 << REPEATS_SHIFT;
    pub const REPEATS_SHIFT: u16 = 6;
    /// Extension: in an [echo](super::AckField::echo), that there is one.
    pub const ECHO: u16 = 1 << 9;
    /// Extension: the sender of a probe has receives that only the receiver's messages can fill.
    pub const AWAITED: u16 = 1 << 11;
    /// Extension: the sender of this acknowledgement does not answer any longer.
    pub const CLOSING: u16 = 1 << 12;
    /// Extension: this packet has been sent before and was taken for lost.
    pub const REPEATED: u16 = 1 << 13;
    /// Extension: only asks for an acknowledgement.
    pub const PROBE: u16 = 1 << 14;
    /// Extension: an acknowledgement follows the header.
    pub const ACK: u16 = 1 << 15;
}

/// Largest number in [`flag::REPEATS`]: so many times, or more.
pub const MAX_REPEATS: u8 = 7;

/// Which transmission of a packet has arrived, as the [echo](AckField::echo) of its flags says: the number
/// of those before. `None` if it does not say, or there were too many to tell.
pub fn repeats_of(echo: u16) -> Option<u8> {
    let repeats = ((echo & flag::REPEATS) >> flag::REPEATS_SHIFT) as u8;
    (echo & flag::ECHO != 0 && repeats < MAX_REPEATS).then_some(repeats)
}

/// Bytes of the header of every packet.
pub const BASE_LEN: usize = 16;
/// Bytes of the headers of [`kind::DATA`], [`kind::RESULT`] and [`kind::ACK`].
pub const EXTENDED_LEN: usize = 32;
/// Bytes of an acknowledgement within another packet.
pub const ACK_FIELD_LEN: usize = 12;
/// Bytes of [`Extent`].
pub const EXTENT_LEN: usize = 24;
/// Bytes of a piece of remote memory.
const PIECE_LEN: usize = 24;
/// Bytes of datatype and operation.
const ATOMIC_LEN: usize = 8;
/// Bytes of the longest header: that of an atomic operation with four pieces of memory.
pub const HEAD_ROOM: usize =
    BASE_LEN + ACK_FIELD_LEN + 8 + 8 + EXTENT_LEN + 4 * PIECE_LEN + ATOMIC_LEN;

/// What begins every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    pub kind: u8,
    pub flags: u16,
    /// The receiver's number of the sender.
    pub number: u32,
    pub seq: u64,
}

/// Length and number of packets of an operation that does not fit into one, or has a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub size: u64,
    pub parts: u64,
    /// The initiator's number of the operation.
    pub id: u32,
    /// Number of pieces of remote memory.
    pub pieces: u8,
}

/// The headers of the first packet of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Operation {
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub extent: Option<Extent>,
    pub remote: RemoteIov,
    /// Datatype and operation.
    pub atomic: Option<(u32, u32)>,
}

/// A cumulative acknowledgement within another packet (extension).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckField {
    /// Low bits of the next sequence number that is expected.
    pub next: u32,
    /// Number of packets from there on for which there is room.
    pub window: u16,
    /// Number of refusals that have been sent for packets before `next`, modulo 2^16.
    pub refusals: u16,
    /// Microseconds since the newest packet arrived, or [`NO_DELAY`].
    pub delay: u16,
    /// The flags of that packet, with [`flag::ECHO`]; 0 from a peer that does not tell.
    pub echo: u16,
}

/// It is not known how old the newest packet is, or it is not among those that are acknowledged.
pub const NO_DELAY: u16 = u16::MAX;

/// Takes numbers off the front of a packet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}

impl Base {
    /// Reads the front of a packet of this version. Returns it with the rest.
    #[inline(always)]
    pub fn read(packet: &[u8]) -> Option<(Base, &[u8])> {
        let (&front, rest) = packet.split_first_chunk::<BASE_LEN>()?;
        let [v, k, f0, f1, n0, n1, n2, n3, seq @ ..] = front;
        (v == VERSION).then_some((
            Base {
                kind: k,
                flags: u16::from_ne_bytes([f0, f1]),
                number: u32::from_ne_bytes([n0, n1, n2, n3]),
                seq: u64::from_ne_bytes(seq),
            },
            rest,
        ))
    }
}

/// Whether operations of this type name remote memory.
#[inline(always)]
fn is_remote(kind: u8) -> bool {
    matches!(kind, kind::READ | kind::WRITE) || is_atomic(kind)
}

#[inline(always)]
fn is_atomic(kind: u8) -> bool {
    matches!(kind, kind::ATOMIC | kind::FETCH | kind::COMPARE)
}

impl AckField {
    /// Reads the field behind the header, if it has one.
    #[inline(always)]
    pub fn read(rest: &[u8]) -> Option<(AckField, &[u8])> {
        let (&field, rest) = rest.split_first_chunk::<ACK_FIELD_LEN>()?;
        let [n0, n1, n2, n3, w0, w1, r0, r1, d0, d1, e0, e1] = field;
        let field = AckField {
            next: u32::from_ne_bytes([n0, n1, n2, n3]),
            window: u16::from_ne_bytes([w0, w1]),
            refusals: u16::from_ne_bytes([r0, r1]),
            delay: u16::from_ne_bytes([d0, d1]),
            echo: u16::from_ne_bytes([e0, e1]),
        };
        Some((field, rest))
    }
}

/// The numbers behind the header of [`kind::DATA`], [`kind::RESULT`] and [`kind::ACK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    pub tx_id: u32,
    /// In acknowledgements: number of packets for which there is room. In probes with
    /// [`flag::AWAITED`]: milliseconds between the signs of life that the sender asks for.
    pub rx_id: u32,
    /// In acknowledgements between peers of this library: number of refusals, modulo 2^16, in the
    /// next 16 bits the [delay](AckField::delay), and in those behind them the
    /// [echo](AckField::echo).
    pub part: u64,
}

impl Extended {
    #[inline(always)]
    pub fn read(rest: &[u8]) -> Option<(Extended, &[u8])> {
        let mut reader = Reader(rest);
        let extended = Extended {
            tx_id: reader.u32()?,
            rx_id: reader.u32()?,
            part: reader.u64()?,
        };
        Some((extended, reader.0))
    }
}

impl Operation {
    /// Reads the headers of an operation of this type. Returns them with the payload.
    pub fn read<'a>(base: &Base, rest: &'a [u8]) -> Option<(Operation, &'a [u8])> {
        let mut reader = Reader(rest);
        let mut operation = Operation {
            tag: None,
            data: None,
            extent: None,
            remote: RemoteIov::default(),
            atomic: None,
        };
        if base.flags & flag::TAG != 0 {
            operation.tag = Some(reader.u64()?);
        }
        if base.flags & flag::DATA != 0 {
            operation.data = Some(reader.u64()?);
        }
        let mut pieces = 1;
        if base.flags & flag::INLINE == 0 {
            let (size, parts, id) = (reader.u64()?, reader.u64()?, reader.u32()?);
            let [count, _, _, _] = reader.take()?;
            pieces = count;
            operation.extent = Some(Extent {
                size,
                parts,
                id,
                pieces,
            });
        }
        if is_remote(base.kind) {
            for _ in 0..pieces {
                let (addr, len, key) = (reader.u64()?, reader.u64()?, reader.u64()?);
                if !operation.remote.push(RemotePiece { addr, len, key }) {
                    return None;
                }
            }
        }
        if is_atomic(base.kind) {
            operation.atomic = Some((reader.u32()?, reader.u32()?));
        }
        Some((operation, reader.0))
    }
}

/// The form of an atomic operation with this type of packet.
pub fn form_of(kind: u8) -> Form {
    match kind {
        kind::FETCH => Form::Fetch,
        kind::COMPARE => Form::Compare,
        _ => Form::Base,
    }
}

/// What was refused and why (extension).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalPacket {
    /// Sequence number of the operation's first packet; with `parts`, the initiator's number of it.
    pub of: u64,
    /// The error's positive number.
    pub errno: u32,
    /// Number of packets of the result that this one stands for; 0 if the whole operation is refused.
    pub parts: u32,
}

impl RefusalPacket {
    pub fn read(rest: &[u8]) -> Option<RefusalPacket> {
        let mut reader = Reader(rest);
        Some(RefusalPacket {
            of: reader.u64()?,
            errno: reader.u32()?,
            parts: reader.u32()?,
        })
    }

    /// The error to report.
    pub fn error(&self) -> Errno {
        let errno = i32::try_from(self.errno).ok().filter(|errno| *errno > 0);
        errno.map_or(Errno::EACCES, Errno::new)
    }
}

/// Room for a packet's headers, or for a whole packet without payload.
pub struct Head<const ROOM: usize = HEAD_ROOM> {
    bytes: [u8; ROOM],
    len: usize,
}

impl<const ROOM: usize> Head<ROOM> {
    #[inline(always)]
    pub fn new(kind: u8, flags: u16, number: u32, seq: u64) -> Self {
        let mut bytes = [0; ROOM];
        let [f0, f1] = flags.to_ne_bytes();
        let [n0, n1, n2, n3] = number.to_ne_bytes();
        let [s0, s1, s2, s3, s4, s5, s6, s7] = seq.to_ne_bytes();
        let base = [
            VERSION, kind, f0, f1, n0, n1, n2, n3, s0, s1, s2, s3, s4, s5, s6, s7,
        ];
        if let Some(front) = bytes.first_chunk_mut() {
            *front = base;
        }
        Head {
            bytes,
            len: BASE_LEN,
        }
    }

    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
            self.len = end;
        }
    }

    #[inline(always)]
    pub fn u32(&mut self, number: u32) {
        self.put(&number.to_ne_bytes());
    }

    #[inline(always)]
    pub fn u64(&mut self, number: u64) {
        self.put(&number.to_ne_bytes());
    }

    #[inline(always)]
    pub fn ack(&mut self, ack: &AckField) {
        self.u32(ack.next);
        self.put(&ack.window.to_ne_bytes());
        self.put(&ack.refusals.to_ne_bytes());
        self.put(&ack.delay.to_ne_bytes());
        self.put(&ack.echo.to_ne_bytes());
    }

    #[inline(always)]
    pub fn extended(&mut self, extended: &Extended) {
        self.u32(extended.tx_id);
        self.u32(extended.rx_id);
        self.u64(extended.part);
    }

    /// The headers of an operation, behind the base header.
    #[inline(always)]
    pub fn operation(&mut self, operation: &Operation) {
        if let Some(tag) = operation.tag {
            self.u64(tag);
        }
        if let Some(data) = operation.data {
            self.u64(data);
        }
        if let Some(extent) = &operation.extent {
            self.u64(extent.size);
            self.u64(extent.parts);
            self.u32(extent.id);
            self.put(&[extent.pieces, 0, 0, 0]);
        }
        for piece in operation.remote.pieces() {
            self.u64(piece.addr);
            self.u64(piece.len);
            self.u64(piece.key);
        }
        if let Some((datatype, op)) = operation.atomic {
            self.u32(datatype);
            self.u32(op);
        }
    }

    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Bytes of an operation's headers.
pub fn head_len(operation: &Operation) -> usize {
    let optional = |is: bool, len| if is { len } else { 0 };
    BASE_LEN
        + optional(operation.tag.is_some(), 8)
        + optional(operation.data.is_some(), 8)
        + optional(operation.extent.is_some(), EXTENT_LEN)
        + operation.remote.pieces().len() * PIECE_LEN
        + optional(operation.atomic.is_some(), ATOMIC_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(kind: u8, flags: u16) -> Base {
        Base {
            kind,
            flags,
            number: 0x0102_0304,
            seq: 7,
        }
    }

    #[test]
    fn an_operation_is_read_as_it_was_written() {
        let mut remote = RemoteIov::default();
        for n in 1..=4 {
            let (addr, len, key) = (n * 1000, n * 10, n);
            assert!(remote.push(RemotePiece { addr, len, key }));
        }
        let operation = Operation {
            tag: None,
            data: Some(5),
            extent: Some(Extent {
                size: 100,
                parts: 1,
                id: 9,
                pieces: 4,
            }),
            remote,
            atomic: Some((3, 2)),
        };
        let base = base(kind::FETCH, flag::DATA);
        let mut head: Head = Head::new(base.kind, base.flags, base.number, base.seq);
        head.operation(&operation);
        let mut packet = head.bytes().to_vec();
        assert_eq!(packet.len(), head_len(&operation));
        packet.extend(b"payload");
        let (read, rest) = Base::read(&packet).unwrap();
        assert_eq!(read, base);
        let (read, payload) = Operation::read(&read, rest).unwrap();
        assert_eq!(read.data, Some(5));
        assert_eq!(read.extent, operation.extent);
        assert_eq!(read.remote, remote);
        assert_eq!(read.atomic, Some((3, 2)));
        assert_eq!(payload, b"payload");
    }

    #[test]
    fn a_truncated_packet_is_refused() {
        let operation = Operation {
            tag: Some(1),
            data: Some(2),
            extent: None,
            remote: RemoteIov::default(),
            atomic: None,
        };
        let base = base(kind::TAGGED, flag::TAG | flag::DATA | flag::INLINE);
        let mut head: Head = Head::new(base.kind, base.flags, base.number, base.seq);
        head.operation(&operation);
        for len in 0..head.bytes().len() {
            let cut = &head.bytes()[..len];
            let read = Base::read(cut).and_then(|(base, rest)| Operation::read(&base, rest));
            assert!(read.is_none());
        }
    }

    /// Calls a check with a packet in which one bit is changed, or two.
    pub fn damaged(packet: &[u8], mut check: impl FnMut(&[u8])) {
        let bits = packet.len() * 8;
        let mut copy = packet.to_vec();
        for one in 0..bits {
            copy[one / 8] ^= 1 << (one % 8);
            check(&copy);
            for other in (one + 1..bits).step_by(5) {
                copy[other / 8] ^= 1 << (other % 8);
                check(&copy);
                copy[other / 8] ^= 1 << (other % 8);
            }
            copy[one / 8] ^= 1 << (one % 8);
        }
    }
}
