//! The connection handshake: one message in each direction, before anything else.

use super::{ByteOrder, WireError};

/// Number of bytes of a handshake message before its connection data.
pub const HEADER: usize = 32;
/// Largest number of bytes of connection data (`FI_OPT_CM_DATA_SIZE`).
pub const MAX_DATA: usize = 256;
/// Largest number of bytes of a handshake message.
pub const MAX_MESSAGE: usize = HEADER + MAX_DATA;

const VERSION: u8 = 3;

/// The kind of a handshake message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The connecting side requests a connection.
    Request,
    /// The listening side accepts.
    Accept,
    /// The listening side rejects.
    Reject,
    /// *Extension*: the connecting side starts the proof of its key.
    Hello,
    /// *Extension*: the listening side proves its key.
    Challenge,
    /// *Extension*: the connecting side proves its key.
    Proof,
    /// *Extension*: the side that connects asks for a connection to a context of a scalable
    /// endpoint, other than the first.
    ContextRequest,
    /// *Extension*: the connecting side asks to add a subflow to a connection.
    Join,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Request => 0,
            Kind::Accept => 1,
            Kind::Reject => 6,
            Kind::Hello => 0x20,
            Kind::Challenge => 0x21,
            Kind::Proof => 0x22,
            Kind::ContextRequest => 0x23,
            Kind::Join => 0x24,
        }
    }

    fn from_code(code: u8) -> Option<Kind> {
        const ALL: [Kind; 8] = [
            Kind::Request,
            Kind::Accept,
            Kind::Reject,
            Kind::Hello,
            Kind::Challenge,
            Kind::Proof,
            Kind::ContextRequest,
            Kind::Join,
        ];
        ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// The extensions of the C library's protocol that a peer supports. They are sent in a field that
/// the C library sets to zero and never reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features(u32);

impl Features {
    /// No extension.
    pub const NONE: Features = Features(0);
    /// Atomic operations.
    pub const ATOMICS: Features = Features(1 << 0);
    /// Acknowledgements that name the message, for delivery-complete.
    pub const NAMED_ACKS: Features = Features(1 << 1);
    /// Rendezvous of plain and tagged messages with 64-bit names, and use of it for all messages on
    /// the receiver's demand.
    pub const RENDEZVOUS: Features = Features(1 << 2);

    /// Two processes of one host may access each other's memory. Bit 3 belongs to a protocol with
    /// different messages for that.
    pub const DIRECT: Features = Features(1 << 7);

    /// Data between two processes of one host goes through shared memory.
    pub const LOCAL: Features = Features(1 << 4);

    /// A peer that refuses access to memory answers so, and the connection continues.
    pub const REFUSALS: Features = Features(1 << 5);

    /// Writes to and reads from registered memory between two processes of one host are
    /// copied by the initiator alone.
    pub const REGIONS: Features = Features(1 << 6);

    /// A connection may have several subflows. Bits 8 to 15 are [`Features::CONTEXT`].
    pub const MULTIPATH: Features = Features(1 << 16);

    /// In a rejection: there is no such context.
    pub const NO_CONTEXT: Features = Features(1 << 30);

    /// In a rejection: only one of the two sides has a key.
    pub const KEY: Features = Features(1 << 31);

    const MARK: u64 = 0x7066_7253; // tells the field from any other use of it

    /// All features of this version.
    pub const OURS: Features = Features(
        Self::ATOMICS.0
            | Self::NAMED_ACKS.0
            | Self::RENDEZVOUS.0
            | Self::DIRECT.0
            | Self::LOCAL.0
            | Self::REFUSALS.0
            | Self::REGIONS.0
            | Self::MULTIPATH.0,
    );

    /// Returns the features of both sets.
    #[must_use]
    pub fn and(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }

    /// Returns the features of either set.
    #[must_use]
    pub const fn or(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// Returns these features without those of `other`.
    #[must_use]
    pub fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }

    /// Whether all of `wanted` are included.
    #[inline]
    pub fn has(self, wanted: Features) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Bits that are no features: in them is the sender's context.
    const CONTEXT: u32 = 0xff << Self::CONTEXT_SHIFT;
    const CONTEXT_SHIFT: u32 = 8;

    /// The field of a message from this context of a scalable endpoint.
    fn to_field(self, context: u8) -> u64 {
        let bits = self.0 | u32::from(context) << Self::CONTEXT_SHIFT;
        match bits {
            0 => 0,
            bits => Self::MARK << 32 | u64::from(bits),
        }
    }

    /// The features in a field, and the context that sends it.
    fn from_field(field: u64) -> (Features, u8) {
        if field >> 32 != Self::MARK {
            return (Features::default(), 0);
        }
        let bits = field as u32;
        let context = (bits & Self::CONTEXT) >> Self::CONTEXT_SHIFT;
        (Features(bits & !Self::CONTEXT), context as u8)
    }
}

const _: () = assert!(Features::OURS.0 & Features::CONTEXT == 0);

/// A handshake message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The kind of the message.
    pub kind: Kind,
    /// The extensions that the sender supports.
    pub features: Features,
    /// A number that each endpoint chooses at random, so that a restarted peer is distinguished
    /// from one that connects twice; 0 from the C library.
    pub instance: u64,
    /// Identifies the sender's host; 0 from the C library, and if it is not known.
    pub host: u32,
    /// Which context of a scalable endpoint sends it; 0 from any other endpoint, and from
    /// the C library.
    pub context: u8,
    /// Byte order that the stream will have.
    pub order: ByteOrder,
    /// Connection data, at most [`MAX_DATA`] bytes.
    pub data: Vec<u8>,
}

