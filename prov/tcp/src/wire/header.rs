//! Headers of the stream that follows the handshake.

mod operation;
pub mod refusal;

pub use self::operation::{Fields, Op};
use super::handshake::Features;
use super::{ByteOrder, WireError};

/// Number of bytes with which every header starts.
pub const BASE: usize = 16;
/// Where the sequence number of a message is in its header: one byte.
pub const SEQUENCE: usize = 7;
/// Largest number of remote buffers of one operation.
pub const RMA_IOV_LIMIT: usize = prov_base::buffer::IOV_LIMIT;
/// Largest number of bytes of a header: an atomic request with immediate data.
pub const MAX_HEADER: usize = BASE + 3 * 8 + RMA_IOV_LIMIT * RMA_IOV;

/// Number of bytes of one remote buffer in a header.
const RMA_IOV: usize = 24;
pub(super) const VERSION: u8 = 3;
/// Value of `op_data` of a plain message that is an acknowledgement.
const ACKNOWLEDGEMENT: u8 = 2;

/// Immediate data follows the base.
pub const REMOTE_CQ_DATA: u16 = 1 << 0;
/// The sender waits for an acknowledgement.
pub const DELIVERY_COMPLETE: u16 = 1 << 2;
/// The sender waits for an acknowledgement that the bytes are in persistent memory.
pub const COMMIT_COMPLETE: u16 = 1 << 3;
/// Flag of a [`Op::WideRts`]: the message is tagged.
pub const TAGGED: u16 = 1 << 7;
/// Value of `op_data` of an [`Op::Accessed`]: the sender has written.
pub const HAS_WRITTEN: u8 = 0;
/// Value of `op_data` of an [`Op::Accessed`]: the sender has read.
pub const HAS_READ: u8 = 1;
/// Value of `op_data` of an [`Op::Throttle`]: the sender's endpoint is closed in good order.
pub const LEAVES: u8 = 2;
/// The acknowledgement must name the message: its header ends in an `id`.
pub const NAMED: u16 = 1 << 8;

/// Up to [`RMA_IOV_LIMIT`] of them.
pub use prov_util::request::RemoteIov as RmaList;
/// A part of a peer's memory (`struct fi_rma_iov`).
pub use prov_util::request::RemotePiece as RmaIov;

/// A header without its list of remote buffers. Fields that the operation does not have are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The operation.
    pub op: Op,
    /// Number of remote buffers in the list.
    pub rma_count: u8,
    /// Small parameter of the operation.
    pub op_data: u8,
    /// [`REMOTE_CQ_DATA`] and the like.
    pub flags: u16,
    /// Number of bytes after the header.
    pub payload: usize,
    /// Immediate data.
    pub data: u64,
    /// Tag of the message.
    pub tag: u64,
    /// Number of bytes of the announced message.
    pub size: u64,
    /// The sender's name for the operation.
    pub id: u64,
    /// The parameters of an atomic operation.
    pub word: u64,
}

impl Header {
    /// Returns a header of an operation without flags, fields or payload.
    #[inline]
    pub const fn new(op: Op) -> Self {
        Header {
            op,
            rma_count: 0,
            op_data: 0,
            flags: 0,
            payload: 0,
            data: 0,
            tag: 0,
            size: 0,
            id: 0,
            word: 0,
        }
    }

    /// Returns the acknowledgement of the C library's protocol.
    pub const fn ack() -> Self {
        let mut this = Self::new(Op::Msg);
        this.op_data = ACKNOWLEDGEMENT;
        this
    }

    /// Whether this is [`Header::ack`].
    #[inline]
    pub fn is_ack(&self) -> bool {
        self.op == Op::Msg && self.op_data == ACKNOWLEDGEMENT
    }

    /// Whether the message answers the peer, and was not posted by the application here.
    #[inline]
    pub fn is_answer(&self) -> bool {
        match self.op {
            Op::Msg => self.is_ack(),
            Op::Acquaint
            | Op::AtomicResponse
            | Op::Cts
            | Op::Data
            | Op::Multipath
            | Op::NamedAck
            | Op::ReadResponse
            | Op::Refusal
            | Op::Throttle
            | Op::WideCts
            | Op::WideData => true,
            Op::Accessed
            | Op::AtomicRequest
            | Op::DirectMsg
            | Op::ReadRequest
            | Op::Tagged
            | Op::TaggedRts
            | Op::WideRts
            | Op::Write => false,
        }
    }

