//! The operations of headers.

use super::super::handshake::Features;

/// The operation of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Op {
    /// A plain message. With [`super::Header::is_ack`], the acknowledgement of the
    /// oldest message that asked for one.
    Msg = 0,
    /// A tagged message.
    Tagged = 1,
    /// Requests the bytes of remote buffers.
    ReadRequest = 2,
    /// The requested bytes, in the order of the requests.
    ReadResponse = 3,
    /// Bytes for remote buffers.
    Write = 4,
    /// Announces a tagged message, named by `op_data`, which waits for [`Op::Cts`].
    TaggedRts = 5,
    /// Requests the message that `op_data` names.
    Cts = 6,
    /// The message that `op_data` names.
    Data = 7,
    /// Acknowledges the message that `id` names.
    NamedAck = 0x40,
    /// Announces a plain or tagged message, which waits for [`Op::WideCts`].
    WideRts = 0x41,
    /// Requests the message that `id` names; with `op_data` 1, declines it.
    WideCts = 0x42,
    /// The message that `id` names.
    WideData = 0x43,
    /// `op_data` 1: the receiver must announce every message from now on; 0: it need not;
    /// 2 ([`LEAVES`](super::LEAVES)): nothing more comes.
    Throttle = 0x44,
    /// An atomic operation; `word` has its parameters.
    AtomicRequest = 0x45,
    /// Old values for the request that `id` names.
    AtomicResponse = 0x46,
    /// A message ([`crate::local::neighbour`]) by which the two processes arrange to read each
    /// other's memory or to share some; `op_data` is its subject.
    Acquaint = 0x47,
    /// A message of `size` bytes, tagged if the flags say so, and its location. The peer
    /// acknowledges `id` when it has copied it.
    DirectMsg = 0x4a,
    /// A negative answer: the peer refuses access to the memory that an operation names. `op_data`
    /// says which operation ([`Refused`](super::refusal::Refused)), `word` the reason.
    Refusal = 0x4b,
    /// The sender has written to the remote buffers by itself, or read them, according to `op_data`
    /// ([`HAS_WRITTEN`](super::HAS_WRITTEN), [`HAS_READ`](super::HAS_READ)).
    Accessed = 0x4c,
    /// A message about subflows ([`multipath`](crate::wire::multipath)); `op_data` is its subject.
    Multipath = 0x4d,
}

/// The contents of the header of an operation.
#[derive(Clone, Copy)]
pub struct Layout {
    pub fields: Fields,
    /// The features that the peer must support.
    pub needs: Features,
}

/// The fields of a header after the base.
#[derive(Clone, Copy)]
pub struct Fields(u8);

impl Fields {
    const NONE: Fields = Fields(0);
    /// Immediate data, if the flag is set.
    pub const DATA: Fields = Fields(1 << 0);
    /// The tag.
    pub const TAG: Fields = Fields(1 << 1);
    /// The length of the message.
    pub const SIZE: Fields = Fields(1 << 2);
    /// The sender's name for the operation.
    pub const ID: Fields = Fields(1 << 3);
    /// A word whose meaning depends on the operation.
    pub const WORD: Fields = Fields(1 << 4);
    /// Remote buffers.
    pub const RMA: Fields = Fields(1 << 5);
    /// A payload follows the header.
    pub const PAYLOAD: Fields = Fields(1 << 6);
    /// An id, if the flag is set.
    pub const NAMEABLE: Fields = Fields(1 << 7);

    /// Whether all of these fields are included.
    #[inline(always)]
    pub const fn has(self, fields: Fields) -> bool {
        self.0 & fields.0 == fields.0
    }

    /// Returns the fields of either set.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, fields: Fields) -> Fields {
        Fields(self.0 | fields.0)
    }

    /// Returns these fields without the others.
    #[inline(always)]
    #[must_use]
    pub const fn without(self, fields: Fields) -> Fields {
        Fields(self.0 & !fields.0)
    }

    /// Returns the number of fields that are words of 8 bytes.
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "the index is a remainder by the size of the table"
    )]
    pub const fn words(self) -> usize {
        const COUNTS: [u8; 32] = {
            let mut counts = [0; 32];
            let mut bits = 0u8;
            while bits < 32 {
                counts[bits as usize] = bits.count_ones() as u8;
                bits += 1;
            }
            counts
        };
        COUNTS[(self.0 % 32) as usize] as usize
    }
}