impl Message {
    /// Creates a message from this host.
    #[allow(
        clippy::indexing_slicing,
        reason = "the length is at most that of the data"
    )]
    pub fn new(kind: Kind, features: Features, instance: u64, data: &[u8]) -> Self {
        Message {
            kind,
            features,
            instance,
            host: 0,
            context: 0,
            order: ByteOrder::Native,
            data: data[..data.len().min(MAX_DATA)].to_vec(),
        }
    }

    /// Returns the same message with the mark of the sender's host.
    #[must_use]
    pub fn from_host(self, host: u32) -> Self {
        Message { host, ..self }
    }

    /// The same from a context of a scalable endpoint.
    #[must_use]
    pub fn from_context(self, context: u8) -> Self {
        Message { context, ..self }
    }

    /// Encodes the message.
    #[allow(
        clippy::indexing_slicing,
        reason = "constant places in a header of constant size"
    )]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        out[0] = VERSION;
        out[1] = self.kind.code();
        out[2..4].copy_from_slice(&(self.data.len() as u16).to_be_bytes());
        out[4..8].copy_from_slice(&self.host.to_be_bytes());
        out[8..16].copy_from_slice(&self.instance.to_be_bytes());
        out[16..24].copy_from_slice(&self.features.to_field(self.context).to_be_bytes());
        if self.kind != Kind::Reject {
            out[24..32].copy_from_slice(&1u64.to_ne_bytes());
        }
        out.extend_from_slice(&self.data);
        out
    }
}

/// The result of decoding the bytes of a handshake so far.
#[derive(Debug)]
pub enum Decoded {
    /// This many more bytes are needed, none of them beyond the message.
    Need(usize),
    /// The whole message.
    Complete(Message),
}

/// Decodes a handshake message of one of the `expected` kinds from all the bytes that have arrived.
pub fn decode(bytes: &[u8], expected: &[Kind]) -> Result<Decoded, WireError> {
    // The first bytes are checked immediately, so that a stranger which sends something else is not
    // waited for.
    if let Some(&version) = bytes.first()
        && version != VERSION
    {
        return Err(WireError::Version(version));
    }
    let kind = match bytes.get(1) {
        None => return Ok(Decoded::Need(HEADER.saturating_sub(bytes.len()))),
        Some(&code) => Kind::from_code(code)
            .filter(|kind| expected.contains(kind))
            .ok_or(WireError::UnexpectedType(code))?,
    };
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
        return Ok(Decoded::Need(HEADER.saturating_sub(bytes.len())));
    };
    let data_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if data_len > MAX_DATA {
        return Err(WireError::DataTooLong(data_len));
    }
    let order = match field(header, 24) {
        1 => ByteOrder::Native,
        mark if mark == 1u64.swap_bytes() => ByteOrder::Big,
        // A rejection starts no stream, and the C library omits its byte order mark.
        _ if kind == Kind::Reject => ByteOrder::Native,
        mark => return Err(WireError::ByteOrderMark(mark)),
    };
    let Some(data) = rest.get(..data_len) else {
        return Ok(Decoded::Need(data_len.saturating_sub(rest.len())));
    };
    let (features, context) = Features::from_field(field(header, 16).to_be());
    Ok(Decoded::Complete(Message {
        kind,
        features,
        context,
        instance: field(header, 8).to_be(),
        host: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        order,
        data: data.to_vec(),
    }))
}