    /// Returns the immediate data, if there is any.
    #[inline]
    pub fn immediate(&self) -> Option<u64> {
        self.fields().has(Fields::DATA).then_some(self.data)
    }

    /// Adds immediate data, if there is any.
    #[inline]
    pub fn carry(&mut self, data: Option<u64>) {
        if let Some(data) = data {
            self.flags |= REMOTE_CQ_DATA;
            self.data = data;
        }
    }

    /// Whether the sender waits for an acknowledgement.
    #[inline]
    pub fn wants_ack(&self) -> bool {
        self.flags & (DELIVERY_COMPLETE | COMMIT_COMPLETE) != 0
    }

    /// Returns the fields of the header.
    #[inline(always)]
    fn fields(&self) -> Fields {
        let mut fields = self.op.layout().fields;
        if self.flags & REMOTE_CQ_DATA == 0 {
            fields = fields.without(Fields::DATA);
        }
        if self.flags & NAMED != 0 && fields.has(Fields::NAMEABLE) {
            fields = fields.and(Fields::ID);
        }
        fields
    }

    /// Whether a header of the C library's protocol ends in an `id` that the acknowledgement is to
    /// contain.
    #[inline]
    fn carries_ack_name(&self) -> bool {
        self.flags & NAMED != 0 && self.op.layout().fields.has(Fields::NAMEABLE)
    }

    /// Returns the number of bytes of a header with these fields.
    #[inline(always)]
    fn len(&self, fields: Fields) -> usize {
        let rma = match fields.has(Fields::RMA) {
            true => usize::from(self.rma_count).wrapping_mul(RMA_IOV),
            false => 0,
        };
        // At most 255 remote buffers, and as many words as there are fields.
        let words = fields.words().wrapping_mul(8);
        words.wrapping_add(BASE).wrapping_add(rma)
    }

