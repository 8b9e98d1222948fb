//! What packets look like: docs/rxd-wire.md. Nothing here keeps state.
//!
//! All numbers are in the byte order of the host, as those of the C library are.

use prov_util::request::{RemoteIov, RemotePiece};

use super::host::{Form, NAME_LEN, Name};

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

/// Bytes of the header of every packet.
pub const BASE_LEN: usize = 16;
/// Bytes of the headers of [`kind::DATA`], [`kind::RESULT`] and [`kind::ACK`].
pub const EXTENDED_LEN: usize = 32;
/// Bytes of an acknowledgement within another packet.
pub const ACK_FIELD_LEN: usize = 12;
/// Bytes of [`Extended`], and of a [`RefusalPacket`].
const NUMBERS_LEN: usize = EXTENDED_LEN - BASE_LEN;
/// Bytes of [`Extent`], and where its number of pieces is.
pub const EXTENT_LEN: usize = 24;
const PIECES_AT: usize = 20;
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
}

/// It is not known how old the newest packet is, or it is not among those that are acknowledged.
pub const NO_DELAY: u16 = u16::MAX;

/// What one side of this library tells the other during set-up (extension).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Bytes of the longest datagram that the sender can send and receive.
    pub mtu: u32,
    /// Number of packets that the sender of this accepts without a gap.
    pub window: u32,
    /// Sequence number of the first packet that it will send.
    pub first_seq: u64,
    /// In an answer with the address 0: what the request is to be repeated with, since there is no room
    /// for one that anybody can send. In a request: what such an answer had, or 0.
    pub cookie: u64,
}