/// Returns the eight bytes of a field at a constant offset in the header.
fn field(header: &[u8; HEADER], at: usize) -> u64 {
    let bytes = header.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: &[Kind] = &[Kind::Request, Kind::Accept, Kind::Reject];

    fn complete(bytes: &[u8]) -> Message {
        match decode(bytes, ANY).unwrap() {
            Decoded::Complete(message) => message,
            Decoded::Need(more) => panic!("{more} bytes missing"),
        }
    }

    #[test]
    fn a_message_is_decoded_as_it_was_encoded() {
        let sent = Message::new(
            Kind::Request,
            Features::OURS,
            0x1234_5678_9abc_def0,
            b"hello",
        )
        .from_host(0x0102_0304);
        assert_eq!(complete(&sent.encode()), sent);
        let refused = Message::new(Kind::Reject, Features::default(), 7, b"");
        assert_eq!(complete(&refused.encode()), refused);
    }

    #[test]
    fn the_context_of_the_sender_changes_no_feature() {
        for features in [Features::NONE, Features::OURS] {
            for context in [0, 1, 63, 255] {
                let sent = Message::new(Kind::Request, features, 7, b"hello").from_context(context);
                assert_eq!(complete(&sent.encode()), sent);
            }
        }
        let plain = Message::new(Kind::Request, Features::NONE, 0, b"");
        assert_eq!(plain.encode()[16..24], [0; 8]);
    }

    #[test]
    fn exactly_the_missing_bytes_are_asked_for() {
        let bytes = Message::new(Kind::Accept, Features::OURS, 0, &[7; 100]).encode();
        for cut in 0..bytes.len() {
            let Decoded::Need(more) = decode(&bytes[..cut], ANY).unwrap() else {
                panic!("complete at {cut}");
            };
            let expected = if cut < HEADER { HEADER } else { bytes.len() };
            assert_eq!(cut + more, expected);
        }
    }

    #[test]
    fn messages_of_the_c_library_are_decoded() {
        let mut bytes = vec![3, 1, 0, 2];
        bytes.resize(24, 0);
        bytes.extend(1u64.to_ne_bytes());
        bytes.extend(b"hi");
        let message = complete(&bytes);
        assert_eq!(message.features, Features::default());
        assert_eq!(message.host, 0);
        assert_eq!(
            (message.kind, message.order),
            (Kind::Accept, ByteOrder::Native)
        );
        assert_eq!(message.data, b"hi");
        bytes[24..32].reverse();
        assert_eq!(complete(&bytes).order, ByteOrder::Big);
    }

    #[test]
    fn strangers_are_refused_at_the_first_wrong_byte() {
        assert_eq!(decode(b"G", ANY).unwrap_err(), WireError::Version(b'G'));
        // The C library's provider sockets: its reliable datagrams, and its connections.
        for first in [2, 0] {
            assert_eq!(
                decode(&[first], ANY).unwrap_err(),
                WireError::Version(first)
            );
        }
        assert_eq!(
            decode(&[3, 9], ANY).unwrap_err(),
            WireError::UnexpectedType(9)
        );
        assert_eq!(
            decode(&[3, 1], &[Kind::Request]).unwrap_err(),
            WireError::UnexpectedType(1)
        );
        let mut bytes = Message::new(Kind::Request, Features::OURS, 0, &[]).encode();
        bytes[2] = 1;
        bytes[3] = 1;
        assert_eq!(
            decode(&bytes, ANY).unwrap_err(),
            WireError::DataTooLong(257)
        );
        bytes[2] = 0;
        bytes[25] = 7;
        assert!(matches!(
            decode(&bytes, ANY).unwrap_err(),
            WireError::ByteOrderMark(_)
        ));
    }
}