    /// Returns the number of bytes of the header.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        self.len(self.fields())
    }

    /// Writes the header and returns its length. `sequence` is the number of
    /// the message in the stream, which debug builds of the C library check.
    #[inline]
    #[allow(
        clippy::indexing_slicing,
        reason = "a header with all its fields has at most MAX_HEADER bytes"
    )]
    pub fn encode(
        &self,
        rma: &[RmaIov],
        order: ByteOrder,
        sequence: u8,
        out: &mut [u8; MAX_HEADER],
    ) -> usize {
        let fields = self.fields();
        let len = self.len(fields);
        out[0] = VERSION;
        out[1] = self.op as u8;
        out[2..4].copy_from_slice(&order.put_u16(self.flags));
        out[4] = self.op_data;
        out[5] = self.rma_count;
        out[6] = len as u8;
        out[SEQUENCE] = sequence;
        out[8..16].copy_from_slice(&order.put_u64(len.wrapping_add(self.payload) as u64));
        let (places, _) = out[BASE..].as_chunks_mut::<8>();
        let mut places = places.iter_mut();
        let mut put = |value: u64| {
            if let Some(place) = places.next() {
                *place = order.put_u64(value);
            }
        };
        if fields.has(Fields::DATA) {
            put(self.data);
        }
        if fields.has(Fields::TAG) {
            put(self.tag);
        }
        if fields.has(Fields::SIZE) {
            put(self.size);
        }
        if fields.has(Fields::ID) {
            put(self.id);
        }
        if fields.has(Fields::WORD) {
            put(self.word);
        }
        if fields.has(Fields::RMA) {
            for part in rma.iter().take(RMA_IOV_LIMIT) {
                put(part.addr);
                put(part.len);
                put(part.key);
            }
        }
        len
    }

    /// Decodes a header from the start of `bytes`. `Err(None)` means that more bytes are needed.
    /// `rma` is filled for the operations that have such a list.
    #[inline]
    pub fn decode(
        bytes: &[u8],
        order: ByteOrder,
        features: Features,
        rma: &mut RmaList,
    ) -> Result<(Header, usize), Option<WireError>> {
        let Some((base, rest)) = bytes.split_first_chunk::<BASE>() else {
            // The bytes that have arrived are checked, so that a wrong stream is not waited for.
            return Err(match bytes.first() {
                Some(&version) if version != VERSION => Some(WireError::Version(version)),
                _ => None,
            });
        };
        if base[0] != VERSION {
            return Err(Some(WireError::Version(base[0])));
        }
        let op = Op::from_code(base[1]).ok_or(Some(WireError::Opcode(base[1])))?;
        if !features.has(op.layout().needs) {
            return Err(Some(WireError::Opcode(base[1])));
        }
        let mut header = Header::new(op);
        header.flags = order.u16([base[2], base[3]]);
        header.op_data = base[4];
        header.rma_count = base[5];
        if header.carries_ack_name() && !features.has(Features::NAMED_ACKS) {
            return Err(Some(WireError::Field("flags")));
        }
        let has = header.fields();
        if has.has(Fields::RMA) && usize::from(header.rma_count) > RMA_IOV_LIMIT {
            return Err(Some(WireError::RmaIovCount(header.rma_count)));
        }
        let len = header.len(has);
        if usize::from(base[6]) != len {
            return Err(Some(WireError::HeaderSize(base[6])));
        }
        let total = order.u64([
            base[8], base[9], base[10], base[11], base[12], base[13], base[14], base[15],
        ]);
        header.payload = total
            .checked_sub(len as u64)
            .filter(|&payload| payload <= isize::MAX as u64)
            .ok_or(Some(WireError::Size(total)))? as usize;
        if header.payload != 0 && (!has.has(Fields::PAYLOAD) || header.is_ack()) {
            return Err(Some(WireError::Payload(header.payload as u64)));
        }
        let Some(mut fields) = rest.get(..len.saturating_sub(BASE)) else {
            return Err(None);
        };
        let mut take = || {
            let mut bytes = [0; 8];
            if let Some((field, more)) = fields.split_first_chunk::<8>() {
                bytes = *field;
                fields = more;
            }
            order.u64(bytes)
        };
        if has.has(Fields::DATA) {
            header.data = take();
        }
        if has.has(Fields::TAG) {
            header.tag = take();
        }
        if has.has(Fields::SIZE) {
            header.size = take();
            if header.size > isize::MAX as u64 {
                return Err(Some(WireError::Size(header.size)));
            }
        }
        if has.has(Fields::ID) {
            header.id = take();
        }
        if has.has(Fields::WORD) {
            header.word = take();
        }
        if has.has(Fields::RMA) {
            *rma = RmaList::default();
            for _ in 0..header.rma_count {
                let (addr, len, key) = (take(), take(), take());
                rma.push(RmaIov { addr, len, key });
            }
            let bytes = rma.len();
            if bytes > isize::MAX as u64 {
                return Err(Some(WireError::Size(bytes)));
            }
            if op == Op::Write && bytes != header.payload as u64 {
                return Err(Some(WireError::Payload(header.payload as u64)));
            }
        }
        Ok((header, len))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn bytes(header: &Header, rma: &[RmaIov], order: ByteOrder) -> Vec<u8> {
        let mut out = [0xaa; MAX_HEADER];
        let len = header.encode(rma, order, 0, &mut out);
        out[..len].to_vec()
    }

    /// Returns a header of each kind, with its remote buffers.
    pub fn every_header() -> Vec<(Header, Vec<RmaIov>)> {
        let part = RmaIov {
            addr: 0x1000,
            len: 3,
            key: 77,
        };
        let mut all = Vec::new();
        for code in 0..=u8::MAX {
            let Some(op) = Op::from_code(code) else {
                continue;
            };
            let layout = op.layout().fields;
            for flags in [
                0,
                REMOTE_CQ_DATA,
                NAMED,
                REMOTE_CQ_DATA | NAMED,
                DELIVERY_COMPLETE | NAMED,
            ] {
                for count in 0..=RMA_IOV_LIMIT {
                    let mut header = Header::new(op);
                    header.flags = flags;
                    header.op_data = 1;
                    if layout.has(Fields::RMA) {
                        header.rma_count = count as u8;
                    }
                    if layout.has(Fields::PAYLOAD) {
                        header.payload = if op == Op::Write { 3 * count } else { 1000 };
                    }
                    header.data = if header.immediate().is_some() { 5 } else { 0 };
                    header.tag = if layout.has(Fields::TAG) { 6 } else { 0 };
                    header.size = if layout.has(Fields::SIZE) { 7 } else { 0 };
                    header.id = if header.fields().has(Fields::ID) {
                        8
                    } else {
                        0
                    };
                    header.word = if layout.has(Fields::WORD) { 9 } else { 0 };
                    all.push((header, vec![part; usize::from(header.rma_count)]));
                }
            }
        }
        all
    }

    #[test]
    fn every_header_is_decoded_as_it_was_encoded_in_both_orders() {
        for (header, parts) in every_header() {
            for order in [ByteOrder::Native, ByteOrder::Big] {
                let encoded = bytes(&header, &parts, order);
                assert!(encoded.len() <= MAX_HEADER);
                let mut rma = RmaList::default();
                let decoded = Header::decode(&encoded, order, Features::OURS, &mut rma);
                assert_eq!(decoded, Ok((header, encoded.len())));
                assert_eq!(rma.pieces(), &parts[..]);
                for cut in 0..encoded.len() {
                    let partial = Header::decode(&encoded[..cut], order, Features::OURS, &mut rma);
                    assert_eq!(partial, Err(None), "{header:?} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn a_tagged_message_is_encoded_as_by_the_c_library() {
        let mut header = Header::new(Op::Tagged);
        header.flags = REMOTE_CQ_DATA;
        header.payload = 8;
        header.tag = 0x1122;
        header.data = 0x3344;
        let encoded = bytes(&header, &[], ByteOrder::Big);
        assert_eq!(encoded[..8], [3, 1, 0, 1, 0, 0, 32, 0]);
        assert_eq!(encoded[8..16], 40u64.to_be_bytes());
        assert_eq!(encoded[16..24], 0x3344u64.to_be_bytes());
        assert_eq!(encoded[24..32], 0x1122u64.to_be_bytes());
    }

    #[test]
    fn an_extension_that_was_not_negotiated_is_an_unknown_operation() {
        for (header, parts) in every_header() {
            let extended = header.op.layout().needs != Features::NONE || header.carries_ack_name();
            let encoded = bytes(&header, &parts, ByteOrder::Native);
            let decoded = Header::decode(
                &encoded,
                ByteOrder::Native,
                Features::default(),
                &mut RmaList::default(),
            );
            assert_eq!(decoded.is_err(), extended);
        }
    }

    #[test]
    fn lying_headers_are_refused() {
        let refuse = |change: fn(&mut Vec<u8>)| {
            let mut header = Header::new(Op::Write);
            header.rma_count = 1;
            header.payload = 3;
            let part = RmaIov {
                addr: 0,
                len: 3,
                key: 0,
            };
            let mut encoded = bytes(&header, &[part], ByteOrder::Native);
            change(&mut encoded);
            let mut rma = RmaList::default();
            match Header::decode(&encoded, ByteOrder::Native, Features::OURS, &mut rma) {
                Err(Some(error)) => error,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refuse(|b| b[0] = 2), WireError::Version(2));
        assert_eq!(refuse(|b| b[1] = 8), WireError::Opcode(8));
        assert_eq!(refuse(|b| b[5] = 5), WireError::RmaIovCount(5));
        assert_eq!(refuse(|b| b[6] = 16), WireError::HeaderSize(16));
        assert!(matches!(refuse(|b| b[8..16].fill(0)), WireError::Size(0)));
        assert!(matches!(
            refuse(|b| b[8..16].fill(0xff)),
            WireError::Size(_)
        ));
        assert!(matches!(
            refuse(|b| b[24..32].fill(0xff)),
            WireError::Size(_)
        ));
        assert!(matches!(refuse(|b| b[24] = 4), WireError::Payload(3)));
    }
}