/// "rxd+crc" and the version of the extension.
const HELLO_MAGIC: u64 = 0x7278_642b_6372_6303;
/// What earlier versions of this library have sent: they are served like the C library.
const EARLIER_MAGICS: [u64; 2] = [0x7278_642d_7273_0001, 0x7278_642d_7273_0002];
const HELLO_LEN: usize = 40;

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

    /// Reads what follows the last field of the C library in a packet that sets up a connection.
    /// Returns `None` if that is neither nothing nor in order.
    fn hello(&mut self, packet: &[u8]) -> Option<Option<Hello>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let checked = packet.len() - self.0.len() + HELLO_LEN - size_of::<u32>();
        let magic = self.u64()?;
        if EARLIER_MAGICS.contains(&magic) {
            return Some(None);
        }
        let hello = Hello {
            mtu: self.u32()?,
            window: self.u32()?,
            first_seq: self.u64()?,
            cookie: self.u64()?,
        };
        let _reserved = self.u32()?;
        let sum = self.u32()?;
        let is_valid = magic == HELLO_MAGIC && sum == crc32c::crc32c(packet.get(..checked)?);
        is_valid.then_some(Some(hello))
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

    /// Checks the header of a packet from a peer of this library, and completes the sequence number,
    /// which is near `expected`. Returns `false` if the checksum is wrong: then nothing is known of the
    /// packet.
    #[inline(always)]
    pub fn unseal(&mut self, expected: u64, packet: &[u8]) -> bool {
        let ahead = (self.seq as u32).wrapping_sub(expected as u32) as i32;
        let seq = expected.wrapping_add_signed(ahead.into());
        let sum = (self.seq >> 32) as u32;
        self.seq = seq;
        let header = self.header_len(packet).and_then(|len| packet.get(..len));
        let Some((front, rest)) = header.and_then(<[u8]>::split_first_chunk::<BASE_LEN>) else {
            return false;
        };
        let mut front = *front;
        if let Some(place) = front.last_chunk_mut() {
            *place = seq.to_ne_bytes();
        }
        sum == crc32c::crc32c_append(crc32c::crc32c_append(packet.len() as u32, &front), rest)
    }

    /// Bytes of the headers of a packet of this type with these flags; `None` if it is too short to
    /// tell.
    #[inline(always)]
    fn header_len(&self, packet: &[u8]) -> Option<usize> {
        let mut len = BASE_LEN;
        let mut add = |flag, bytes| len += if self.flags & flag != 0 { bytes } else { 0 };
        add(flag::ACK, ACK_FIELD_LEN);
        match self.kind {
            kind::ACK => return Some(packet.len()),
            kind::DATA | kind::RESULT | kind::REFUSAL => return Some(len + NUMBERS_LEN),
            _ => {}
        }
        add(flag::TAG, 8);
        add(flag::DATA, 8);
        let mut pieces = 1;
        if self.flags & flag::INLINE == 0 {
            pieces = usize::from(*packet.get(len + PIECES_AT)?);
            len += EXTENT_LEN;
        }
        if is_remote(self.kind) {
            len += pieces * PIECE_LEN;
        }
        if is_atomic(self.kind) {
            len += ATOMIC_LEN;
        }
        Some(len)
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

/// Puts the checksum into a packet that has this sequence number and any other bytes, for tests and
/// fuzz targets.
#[doc(hidden)]
pub fn seal(packet: &mut [u8], seq: u64) {
    if let Some(place) = packet.get_mut(8..BASE_LEN) {
        place.copy_from_slice(&seq.to_ne_bytes());
    }
    let len = Base::read(packet).and_then(|(base, _)| base.header_len(packet));
    let sealed = len.and_then(|len| packet.get(..len)).map(|header| {
        let sum = crc32c::crc32c_append(packet.len() as u32, header);
        u64::from(sum) << 32 | seq & 0xffff_ffff
    });
    if let (Some(sealed), Some(place)) = (sealed, packet.get_mut(8..BASE_LEN)) {
        place.copy_from_slice(&sealed.to_ne_bytes());
    }
}

impl AckField {
    /// Reads the field behind the header, if it has one.
    #[inline(always)]
    pub fn read(rest: &[u8]) -> Option<(AckField, &[u8])> {
        let (&field, rest) = rest.split_first_chunk::<ACK_FIELD_LEN>()?;
        let [n0, n1, n2, n3, w0, w1, r0, r1, d0, d1, _, _] = field;
        let field = AckField {
            next: u32::from_ne_bytes([n0, n1, n2, n3]),
            window: u16::from_ne_bytes([w0, w1]),
            refusals: u16::from_ne_bytes([r0, r1]),
            delay: u16::from_ne_bytes([d0, d1]),
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
    /// In acknowledgements between peers of this library: number of refusals, modulo 2^16, and in the
    /// next 16 bits the [delay](AckField::delay).
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

/// A request to set up a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupRequest {
    /// What packets to the sender of this carry as its number; the upper half only proves who
    /// answers.
    pub address: u64,
    pub name: Name,
    pub hello: Option<Hello>,
}

impl SetupRequest {
    pub fn read(packet: &[u8]) -> Option<SetupRequest> {
        let mut reader = Reader(packet.get(BASE_LEN..)?);
        let address = reader.u64()?;
        let name = reader.take::<NAME_LEN>()?;
        let hello = reader.hello(packet)?;
        Some(SetupRequest {
            address,
            name,
            hello,
        })
    }

    pub fn write(&self) -> Head {
        let mut head: Head = Head::new(kind::REQUEST, 0, 0, 0);
        head.u64(self.address);
        head.put(&self.name);
        if let Some(hello) = &self.hello {
            head.hello(hello);
        }
        head
    }
}

/// An answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupAnswer {
    /// The address of the request.
    pub to: u64,
    /// The answering side's own; 0 if the request is to be repeated with a [cookie](Hello::cookie).
    pub address: u64,
    pub hello: Option<Hello>,
}

impl SetupAnswer {
    pub fn read(packet: &[u8]) -> Option<SetupAnswer> {
        let mut reader = Reader(packet.get(BASE_LEN..)?);
        Some(SetupAnswer {
            to: reader.u64()?,
            address: reader.u64()?,
            hello: reader.hello(packet)?,
        })
    }

    pub fn write(&self) -> Head {
        let mut head: Head = Head::new(kind::ANSWER, 0, self.to as u32, 0);
        head.u64(self.to);
        head.u64(self.address);
        if let Some(hello) = &self.hello {
            head.hello(hello);
        }
        head
    }
}

/// What was refused and why (extension).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalPacket {
    /// Sequence number of the operation's first packet.
    pub of: u64,
    /// The error's positive number.
    pub errno: u32,
}

impl RefusalPacket {
    pub fn read(rest: &[u8]) -> Option<RefusalPacket> {
        let mut reader = Reader(rest);
        Some(RefusalPacket {
            of: reader.u64()?,
            errno: reader.u32()?,
        })
    }
}

/// Room for a packet's headers, or for a whole packet without payload.
// Aligned, since the checksum of words is faster than that of bytes.
#[repr(align(8))]
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
        self.put(&[0; 2]);
    }

    #[inline(always)]
    pub fn extended(&mut self, extended: &Extended) {
        self.u32(extended.tx_id);
        self.u32(extended.rx_id);
        self.u64(extended.part);
    }

    /// What this library adds to a packet that sets up a connection, at its end.
    fn hello(&mut self, hello: &Hello) {
        self.u64(HELLO_MAGIC);
        self.u32(hello.mtu);
        self.u32(hello.window);
        self.u64(hello.first_seq);
        self.u64(hello.cookie);
        self.u32(0);
        self.u32(crc32c::crc32c(self.bytes()));
    }

    /// Puts the checksum of all headers in place of the upper half of the sequence number, before the
    /// packet leaves with so many bytes of payload.
    #[inline(always)]
    pub fn seal(&mut self, payload: usize) {
        let len = (self.len + payload) as u32;
        let sum = crc32c::crc32c_append(len, self.bytes());
        if let Some(front) = self.bytes.first_chunk_mut::<BASE_LEN>()
            && let Some(place) = front.last_chunk_mut()
        {
            let seq = u64::from_ne_bytes(*place);
            *place = (u64::from(sum) << 32 | seq & 0xffff_ffff).to_ne_bytes();
        }
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

const _: () = assert!(BASE_LEN + 8 + NAME_LEN + HELLO_LEN <= HEAD_ROOM);

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

    #[test]
    fn the_layout_is_that_of_the_c_library() {
        let request = SetupRequest {
            address: 1,
            name: [7; NAME_LEN],
            hello: None,
        };
        let packet = request.write();
        assert_eq!(packet.bytes().len(), 88);
        assert_eq!(packet.bytes()[..2], [2, 9]);
        assert_eq!(packet.bytes()[24..88], [7; 64]);
        let answer = SetupAnswer {
            to: 1,
            address: 2,
            hello: None,
        };
        assert_eq!(answer.write().bytes().len(), 32);
    }

    #[test]
    fn the_extension_follows_the_bytes_that_the_c_library_reads() {
        let hello = Hello {
            mtu: 1472,
            window: 1024,
            first_seq: 99,
            cookie: 7,
        };
        let request = SetupRequest {
            address: 1,
            name: [7; NAME_LEN],
            hello: Some(hello),
        };
        let packet = request.write();
        assert_eq!(SetupRequest::read(packet.bytes()), Some(request));
        let shorter = SetupRequest::read(&packet.bytes()[..88]).unwrap();
        assert_eq!(shorter.hello, None);
        for magic in EARLIER_MAGICS {
            let mut other = packet.bytes().to_vec();
            other[88..96].copy_from_slice(&magic.to_ne_bytes());
            assert_eq!(SetupRequest::read(&other).unwrap().hello, None);
        }
        let answer = SetupAnswer {
            to: 1,
            address: 2,
            hello: Some(hello),
        };
        assert_eq!(SetupAnswer::read(answer.write().bytes()), Some(answer));
    }

    /// Calls a check with a packet in which one bit is changed, or two.
    fn damaged(packet: &[u8], mut check: impl FnMut(&[u8])) {
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

    #[test]
    fn a_request_or_an_answer_that_is_damaged_is_refused() {
        let hello = Some(Hello {
            mtu: 1472,
            window: 1024,
            first_seq: 99,
            cookie: 0,
        });
        let name = [7; NAME_LEN];
        let request = SetupRequest {
            address: 1,
            name,
            hello,
        };
        let answer = SetupAnswer {
            to: 1,
            address: 2,
            hello,
        };
        damaged(request.write().bytes(), |packet| {
            assert_eq!(SetupRequest::read(packet), None);
        });
        damaged(answer.write().bytes(), |packet| {
            assert_eq!(SetupAnswer::read(packet), None);
        });
    }

    /// A packet of each form, sealed, with its number of bytes of payload.
    fn sealed(seq: u64) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut add = |mut head: Head, payload: usize| {
            head.seal(payload);
            let mut packet = head.bytes().to_vec();
            packet.resize(packet.len() + payload, 3);
            packets.push(packet);
        };
        let ack = AckField {
            next: 1,
            window: 2,
            refusals: 3,
            delay: 4,
        };
        for (kind, flags, pieces) in [
            (kind::MESSAGE, flag::INLINE, 0),
            (kind::TAGGED, flag::INLINE | flag::TAG | flag::ACK, 0),
            (kind::TAGGED, flag::TAG | flag::DATA, 0),
            (kind::WRITE, flag::INLINE | flag::DATA, 1),
            (kind::READ, flag::ACK, 4),
            (kind::ATOMIC, flag::INLINE, 1),
            (kind::COMPARE, 0, 3),
        ] {
            let mut operation = Operation::default();
            operation.tag = (flags & flag::TAG != 0).then_some(5);
            operation.data = (flags & flag::DATA != 0).then_some(6);
            operation.extent = (flags & flag::INLINE == 0).then_some(Extent {
                size: 100,
                parts: 1,
                id: 9,
                pieces,
            });
            for _ in 0..pieces {
                let (addr, len, key) = (1000, 10, 1);
                operation.remote.push(RemotePiece { addr, len, key });
            }
            operation.atomic = is_atomic(kind).then_some((3, 2));
            let mut head = Head::new(kind, flags, 5, seq);
            if flags & flag::ACK != 0 {
                head.ack(&ack);
            }
            head.operation(&operation);
            add(head, 8);
        }
        for (kind, flags) in [
            (kind::DATA, flag::ACK),
            (kind::RESULT, 0),
            (kind::REFUSAL, flag::ACK),
            (kind::ACK, 0),
        ] {
            let mut head = Head::new(kind, flags, 5, seq);
            if flags & flag::ACK != 0 {
                head.ack(&ack);
            }
            head.extended(&Extended {
                tx_id: 1,
                rx_id: 2,
                part: 3,
            });
            let payload = match kind {
                kind::DATA | kind::RESULT => 8,
                kind::ACK => {
                    head.u64(1);
                    0
                }
                _ => 0,
            };
            add(head, payload);
        }
        packets
    }

    #[test]
    fn a_sealed_packet_is_recognised_and_its_sequence_number_completed() {
        for seq in [7, 0xffff_fff0, 0x1_0000_0003, u64::MAX] {
            for packet in sealed(seq) {
                for near in [seq.wrapping_sub(1 << 20), seq, seq.wrapping_add(4096)] {
                    let (mut base, _) = Base::read(&packet).unwrap();
                    assert!(base.unseal(near, &packet));
                    assert_eq!(base.seq, seq);
                }
                let (mut base, _) = Base::read(&packet).unwrap();
                assert!(
                    !base.unseal(seq ^ 1 << 40, &packet),
                    "of another connection"
                );
                let mut again = packet.clone();
                seal(&mut again, seq);
                assert_eq!(again, packet);
            }
        }
    }

    #[test]
    fn a_header_that_is_damaged_or_a_packet_that_is_cut_is_refused() {
        for packet in sealed(7) {
            let header = Base::read(&packet).unwrap().0.header_len(&packet).unwrap();
            let unseals = |packet: &[u8]| {
                let base = Base::read(packet);
                base.is_some_and(|(mut base, _)| base.unseal(7, packet))
            };
            damaged(&packet[..header], |header| {
                let mut damaged = packet.clone();
                damaged[..header.len()].copy_from_slice(header);
                assert!(!unseals(&damaged));
            });
            for len in 0..packet.len() {
                assert!(!unseals(&packet[..len]));
            }
        }
    }
}