impl Op {
    /// Returns the operation with this code.
    pub const fn from_code(code: u8) -> Option<Op> {
        Some(match code {
            0 => Op::Msg,
            1 => Op::Tagged,
            2 => Op::ReadRequest,
            3 => Op::ReadResponse,
            4 => Op::Write,
            5 => Op::TaggedRts,
            6 => Op::Cts,
            7 => Op::Data,
            0x40 => Op::NamedAck,
            0x41 => Op::WideRts,
            0x42 => Op::WideCts,
            0x43 => Op::WideData,
            0x44 => Op::Throttle,
            0x45 => Op::AtomicRequest,
            0x46 => Op::AtomicResponse,
            0x47 => Op::Acquaint,
            0x4a => Op::DirectMsg,
            0x4b => Op::Refusal,
            0x4c => Op::Accessed,
            0x4d => Op::Multipath,
            _ => return None,
        })
    }

    /// See [`Layout`].
    #[inline(always)]
    #[allow(
        clippy::indexing_slicing,
        reason = "there is a layout for each code that an operation has"
    )]
    pub fn layout(self) -> Layout {
        const CODES: usize = Op::Multipath as usize + 1;
        const {
            let mut code = CODES;
            while code <= u8::MAX as usize {
                assert!(Op::from_code(code as u8).is_none(), "CODES is too small");
                code += 1;
            }
        }
        static LAYOUTS: [Layout; CODES] = {
            let mut layouts = [Layout {
                fields: Fields::NONE,
                needs: Features::NONE,
            }; CODES];
            let mut code = 0;
            while code < CODES {
                if let Some(op) = Op::from_code(code as u8) {
                    layouts[code] = op.laid_out();
                }
                code += 1;
            }
            layouts
        };
        LAYOUTS[self as usize]
    }

    #[allow(
        clippy::indexing_slicing,
        reason = "the loop ends at the length of the list"
    )]
    const fn laid_out(self) -> Layout {
        let (list, needs): (&[Fields], _) = match self {
            Op::Msg => (
                &[Fields::DATA, Fields::PAYLOAD, Fields::NAMEABLE],
                Features::NONE,
            ),
            Op::Tagged => (
                &[Fields::DATA, Fields::TAG, Fields::PAYLOAD, Fields::NAMEABLE],
                Features::NONE,
            ),
            Op::ReadRequest => (&[Fields::RMA], Features::NONE),
            Op::ReadResponse | Op::Data => (&[Fields::PAYLOAD], Features::NONE),
            Op::Write => (
                &[Fields::DATA, Fields::RMA, Fields::PAYLOAD, Fields::NAMEABLE],
                Features::NONE,
            ),
            Op::TaggedRts => (&[Fields::DATA, Fields::TAG, Fields::SIZE], Features::NONE),
            Op::Cts => (&[], Features::NONE),
            Op::NamedAck => (&[Fields::ID], Features::NAMED_ACKS),
            Op::WideRts => (
                &[Fields::DATA, Fields::TAG, Fields::SIZE, Fields::ID],
                Features::RENDEZVOUS,
            ),
            Op::WideCts => (&[Fields::ID], Features::RENDEZVOUS),
            Op::WideData => (&[Fields::ID, Fields::PAYLOAD], Features::RENDEZVOUS),
            Op::Throttle => (&[], Features::RENDEZVOUS),
            Op::AtomicRequest => (
                &[
                    Fields::DATA,
                    Fields::ID,
                    Fields::WORD,
                    Fields::RMA,
                    Fields::PAYLOAD,
                ],
                Features::ATOMICS,
            ),
            Op::AtomicResponse => (&[Fields::ID, Fields::PAYLOAD], Features::ATOMICS),
            Op::Acquaint => (&[Fields::ID, Fields::WORD], Features::NAMED_ACKS),
            Op::DirectMsg => (
                &[
                    Fields::DATA,
                    Fields::TAG,
                    Fields::SIZE,
                    Fields::ID,
                    Fields::PAYLOAD,
                ],
                Features::LOCAL,
            ),
            Op::Refusal => (&[Fields::ID, Fields::WORD], Features::REFUSALS),
            Op::Accessed => (&[Fields::DATA, Fields::RMA], Features::REGIONS),
            Op::Multipath => (&[Fields::PAYLOAD], Features::MULTIPATH),
        };
        let mut fields = Fields::NONE;
        let mut rest: &[Fields] = list;
        while let [field, more @ ..] = rest {
            fields = fields.and(*field);
            rest = more;
        }
        Layout { fields, needs }
    }
}
